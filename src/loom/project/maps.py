"""The map of a project for a request: its index is opened once in a process and brought up to date each time."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.tokenizers import tokenizer
from loom.budget.zones import DEFAULTS
from loom.errors import ChoiceError
from loom.project.entries import Entry
from loom.project.index import Index, Progress, open_index
from loom.project.rank import Asked, Ranked, ranked
from loom.project.render import Count, Map, render_map
from loom.project.request import understood
from loom.project.seed_map import seed_map
from loom.project.source import packed_map

BEYOND = "## Project Files for this request, beyond those above\n\n"
GONE = "No longer in the project: "
_MOST_GONE = 20  # files that are told of by name
_KEYWORDS = 20
_BEST, _NEARLY = 6, 0.2  # definitions of a file beyond the map, and what they are worth at least beside the first
_OPEN = 4  # projects whose indexes a process keeps
_ASKED = 8  # requests whose ranking is kept, while nothing changes

Shown = Mapping[str, Sequence[str]]  # the symbols that a map shows, by path


class Sight(Struct, frozen=True, gc=False):
    """A project as it stands, and what of it matters for a request."""

    root: str
    asked: Asked
    entries: dict[str, Entry]
    ranked: list[Ranked]
    notes: tuple[str, ...] = ()

    def whole(self, tokens: int, count: Count) -> Map:
        """The map of all that matters, in at most so many tokens. It may stand for long, so there is no source in it."""
        return render_map(self.ranked, tokens, count)

    def in_seed_form(self, tokens: int, count: Count) -> Map:
        """The same as seed 000 draws it; it measures by bytes, so it may have to take less."""
        request = understood(self.asked.query)
        mentioned = {path for path in self.entries for spelled in request.paths if path == spelled or path.endswith(f"/{spelled}")}
        keywords = sorted(request.terms, key=lambda term: (-request.terms[term], term))[:_KEYWORDS]
        size = tokens
        while True:
            made = seed_map(self.entries, size, mentioned, keywords)
            counted = count(made.text)
            if counted <= tokens or not made.files:
                return replace(made, tokens=counted)
            size = min(size - 1, size * tokens // counted)

    def beyond(self, shown: Shown, tokens: int, count: Count) -> str:
        """What matters most now and a map from before does not show, and which files of that map are gone; "" where nothing is."""
        gone = [path for path in shown if path not in self.entries]
        told = f"{GONE}{', '.join(gone[:_MOST_GONE])}{f' and {len(gone) - _MOST_GONE} more' if len(gone) > _MOST_GONE else ''}"
        told = told if gone and count(told) <= tokens else ""
        left = tokens - (count(f"{told}\n\n") if told else 0)
        news = [one for given in self.ranked if given.relevance == "high" and (one := _without(given, shown.get(given.path)))]
        made = render_map(news, left, count, BEYOND) if news and left > 0 else Map()
        return "\n\n".join(filter(None, (made.text, told)))


def _without(given: Ranked, symbols: Sequence[str] | None) -> Ranked | None:
    """The best of a file that is not shown yet; none where it is shown, and so is the very best of what it defines."""
    names = {symbol.rpartition(".")[2] for symbol in symbols or ()}
    if symbols is not None and (not given.definitions or given.definitions[0].name in names):
        return None
    pairs = [(one, share) for one, share in zip(given.definitions, given.shares, strict=True) if one.name not in names]
    best = [(one, share) for one, share in pairs[:_BEST] if share >= pairs[0][1] * _NEARLY]
    return replace(given, definitions=tuple(one for one, _ in best), shares=tuple(share for _, share in best))


class _Project:
    """A project's index, and what was asked of it as it stands."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._looking = Lock()
        self._version = -1
        self._sights: dict[Asked, Sight] = {}
        self._maps: dict[tuple[Asked, int, Count], Map] = {}

    def sight(self, asked: Asked, progress: Progress | None) -> Sight:
        with self._looking:
            self.index.update(progress)
            if self._version != self.index.version:
                self._version = self.index.version
                self._sights.clear()
                self._maps.clear()
            if asked not in self._sights:
                _make_room(self._sights)
                made = ranked(self.index, asked)
                self._sights[asked] = Sight(str(self.index.root), asked, self.index.entries, made, tuple(self.index.notes))
            return self._sights[asked]

    def map(self, asked: Asked, tokens: int, count: Count, progress: Progress | None) -> Map:
        sight = self.sight(asked, progress)
        key = (asked, tokens, count)
        if key not in self._maps:
            _make_room(self._maps)
            self._maps[key] = packed_map(self.index.root, sight.ranked, tokens, count)
        return self._maps[key]


def _make_room(kept: dict[Any, Any]) -> None:
    """Forget the oldest where there are enough."""
    while len(kept) >= _ASKED:
        del kept[next(iter(kept))]


_projects: dict[tuple[Path, Path | None], _Project] = {}
_opening = Lock()


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
    """What of a project matters for a request, in at most so many tokens; without one, what matters most in it.

    `touched` are paths and names that the conversation was about, the newest last. Asking again with nothing changed costs a look
    at the list of files.
    """
    if tokens < 1:
        raise ChoiceError(f"a map takes at least 1 token, found {tokens}")
    asked = Asked(query=query, touched=tuple(touched))
    return _opened(root, cache).map(asked, tokens, count or tokenizer("o200k_base"), progress)


def read_anew(root: "str | PathLike[str]", progress: Progress | None = None) -> int:
    """Bring the index of a project up to date; how many files were read."""
    return _opened(root, None).index.update(progress)


def look_at(root: "str | PathLike[str]", asked: Asked, cache: Path | None = None) -> Sight:
    """A project as it stands now, and what of it matters for a request."""
    return _opened(root, cache).sight(asked, None)


def notes(root: "str | PathLike[str]", cache: Path | None = None) -> tuple[str, ...]:
    """What is to be known of the index that the last map was made from."""
    return tuple(_opened(root, cache).index.notes)


def _opened(root: "str | PathLike[str]", cache: Path | None) -> _Project:
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise ChoiceError(f"{root} is no folder; give the root of a project")
    key = (folder.resolve(), cache)
    with _opening:
        if key not in _projects:
            while len(_projects) >= _OPEN:
                del _projects[next(iter(_projects))]
            _projects[key] = _Project(open_index(key[0], cache))
        return _projects[key]
