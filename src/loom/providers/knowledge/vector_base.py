"""A knowledge base of vectors: texts are found by what they mean."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from inspect import getattr_static, iscoroutinefunction
from typing import Any, Protocol

from loom.conversation.checked import check_text
from loom.errors import ChoiceError, describe
from loom.providers.knowledge.asking import MAX_ITEMS, run_in_thread, run_now, settle
from loom.providers.knowledge.documents.chunks import Chunk
from loom.providers.knowledge.documents.reading import Kind, parse_text
from loom.providers.knowledge.items import (
    MAX_SOURCE_CHARS,
    NO_SOURCE,
    KnowledgeItem,
    one_line,
    read_items,
)
from loom.providers.knowledge.vectors.store import VectorStore

MAX_BATCH = 64  # texts that are embedded in one call
_SPARE_HITS = 4  # that are asked for, for each item that is wanted: some may say the same


class EmbeddingProvider(Protocol):
    """Turns texts into vectors. Both methods may be `async`.

    A provider with `embed_batch` is asked for several texts at once. An embedder of Loom is a
    provider too: its `embed` takes a list of texts.
    """

    def embed(self, text: str) -> Any: ...

    def embed_batch(self, texts: Sequence[str]) -> Any: ...


class VectorKnowledgeBase:
    """A knowledge base from a provider of embeddings and a store of vectors.

    Long texts are split into chunks. The same text of the same source is stored once.
    """

    def __init__(
        self, embedding_provider: Any, vector_store: VectorStore, *, name: str = ""
    ) -> None:
        for what, given, verbs in (
            ("embedding_provider", embedding_provider, ("embed",)),
            ("vector_store", vector_store, ("add", "search")),
        ):
            if not all(callable(getattr(given, verb, None)) for verb in verbs):
                raise ChoiceError(
                    f"{what} must have {' and '.join(verbs)}, found {describe(given)}"
                )
        self.name = name or type(self).__name__
        self._provider, self._vectors = embedding_provider, vector_store
        # another number after each text that was added here: what was asked before may change
        self.revision = 0

    def add(
        self,
        text: str,
        source: str = "",
        *,
        kind: Kind | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Add a text, and return the ids of its chunks. `kind` says how it is split (default:
        plain text).
        """
        ids: list[str] = run_now(lambda: self.aadd(text, source, kind=kind, metadata=metadata))
        return ids

    async def aadd(
        self,
        text: str,
        source: str = "",
        *,
        kind: Kind | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """The same for an asynchronous program."""
        source = one_line(check_text("source", source), MAX_SOURCE_CHARS) or NO_SOURCE
        parsed = parse_text(check_text("a text", text), kind, source)
        ids: list[str] = []
        for start in range(0, len(parsed.chunks), MAX_BATCH):
            batch = parsed.chunks[start : start + MAX_BATCH]
            vectors = await self._make_vectors([_searched_text(chunk) for chunk in batch])
            for chunk, vector in zip(batch, vectors, strict=True):
                identity = _id_of(source, chunk.text)
                held = {
                    **(metadata or {}),
                    "content": chunk.text,
                    "source": source,
                    "title": " › ".join(chunk.headings),
                }
                await self._run(self._vectors.add, identity, vector, held)
                ids.append(identity)
        self.revision += 1
        return ids

    async def query(self, text: str, limit: int = MAX_ITEMS) -> list[KnowledgeItem]:
        """The items that fit a text best, the best first."""
        [vector] = await self._make_vectors([check_text("a query", text)])
        hits = await self._run(self._vectors.search, vector, limit * _SPARE_HITS)
        items, _ = read_items([_read_hit(hit) for hit in hits or ()], limit * _SPARE_HITS)
        return items[:limit]

    async def _make_vectors(self, texts: list[str]) -> list[Any]:
        """A vector for each text."""
        provider = self._provider
        if callable(getattr(provider, "embed_batch", None)):
            made = await self._run(provider.embed_batch, texts)
        elif getattr_static(provider, "dimensions", None) is not None:  # an embedder of Loom
            made = await self._run(provider.embed, texts)
        else:
            made = [await self._run(provider.embed, text) for text in texts]
        vectors = list(made) if isinstance(made, Iterable) else []
        if len(vectors) != len(texts):
            raise ChoiceError(
                f"the provider of embeddings returned {len(vectors)} vectors for {len(texts)} texts"
            )
        return vectors

    async def _run(self, verb: Any, *values: Any) -> Any:
        """What a verb returns, which may be `async` or not."""
        if iscoroutinefunction(verb):
            return await verb(*values)
        return await settle(await run_in_thread(lambda: verb(*values), self))


def _searched_text(chunk: Chunk) -> str:
    """A chunk with its headings: what it is about is often said only there."""
    if not chunk.headings:
        return chunk.text
    return f"{' › '.join(chunk.headings)}\n{chunk.text}"


def _id_of(source: str, text: str) -> str:
    return blake2b(f"{source}\0{text}".encode(errors="replace"), digest_size=16).hexdigest()


def _read_hit(hit: Any) -> dict[str, Any]:
    """What a hit of any store tells: an object, a mapping, or a tuple of id, score and metadata."""
    if isinstance(hit, Mapping):
        score, metadata = hit.get("score"), hit.get("metadata")
    elif isinstance(hit, tuple | list):
        rest = list(hit[1:])
        metadata = next((each for each in rest if isinstance(each, Mapping)), None)
        score = next((each for each in rest if not isinstance(each, Mapping)), None)
    else:
        score, metadata = getattr(hit, "score", None), getattr(hit, "metadata", None)
    return {**(metadata or {}), "score": score}
