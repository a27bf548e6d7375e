"""Which files of a project, and which definitions in them, matter for a request.

Two levels. Files are ranked by the words of their paths, of what they define and of their text
(BM25F), by their best definitions, by what the request names outright (paths, frames of a trace),
and by who uses whom. Definitions are ranked within their files by their names, the names around
them and their own lines. Scores are rounded before they are compared; ties go by path.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import log
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from loom.project.index.columns import IS_HIDDEN, IS_IN_FUNCTION, IS_IN_TESTS, Columns, Rows
from loom.project.index.files import read_text
from loom.project.index.history import newest_commit
from loom.project.index.links import add_up, count_users
from loom.project.index.project_index import ProjectIndex
from loom.project.index.roles import ROLES, Role
from loom.project.index.strings import Floats
from loom.project.parse.symbols import KINDS, Kind
from loom.project.rank.graph import rank_links
from loom.project.rank.lookup import Lookup, lookup_of
from loom.project.rank.request import Frame, RequestClues, read_request
from loom.project.rank.shares import FileRanking, order_definitions, share_chances

T = TypeVar("T")

# Files
SATURATION, LENGTH = 1.5, 0.4  # of BM25
# how often a word in the path, in the names of definitions counts as said
IN_PATH, IN_NAMES = 3.0, 1.5
BEST_DEFINITIONS, OF_BEST = 4, 1.3  # definitions that speak for a file, and how loud
NAMED = 10.0  # for a path or a frame that the request names
LINKED_WEIGHT, FOLLOWED_WEIGHT = 0.1, 0.5  # for a file that those found use or are used by
IMPORTANCE_WEIGHT = 0.02  # for a file that matters in the project, whatever is asked for
RECENT_WEIGHT, RECENT_COMMITS = 0.05, 30  # share for a file that was changed within so many commits
ROLE_WEIGHTS: dict[Role, float] = {
    "source": 1.0,
    "test": 0.35,
    "helper": 0.7,
    "document": 0.15,
    "example": 0.25,
    "vendored": 0.4,
    "generated": 0.2,
    "data": 0.15,
}
NO_DEFINITION_FACTOR = 0.5  # of a file that defines nothing
MAX_CANDIDATE_FILES = 120  # files whose definitions are looked at

# Definitions
OWN_LENGTH, USUAL = 0.6, 60  # of BM25, and words of a usual definition
NAME, AROUND = 2.0, 1.5  # for words in its name, in the name around it
# for words inside of a longer one (`showfixtures`), and how many are looked for
RUN_TOGETHER, PARTS = 0.5, 60
NAMED_WEIGHT, FRAME_WEIGHT, LITERAL_WEIGHT = (
    6.0,
    8.0,
    5.0,
)  # for a name, a frame, a message of the request
TELLING_WEIGHT = 0.1  # of a name that brings in the file that defines it
NEIGHBOUR_WEIGHT = 0.05  # for calling what was found, or being called by it
KIND_WEIGHTS: dict[Kind, float] = {
    "class": 0.5,
    "interface": 0.5,
    "type": 0.5,
    "module": 0.4,
    "constant": 0.3,
}
# definitions whose neighbours are looked at, and files that are read for messages
MAX_FOUND_DEFINITIONS = 60
MAX_COMMON_DEFINITIONS = 5  # a name that more definitions have tells nothing of neighbours

# What the conversation touched
TOUCHED, FADING = 0.5, 0.85

FOLLOW_ALONE = 0.85  # of PageRank
# of what is kept to itself, stands inside of another, inside of a function
HIDDEN, INNER, INSIDE = 0.3, 0.6, 0.1
# how fast the chance of files falls with the score, and where nothing was asked for
SHARP, SHARP_ALONE = 3.0, 1.0
MIN_OUTER_CHARS = 8  # characters from which other words are looked for inside of a word

_PARTS_OF_ONE = 2.0**32  # in which sums are counted


class MapRequest(Struct, frozen=True, kw_only=True):
    """A request, and the paths and names that the conversation touched, newest last."""

    query: str = ""
    touched: tuple[str, ...] = ()


def rank_files(index: ProjectIndex, asked: MapRequest, head: str | None = None) -> FileRanking:
    """All files of an index, the best for a request first; without one, what matters most in the
    project. `head` is the commit that it stands at, if that is known.
    """
    known = lookup_of(index)
    request = _with_touched(read_request(asked.query), asked.touched, known)
    paths = [*request.paths, *reversed(asked.touched)]
    if not (request.terms or request.names or any(known.find_files(path)[1] for path in paths)):
        return _by_importance(known)
    recent = Later(lambda: index.find_recent(newest_commit(index.root) if head is None else head))
    return _Search(index.root, known, request, asked.touched).rank_files(recent)


def _with_touched(request: RequestClues, touched: Sequence[str], known: Lookup) -> RequestClues:
    """A request that also names what the conversation touched, the less the longer ago."""
    names = dict(request.names)
    for age, name in enumerate(reversed(touched)):
        last = name.rpartition(".")[2]
        if known.find_definitions(last):
            names[last] = max(names.get(last, 0.0), TOUCHED * FADING**age)
    return replace(request, names=names)


# Without a request

_standing: WeakKeyDictionary[Lookup, Floats] = WeakKeyDictionary()
_alone: WeakKeyDictionary[Lookup, FileRanking] = WeakKeyDictionary()


def _by_importance(known: Lookup) -> FileRanking:
    found = _alone.get(known)
    if found is None:
        files = np.flatnonzero(known.columns["definitions"])
        own = order_definitions(known.columns, files, _weigh_definitions(known))
        found = share_chances(known.columns, _importance(known), own, None, SHARP_ALONE)
        _alone[known] = found
    return found


def _importance(known: Lookup) -> Floats:
    """How much files matter whatever is asked for, from 0 to 1: what others use most, and what lies
    near the root.
    """
    found = _standing.get(known)
    if found is None:
        roles = _worths(known)
        depths = np.array([1 + path.count("/") for path in known.paths])
        scores = rank_links(known.links, roles / depths, FOLLOW_ALONE, back=0.0, only_sure=True)
        scores *= roles
        _standing[known] = found = scores / (scores.max(initial=0.0) or 1.0)
    return found


def _worths(known: Lookup) -> Floats:
    """What is left of the score of each file by its role."""
    weights = np.array([ROLE_WEIGHTS[role] for role in ROLES])
    defines = known.columns["definitions"] > 0
    found: Floats = weights[known.roles] * np.where(defines, 1.0, NO_DEFINITION_FACTOR)
    return found


def _weigh_definitions(known: Lookup) -> Floats:
    """What many files use matters, and what is offered before what is kept to itself."""
    columns = known.columns
    kinds, flags = columns["kind"], columns["flags"]
    is_class = np.isin(kinds, [KINDS.index("class"), KINDS.index("interface")])
    is_inner = columns["of_parent"] != known.strings.find("")
    scores: Floats = np.log1p(count_users(columns)) + is_class
    scores *= np.where(flags & IS_HIDDEN, HIDDEN, 1.0)
    is_inside = (flags & (IS_IN_FUNCTION | IS_IN_TESTS)) > 0
    scores *= np.where(is_inside, INSIDE, np.where(is_inner, INNER, 1.0))
    return scores


# With a request


class _Search:
    """One request and what of the project answers to it. Files and definitions go by their
    numbers.
    """

    def __init__(
        self, root: Path, known: Lookup, request: RequestClues, touched: Sequence[str]
    ) -> None:
        self.root, self.known, self.request = root, known, request
        self.columns = known.columns
        self.hits = _find_hits(known.columns, request.terms)
        self.weights = self._weights()
        self.exact = self._exact()
        self.frames: dict[int, float] = {}
        self.named: dict[int, float] = {}
        self._name_paths(touched)
        self._name_frames()

    def rank_files(self, recent: "Later[Mapping[str, int]]") -> FileRanking:
        known = self.known
        said, roles = self._score_words(), self._roles()
        best = np.argsort(-np.round(said * roles, 6), kind="stable")[:MAX_CANDIDATE_FILES]
        telling = [one for one, weight in self.exact.items() if weight >= TELLING_WEIGHT]
        candidates = [*best.tolist(), *self.named, *known.file_of[telling].tolist()]
        looked_at = np.array(list(dict.fromkeys(candidates)), np.int64)
        own = _Candidates(known, looked_at)
        self._score_candidates(own)
        self._add_literals(own, looked_at[roles[looked_at] == 1.0][:MAX_FOUND_DEFINITIONS])
        self._add_neighbours(own)
        scores = (said + self._score_definitions(said, own)) * roles
        scores = self._with_linked(scores, roles)
        says_little = np.count_nonzero(scores > 0) < MAX_CANDIDATE_FILES
        scores += IMPORTANCE_WEIGHT * scores.max(initial=0.0) * _importance(known)
        numbers = self.columns.numbers
        for path, age in recent.result().items():
            if path in numbers:
                scores[numbers[path]] *= 1 + RECENT_WEIGHT / (1 + age / RECENT_COMMITS)
        top = scores.max(initial=0.0)
        if top <= 0:
            return _by_importance(known)
        rest = _by_importance(known) if says_little else None
        ordered = order_definitions(self.columns, own.files_with_scores(), own.spread())
        return share_chances(self.columns, scores / top, ordered, rest, SHARP)

    def _weights(self) -> dict[str, float]:
        """How much each word of the request says in this project: one that few files have says
        more.
        """
        number = len(self.known)
        return {
            word: self.request.terms[word] * log(1 + (number - holders + 0.5) / (holders + 0.5))
            for word, holders in zip(self.hits.words, self.hits.holders.tolist(), strict=True)
            if holders
        }

    def _exact(self) -> dict[int, float]:
        """The definitions that the request names."""
        found = {}
        for name, weight in self.request.names.items():
            places = self.known.find_definitions(name)
            for place in places:
                found[place] = weight / (1 + log(len(places)))
        return found

    def _name_paths(self, touched: Sequence[str]) -> None:
        known = self.known
        found = [(1.0, known.find_files(path)) for path in self.request.paths]
        for age, spelled in enumerate(reversed(touched)):
            meant = known.find_files(spelled)
            if not meant[1]:
                places = known.find_definitions(spelled.rpartition(".")[2])
                defined = list(dict.fromkeys(known.file_of[places].tolist()))
                if defined:
                    meant = (1 / len(defined), defined)
            found.append((TOUCHED * FADING**age, meant))
        for weight, (sure, files) in found:
            for file in files:
                self.named[file] = max(self.named.get(file, 0.0), sure * weight)

    def _name_frames(self) -> None:
        seen: defaultdict[int, float] = defaultdict(float)
        for frame in self.request.frames:
            sure, found = self.known.find_files(frame.path)
            for file in found:
                seen[file] += sure
                for place in self._find_framed(frame, file):
                    self.frames[place] = max(self.frames.get(place, 0.0), sure)
        for file, times in seen.items():
            self.named[file] = self.named.get(file, 0.0) + min(1.0, times)

    def _find_framed(self, frame: Frame, file: int) -> list[int]:
        """What a frame names: by its name, of several that have it the one at the line; else by the
        line.
        """
        span = self.columns.range_of("definition", file)
        held = self._holding(file, frame.line)
        name = self.known.strings.find(frame.name)
        called = (np.flatnonzero(self.columns["of_name"][span] == name) + span.start).tolist()
        return [place for place in called if place in held] or called or held[-1:]

    def _holding(self, file: int, line: int) -> list[int]:
        """The definitions around a line, the innermost last."""
        span = self.columns.range_of("definition", file)
        is_around = self.columns["start"][span] <= line
        is_around &= self.columns["stop"][span] >= line
        found: list[int] = (np.flatnonzero(is_around) + span.start).tolist()
        return found

    # Files

    def _score_words(self) -> Floats:
        """BM25F over the words of each file, of its path and of the names that it defines."""
        hits = self.hits
        length = 1 - LENGTH + LENGTH * self.columns["length"][hits.files] / self.known.usual_length
        said = hits.counts / length + IN_PATH * hits.in_path + IN_NAMES * hits.in_names
        weights = np.array([self.weights.get(word, 0.0) for word in hits.words])
        each = weights[hits.slots] * said * (SATURATION + 1) / (said + SATURATION)
        # Summed up as whole numbers: then the order of the words does not matter.
        return add_up(hits.files, np.rint(each * _PARTS_OF_ONE), len(self.known)) / _PARTS_OF_ONE

    def _score_definitions(self, said: Floats, own: "_Candidates") -> Floats:
        """What speaks for files beside their words: their best definitions, and that the request
        names them.
        """
        beside = np.zeros(len(said))
        for file, scores in own.by_file():
            best = np.sort(scores)[::-1][:BEST_DEFINITIONS].tolist()
            beside[file] = OF_BEST * sum(score / place for place, score in enumerate(best, 1))
        asked = self._asked_for()  # a document defines nothing: it speaks for itself
        silent = asked[self.columns["definitions"][asked] == 0]
        beside[silent] = OF_BEST * said[silent]
        for file, weight in self.named.items():
            beside[file] += NAMED * weight
        return beside

    def _roles(self) -> Floats:
        roles = _worths(self.known)
        roles[self._asked_for()] = 1.0
        return roles

    def _asked_for(self) -> Rows:
        """The files of which the request says that it is about their kind."""
        found = [self.known.find_role(role) for role in sorted(self.request.roles)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _with_linked(self, scores: Floats, roles: Floats) -> Floats:
        """More for who uses what was found, and for whom it uses."""
        top = scores.max(initial=0.0)
        if top <= 0:
            return scores
        linked = rank_links(self.known.links, (scores / top) ** 2, FOLLOWED_WEIGHT)
        more: Floats = LINKED_WEIGHT * top * linked / (linked.max() or 1.0) * roles
        return scores + more

    # Definitions

    def _score_candidates(self, own: "_Candidates") -> None:
        """What each definition has of the request: in its name, in the name around it, in its own
        lines.
        """
        strings = self.known.strings
        weights = strings.spread(self.weights)
        names = own.table("name word", "of_name_word")
        inner = strings.spread(self._inner(self._longer_words(names)))
        scores = _in_bodies(own.table("body term", "of_body_term", "body_term_count"), weights)
        scores += _in_names(names, weights, inner)
        scores += _in_parents(own.table("outer word", "of_outer_word"), weights)
        for places, worth in ((self.exact, NAMED_WEIGHT), (self.frames, FRAME_WEIGHT)):
            for place, weight in places.items():
                if place in own.places:
                    scores[own.places[place]] += worth * weight
        own.scores = scores * self._worths_of(own.rows)

    def _worths_of(self, rows: Rows) -> Floats:
        """What is left of the score of definitions by their kind, and of those in tests that nobody
        asked for.
        """
        weights = np.array([KIND_WEIGHTS.get(kind, 1.0) for kind in KINDS])
        found: Floats = weights[self.columns["kind"][rows]]
        if "test" not in self.request.roles:
            is_test = (self.columns["flags"][rows] & IS_IN_TESTS) > 0
            found = found * np.where(is_test, ROLE_WEIGHTS["test"], 1.0)
        return found

    def _longer_words(self, names: "_WordTable") -> list[str]:
        """The words of names that others may stand inside of."""
        words = self.known.strings.find_long(np.unique(names.words), MIN_OUTER_CHARS)
        return sorted(word for word in words if "_" not in word and word not in self.weights)

    def _inner(self, longer: Sequence[str]) -> dict[str, float]:
        """For longer words what the words of the request say that stand inside of them; all are
        looked through as one text.
        """
        heavy = sorted(self.weights.items(), key=lambda one: (-round(one[1], 6), one[0]))
        parts = [(word, weight) for word, weight in heavy if len(word) > 3 and "_" not in word][
            :PARTS
        ]
        starts = list(accumulate((len(word) + 1 for word in longer), initial=0))
        text = "\n".join(longer)
        found: dict[str, float] = {}
        for part, weight in parts:
            at = text.find(part)
            while at >= 0:
                place = bisect_right(starts, at)
                word = longer[place - 1]
                if len(part) > 5 or word.startswith(part) or word.endswith(part):
                    found[word] = found.get(word, 0.0) + weight * len(part) / len(word)
                at = text.find(part, starts[place])
        return found

    def _add_literals(self, own: "_Candidates", files: Rows) -> None:
        """For messages of the request that are in a file: what holds them. The more places, the
        less it says.
        """
        if not self.request.literals:
            return
        found: dict[str, list[int]] = {}
        for file in files.tolist():
            text = read_text(self.root, self.known.paths[file]) or ""
            for literal in self.request.literals:
                at = text.find(literal)
                if at >= 0 and (held := self._holding(file, text.count("\n", 0, at) + 1)):
                    found.setdefault(literal, []).append(held[-1])
        for places in found.values():
            for place in places:
                own.scores[own.places[place]] += LITERAL_WEIGHT / len(places)

    def _add_neighbours(self, own: "_Candidates") -> None:
        """For what calls the best definitions, and for what they call."""
        known, plain_name = self.known, self.columns["of_plain_name"]
        given: dict[int, float] = {}
        wanted: dict[int, float] = {}
        for score, place in own.best(MAX_FOUND_DEFINITIONS):
            name = int(plain_name[place])
            alike = int(known.alike[name])
            if len(known.strings[name]) > 3 and alike <= MAX_COMMON_DEFINITIONS:
                wanted[name] = max(wanted.get(name, 0.0), score / alike)
            for called, several in self._called_by(place, own):
                given[called] = max(given.get(called, 0.0), score / several)
        for name, place in _find_saying(known, wanted, own):
            if plain_name[place] != name:
                given[place] = max(given.get(place, 0.0), wanted[name])
        for place, score in given.items():
            own.scores[own.places[place]] += NEIGHBOUR_WEIGHT * score

    def _called_by(self, place: int, own: "_Candidates") -> Iterator[tuple[int, int]]:
        """What a definition may call in these files, each with how many there are of the name."""
        first, after = self.columns.starts("body term")[place : place + 2].tolist()
        terms = self.columns["of_body_term"][first:after]
        alike = self.known.alike[terms]
        for term in terms[(alike > 0) & (alike <= MAX_COMMON_DEFINITIONS)].tolist():
            places = self.known.find_alike(term).tolist()
            yield from (
                (other, len(places)) for other in places if other != place and other in own.places
            )


class _Hits(Struct, frozen=True):
    """The words of a request that files have: which file, which word, how often it says it, whether
    its path has it, and how much the names that it defines say it. `holders` are the files that
    have each word.
    """

    words: list[str]
    files: Rows
    slots: Rows
    counts: Floats
    in_path: Floats
    in_names: Floats
    holders: Rows


def _find_hits(columns: Columns, terms: Iterable[str]) -> _Hits:
    strings = columns.strings
    words = [word for word in terms if strings.find(word) >= 0]
    slots = np.full(len(strings), -1, np.int32)
    slots[[strings.find(word) for word in words]] = np.arange(len(words))
    size = max(1, len(words))

    def find(level: str, column: str) -> tuple[Rows, Rows]:
        """The rows of a column that have a word, and for each the number of file and word in one
        number.
        """
        slot = slots[columns[column]]
        rows = np.flatnonzero(slot >= 0)
        files = np.searchsorted(columns.starts(level), rows, side="right") - 1
        return rows, files * size + slot[rows]

    rows, said = find("term", "of_term")
    _, in_path = find("path word", "of_path_word")
    name_rows, in_names = find("name term", "of_name_term")
    keys = np.union1d(said, in_path)
    is_hit = np.isin(in_names, keys, assume_unique=True)
    files, slot = np.divmod(keys, size)
    return _Hits(
        words,
        files,
        slot,
        _place(keys, said, columns["term_count"][rows]),
        _place(keys, in_path, np.ones(len(in_path))),
        _place(keys, in_names[is_hit], np.log1p(columns["name_term_count"][name_rows][is_hit])),
        np.bincount(slot, minlength=len(words)),
    )


def _place(keys: Rows, some: Rows, values: NDArray[np.float64]) -> Floats:
    """The values of some of the keys, and 0 for all others."""
    found = np.zeros(len(keys))
    found[np.searchsorted(keys, some)] = values
    return found


class _WordTable(Struct, frozen=True):
    """The words of definitions, for each word the place of its definition, how many words each
    definition has, and how often each word is said.
    """

    words: NDArray[np.int32]
    rows: Rows
    sizes: NDArray[np.int32]
    times: NDArray[np.int32]


class _Candidates:
    """The definitions of some files, one file after the other, and their scores."""

    def __init__(self, known: Lookup, files: Rows) -> None:
        self._known, self._files = known, files
        self.rows = known.columns.rows_of("definition", files)
        self.places = {row: place for place, row in enumerate(self.rows.tolist())}
        self.scores = np.zeros(len(self.rows))

    def table(self, level: str, column: str, counts: str = "") -> _WordTable:
        """The words that these definitions have of a kind."""
        columns = self._known.columns
        starts = columns.starts(level)
        sizes = starts[self.rows + 1] - starts[self.rows]
        at = columns.rows_of(level, self._files)
        times = columns[counts][at] if counts else np.zeros(0, np.int32)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        return _WordTable(columns[column][at], rows, sizes, times)

    def by_file(self) -> Iterator[tuple[int, Floats]]:
        """Each file that defines something, and the scores of what it defines."""
        sizes = self._known.columns["definitions"][self._files]
        after = np.cumsum(sizes)
        for file, stop, size in zip(
            self._files.tolist(), after.tolist(), sizes.tolist(), strict=True
        ):
            if size:
                yield file, self.scores[stop - size : stop]

    def files_with_scores(self) -> Rows:
        """The files of which a definition has a score."""
        return np.array([file for file, scores in self.by_file() if scores.any()], np.int64)

    def spread(self) -> Floats:
        """The score of each definition of the project; 0 for those of other files."""
        found = np.zeros(len(self._known.columns["of_name"]))
        found[self.rows] = self.scores
        return found

    def best(self, limit: int) -> list[tuple[float, int]]:
        """The definitions with the highest scores. Equals go by path."""
        order = np.lexsort((self.rows, -np.round(self.scores, 6)))[:limit]
        return [
            (round(float(self.scores[place]), 6), int(self.rows[place]))
            for place in order.tolist()
            if self.scores[place] > 0
        ]


def _find_saying(
    known: Lookup, names: Iterable[int], own: _Candidates
) -> Iterator[tuple[int, int]]:
    """Each of these names with each definition of these files whose lines have it."""
    is_wanted = np.zeros(len(known.strings), bool)
    is_wanted[list(names)] = True
    bodies = own.table("body term", "of_body_term")
    at = np.flatnonzero(is_wanted[bodies.words])
    rows = own.rows[bodies.rows[at]]
    yield from zip(bodies.words[at].tolist(), rows.tolist(), strict=True)


def _in_bodies(table: _WordTable, weights: Floats) -> Floats:
    """BM25 over the words of each definition's own lines."""
    found, rows = weights[table.words], table.rows
    lengths = 1 - OWN_LENGTH + OWN_LENGTH * add_up(rows, table.times, len(table.sizes)) / USUAL
    at = np.flatnonzero(found)
    rows = rows[at]
    times = table.times[at] / lengths[rows]
    return add_up(
        rows, found[at] * times * (SATURATION + 1) / (times + SATURATION), len(table.sizes)
    )


def _in_names(table: _WordTable, weights: Floats, inner: Floats) -> Floats:
    """The words of each name, and those inside of them; in a long name each says less."""
    rows, size = table.rows, len(table.sizes)
    found = weights[table.words]
    said = add_up(rows, found + RUN_TOGETHER * inner[table.words], size)
    share = np.maximum(1.0, add_up(rows, found > 0, size)) / np.maximum(1, table.sizes)
    worth: Floats = NAME * said * np.sqrt(share)
    return worth


def _in_parents(table: _WordTable, weights: Floats) -> Floats:
    rows, size = table.rows, len(table.sizes)
    found = weights[table.words]
    share = add_up(rows, found > 0, size) / np.maximum(1, table.sizes)
    worth: Floats = AROUND * add_up(rows, found, size) * share
    return worth


class Later(Generic[T]):
    """Something that another thread computes meanwhile."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: list[T] = []
        self._thread = Thread(target=lambda: self._found.append(work()), daemon=True)
        self._thread.start()

    def result(self) -> T:
        self._thread.join()
        return self._found[0] if self._found else self._work()
