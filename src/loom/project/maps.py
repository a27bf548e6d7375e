"""The map of a project for a request: its index is opened once in a process and brought up to date
each time.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.tokenizers import tokenizer
from loom.budget.zones import DEFAULTS
from loom.conversation.canonical import to_json
from loom.conversation.checked import checks_arguments
from loom.errors import ChoiceError, describe
from loom.project.counting import ENCODING
from loom.project.draw.render import Count, Map, printable, render_map
from loom.project.draw.seed_map import seed_map
from loom.project.draw.source import packed_map
from loom.project.index.columns import Columns
from loom.project.index.history import newest_commit
from loom.project.index.project_index import Progress, ProjectIndex, open_index
from loom.project.parse.installed import HAS_GRAMMARS, NO_GRAMMARS
from loom.project.parse.symbols import Definition
from loom.project.rank.ranking import Later, MapRequest, rank_files
from loom.project.rank.shares import FileRanking, RankedFile

BEYOND = "## Project Files for this request, beyond those above\n\n"
GONE = "No longer in the project: "
_MAX_GONE_NAMES = 20  # files that are told of by name
# definitions of a file beyond the map, and what they are worth at least next to the first
_MAX_NEWS, _MIN_SHARE_OF_BEST = 6, 0.2
_MAX_OPEN_PROJECTS = 4  # projects whose indexes a process keeps
_MAX_KEPT_REQUESTS = 8  # requests whose ranking is kept, while nothing changes

# the names that a map shows by path, and how what has them was declared, as digests
Digests = Mapping[str, Mapping[str, str]]


class RankedProject(Struct, frozen=True, gc=False):
    """A project as it stands, and what of it matters for a request."""

    root: str
    asked: MapRequest
    columns: Columns
    ranked: FileRanking
    notes: tuple[str, ...] = ()

    def draw_map(self, tokens: int, count: Count) -> Map:
        """The map of all that matters, in at most this many tokens. It may stand for long, so there
        is no source in it.
        """
        return render_map(self.ranked, tokens, count)

    def draw_seed_map(self, tokens: int, count: Count) -> Map:
        """The same as seed 000 draws it; it measures by bytes, so it may have to take less."""
        if tokens < 1:
            return Map()
        size = tokens
        while True:
            made = seed_map(self.ranked, self.columns, size)
            counted = count(made.text)
            if counted <= tokens:
                return replace(made, tokens=counted)
            size = min(size - 1, size * tokens // counted)

    def digest_map(self, made: Map) -> dict[str, dict[str, str]]:
        """What a map shows, to be compared with what is there later."""
        return {
            file.path: self._digest_declarations(file.path, map(_last, file.symbols))
            for file in made.files
        }

    def draw_news(self, shown: Digests, tokens: int, count: Count) -> str:
        """What matters most now and a map from before does not show, or shows as it no longer is,
        and what of that map is gone.

        Nothing where it is as it was.
        """
        now = {
            path: self._digest_declarations(path, names)
            for path, names in shown.items()
            if path in self.columns.numbers
        }
        told, left = _tell_gone(shown, now), tokens
        if told and count(told) > tokens:
            told = ""
        if told:
            left -= count(f"{told}\n\n")
        valid = {
            path: {name for name, mark in names.items() if shown[path][name] == mark}
            for path, names in now.items()
        }
        chosen = (
            _select_news(given, shown.get(given.path), valid.get(given.path, set()))
            for given in self.ranked.high_or_of(now)
        )
        news = [one for one in chosen if one is not None]
        made = Map()
        if news and left > 0:
            made = render_map(news, left, count, BEYOND)
        return "\n\n".join(filter(None, (made.text, told)))

    def _digest_declarations(self, path: str, names: Iterable[str]) -> dict[str, str]:
        """For each of these names that a file defines a digest of how."""
        signatures: dict[str, list[str]] = {name: [] for name in names}
        for one in self.columns.definitions_of(self.columns.numbers[path]):
            if one.name in signatures:
                signatures[one.name].append(one.signature)
        return {
            name: f"{crc32(to_json(found).encode()):x}"
            for name, found in signatures.items()
            if found
        }


def _tell_gone(shown: Digests, now: Digests) -> str:
    """The files and names of a map that are no longer there; "" if all are."""
    gone = [printable(path) for path in shown if path not in now]
    gone += [
        printable(f"{name} of {path}")
        for path in now
        for name in shown[path]
        if name not in now[path]
    ]
    if not gone:
        return ""
    told = f"{GONE}{', '.join(gone[:_MAX_GONE_NAMES])}"
    if len(gone) > _MAX_GONE_NAMES:
        told += f" and {len(gone) - _MAX_GONE_NAMES} more"
    return told


def _last(symbol: str) -> str:
    return symbol.rpartition(".")[2]


def _select_news(
    given: RankedFile, shown: Mapping[str, str] | None, valid: Container[str]
) -> RankedFile | None:
    """The best of a file that matters and is not shown yet, and what is shown and no longer
    declared so; none if all is well.
    """
    pairs = list(zip(given.definitions, given.shares, strict=True))
    is_high = given.relevance == "high"
    news, changed = pairs, list[tuple[Definition, float]]()
    if shown is None:
        if not is_high:
            return None
    else:
        news = _not_shown(pairs, shown, valid, is_high)
        if not news:
            return None
        changed = [pair for pair in news if pair[0].name in shown]
    best = [
        pair for pair in news if pair not in changed and pair[1] >= news[0][1] * _MIN_SHARE_OF_BEST
    ][:_MAX_NEWS]
    told = sorted((*changed, *best), key=lambda pair: -pair[1])
    return replace(
        given, definitions=tuple(one for one, _ in told), shares=tuple(share for _, share in told)
    )


def _not_shown(
    pairs: list[tuple[Definition, float]],
    shown: Container[str],
    valid: Container[str],
    is_high: bool,
) -> list[tuple[Definition, float]]:
    """What a map does not show as it is now; definitions that it never showed only if the best of
    the file is one.
    """
    best_is_new = is_high and bool(pairs) and pairs[0][0].name not in shown
    news = [pair for pair in pairs if pair[0].name not in valid]
    if best_is_new:
        return news
    return [pair for pair in news if pair[0].name in shown]


class _Project:
    """A project's index, and what was asked of it as it stands."""

    def __init__(self, index: ProjectIndex) -> None:
        self.index = index
        self._looking = Lock()
        self._state: tuple[int, str] | None = None
        self._sights: dict[MapRequest, RankedProject] = {}
        self._maps: dict[tuple[MapRequest, int, Count], Map] = {}

    def rank(self, asked: MapRequest, progress: Progress | None) -> RankedProject:
        with self._looking:
            head = Later(lambda: newest_commit(self.index.root))
            self.index.update(progress)
            state = (self.index.version, head.result())
            if self._state != state:
                self._state = state
                self._sights.clear()
                self._maps.clear()
            if asked not in self._sights:
                _make_room(self._sights)
                made = rank_files(self.index, asked, state[1])
                self._sights[asked] = RankedProject(
                    str(self.index.root), asked, self.index.columns, made, _notes_of(self.index)
                )
            return self._sights[asked]

    def map(self, asked: MapRequest, tokens: int, count: Count, progress: Progress | None) -> Map:
        sight = self.rank(asked, progress)
        key = (asked, tokens, count)
        with self._looking:
            made = None
            if self._sights.get(asked) is sight:
                made = self._maps.get(key)
        if made is None:
            made = packed_map(self.index.root, sight.ranked, tokens, count)
            with self._looking:
                if self._sights.get(asked) is sight:  # nothing has changed meanwhile
                    _make_room(self._maps)
                    self._maps[key] = made
        return made


def _make_room(kept: dict[Any, Any]) -> None:
    """Forget the oldest where there are enough."""
    while len(kept) >= _MAX_KEPT_REQUESTS:
        del kept[next(iter(kept))]


_projects: dict[tuple[Path, Path | None], _Project] = {}
_opening = Lock()


def _after_fork() -> None:
    """A child of a process that was just looking would wait for ever; it opens its projects
    again.
    """
    global _opening
    _opening = Lock()
    _projects.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def project_map(
    root: "str | PathLike[str]",
    query: str = "",
    *,
    touched: Sequence[str] = (),
    tokens: int = DEFAULTS["repo_map"],
    count: Callable[[str], int] | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Map:
    """What of a project matters for a request, in at most this many tokens; without one, what
    matters most in it.

    `touched` are paths and names that the conversation was about, the newest last. Asking again
    with nothing changed costs a look at the list of files.
    """
    if not isinstance(tokens, int) or tokens < 1:
        raise ChoiceError(f"a map takes at least 1 token, found {describe(tokens)}")
    if not isinstance(query, str):
        raise ChoiceError(f"the query must be a text, found {describe(query)}")
    if (
        isinstance(touched, str)
        or not isinstance(touched, Iterable)
        or not all(isinstance(one, str) for one in touched)
    ):
        raise ChoiceError(f"touched must be a list of paths and names, found {describe(touched)}")
    _check_means(count, cache, progress)
    asked = MapRequest(query=query, touched=tuple(touched))
    return _open_project(root, cache).map(asked, tokens, count or tokenizer(ENCODING), progress)


@checks_arguments
def _check_means(
    count: Callable[[str], int] | None,
    cache: Path | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Refuse what cannot count, hold an index or be told of progress."""


def read_anew(root: "str | PathLike[str]", progress: Progress | None = None) -> int:
    """Bring the index of a project up to date; how many files were read."""
    return _open_project(root, None).index.update(progress)


def look_at(
    root: "str | PathLike[str]", asked: MapRequest, cache: Path | None = None
) -> RankedProject:
    """A project as it stands now, and what of it matters for a request."""
    return _open_project(root, cache).rank(asked, None)


def notes(root: "str | PathLike[str]", cache: Path | None = None) -> tuple[str, ...]:
    """What is to be known of the index that the last map was made from."""
    return _notes_of(_open_project(root, cache).index)


def _notes_of(index: ProjectIndex) -> tuple[str, ...]:
    if HAS_GRAMMARS:
        return index.notes
    return (*index.notes, NO_GRAMMARS)


def find_root(root: "str | PathLike[str]") -> Path:
    """The folder of a project."""
    if not isinstance(root, str | PathLike) or not str(root).strip():
        raise ChoiceError(f"a project must be the path of a folder, found {describe(root)}")
    folder = Path(os.path.expanduser(root))
    try:
        found = folder.is_dir()
    except (ValueError, OSError):  # no system has such a name
        found = False
    if not found:
        raise ChoiceError(f"{root} is not a folder; give the root folder of a project")
    return folder


def _open_project(root: "str | PathLike[str]", cache: Path | None) -> _Project:
    folder = find_root(root)
    key = (folder.resolve(), cache)
    with _opening:
        if key not in _projects:
            while len(_projects) >= _MAX_OPEN_PROJECTS:
                del _projects[next(iter(_projects))]
            _projects[key] = _Project(open_index(key[0], cache))
        return _projects[key]
