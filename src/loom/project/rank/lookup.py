"""An index as requests look it up: roles of files, where names are defined, which files a spelled
path may mean.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from loom.project.index.columns import Columns, Rows, number_rows, plain
from loom.project.index.links import Links, make_links
from loom.project.index.project_index import ProjectIndex
from loom.project.index.roles import ROLES, Role, is_copied

# how sure it is that a file is meant of whose path only the last part is spelled as it is
TAIL = 0.4

_GENERATED, _VENDORED = ROLES.index("generated"), ROLES.index("vendored")


class Lookup:
    """The columns of an index, and what is computed of them. Files and definitions are named by
    their numbers.
    """

    def __init__(self, columns: Columns, links: Links | None = None) -> None:
        self.columns = columns
        self._links = links
        self.paths, self.strings = columns.paths, columns.strings
        self.usual_length = float(columns["length"].sum()) / max(1, len(self.paths)) or 1.0

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def roles(self) -> NDArray[np.uint8]:
        """The role of each file, by its number in `ROLES`."""
        found = self.columns["role"].copy()
        for number, path in enumerate(self.paths):
            if "/packages/" in path and is_copied(path, self.columns.numbers):
                found[number] = _VENDORED
        found[self.columns["is_generated"] > 0] = _GENERATED
        return found

    def find_role(self, role: Role) -> Rows:
        """The files that have a role."""
        return np.flatnonzero(self.roles == ROLES.index(role))

    @cached_property
    def links(self) -> Links:
        """Which files use what others define."""
        return self._links or make_links(self.columns)

    @cached_property
    def file_of(self) -> Rows:
        """The file of each definition."""
        return number_rows(self.columns["definitions"])

    @cached_property
    def alike(self) -> NDArray[np.int64]:
        """How many definitions have each plain name, by the number of the name."""
        return np.bincount(self.columns["of_plain_name"], minlength=len(self.strings))

    @cached_property
    def _by_plain_name(self) -> tuple[Rows, Rows]:
        """All definitions, those of one plain name together, and where each name begins."""
        order = np.argsort(self.columns["of_plain_name"], kind="stable")
        return order, np.cumsum(self.alike) - self.alike

    def find_alike(self, name: int) -> Rows:
        """The definitions with a plain name, however it is written, in the order of the files."""
        order, starts = self._by_plain_name
        return order[starts[name] : starts[name] + self.alike[name]]

    def find_definitions(self, name: str) -> list[int]:
        """Where a name is defined, in the order of the files."""
        number, known = self.strings.find(name), self.strings.find(plain(name))
        if not 0 <= known < len(self.alike):
            return []
        found = self.find_alike(known)
        named: list[int] = found[self.columns["of_name"][found] == number].tolist()
        return named

    def find_files(self, spelled: str) -> tuple[float, list[int]]:
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
        if common > 1 or len(parts) == 1 or any("/" not in self.paths[one] for one in found):
            sure = 1.0
        return sure / len(found), found

    def _find_module(self, spelled: str) -> tuple[float, list[int]]:
        """The files that a module with dots may mean; there may be names in it."""
        parts, common, found = spelled.split("."), 0, list[int]()
        while len(parts) > 1 and common < 2:
            common, found = self._ending(parts)
            parts.pop()
        if common < 2:
            return 0.0, []
        return 1 / len(found), found

    def _ending(self, parts: Sequence[str]) -> tuple[int, list[int]]:
        """The files whose paths have most of these parts in common with their ends, and how
        many.
        """
        last = self.strings.find(parts[-1]) if parts else -1
        if last < 0:
            return 0, []
        is_meant = self.columns["of_file_name"] == last
        is_meant |= self.columns["of_stem"] == last
        common = {
            number: _common_end(parts, self.paths[number].split("/"))
            for number in np.flatnonzero(is_meant).tolist()
        }
        most = max(common.values(), default=0)
        return most, [number for number, parts in common.items() if parts == most]


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
        held = index.linked_columns
        if known is None or known.columns is not held.columns:
            _indexes[index] = known = Lookup(*held)
        return known


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts two paths have in common at their ends; the last is taken to be."""
    common = 1
    while common < min(len(one), len(other)) and one[-1 - common] == other[-1 - common]:
        common += 1
    return common
