"""What all files of a project define and say, as columns of numbers: a request then looks at
thousands of files at once, and nothing has to be made of them before.

A column has a row for each file, or for each of the things that files have: terms, references,
definitions and what these have. `LEVELS` says how many of them each file or definition has.
Columns are never changed, but joined and taken apart. All that are joined share their strings.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loom.project.index.entries import Bodies, Entry, ReadFile
from loom.project.index.files import DIGEST_BYTES
from loom.project.index.roles import ROLES, role_of_path
from loom.project.index.strings import StringTable
from loom.project.parse.symbols import KINDS, Definition, ParsedFile
from loom.project.parse.terms import terms_in

Array = NDArray[Any]
Rows = NDArray[np.int64]

# What is said of a definition in one byte
IS_HIDDEN, IS_IN_FUNCTION, IS_IN_TESTS, IS_FIRST = 1, 2, 4, 8
# and of a reference
IS_OWN, IS_WORD = 1, 2


class Level(NamedTuple):
    """Things that files or definitions have: which of both, and the column that says how many."""

    above: str
    sizes: str


LEVELS = {
    "term": Level("file", "terms"),
    "path word": Level("file", "path_words"),
    "name term": Level("file", "name_terms"),
    "reference": Level("file", "references"),
    "definition": Level("file", "definitions"),
    "signature": Level("definition", "signature_bytes"),
    "name word": Level("definition", "name_words"),
    "outer word": Level("definition", "outer_words"),
    "body term": Level("definition", "body_terms"),
}
_NUMBER, _BYTE = np.int32, np.uint8
# Of each column what it has a row for, and of which type it is. Numbers called `of_…` are those of
# strings.
COLUMNS: dict[str, tuple[str, DTypeLike]] = {
    "digest": ("file", f"V{DIGEST_BYTES}"),
    "of_language": ("file", _NUMBER),
    "of_file_name": ("file", _NUMBER),
    "of_stem": ("file", _NUMBER),
    "lines": ("file", _NUMBER),
    "tokens": ("file", _NUMBER),
    "length": ("file", _NUMBER),
    "role": ("file", _BYTE),
    "is_generated": ("file", _BYTE),
    "terms": ("file", _NUMBER),
    "path_words": ("file", _NUMBER),
    "name_terms": ("file", _NUMBER),
    "references": ("file", _NUMBER),
    "definitions": ("file", _NUMBER),
    "of_term": ("term", _NUMBER),
    "term_count": ("term", _NUMBER),
    "of_path_word": ("path word", _NUMBER),
    "of_name_term": ("name term", _NUMBER),
    "name_term_count": ("name term", _NUMBER),
    "of_reference": ("reference", _NUMBER),
    "reference_count": ("reference", _NUMBER),
    "reference_flags": ("reference", _BYTE),
    "of_name": ("definition", _NUMBER),
    "of_plain_name": ("definition", _NUMBER),
    "of_parent": ("definition", _NUMBER),
    "kind": ("definition", _BYTE),
    "flags": ("definition", _BYTE),
    "start": ("definition", _NUMBER),
    "stop": ("definition", _NUMBER),
    "signature_bytes": ("definition", _NUMBER),
    "name_words": ("definition", _NUMBER),
    "outer_words": ("definition", _NUMBER),
    "body_terms": ("definition", _NUMBER),
    "signature": ("signature", _BYTE),
    "of_name_word": ("name word", _NUMBER),
    "of_outer_word": ("outer word", _NUMBER),
    "of_body_term": ("body term", _NUMBER),
    "body_term_count": ("body term", _NUMBER),
}


_OF_STRINGS = tuple(name for name in COLUMNS if name.startswith("of_"))
_MAX_STRINGS_PER_USED = 2


class Columns:
    """The columns of some files, by path."""

    def __init__(
        self, paths: Sequence[str], strings: StringTable, arrays: Mapping[str, Array]
    ) -> None:
        self.paths, self.strings, self.arrays = tuple(paths), strings, arrays
        self._starts: dict[str, Rows] = {}

    def __getitem__(self, column: str) -> Array:
        return self.arrays[column]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each file."""
        return {path: number for number, path in enumerate(self.paths)}

    def digest_of(self, number: int) -> bytes:
        """The digest of the text that a file had; "" if it had none."""
        found: bytes = self["digest"][number].tobytes()
        return found if any(found) else b""

    def starts(self, level: str) -> Rows:
        """Where the things of each file or definition begin, and last where all end."""
        found = self._starts.get(level)
        if found is None:
            sizes = self[LEVELS[level].sizes]
            found = np.zeros(len(sizes) + 1, np.int64)
            np.cumsum(sizes, out=found[1:])
            self._starts[level] = found
        return found

    def bounds(self, level: str, edges: Rows) -> Rows:
        """Where the things of files begin that begin at these edges."""
        if level == "file":
            return edges
        found: Rows = self.starts(level)[self.bounds(LEVELS[level].above, edges)]
        return found

    def range_of(self, level: str, number: int) -> slice:
        """The rows of things that a file has."""
        first, after = self.bounds(level, np.array((number, number + 1)))
        return slice(int(first), int(after))

    def rows_of(self, level: str, files: Rows) -> Rows:
        """The rows of things that these files have, one file after the other."""
        return join_ranges(self.bounds(level, files), self.bounds(level, files + 1))

    # Whole files again

    def definitions_of(self, number: int) -> tuple[Definition, ...]:
        span = self.range_of("definition", number)
        return self.make_definitions(range(span.start, span.stop))

    def make_definitions(self, rows: Sequence[int]) -> tuple[Definition, ...]:
        """The definitions at these rows."""
        at = np.array(rows, np.int64)
        starts, data = self.starts("signature"), self._signatures
        signatures = [
            data[start:stop].tobytes().decode("utf-8", "surrogatepass")
            for start, stop in zip(starts[at].tolist(), starts[at + 1].tolist(), strict=True)
        ]
        return tuple(
            map(
                Definition,
                map(self.strings.__getitem__, self["of_name"][at].tolist()),
                map(KINDS.__getitem__, self["kind"][at].tolist()),
                signatures,
                self["start"][at].tolist(),
                self["stop"][at].tolist(),
                map(self.strings.__getitem__, self["of_parent"][at].tolist()),
            )
        )

    @cached_property
    def _signatures(self) -> memoryview:
        data: memoryview = self["signature"].data
        return data

    def language_of(self, number: int) -> str:
        return self.strings[self["of_language"][number]]

    def entry_of(self, number: int) -> Entry:
        """A file as it was read."""
        terms = self._count("term", "of_term", "term_count", number)
        return Entry(
            self.paths[number],
            ParsedFile(
                self.language_of(number),
                self.definitions_of(number),
                self._count("reference", "of_reference", "reference_count", number),
            ),
            terms,
            self._bodies_of(number, terms),
            int(self["lines"][number]),
            int(self["tokens"][number]),
            self._count("name term", "of_name_term", "name_term_count", number),
            bool(self["is_generated"][number]),
        )

    def _count(self, level: str, strings: str, counts: str, number: int) -> dict[str, int]:
        span = self.range_of(level, number)
        texts = map(self.strings.__getitem__, self[strings][span].tolist())
        return dict(zip(texts, self[counts][span].tolist(), strict=True))

    def _bodies_of(self, number: int, terms: dict[str, int]) -> Bodies:
        span = self.range_of("definition", number)
        starts = self.starts("body term")[span.start : span.stop + 1].tolist()
        rows = []
        for begin, end in pairwise(starts):
            texts = map(self.strings.__getitem__, self["of_body_term"][begin:end].tolist())
            counts = self["body_term_count"][begin:end].tolist()
            rows.append(dict(zip(texts, counts, strict=True)))
        return Bodies.of(rows, terms)


class Entries(Mapping[str, Entry]):
    """The files of columns, each made when it is asked for."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __getitem__(self, path: str) -> Entry:
        return self._columns.entry_of(self._columns.numbers[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.paths)

    def __len__(self) -> int:
        return len(self._columns.paths)


# Ranges of rows


def join_ranges(starts: Rows, stops: Rows) -> Rows:
    """All numbers from the first to the one before the last of each range."""
    sizes = stops - starts
    shift = starts - (np.cumsum(sizes) - sizes)
    found: Rows = np.arange(sizes.sum()) + np.repeat(shift, sizes)
    return found


def number_rows(sizes: Array) -> Rows:
    """For each thing the number of the row that has it, where rows have so many."""
    return np.repeat(np.arange(len(sizes)), sizes)


# Merging


def merge_columns(pieces: Sequence[Columns], paths: Iterable[str]) -> Columns:
    """These files, in this order, each from the last piece that has it; those that no piece has are
    left out. What is next to one another in a piece is copied at once.
    """
    home = {path: n for n, piece in enumerate(pieces) for path in piece.paths}
    held = [path for path in paths if path in home]
    if list(pieces[0].paths) == held and not any(home.values()):
        return pieces[0]
    homes = np.array([home[path] for path in held], np.int64)
    order = np.array([pieces[home[path]].numbers[path] for path in held], np.int64)
    breaks = np.flatnonzero((np.diff(order) != 1) | (np.diff(homes) != 0)) + 1
    firsts = np.concatenate(([0], breaks)).astype(np.int64)[: len(order)]
    sizes = np.diff(np.concatenate((firsts, [len(order)])))
    spans = _spans(pieces, homes[firsts], order[firsts], sizes)
    arrays = {
        name: np.concatenate([_no_rows(name), *(pieces[n][name][a:b] for n, a, b in spans[level])])
        for name, (level, _) in COLUMNS.items()
    }
    return Columns(held, pieces[0].strings, arrays)


def _spans(
    pieces: Sequence[Columns], homes: Rows, firsts: Rows, sizes: Rows
) -> dict[str, list[tuple[int, int, int]]]:
    """For each level the rows of runs of files: in which piece, from which row to which."""
    found = {}
    for level in ("file", *LEVELS):
        starts, stops = np.zeros_like(firsts), np.zeros_like(firsts)
        for number, piece in enumerate(pieces):
            here = homes == number
            starts[here] = piece.bounds(level, firsts[here])
            stops[here] = piece.bounds(level, firsts[here] + sizes[here])
        found[level] = list(zip(homes.tolist(), starts.tolist(), stops.tolist(), strict=True))
    return found


def _no_rows(column: str) -> Array:
    return np.zeros(0, COLUMNS[column][1])


def drop_strings(columns: Columns) -> Columns:
    """The same files without the strings that none of them has any more, where these are many: what
    was once in a file would else be kept for ever.
    """
    is_used = np.zeros(len(columns.strings), bool)
    for name in _OF_STRINGS:
        is_used[columns[name]] = True
    used = np.flatnonzero(is_used)
    if len(is_used) <= _MAX_STRINGS_PER_USED * len(used):
        return columns
    strings = StringTable()
    numbers = np.zeros(len(is_used), _NUMBER)
    numbers[used] = strings.add_all(map(columns.strings.__getitem__, used.tolist()))
    renumbered = {name: numbers[columns[name]] for name in _OF_STRINGS}
    return Columns(columns.paths, strings, {**columns.arrays, **renumbered})


# From entries


def make_columns(files: Sequence[ReadFile], strings: StringTable) -> Columns:
    """The columns of entries, in their order."""
    entries = [one.entry for one in files]
    digests = b"".join(one.digest.ljust(DIGEST_BYTES, b"\0") for one in files)
    found: dict[str, Any] = {
        "digest": np.frombuffer(digests, COLUMNS["digest"][1]),
        **_describe_files(entries, strings),
        **_list_terms(entries, strings),
        **_describe_definitions(entries, strings),
    }
    found |= _list_bodies(entries, found["terms"], found["of_term"])
    arrays = {name: np.asarray(found[name], dtype) for name, (_, dtype) in COLUMNS.items()}
    return Columns([entry.path for entry in entries], strings, arrays)


def _describe_files(entries: Sequence[Entry], strings: StringTable) -> dict[str, Any]:
    names = [entry.path.rpartition("/")[2] for entry in entries]
    return {
        "of_language": strings.add_all(entry.parsed.language for entry in entries),
        "of_file_name": strings.add_all(names),
        "of_stem": strings.add_all(name.partition(".")[0] or name for name in names),
        "lines": [entry.lines for entry in entries],
        "tokens": [entry.tokens for entry in entries],
        "length": [sum(entry.terms.values()) for entry in entries],
        "role": [ROLES.index(role_of_path(entry.path)) for entry in entries],
        "is_generated": [entry.is_generated for entry in entries],
        "definitions": [len(entry.parsed.definitions) for entry in entries],
    }


def _list_terms(entries: Sequence[Entry], strings: StringTable) -> dict[str, Any]:
    terms = [entry.terms for entry in entries]
    named = [entry.named for entry in entries]
    references = [entry.parsed.references for entry in entries]
    words = [words_of(entry.path) for entry in entries]
    flags = [_flag_references(entry.parsed) for entry in entries]
    return {
        "terms": _measure(terms),
        "of_term": strings.add_all(chain.from_iterable(terms)),
        "term_count": _join_counts(terms),
        "path_words": _measure(words),
        "of_path_word": strings.add_all(chain.from_iterable(words)),
        "name_terms": _measure(named),
        "of_name_term": strings.add_all(chain.from_iterable(named)),
        "name_term_count": _join_counts(named),
        "references": _measure(references),
        "of_reference": strings.add_all(chain.from_iterable(references)),
        "reference_count": _join_counts(references),
        "reference_flags": np.fromiter(chain.from_iterable(flags), _BYTE),
    }


def _measure(rows: Iterable[Sized]) -> list[int]:
    return [len(row) for row in rows]


def _join_counts(rows: Iterable[Mapping[str, int]]) -> Array:
    return np.fromiter(chain.from_iterable(row.values() for row in rows), _NUMBER)


def _describe_definitions(entries: Sequence[Entry], strings: StringTable) -> dict[str, Any]:
    definitions = list(chain.from_iterable(entry.parsed.definitions for entry in entries))
    signatures = [one.signature.encode("utf-8", "surrogatepass") for one in definitions]
    names = [words_of(one.name) for one in definitions]
    outer = [words_of(one.parent.rpartition(".")[2]) for one in definitions]
    flags = [_flag_definitions(entry.parsed) for entry in entries]
    return {
        "of_name": strings.add_all(one.name for one in definitions),
        "of_plain_name": strings.add_all(plain(one.name) for one in definitions),
        "of_parent": strings.add_all(one.parent for one in definitions),
        "kind": [KINDS.index(one.kind) for one in definitions],
        "flags": np.fromiter(chain.from_iterable(flags), _BYTE),
        "start": [one.start for one in definitions],
        "stop": [one.stop for one in definitions],
        "signature_bytes": _measure(signatures),
        "signature": np.frombuffer(b"".join(signatures), _BYTE),
        "name_words": _measure(names),
        "of_name_word": strings.add_all(chain.from_iterable(names)),
        "outer_words": _measure(outer),
        "of_outer_word": strings.add_all(chain.from_iterable(outer)),
    }


def _list_bodies(entries: Sequence[Entry], terms: Sequence[int], of_term: Array) -> dict[str, Any]:
    """Bodies name their terms by their places among those of their file."""
    bodies = [entry.bodies for entry in entries]
    first_terms = np.cumsum(terms) - terms
    places = _join_arrays([one.places for one in bodies])
    places = places + np.repeat(first_terms, _measure(one.places for one in bodies))
    return {
        "body_terms": _join_arrays([one.sizes for one in bodies]),
        "of_body_term": of_term[places.astype(np.int64)],
        "body_term_count": _join_arrays([one.counts for one in bodies]),
    }


def _join_arrays(arrays: Sequence["array[int]"]) -> Array:
    return np.frombuffer(b"".join(arrays), _NUMBER)


def _flag_references(parsed: ParsedFile) -> list[int]:
    defined = {one.name for one in parsed.definitions}
    return [IS_OWN * (name in defined) + IS_WORD * _is_one_word(name) for name in parsed.references]


@lru_cache(maxsize=200_000)
def _is_one_word(name: str) -> bool:
    """Whether a name is one word, such as any library may have: `push`, `Error`, `_HTML`."""
    bare = name.strip("_")
    return "_" not in bare and (bare[1:].islower() or bare.isupper())


def _flag_definitions(parsed: ParsedFile) -> Iterator[int]:
    functions = {one.path for one in parsed.definitions if one.kind in ("function", "method")}
    known: set[str] = set()
    for one in parsed.definitions:
        flags = IS_HIDDEN * _is_hidden(one, parsed.language)
        flags += IS_IN_FUNCTION * (one.parent in functions)
        # in a module of tests that a file of the source has at its end
        flags += IS_IN_TESTS * (one.parent.partition(".")[0] in ("test", "tests"))
        flags += IS_FIRST * (one.name not in known)
        known.add(one.name)
        yield flags


def _is_hidden(definition: Definition, language: str) -> bool:
    """Whether it is kept to its file, by how its language says so."""
    if language == "go":
        return definition.name[:1].islower()
    return definition.name.startswith("_") or definition.signature.startswith(
        ("private ", "fileprivate ")
    )


@lru_cache(maxsize=200_000)
def plain(name: str) -> str:
    """A name as the words of a text have it."""
    return name.strip("_").lower()


@lru_cache(maxsize=200_000)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, each once."""
    return tuple(dict.fromkeys(terms_in(name)))
