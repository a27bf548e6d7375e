"""An index as requests look it up: roles and words of files, where names are defined, which files a
spelled path may mean.
"""

import os
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from math import log1p
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from loom.project.index.entries import Entry
from loom.project.index.project_index import ProjectIndex
from loom.project.parse.symbols import Definition
from loom.project.parse.terms import terms_in
from loom.project.rank.graph import Graph
from loom.project.rank.roles import Role, role_of
from loom.project.rank.words import Texts, Vocabulary

# how sure it is that a file is meant of whose path only the last part is spelled as it is
TAIL = 0.4

T = TypeVar("T")
Place = tuple[str, int]  # a file, and the number of a definition in it


class File(Struct, frozen=True):
    """What is computed once of a file: the words of its path, how much its names say a word, how
    many words it has.
    """

    entry: Entry
    words: frozenset[str]
    named: dict[str, float]
    length: int

    @property
    def definitions(self) -> tuple[Definition, ...]:
        return self.entry.parsed.definitions


class Lookup:
    """An index as it is looked up. Of one that changed only what is new is looked at again."""

    def __init__(self, entries: dict[str, Entry], before: "Lookup | None" = None) -> None:
        self.entries = entries
        self.numbers = {path: number for number, path in enumerate(entries)}
        self.roles: dict[str, Role] = {
            path: _role(entry, entries) for path, entry in entries.items()
        }
        self.files: dict[str, File] = {}
        self.graph: Graph
        self.vocabulary: Vocabulary
        self._places: dict[str, list[Place]] = {}
        self._ends: dict[str, list[str]] = {}
        self._texts: dict[str, Texts] = {}
        if before is None:
            self.graph, self.vocabulary = Graph(entries), Vocabulary()
        else:
            self._take_over(before)
        held = self.files
        self.files = {
            path: _reuse(held.get(path), entry) or _look_at(entry)
            for path, entry in entries.items()
        }
        self.usual_length = (
            sum(file.length for file in self.files.values()) / max(1, len(self.files)) or 1.0
        )
        gone = [file for path, file in held.items() if self.files.get(path) is not file]
        new = [file for path, file in self.files.items() if held.get(path) is not file]
        self._places = _update_table(self._places, _names(gone), _names(new))
        self._ends = _update_table(self._ends, _path_ends(gone), _path_ends(new))

    def _take_over(self, before: "Lookup") -> None:
        """What was computed for the index before this one."""
        self.files, self._places, self._ends = before.files, before._places, before._ends
        self.graph, self.vocabulary = Graph(self.entries, before.graph), before.vocabulary
        kept = list(before._texts.items())
        self._texts = {
            path: texts for path, texts in kept if self.entries.get(path) is before.entries[path]
        }

    def find_definitions(self, name: str) -> list[Place]:
        """Where a name is defined, in the order of the files."""
        return sorted(
            place for place in self.find_alike(plain(name)) if self.definition(place).name == name
        )

    def find_alike(self, name: str) -> list[Place]:
        """Where a plain name is defined, however it is written."""
        return self._places.get(name, [])

    def definition(self, place: Place) -> Definition:
        return self.entries[place[0]].parsed.definitions[place[1]]

    def texts(self, path: str) -> Texts:
        """What the definitions of a file say; only computed where it is asked for."""
        if path not in self._texts:
            self._texts[path] = self.vocabulary.texts(self.entries[path])
        return self._texts[path]

    def find_files(self, spelled: str) -> tuple[float, list[str]]:
        """The files that a spelled path may mean, those with the longest common end, and how sure
        that is.
        """
        parts = [
            part
            for part in spelled.replace("\\", "/").split("/")
            if part not in ("", ".", "..", "~")
        ]
        common, found = self._ending(parts)
        if not found and len(parts) == 1:
            return self._find_module(spelled)
        if not found:
            return 0.0, []
        # Where only the last of several parts is found, it is most often another file of that name.
        sure = TAIL
        if common > 1 or len(parts) == 1 or any("/" not in path for path in found):
            sure = 1.0
        return sure / len(found), found

    def _find_module(self, spelled: str) -> tuple[float, list[str]]:
        """The files that a module with dots may mean; there may be names in it."""
        parts, common, found = spelled.split("."), 0, list[str]()
        while len(parts) > 1 and common < 2:
            common, found = self._ending(parts)
            parts.pop()
        if common < 2:
            return 0.0, []
        return 1 / len(found), found

    def _ending(self, parts: Sequence[str]) -> tuple[int, list[str]]:
        """The files whose paths have most of these parts in common with their ends, and how
        many.
        """
        if not parts:
            return 0, []
        common = {
            path: _common_end(parts, path.split("/")) for path in self._ends.get(parts[-1], ())
        }
        most = max(common.values(), default=0)
        return most, sorted(path for path, parts in common.items() if parts == most)


_indexes: WeakKeyDictionary[ProjectIndex, Lookup] = WeakKeyDictionary()
_looking = Lock()


def _after_fork() -> None:
    global _looking
    _looking = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def lookup_of(index: ProjectIndex) -> Lookup:
    with _looking:
        known = _indexes.get(index)
        if known is None or known.entries is not index.entries:
            _indexes[index] = known = Lookup(index.entries, known)
        return known


@lru_cache(maxsize=200_000)
def plain(name: str) -> str:
    """A name as the words of a text have it."""
    return name.strip("_").lower()


def _reuse(file: File | None, entry: Entry) -> File | None:
    if file is None or file.entry is not entry:
        return None
    return file


def _look_at(entry: Entry) -> File:
    said = {word: log1p(count) for word, count in entry.named.items()}
    return File(entry, frozenset(terms_in(entry.path)), said, sum(entry.terms.values()))


def _role(entry: Entry, entries: Container[str]) -> Role:
    if entry.is_generated:
        return "generated"
    return role_of(entry.path, entries)


def _names(files: Iterable[File]) -> Iterator[tuple[str, Place]]:
    """Each plain name that files define, and where."""
    return (
        (plain(one.name), (file.entry.path, number))
        for file in files
        for number, one in enumerate(file.definitions)
    )


def _path_ends(files: Iterable[File]) -> Iterator[tuple[str, str]]:
    """The last part of each path, with and without what is after the dot, and the path."""
    for file in files:
        end = file.entry.path.rpartition("/")[2]
        for one in {end, end.partition(".")[0] or end}:
            yield one, file.entry.path


def _update_table(
    before: dict[str, list[T]], gone: Iterable[tuple[str, T]], new: Iterable[tuple[str, T]]
) -> dict[str, list[T]]:
    """A table without what is gone and with what is new. Lists of the one before stay as they are:
    another thread may read them.
    """
    table = dict(before)
    leaving: defaultdict[str, set[T]] = defaultdict(set)
    for key, value in gone:
        leaving[key].add(value)
    for key, left in leaving.items():
        table[key] = [value for value in table[key] if value not in left]
    coming: defaultdict[str, list[T]] = defaultdict(list)
    for key, value in new:
        coming[key].append(value)
    for key, values in coming.items():
        if key in table:
            table[key] = [*table[key], *values]
        else:
            table[key] = values
    return table


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts two paths have in common at their ends; the last is taken to be."""
    common = 1
    while common < min(len(one), len(other)) and one[-1 - common] == other[-1 - common]:
        common += 1
    return common
