"""A file as the index has it, and the bytes that it is kept in."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import overload

import msgspec
from msgspec import Struct

from loom.project.parse.symbols import Definition, Kind, ParsedFile

_WHOLE = "i"  # of an array: whole numbers of four bytes


class Bodies(Sequence[dict[str, int]]):
    """The terms of each definition of a file, and how often it has them.

    They are kept as numbers: how many terms each definition has, their places among the terms of
    the file, and how often each is said; one definition after the other. Words are only made of
    them when somebody asks for a body.
    """

    __slots__ = ("_terms", "counts", "places", "sizes")

    def __init__(self, terms: Iterable[str], packed: "tuple[bytes, bytes, bytes]") -> None:
        """Raises ValueError if data is damaged."""
        self._terms = tuple(terms)
        self.sizes, self.places, self.counts = map(_numbers_of, packed)
        total = sum(self.sizes)
        if not len(self.places) == len(self.counts) == total:
            raise ValueError(
                f"{len(self.places)} terms, {len(self.counts)} counts and {total} places for them"
            )

    @classmethod
    def of(cls, bodies: Iterable[Mapping[str, int]], terms: Iterable[str]) -> "Bodies":
        """Bodies that say some of the terms of a file."""
        place = {term: number for number, term in enumerate(terms)}
        rows = list(bodies)
        packed = (
            array(_WHOLE, [len(row) for row in rows]),
            array(_WHOLE, [place[term] for row in rows for term in row]),
            array(_WHOLE, [count for row in rows for count in row.values()]),
        )
        sizes, places, counts = (numbers.tobytes() for numbers in packed)
        return cls(place, (sizes, places, counts))

    def pack(self) -> tuple[bytes, bytes, bytes]:
        return self.sizes.tobytes(), self.places.tobytes(), self.counts.tobytes()

    @property
    def rows(self) -> tuple[dict[str, int], ...]:
        terms = [self._terms[place] for place in self.places]
        ends = accumulate(self.sizes, initial=0)
        return tuple(
            dict(zip(terms[start:stop], self.counts[start:stop], strict=True))
            for start, stop in pairwise(ends)
        )

    @overload
    def __getitem__(self, place: int) -> dict[str, int]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[dict[str, int]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, int] | Sequence[dict[str, int]]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    def __hash__(self) -> int:
        return hash(len(self.sizes))


def _numbers_of(data: bytes) -> "array[int]":
    numbers = array(_WHOLE)
    numbers.frombytes(data)
    return numbers


NO_BODIES = Bodies((), (b"", b"", b""))


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
    bodies: Bodies = NO_BODIES
    lines: int = 0
    tokens: int = 0
    named: dict[str, int] = {}
    is_generated: bool = False


class ReadFile(Struct, frozen=True, gc=False):
    """The entry of a file, the digest of the text that it was made from, and the entry's bytes
    where they are at hand.
    """

    entry: Entry
    digest: bytes
    data: bytes | None = None


class _PackedEntry(Struct, array_like=True, gc=False):
    """An entry without its path."""

    language: str
    definitions: list[tuple[str, Kind, str, int, int, str]]
    references: dict[str, int]
    terms: dict[str, int]
    bodies: tuple[bytes, bytes, bytes]
    lines: int
    tokens: int
    named: dict[str, int]
    is_generated: bool


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_PackedEntry)


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
            entry.bodies.pack(),
            entry.lines,
            entry.tokens,
            entry.named,
            entry.is_generated,
        )
    )


def unpack_entry(path: str, data: bytes) -> Entry:
    """The entry of a path. Raises ValueError, IndexError or msgspec.DecodeError if data is
    damaged.
    """
    held = _decoder.decode(data)
    definitions = tuple([Definition(*one) for one in held.definitions])
    return Entry(
        path,
        ParsedFile(held.language, definitions, held.references),
        held.terms,
        Bodies(held.terms, held.bodies),
        held.lines,
        held.tokens,
        held.named,
        held.is_generated,
    )
