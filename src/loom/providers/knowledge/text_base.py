"""A knowledge base in memory: texts are found by their words, and by meaning with an embedder."""

import threading

from loom.budget.counting import gate_counter
from loom.conversation.checked import check_text
from loom.providers.knowledge.asking import MAX_ITEMS
from loom.providers.knowledge.documents.reading import Kind, parse_text
from loom.providers.knowledge.finding import find_best
from loom.providers.knowledge.items import MAX_SOURCE_CHARS, NO_SOURCE, KnowledgeItem, one_line
from loom.recall.corpus import Corpus, CorpusEntry
from loom.recall.embedder import Embedder


class TextKnowledgeBase:
    """A knowledge base that lasts as long as its object. It needs no embeddings.

    Long texts are split into chunks. The same words come once.
    """

    def __init__(self, embedder: Embedder | None = None, *, name: str = "") -> None:
        self.name = name or type(self).__name__
        self._embedder, self._corpus = embedder, Corpus(embedder=embedder)
        self._items: list[KnowledgeItem] = []
        self._known: set[str] = set()
        self._sources = 0
        # another number after each text that was added: what was asked before may change
        self.revision = 0
        self._lock = threading.Lock()

    def add(self, text: str, source: str = "", *, kind: Kind | None = None) -> int:
        """Add a text; how many chunks of it are new. `kind` says how it is split (default: plain
        text).
        """
        source = one_line(check_text("source", source), MAX_SOURCE_CHARS) or NO_SOURCE
        parsed = parse_text(check_text("a text", text), kind, source)
        with self._lock:
            fresh = {each.text: each for each in parsed.chunks if each.text not in self._known}
            count = gate_counter(None).count_text
            first = len(self._items)
            self._corpus.add(
                CorpusEntry(
                    first + place,
                    str(self._sources),
                    place,
                    "\n".join((*chunk.headings, chunk.text)),
                    count(chunk.text),
                    role="document",
                )
                for place, chunk in enumerate(fresh.values())
            )
            self._items += [
                KnowledgeItem(chunk.text, source, 0.0, " › ".join(chunk.headings))
                for chunk in fresh.values()
            ]
            self._known |= fresh.keys()
            self._sources += 1
            self.revision += 1
        return len(fresh)

    def query(self, text: str, limit: int = MAX_ITEMS) -> list[KnowledgeItem]:
        """The items that fit a text best, the best first."""
        check_text("a query", text)
        with self._lock:
            if limit < 1 or not self._items:
                return []
            found = find_best(self._corpus, text, limit, self._embedder)
        return [
            KnowledgeItem(item.content, item.source, score, item.title)
            for item, score in ((self._items[key], score) for key, score in found)
        ]
