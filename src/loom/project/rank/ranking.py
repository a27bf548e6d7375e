"""Which files of a project, and which definitions in them, matter for a request.

Two levels. Files are ranked by the words of their paths, of what they define and of their text
(BM25F), by their best definitions, by what the request names outright (paths, frames of a trace),
and by who uses whom. Definitions are ranked within their files by their names, the names around
them and their own lines. Scores are rounded before they are compared; ties go by path.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from math import log, log1p
from threading import Thread
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from loom.project.index.files import read_text
from loom.project.index.project_index import ProjectIndex, recency
from loom.project.parse.symbols import Definition
from loom.project.rank.lookup import File, Lookup, Place, lookup_of, plain
from loom.project.rank.request import Frame, RequestClues, read_request
from loom.project.rank.roles import Role
from loom.project.rank.words import Floats, Numbers, WordTable, join_tables

Relevance = Literal["high", "medium", "low"]

# Files
SATURATION, LENGTH = 1.5, 0.4  # of BM25
# how often a word in the path, in the names of definitions counts as said
IN_PATH, IN_NAMES = 3.0, 1.5
BEST_DEFINITIONS, OF_BEST = 4, 1.3  # definitions that speak for a file, and how loud
NAMED = 10.0  # for a path or a frame that the request names
LINKED_WEIGHT, FOLLOWED_WEIGHT = 0.1, 0.5  # for a file that those found use or are used by
IMPORTANCE_WEIGHT = 0.02  # for a file that matters in the project, whatever is asked for
RECENT_WEIGHT, RECENT_COMMITS = 0.05, 30  # share for a file that was changed within so many commits
ROLES: dict[Role, float] = {
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
KINDS = {"class": 0.5, "interface": 0.5, "type": 0.5, "module": 0.4, "constant": 0.3}
# definitions whose neighbours are looked at, and files that are read for messages
MAX_FOUND_DEFINITIONS = 60
MAX_COMMON_DEFINITIONS = 5  # a name that more definitions have tells nothing of neighbours

# What the conversation touched
TOUCHED, FADING = 0.5, 0.85

# Shares
# how fast the chance falls with the score, between files and within one
SHARP, SHARP_OWN = 3.0, 4.0
# definitions that share the chance of a file: with all of them the best of a large file would
# have next to none of it
SHARING_DEFINITIONS = 10
MIN_SCORE = 0.001  # of a score
FOLLOW_ALONE = 0.85  # of PageRank
# of what is kept to itself, stands inside of another, inside of a function
HIDDEN, INNER, INSIDE = 0.3, 0.6, 0.1
SHARP_ALONE = 1.0  # between files where nothing was asked for
# Of all chances. Measured on 334 issues and commits in 15 languages, 70 % of the files that were
# edited are `high`, 17 % `medium`; half of the requests have at most 2 files that are `high`, nine
# of ten at most 7.
HIGH, MEDIUM = 0.5, 0.8
# files down to these labels: of a vague request, too, they should say something
MAX_HIGH_FILES, MAX_MEDIUM_FILES = 16, 48
# times the mean that a file of these has; the share that is enough in a project of few files
LEAST, ENOUGH = 2.0, 0.3

_PARTS_OF_ONE = 2.0**32  # in which sums are counted


class MapRequest(Struct, frozen=True, kw_only=True):
    """A request, and the paths and names that the conversation touched, newest last."""

    query: str = ""
    touched: tuple[str, ...] = ()


class RankedFile(Struct, frozen=True):
    """A file with its share of all chances, and what it defines, best first, with the share of each
    within the file.
    """

    path: str
    score: float
    relevance: Relevance
    definitions: tuple[Definition, ...]
    shares: tuple[float, ...] = ()


def rank_files(index: ProjectIndex, asked: MapRequest) -> list[RankedFile]:
    """All files of an index, the best for a request first; without one, what matters most in the
    project.
    """
    known = lookup_of(index)
    request = _with_touched(read_request(asked.query), asked.touched, known)
    paths = [*request.paths, *reversed(asked.touched)]
    if not (request.terms or request.names or any(known.find_files(path)[1] for path in paths)):
        return _by_importance(known)
    return _Search(index, known, request, asked.touched).rank_files()


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
_alone: WeakKeyDictionary[Lookup, list[RankedFile]] = WeakKeyDictionary()


def _by_importance(known: Lookup) -> list[RankedFile]:
    found = _alone.get(known)
    if found is None:
        users = known.graph.users()
        own = {path: _importances(file, users) for path, file in known.files.items()}
        _alone[known] = found = _share_chances(known, _importance(known), own, {}, SHARP_ALONE)
    return list(found)


def _importance(known: Lookup) -> Floats:
    """How much files matter whatever is asked for, from 0 to 1: what others use most, and what lies
    near the root.
    """
    found = _standing.get(known)
    if found is None:
        roles = _worths(known)
        depths = np.array([1 + path.count("/") for path in known.files])
        scores = known.graph.rank(roles / depths, FOLLOW_ALONE, back=0.0, sure=True) * roles
        _standing[known] = found = scores / (scores.max(initial=0.0) or 1.0)
    return found


def _worths(known: Lookup) -> Floats:
    """What is left of the score of each file by its role."""
    worths = (
        ROLES[known.roles[path]] * (1.0 if file.definitions else NO_DEFINITION_FACTOR)
        for path, file in known.files.items()
    )
    return np.fromiter(worths, np.float64, len(known.files))


def _importances(file: File, users: dict[tuple[str, str], float]) -> list[float]:
    """What many files use matters, and what is offered before what is kept to itself."""
    language = file.entry.parsed.language
    holding = {one.path for one in file.definitions if one.kind in ("function", "method")}
    found = []
    for one in file.definitions:
        score = log1p(users.get((file.entry.path, one.name), 0.0)) + (
            one.kind in ("class", "interface")
        )
        if _is_hidden(one, language):
            score *= HIDDEN
        if one.parent in holding or _is_in_tests(one):
            score *= INSIDE
        elif one.parent:
            score *= INNER
        found.append(score)
    return found


def _is_in_tests(definition: Definition) -> bool:
    """Whether it is in a module of tests that a file of the source has at its end."""
    return definition.parent.partition(".")[0] in ("test", "tests")


def _is_hidden(definition: Definition, language: str) -> bool:
    if language == "go":
        return definition.name[:1].islower()
    return definition.name.startswith("_") or definition.signature.startswith(
        ("private ", "fileprivate ")
    )


# With a request


class _Search:
    """One request and what of the project answers to it."""

    def __init__(
        self, index: ProjectIndex, known: Lookup, request: RequestClues, touched: Sequence[str]
    ) -> None:
        self.root, self.known, self.request = index.root, known, request
        words = request.terms.keys()
        self.hits = {path: words & file.entry.terms.keys() for path, file in known.files.items()}
        for path, file in known.files.items():
            if not words.isdisjoint(file.words):
                self.hits[path] |= words & file.words
        self.weights = self._weights()
        self.exact = self._exact()
        self.frames: dict[Place, float] = {}
        self.named: dict[str, float] = {}
        self._name_paths(touched)
        self._name_frames()

    def rank_files(self) -> list[RankedFile]:
        known = self.known
        recent = _Later(lambda: recency(self.root))
        said, roles = self._score_words(), self._roles()
        paths = list(known.files)
        best = np.argsort(-np.round(said * roles, 6), kind="stable")[:MAX_CANDIDATE_FILES]
        telling = (path for (path, _), weight in self.exact.items() if weight >= TELLING_WEIGHT)
        looked_at = list(
            dict.fromkeys([*(paths[number] for number in best), *self.named, *telling])
        )
        own = self._definitions(looked_at)
        self._add_literals(
            own,
            [path for path in looked_at if roles[known.numbers[path]] == 1.0][
                :MAX_FOUND_DEFINITIONS
            ],
        )
        self._add_neighbours(own)
        scores = (said + self._score_definitions(said, own)) * roles
        scores = self._with_linked(scores, roles)
        says_little = np.count_nonzero(scores > 0) < MAX_CANDIDATE_FILES
        scores += IMPORTANCE_WEIGHT * scores.max(initial=0.0) * _importance(known)
        for path, age in recent.result().items():
            if path in known.numbers:
                scores[known.numbers[path]] *= 1 + RECENT_WEIGHT / (1 + age / RECENT_COMMITS)
        top = scores.max(initial=0.0)
        if top <= 0:
            return _by_importance(known)
        own = {path: given for path, given in own.items() if any(given)}
        if says_little:
            rest = {one.path: one for one in _by_importance(known)}
        else:
            rest = {}
        return _share_chances(known, scores / top, own, rest, SHARP)

    def _weights(self) -> dict[str, float]:
        """How much each word of the request says in this project: one that few files have says
        more.
        """
        holders = Counter(chain.from_iterable(self.hits.values()))
        number = len(self.known.files)
        return {
            word: weight * log(1 + (number - holders[word] + 0.5) / (holders[word] + 0.5))
            for word, weight in self.request.terms.items()
            if holders[word]
        }

    def _exact(self) -> dict[Place, float]:
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
                defined = list(
                    dict.fromkeys(
                        path for path, _ in known.find_definitions(spelled.rpartition(".")[2])
                    )
                )
            else:
                defined = []
            found.append((TOUCHED * FADING**age, (1 / len(defined), defined) if defined else meant))
        for weight, (sure, paths) in found:
            for path in paths:
                self.named[path] = max(self.named.get(path, 0.0), sure * weight)

    def _name_frames(self) -> None:
        seen: defaultdict[str, float] = defaultdict(float)
        for frame in self.request.frames:
            sure, found = self.known.find_files(frame.path)
            for path in found:
                seen[path] += sure
                for number in _in_frame(frame, self.known.files[path].definitions):
                    self.frames[path, number] = max(self.frames.get((path, number), 0.0), sure)
        for path, times in seen.items():
            self.named[path] = self.named.get(path, 0.0) + min(1.0, times)

    # Files

    def _score_words(self) -> Floats:
        """BM25F over the words of each file, of its path and of the names that it defines."""
        numbers, starts = list[int](), list[int]()
        times, weights = list[float](), list[float]()
        for number, (path, hits) in enumerate(self.hits.items()):
            if not hits:
                continue
            file = self.known.files[path]
            terms, words, named = file.entry.terms, file.words, file.named
            length = 1 - LENGTH + LENGTH * file.length / self.known.usual_length
            numbers.append(number)
            starts.append(len(times))
            weights += map(self.weights.__getitem__, hits)
            times += [
                terms.get(word, 0) / length
                + IN_PATH * (word in words)
                + IN_NAMES * named.get(word, 0.0)
                for word in hits
            ]
        said = np.array(times)
        each = np.array(weights) * said * (SATURATION + 1) / (said + SATURATION)
        # Summed up as whole numbers: then the order in which a set has its words does not matter.
        found = np.zeros(len(self.hits))
        if numbers:
            found[numbers] = (
                np.add.reduceat(np.rint(each * _PARTS_OF_ONE).astype(np.int64), starts)
                / _PARTS_OF_ONE
            )
        return found

    def _score_definitions(self, said: Floats, own: dict[str, list[float]]) -> Floats:
        """What speaks for files beside their words: their best definitions, and that the request
        names them.
        """
        known = self.known
        beside = np.zeros(len(said))
        for path, scores in own.items():
            best = sorted(scores, reverse=True)[:BEST_DEFINITIONS]
            beside[known.numbers[path]] = OF_BEST * sum(
                score / place for place, score in enumerate(best, 1)
            )
        for path in self._asked_for():  # a document defines nothing: it speaks for itself
            if not known.files[path].definitions:
                beside[known.numbers[path]] = OF_BEST * said[known.numbers[path]]
        for path, weight in self.named.items():
            beside[known.numbers[path]] += NAMED * weight
        return beside

    def _roles(self) -> Floats:
        roles = _worths(self.known)
        roles[[self.known.numbers[path] for path in self._asked_for()]] = 1.0
        return roles

    def _asked_for(self) -> list[str]:
        """The files of which the request says that it is about their kind."""
        asked = self.request.roles
        if asked:
            return [path for path, role in self.known.roles.items() if role in asked]
        return []

    def _with_linked(self, scores: Floats, roles: Floats) -> Floats:
        """More for who uses what was found, and for whom it uses."""
        top = scores.max(initial=0.0)
        if top <= 0:
            return scores
        linked = self.known.graph.rank((scores / top) ** 2, FOLLOWED_WEIGHT)
        more: Floats = LINKED_WEIGHT * top * linked / (linked.max() or 1.0) * roles
        return scores + more

    # Definitions

    def _definitions(self, paths: Sequence[str]) -> dict[str, list[float]]:
        """What each definition of these files has of the request: in its name, in the name around
        it, in its own lines.
        """
        known = self.known
        texts = [known.texts(path) for path in paths]
        stops = list(accumulate(len(one.names.sizes) for one in texts))
        first = dict(zip(paths, [0, *stops], strict=False))
        weights = known.vocabulary.values(self.weights)
        inner = known.vocabulary.values(
            self._inner(frozenset[str]().union(*(one.longer for one in texts)))
        )
        scores = _in_bodies(join_tables([one.bodies for one in texts]), weights)
        scores += _in_names(join_tables([one.names for one in texts]), weights, inner)
        scores += _in_parents(join_tables([one.around for one in texts]), weights)
        for places, worth in ((self.exact, NAMED_WEIGHT), (self.frames, FRAME_WEIGHT)):
            for (path, number), weight in places.items():
                if path in first:
                    scores[first[path] + number] += worth * weight
        scores *= [
            self._worth_of(definition)
            for path in paths
            for definition in known.files[path].definitions
        ]
        flat = scores.tolist()
        return {path: flat[first[path] : stop] for path, stop in zip(paths, stops, strict=True)}

    def _worth_of(self, definition: Definition) -> float:
        """What is left of the score of a definition by its kind, and of one in tests that nobody
        asked for.
        """
        worth = KINDS.get(definition.kind, 1.0)
        if "test" not in self.request.roles and _is_in_tests(definition):
            worth *= ROLES["test"]
        return worth

    def _inner(self, words: frozenset[str]) -> dict[str, float]:
        """For longer words what the words of the request say that stand inside of them; all are
        looked through as one text.
        """
        heavy = sorted(self.weights.items(), key=lambda one: (-round(one[1], 6), one[0]))
        parts = [(word, weight) for word, weight in heavy if len(word) > 3 and "_" not in word][
            :PARTS
        ]
        longer = sorted(words - self.weights.keys())
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

    def _add_literals(self, own: dict[str, list[float]], paths: Iterable[str]) -> None:
        """For messages of the request that are in a file: what holds them. The more places, the
        less it says.
        """
        if not self.request.literals:
            return
        found: dict[str, list[Place]] = {}
        for path in paths:
            text = read_text(self.root, path) or ""
            for literal in self.request.literals:
                at = text.find(literal)
                if at >= 0 and (
                    held := _holding(
                        text.count("\n", 0, at) + 1, self.known.files[path].definitions
                    )
                ):
                    found.setdefault(literal, []).append((path, held[-1]))
        for places in found.values():
            for path, number in places:
                own[path][number] += LITERAL_WEIGHT / len(places)

    def _add_neighbours(self, own: dict[str, list[float]]) -> None:
        """For what calls the best definitions, and for what they call."""
        known = self.known
        given: dict[Place, float] = {}
        wanted: dict[str, float] = {}
        for score, place in _best_definitions(own):
            name = plain(known.definition(place).name)
            alike = len(known.find_alike(name))
            if len(name) > 3 and alike <= MAX_COMMON_DEFINITIONS:
                wanted[name] = max(wanted.get(name, 0.0), score / alike)
            for called, several in self._called_by(place, own):
                given[called] = max(given.get(called, 0.0), score / several)
        for name, place in self._saying(wanted, own):
            if plain(known.definition(place).name) != name:
                given[place] = max(given.get(place, 0.0), wanted[name])
        for (path, number), score in given.items():
            own[path][number] += NEIGHBOUR_WEIGHT * score

    def _called_by(self, place: Place, own: Container[str]) -> Iterator[tuple[Place, int]]:
        """What a definition may call in these files, each with how many there are of the name."""
        path, number = place
        for term in self.known.entries[path].bodies[number]:
            places = self.known.find_alike(term)
            if 0 < len(places) <= MAX_COMMON_DEFINITIONS:
                yield from (
                    (other, len(places)) for other in places if other != place and other[0] in own
                )

    def _saying(self, names: Iterable[str], paths: Iterable[str]) -> Iterator[tuple[str, Place]]:
        """Each of these names with each definition of these files whose lines have it."""
        known, spelled = self.known, ["", *names]
        numbers = known.vocabulary.values({name: number for number, name in enumerate(spelled)})
        for path in paths:
            bodies = known.texts(path).bodies
            found = numbers[bodies.words]
            at = np.flatnonzero(found)
            if len(at):
                rows = np.searchsorted(np.cumsum(bodies.sizes), at, side="right")
                yield from (
                    (spelled[int(found[one])], (path, int(row)))
                    for one, row in zip(at, rows, strict=True)
                )


def _best_definitions(own: dict[str, list[float]]) -> list[tuple[float, Place]]:
    """The definitions with the highest scores."""
    least = (
        sorted(chain.from_iterable(own.values()), reverse=True)[:MAX_FOUND_DEFINITIONS] or [0.0]
    )[-1] - 1e-6
    best = sorted(
        (-round(score, 6), path, number)
        for path, scores in own.items()
        for number, score in enumerate(scores)
        if score >= least and score > 0
    )
    return [(-below, (path, number)) for below, path, number in best[:MAX_FOUND_DEFINITIONS]]


def _in_bodies(table: WordTable, weights: Floats) -> Floats:
    """BM25 over the words of each definition's own lines."""
    found, rows = weights[table.words], table.rows
    lengths = 1 - OWN_LENGTH + OWN_LENGTH * _sums(rows, table.times, len(table.sizes)) / USUAL
    at = np.flatnonzero(found)
    rows = rows[at]
    times = table.times[at] / lengths[rows]
    return _sums(
        rows, found[at] * times * (SATURATION + 1) / (times + SATURATION), len(table.sizes)
    )


def _in_names(table: WordTable, weights: Floats, inner: Floats) -> Floats:
    """The words of each name, and those inside of them; in a long name each says less."""
    rows, size = table.rows, len(table.sizes)
    found = weights[table.words]
    said = _sums(rows, found + RUN_TOGETHER * inner[table.words], size)
    share = np.maximum(1.0, _sums(rows, found > 0, size)) / np.maximum(1, table.sizes)
    worth: Floats = NAME * said * np.sqrt(share)
    return worth


def _in_parents(table: WordTable, weights: Floats) -> Floats:
    rows, size = table.rows, len(table.sizes)
    found = weights[table.words]
    share = _sums(rows, found > 0, size) / np.maximum(1, table.sizes)
    worth: Floats = AROUND * _sums(rows, found, size) * share
    return worth


def _sums(rows: Numbers, values: NDArray[Any], size: int) -> Floats:
    """The sum of values for each of so many rows."""
    # where there are none it would count in whole numbers
    return np.bincount(rows, values, size).astype(np.float64, copy=False)


class _Later:
    """Something that is computed beside."""

    def __init__(self, work: Callable[[], dict[str, int]]) -> None:
        self._found: dict[str, int] = {}
        self._thread = Thread(target=lambda: self._found.update(work()), daemon=True)
        self._thread.start()

    def result(self) -> dict[str, int]:
        self._thread.join()
        return self._found


def _holding(line: int, definitions: Sequence[Definition]) -> list[int]:
    """The definitions around a line, the innermost last."""
    return [number for number, one in enumerate(definitions) if one.start <= line <= one.stop]


def _in_frame(frame: Frame, definitions: Sequence[Definition]) -> list[int]:
    """What a frame names: by its name, of several that have it the one at the line; else by the
    line.
    """
    held = _holding(frame.line, definitions)
    called = [number for number, one in enumerate(definitions) if one.name == frame.name]
    return [number for number in called if number in held] or called or held[-1:]


# Shares


def _share_chances(
    known: Lookup,
    scores: Floats,
    own: dict[str, list[float]],
    rest: dict[str, RankedFile],
    sharp: float,
) -> list[RankedFile]:
    """Scores of files from 0 to 1 as chances, best first, with a label that says in which part of
    all chances a file is.

    What a file defines is in the order of `own`, or where that says nothing as it is in the `rest`.
    """
    files = list(known.files.values())
    rounded = np.round(scores, 6)
    # files are in the order of paths, and equals stay in it
    order = np.argsort(-rounded, kind="stable")
    chances = np.maximum(rounded[order], MIN_SCORE) ** sharp
    each = chances / (chances.sum() or 1.0)
    before = np.cumsum(each) - each
    ordered = _order_definitions(own)
    found = list[RankedFile]()
    for number, share, less in zip(
        order.tolist(), np.round(each, 9).tolist(), before.tolist(), strict=True
    ):
        path, definitions = files[number].entry.path, files[number].definitions
        label = _label(less, len(found)) if share >= min(LEAST / len(files), ENOUGH) else "low"
        if path in ordered:
            numbers, shares = ordered[path]
            definitions = tuple(map(definitions.__getitem__, numbers))
        elif path in rest:
            definitions, shares = rest[path].definitions, rest[path].shares
        elif definitions:
            shares = (1 / len(definitions),) * len(definitions)
        else:
            shares = ()
        found.append(RankedFile(path, share, label, definitions, shares))
    return found


def _label(before: float, files: int) -> Relevance:
    """The label of a file by how much of all chances, and how many files, are before it."""
    if before < HIGH and files < MAX_HIGH_FILES:
        return "high"
    if before < MEDIUM and files < MAX_MEDIUM_FILES:
        return "medium"
    return "low"


def _sum_sharing(chances: Floats, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
    """For each definition the chances of those of its file that it shares with: the best few with
    one another, all others with all. `chances` are in the order of files, best first.
    """
    sums = np.concatenate(([0.0], np.cumsum(chances)))
    of_best = sums[starts + np.minimum(sizes, SHARING_DEFINITIONS)] - sums[starts]
    of_all = sums[starts + sizes] - sums[starts]
    places = np.arange(len(chances)) - np.repeat(starts, sizes)
    is_best = places < SHARING_DEFINITIONS
    found: Floats = np.where(is_best, np.repeat(of_best, sizes), np.repeat(of_all, sizes))
    return found


def _order_definitions(
    own: dict[str, list[float]],
) -> dict[str, tuple[list[int], tuple[float, ...]]]:
    """The numbers of the definitions of files, best first, and the share of each within its
    file.
    """
    paths = [path for path, scores in own.items() if scores]
    if not paths:
        return {}
    sizes = np.array([len(own[path]) for path in paths])
    stops = np.cumsum(sizes)
    starts = stops - sizes
    scores = np.round(np.fromiter(chain.from_iterable(own[path] for path in paths), np.float64), 6)
    file = np.repeat(np.arange(len(paths)), sizes)
    order = np.lexsort((-scores, file))
    # Where none stands out next to the best of all, each may be it.
    tops = np.maximum(np.maximum.reduceat(scores, starts), scores.max() / 2)
    tops[tops <= 0] = 1.0
    chances = np.exp(SHARP_OWN * (scores[order] / np.repeat(tops, sizes) - 1))
    shares = (chances / _sum_sharing(chances, starts, sizes)).tolist()
    numbers = (order - np.repeat(starts, sizes)).tolist()
    return {
        path: (numbers[a:b], tuple(shares[a:b]))
        for path, a, b in zip(paths, starts.tolist(), stops.tolist(), strict=True)
    }
