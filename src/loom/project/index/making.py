"""How an entry of the index is made from the text of a file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path

from loom.conversation.words import blank_signs
from loom.project.index.entries import Bodies, Entry
from loom.project.index.files import digest_of, is_generated, read_text
from loom.project.parse.languages import NeedsGrammar, Way, parse
from loom.project.parse.symbols import Definition, ParsedFile
from loom.project.parse.terms import terms_in, terms_of, terms_of_runs

MAX_TERMS = 20_000  # of one file; a table of data has no end of them
MAX_GENERATED_DEFINITIONS = 500  # definitions of a file that no person wrote
_MAX_DEPTH = 64
_BYTES_PER_TOKEN = 4
_HOLDS_ALL = frozenset(("function", "method", "macro"))


def read_entry(root: Path, path: str, way: Way) -> tuple[bytes, Entry] | None:
    """The digest of a file's text, and what the index keeps of it; None if that needs a grammar,
    which this way does not use.
    """
    text = read_text(root, path)
    try:
        return digest_of(text), entry_of(path, text, way)
    except NeedsGrammar:
        return None


def entry_of(path: str, text: str | None, way: Way = "grammar") -> Entry:
    if not text:
        return Entry(path)
    parsed = parse(path, text, way)
    lines = text.count("\n") + (not text.endswith("\n"))
    tokens = -(-len(text.encode()) // _BYTES_PER_TOKEN)
    if is_generated(path, text):
        definitions = parsed.definitions[:MAX_GENERATED_DEFINITIONS]
        return Entry(
            path,
            ParsedFile(parsed.language, definitions),
            terms_of(" ".join(definition.name for definition in definitions)),
            Bodies.of(({},) * len(definitions), ()),
            lines,
            tokens,
            _terms_of_names(definitions),
            is_generated=bool(definitions),
        )
    said, bodies = _count_terms_by_definition(text, parsed.definitions)
    terms, counts = dict(Counter(said)), tuple(dict(Counter(body)) for body in bodies)
    if len(terms) > MAX_TERMS:
        terms = dict(islice(terms.items(), MAX_TERMS))
        counts = tuple(
            {term: count for term, count in body.items() if term in terms} for body in counts
        )
    named = _terms_of_names(parsed.definitions)
    return Entry(path, parsed, terms, Bodies.of(counts, terms), lines, tokens, named)


def _terms_of_names(definitions: Iterable[Definition]) -> dict[str, int]:
    return terms_of("\n".join([definition.name for definition in definitions]))


def _count_terms_by_definition(
    text: str, definitions: Sequence[Definition]
) -> tuple[list[str], list[list[str]]]:
    """The terms of a text, and those of each definition. The text is cut where one begins or ends,
    and read once.
    """
    if not definitions:
        return terms_in(text), []
    lines = blank_signs(text).split("\n")
    edges = {0, len(lines)}
    for definition in definitions:
        edges.add(min(definition.start - 1, len(lines)))
        edges.add(min(definition.stop, len(lines)))
    waiting = sorted(
        range(len(definitions)), key=lambda n: (-definitions[n].start, definitions[n].stop)
    )
    said: list[str] = []
    bodies: list[list[str]] = [[] for _ in definitions]
    around: list[int] = []
    for start, stop in pairwise(sorted(edges)):
        around = [n for n in around if definitions[n].stop > start][-_MAX_DEPTH:]
        while waiting and definitions[waiting[-1]].start <= start + 1:
            around.append(waiting.pop())
        found = terms_of_runs("\n".join(lines[start:stop]).split())
        said += found
        for n in _holders(around, definitions):
            bodies[n] += found
    return said, bodies


def _holders(around: Sequence[int], definitions: Sequence[Definition]) -> list[int]:
    """Of the definitions around a line those that it counts for: the functions, and the smallest of
    all.
    """
    sizes = {n: definitions[n].stop - definitions[n].start for n in around}
    least = min(sizes.values(), default=0)
    return [n for n, size in sizes.items() if definitions[n].kind in _HOLDS_ALL or size == least]
