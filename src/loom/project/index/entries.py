"""A file as the index has it, how it is made from the text, and the bytes that it is kept in."""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import overload

import msgspec
from msgspec import Struct

from loom.conversation.words import blank_signs
from loom.project.index.files import is_generated, read_text
from loom.project.parse.languages import NeedsGrammar, Way, parse
from loom.project.parse.symbols import Definition, Kind, ParsedFile
from loom.project.parse.terms import terms_in, terms_of, terms_of_runs

MAX_TERMS = 20_000  # of one file; a table of data has no end of them
MAX_GENERATED_DEFINITIONS = 500  # definitions of a file that no person wrote
_MAX_DEPTH = 64
_BYTES_PER_TOKEN = 4
_HOLDS_ALL = frozenset(("function", "method", "macro"))


class Bodies(Sequence[dict[str, int]]):
    """The terms of each definition of a file, and how often it has them. Those that come from disk
    are only read when somebody asks for one: a request asks for those of few files.
    """

    __slots__ = ("_rows", "_unread")

    def __init__(self, rows: Iterable[dict[str, int]] = ()) -> None:
        self._rows: tuple[dict[str, int], ...] | None = tuple(rows)
        self._unread: tuple[bytes, dict[str, int]] = (b"", {})

    @classmethod
    def unread(cls, packed: bytes, terms: dict[str, int]) -> "Bodies":
        """Bodies as they were packed, of a file with these terms."""
        found = cls()
        found._rows, found._unread = None, (packed, terms)
        return found

    @property
    def rows(self) -> tuple[dict[str, int], ...]:
        packed, terms = self._unread  # first: another thread forgets them when it has the rows
        found = self._rows
        if found is None:
            self._rows = found = _unpack_bodies(packed, list(terms))
            self._unread = (b"", {})
        return found

    @overload
    def __getitem__(self, place: int) -> dict[str, int]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[dict[str, int]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, int] | Sequence[dict[str, int]]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    def __hash__(self) -> int:
        return hash(len(self.rows))


class Entry(Struct, frozen=True, gc=False):
    """A file of the project. Where it cannot be read as text, only its path is known.

    `terms` are those of the whole file, `bodies` those of each definition, in their order. The
    lines of a definition inside another count for both where the outer one is a function, and for
    the inner one alone where it is a class or a module. Of a file that a program wrote only the
    names that it defines are known, and `is_generated`. `named` are the terms of all names that it
    defines. `tokens` is a rough number.
    """

    path: str
    parsed: ParsedFile = ParsedFile()
    terms: dict[str, int] = {}
    bodies: Bodies = Bodies()
    lines: int = 0
    tokens: int = 0
    named: dict[str, int] = {}
    is_generated: bool = False


def read_entry(root: Path, path: str, way: Way) -> tuple[bytes, Entry] | None:
    """The digest of a file's text, and what the index keeps of it; None if that needs a grammar,
    which this way does not use.
    """
    text = read_text(root, path)
    try:
        return digest_of(text), entry_of(path, text, way)
    except NeedsGrammar:
        return None


def digest_of(text: str | None) -> bytes:
    if text is None:
        return b""
    return blake2b(text.encode(), digest_size=16).digest()


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
            Bodies(({},) * len(definitions)),
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
    return Entry(
        path, parsed, terms, Bodies(counts), lines, tokens, _terms_of_names(parsed.definitions)
    )


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


# Bytes


class _PackedEntry(Struct, array_like=True, gc=False):
    """An entry without its path. Its bodies are packed by themselves."""

    language: str
    definitions: list[tuple[str, Kind, str, int, int, str]]
    references: dict[str, int]
    terms: dict[str, int]
    bodies: bytes
    lines: int
    tokens: int
    named: dict[str, int]
    is_generated: bool


class _PackedBodies(Struct, array_like=True, gc=False):
    """Bodies name their terms by their place among those of the file, one body after the other."""

    sizes: list[int]
    places: list[int]
    counts: list[int]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_PackedEntry)
_bodies_decoder = msgspec.msgpack.Decoder(_PackedBodies)


def pack_entry(entry: Entry) -> bytes:
    return _encode(
        _PackedEntry(
            entry.parsed.language,
            [
                (one.name, one.kind, one.signature, one.start, one.stop, one.parent)
                for one in entry.parsed.definitions
            ],
            entry.parsed.references,
            entry.terms,
            _pack_bodies(entry.bodies.rows, entry.terms),
            entry.lines,
            entry.tokens,
            entry.named,
            entry.is_generated,
        )
    )


def _pack_bodies(bodies: Sequence[dict[str, int]], terms: Iterable[str]) -> bytes:
    place = {term: n for n, term in enumerate(terms)}
    return _encode(
        _PackedBodies(
            [len(body) for body in bodies],
            [place[term] for body in bodies for term in body],
            [count for body in bodies for count in body.values()],
        )
    )


def _unpack_bodies(packed: bytes, terms: Sequence[str]) -> tuple[dict[str, int], ...]:
    """Raises if data is damaged."""
    held = _bodies_decoder.decode(packed)
    ends = list(accumulate(held.sizes, initial=0))
    if not len(held.places) == len(held.counts) == ends[-1]:
        raise ValueError(
            f"{len(held.places)} terms, {len(held.counts)} counts and {ends[-1]} places for them"
        )
    body_terms = [terms[place] for place in held.places]
    return tuple(
        dict(zip(body_terms[start:stop], held.counts[start:stop], strict=True))
        for start, stop in pairwise(ends)
    )


def unpack_entry(path: str, data: bytes, words: dict[str, str]) -> Entry:
    """The entry of a path. `words` holds each word once for all entries that are read with it.
    Raises if data is damaged.
    """
    held = _decoder.decode(data)
    once = words.setdefault
    terms = {once(term, term): count for term, count in held.terms.items()}
    definitions = tuple(
        Definition(once(name, name), kind, signature, start, stop, once(parent, parent))
        for name, kind, signature, start, stop, parent in held.definitions
    )
    references = {once(name, name): count for name, count in held.references.items()}
    return Entry(
        path,
        ParsedFile(held.language, definitions, references),
        terms,
        Bodies.unread(held.bodies, terms),
        held.lines,
        held.tokens,
        {once(term, term): count for term, count in held.named.items()},
        held.is_generated,
    )
