"""The decision graphs of all projects in a store, each seen from a scope.

Reading here, writing in writing.py. The lists that requests need are each one question to one
index, however many decisions there are.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import from_json, to_json
from loom.conversation.words import SPLITTER_VERSION
from loom.decisions.values import (
    LOW_CONFIDENCE,
    Decision,
    DecisionEdge,
    DecisionGraph,
    DecisionKind,
    DecisionStatus,
)
from loom.stores.decisions.rows import (
    COLUMNS,
    COMMIT_TERM,
    EDGE_COLUMNS,
    EDGES,
    GOALS,
    NODE_TERM,
    PRIOR,
    RECENT,
    SESSION_TERM,
    DecisionScope,
    SeenGraphs,
    StoredDecision,
    find_graph,
    find_graphs,
    find_named,
    folder_key,
    is_named_in,
    read_decisions,
    read_edges,
    read_folder,
)
from loom.stores.decisions.writing import GraphWriter, lock_graph
from loom.stores.sql.database import Database, Reader, Row
from loom.stores.sql.stored import read_rows

MAX_HOLDING = 500  # newest decisions with a term that are candidates for a question
MAX_COUNTED_IN_SESSION = 1000  # decisions of a session that are counted for a request
MAX_COUNTED = 10_000  # decisions that are counted to know how rare a term is
_MAX_COMMON = 4  # terms of a question that more decisions have
_MAX_EDGES = 100_000  # that are read at once
_T = TypeVar("_T")


class DecisionFilter(Struct, frozen=True):
    """Which decisions are listed."""

    kind: DecisionKind | None = None
    status: DecisionStatus | None = None
    session: str | None = None
    commit: str = ""
    node: str = ""
    limit: int = 50


class DecisionMatches(Struct, frozen=True):
    """Decisions by the terms that they have, newest first, and how many decisions there are.

    Of a common term, only the newest are there; `counts` says how many have it.
    """

    holding: Mapping[str, Sequence[int]]
    decisions: int
    counts: Mapping[str, int] = {}


class DecisionCounts(Struct, frozen=True):
    """How many active goals there are, and how many decisions a session has."""

    goals: int = 0
    of_session: int = 0
    has_more: bool = False  # the session has more than these


class PulseCounts(Struct, frozen=True):
    """What is wrong in a graph: how many of each, and the first of them."""

    by_kind: Mapping[str, int]
    by_status: Mapping[str, int]
    gaps: tuple[int, tuple[Decision, ...]]
    orphans: tuple[int, tuple[Decision, ...]]
    stale: tuple[int, tuple[Decision, ...]]
    low_confidence: tuple[int, tuple[Decision, ...]]
    next_stale: int | None  # when the next one was changed that is not stale yet


class StoredDecisions:
    """The decisions of all projects in a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, scope: DecisionScope, now: int, work: Callable[[GraphWriter], _T]) -> _T:
        """Change a graph, in one transaction."""
        with self._database.write() as writer:
            return work(GraphWriter(writer, scope, now))

    def shed(self) -> None:
        """Remove what was purged from the files of the database too."""
        self._database.shed()

    def remove(self, keys: Collection[int]) -> None:
        """Take back decisions of an import that did not come to its end."""
        if not keys:
            return
        each = [(key,) for key in keys]
        with self._database.write() as writer:
            writer.run_many("DELETE FROM decision_terms WHERE decision = $1", each)
            writer.run_many("DELETE FROM decision_edges WHERE source = $1 OR target = $1", each)
            writer.run_many("DELETE FROM decisions WHERE key = $1", each)

    # Lists

    def revision(self, scope: DecisionScope) -> int:
        """How often what is seen changed; 0 if nothing was logged."""
        with self._database.read() as reader:
            return find_graphs(reader, scope).revision

    def folders(self, tenant: str, project: str) -> list[tuple[str, int]]:
        """The folders of a project in which something was logged, with how many decisions."""
        with self._database.read() as reader:
            rows = reader.all(_FOLDERS, tenant, project)
        return [(str(from_json(folder)), count) for folder, count in rows]

    def active_goals(self, scope: DecisionScope, limit: int) -> list[Decision]:
        return self._list_shelf(scope, GOALS, limit)

    def recent(self, scope: DecisionScope, limit: int) -> list[Decision]:
        return self._list_shelf(scope, RECENT, limit)

    def prior(self, scope: DecisionScope, limit: int) -> list[Decision]:
        return self._list_shelf(scope, PRIOR, limit)

    def _list_shelf(self, scope: DecisionScope, shelf: str, limit: int) -> list[Decision]:
        with self._database.read() as reader:
            seen = find_graphs(reader, scope)
            rows = read_rows(reader, _ON_SHELF, seen.main, shelf, limit)
            if seen.others:
                whose = (str(list(seen.others)), scope.session)
                rows += read_rows(reader, _OWN_ON_SHELF, *whose, shelf, limit)
            return _read_merged(reader, scope, seen, rows, limit)

    def of_session(self, scope: DecisionScope, session: str, limit: int) -> list[Decision]:
        """The last decisions of a session, the oldest first."""
        with self._database.read() as reader:
            seen = find_graphs(reader, scope)
            graphs = seen.keys if session == scope.session else (seen.main,)
            rows = [
                row
                for graph in graphs
                for row in read_rows(reader, _OF_SESSION, graph, session, limit)
            ]
            return _read_merged(reader, scope, seen, rows, limit)[::-1]

    def list_all(self, scope: DecisionScope, wanted: DecisionFilter) -> list[Decision]:
        """Decisions, the newest first."""
        links = _link_range(wanted)
        with self._database.read() as reader:
            seen = find_graphs(reader, scope)
            rows: list[Row] = []
            for graph in seen.keys:
                whose = (seen.main, graph, scope.session)
                if links is not None:
                    rows += read_rows(reader, _LINKED, *whose, *links)
                    continue
                rows += read_rows(
                    reader,
                    _LISTED,
                    *whose,
                    wanted.kind or "",
                    wanted.status or "",
                    int(wanted.session is not None),
                    wanted.session or "",
                    wanted.limit,
                )
            found = _read_merged(reader, scope, seen, rows, len(rows))
        return [each for each in found if _matches(each, wanted)][: wanted.limit]

    def count(self, scope: DecisionScope, session: str) -> DecisionCounts:
        """How many active goals there are, and how many decisions a session has, as far as they are
        counted.
        """
        goals = of_session = 0
        with self._database.read() as reader:
            seen = find_graphs(reader, scope)
            for graph in seen.keys:
                if graph == seen.main:
                    row = reader.first_row(_COUNT_GOALS, graph)
                else:
                    row = reader.first_row(_COUNT_OWN_GOALS, graph, scope.session)
                goals += row[0] if row else 0
                if graph == seen.main or session == scope.session:
                    row = reader.first_row(_COUNT_OF_SESSION, graph, session)
                    of_session += row[0] if row else 0
        counted = min(of_session, MAX_COUNTED_IN_SESSION)
        return DecisionCounts(goals, counted, of_session > counted)

    def find(self, scope: DecisionScope, name: str) -> Decision:
        """A decision by its id, or by the first characters of it."""
        with self._database.read() as reader:
            graph, home = find_home(reader, scope, name)
            return find_named(reader, graph, home, name).decision

    def home_of(self, scope: DecisionScope, name: str) -> DecisionScope:
        """The scope of the graph that has a decision: what is changed of it is changed there."""
        with self._database.read() as reader:
            return find_home(reader, scope, name)[1]

    def edges_of(self, scope: DecisionScope, ids: Collection[str]) -> list[DecisionEdge]:
        """The edges from and to these decisions."""
        edges: list[DecisionEdge] = []
        with self._database.read() as reader:
            for graph in find_graphs(reader, scope).keys:
                edges += read_edges(read_rows(reader, _EDGES_OF, graph, to_json(sorted(ids))))
        return edges

    # Searching

    def match(self, scope: DecisionScope, terms: Iterable[str]) -> DecisionMatches:
        """The decisions that have these terms."""
        self._renew_terms(scope)
        with self._database.read() as reader:
            seen = find_graphs(reader, scope)
            found: dict[str, list[int]] = {}
            common: dict[str, list[int]] = {}
            for term in sorted(set(terms)):
                keys = [key for (key,) in reader.all(_HOLDING, seen.main, term)]
                if seen.others:
                    own = (str(list(seen.others)), scope.session)
                    keys += [key for (key,) in reader.all(_OWN_HOLDING, *own, term)]
                if len(keys) > MAX_HOLDING:
                    common[term] = keys
                elif keys:
                    found[term] = keys
            counts = {term: _count_term(reader, seen.main, term) for term in common}
            for term in sorted(common, key=lambda each: (counts[each], each))[:_MAX_COMMON]:
                found[term] = common[term]
            counted = reader.first_row(_COUNT, seen.main)
        return DecisionMatches(found, counted[0] if counted else 0, counts)

    def read(self, scope: DecisionScope, keys: Collection[int]) -> dict[int, Decision]:
        """Decisions by their keys."""
        if not keys:
            return {}
        with self._database.read() as reader:
            seen, wanted = find_graphs(reader, scope), str(sorted(keys))
            rows = [
                row
                for graph in seen.keys
                for row in read_rows(reader, _SEEN_BY_KEYS, seen.main, graph, scope.session, wanted)
            ]
            found = _read_seen(reader, scope, seen, rows)
        return {each.key: each.decision for each in found}

    def _renew_terms(self, scope: DecisionScope) -> None:
        """Split the words again if other rules split them."""
        with self._database.read() as reader:
            row = reader.first_row(_REVISION, scope.tenant, scope.project, folder_key(scope.folder))
        if row and row[1] != SPLITTER_VERSION:
            with self._database.write() as writer:
                lock_graph(writer, scope)

    # The graph

    def read_newest(self, scope: DecisionScope, session: str | None, limit: int) -> DecisionGraph:
        """The newest decisions, and the edges between them."""
        with self._database.read() as reader:
            graph = find_graph(reader, scope)
            whose = (int(session is not None), session or "")
            rows = read_rows(reader, _LISTED, graph, graph, "", "", "", *whose, limit)
            found = read_decisions(rows, scope)
            total = reader.first_row(_COUNT_OF, graph, *whose)
            edges = _edges_between(reader, graph, found)
        return _make_graph(found, edges, (total[0] if total else 0) - len(rows))

    def read_below(self, scope: DecisionScope, name: str, limit: int) -> DecisionGraph:
        """A decision and what it leads to, the nearest first, and the edges between them."""
        with self._database.read() as reader:
            graph, scope = find_home(reader, scope, name)
            root = find_named(reader, graph, scope, name)
            seen, level, left_out = {root.key: None}, [root.key], 0
            while level:
                rows = reader.all(_BELOW, graph, str(level))
                level = [key for (key,) in rows if key not in seen]
                room = limit - len(seen)
                left_out += max(0, len(level) - room)
                level = level[: max(0, room)]
                seen.update(dict.fromkeys(level))
            rows = read_rows(reader, _BY_KEYS, graph, str(sorted(seen)))
            found = [each for each in read_decisions(rows, scope) if not each.decision.purged]
            edges = _edges_between(reader, graph, found)
        return _make_graph(found, edges, left_out)

    def count_pulse(self, scope: DecisionScope, stale_before: int, limit: int) -> PulseCounts:
        """What is wrong in a graph."""
        with self._database.read() as reader:
            graph = find_graph(reader, scope)

            def find(condition: str, *values: int) -> tuple[int, tuple[Decision, ...]]:
                counted = reader.first_row(
                    _PULSE.format(what="count(*)") + condition, graph, *values
                )
                sql = _PULSE.format(what=COLUMNS) + condition
                rows = read_rows(
                    reader, f"{sql} ORDER BY d.created, d.key LIMIT {limit}", graph, *values
                )
                found = tuple(each.decision for each in read_decisions(rows, scope))
                return (counted[0] if counted else 0), found

            fresh = reader.first_row(
                _PULSE.format(what="min(d.updated)") + _FRESH, graph, stale_before
            )
            return PulseCounts(
                by_kind=dict(reader.all(_BY_KIND, graph)),
                by_status=dict(reader.all(_BY_STATUS, graph)),
                gaps=find(_GAP),
                orphans=find(_ORPHAN),
                stale=find(_STALE, stale_before),
                low_confidence=find(_LOW, LOW_CONFIDENCE),
                next_stale=fresh[0] if fresh else None,
            )


def _count_term(reader: Reader, graph: int, term: str) -> int:
    """How many decisions have a term, up to a limit."""
    row = reader.first_row(_COUNT_TERM, graph, term)
    return int(row[0]) if row else 0


def find_home(reader: Reader, scope: DecisionScope, name: str) -> tuple[int, DecisionScope]:
    """The graph that has a decision, and its scope: that of the folder, or another one that has it
    from the session.
    """
    seen = find_graphs(reader, scope)
    if seen.others and not is_named_in(reader, seen.main, name):
        for graph in seen.others:
            if is_named_in(reader, graph, name, scope.session):
                folder = read_folder(reader, graph)
                return graph, DecisionScope(scope.tenant, scope.project, folder)
    return seen.main, DecisionScope(scope.tenant, scope.project, scope.folder)


def _read_seen(
    reader: Reader, scope: DecisionScope, seen: SeenGraphs, rows: Iterable[Row]
) -> list[StoredDecision]:
    """What rows of several graphs hold; their thirteenth column says of which."""
    held = list(rows)
    folders = {graph: read_folder(reader, graph) for graph in seen.others}
    folders[seen.main] = scope.folder
    return [
        each
        for row in held
        for each in read_decisions([row], replace(scope, folder=folders[row[_GRAPH_COLUMN]]))
    ]


def _read_merged(
    reader: Reader, scope: DecisionScope, seen: SeenGraphs, rows: list[Row], limit: int
) -> list[Decision]:
    """What rows of several graphs hold, the newest first."""
    if seen.others:
        rows = sorted(rows, key=lambda row: (row[_PLACED_COLUMN], row[0]), reverse=True)
    return [each.decision for each in _read_seen(reader, scope, seen, rows[:limit])]


def _edges_between(
    reader: Reader, graph: int, found: Sequence[StoredDecision]
) -> list[DecisionEdge]:
    keys = str(sorted(each.key for each in found))
    return read_edges(read_rows(reader, _EDGES_BETWEEN, graph, keys))


def _make_graph(
    found: Iterable[StoredDecision], edges: Iterable[DecisionEdge], left_out: int
) -> DecisionGraph:
    ordered = sorted(found, key=lambda each: (each.decision.created, each.key))
    return DecisionGraph(tuple(each.decision for each in ordered), tuple(edges), max(0, left_out))


def _link_range(wanted: DecisionFilter) -> tuple[str, str] | None:
    """The terms of a commit, which may be named by its first characters, or of a node."""
    if wanted.commit:
        return COMMIT_TERM + wanted.commit, COMMIT_TERM + wanted.commit + "g"
    if wanted.node:
        return NODE_TERM + wanted.node, NODE_TERM + wanted.node
    return None


def _matches(decision: Decision, wanted: DecisionFilter) -> bool:
    return (
        wanted.kind in (None, decision.kind)
        and wanted.status in (None, decision.status)
        and wanted.session in (None, decision.session)
    )


_GRAPH_COLUMN, _PLACED_COLUMN = 12, 13
_COLUMNS = f"{COLUMNS}, d.graph"
_SELECT = f"SELECT {_COLUMNS}, d.created FROM decisions d WHERE d.graph = $1"
# Of the graph $2: everything if it is the one in scope, $1, and else what session $3 logged, also
# again.
_AGAIN = f"""EXISTS (SELECT 1 FROM decision_terms o WHERE o.graph = d.graph
    AND o.term = '{SESSION_TERM}' || $3 AND o.decision = d.key)"""
_SEEN = f"d.graph = $2 AND ($1 = $2 OR d.session = $3 OR {_AGAIN})"
_SELECT_SEEN = f"SELECT {_COLUMNS}, d.created FROM decisions d WHERE {_SEEN}"
_REVISION = """SELECT revision, version FROM decision_graphs
    WHERE tenant = $1 AND project = $2 AND name = $3"""
_FOLDERS = """SELECT g.folder, (SELECT count(*) FROM decisions d
        WHERE d.graph = g.key AND d.data IS NOT NULL)
    FROM decision_graphs g WHERE g.tenant = $1 AND g.project = $2 ORDER BY g.folder {binary}"""
_ON_SHELF = f"""SELECT {_COLUMNS}, d.placed FROM decisions d
    WHERE d.graph = $1 AND d.shelf = $2 ORDER BY d.placed DESC, d.key DESC LIMIT $3"""
_OWN_ON_SHELF = f"""SELECT {_COLUMNS}, d.placed FROM decisions d
    WHERE d.key IN (SELECT s.key FROM decisions s
            WHERE s.graph IN {{each_int:1}} AND s.session = $2
        UNION SELECT o.decision FROM decision_terms o
            WHERE o.graph IN {{each_int:1}} AND o.term = '{SESSION_TERM}' || $2)
    AND d.shelf = $3 ORDER BY d.placed DESC, d.key DESC LIMIT $4"""
_OF_SESSION = f"""{_SELECT} AND d.session = $2 AND d.data IS NOT NULL
    ORDER BY d.created DESC, d.key DESC LIMIT $3"""
_LISTED = f"""{_SELECT_SEEN} AND d.data IS NOT NULL AND ($4 = '' OR d.kind = $4)
    AND ($5 = '' OR d.status = $5) AND (CAST($6 AS BIGINT) = 0 OR d.session = $7)
    ORDER BY d.created DESC, d.key DESC LIMIT $8"""
_LINKED = f"""{_SELECT_SEEN} AND d.key IN (SELECT t.decision FROM decision_terms t
        WHERE t.graph = $2 AND t.term >= $4 AND t.term <= $5)
    ORDER BY d.created DESC, d.key DESC"""
# By the keys, and not by the index of the graph, which has all of it.
_SEEN_BY_KEYS = f"""SELECT {_COLUMNS}, d.created FROM decisions d WHERE d.key IN {{each_int:4}}
    AND +d.graph = $2 AND ($1 = $2 OR d.session = $3 OR {_AGAIN}) ORDER BY d.key"""
_BY_KEYS = f"""SELECT {COLUMNS} FROM decisions d
    WHERE d.key IN {{each_int:2}} AND +d.graph = $1 ORDER BY d.key"""
_COUNT = f"""SELECT count(*) FROM (SELECT 1 FROM decisions d WHERE d.graph = $1
    LIMIT {MAX_COUNTED}) x"""
_COUNT_GOALS = f"SELECT count(*) FROM decisions d WHERE d.graph = $1 AND d.shelf = '{GOALS}'"
_COUNT_OWN_GOALS = f"""SELECT count(*) FROM decisions d WHERE d.shelf = '{GOALS}' AND d.key IN (
        SELECT s.key FROM decisions s WHERE s.graph = $1 AND s.session = $2
        UNION SELECT o.decision FROM decision_terms o
            WHERE o.graph = $1 AND o.term = '{SESSION_TERM}' || $2)"""
_COUNT_OF_SESSION = f"""SELECT count(*) FROM (SELECT 1 FROM decisions d
    WHERE d.graph = $1 AND d.session = $2 AND d.data IS NOT NULL
    LIMIT {MAX_COUNTED_IN_SESSION + 1}) x"""
_COUNT_OF = """SELECT count(*) FROM decisions d WHERE d.graph = $1 AND d.data IS NOT NULL
    AND (CAST($2 AS BIGINT) = 0 OR d.session = $3)"""
_COUNT_TERM = f"""SELECT count(*) FROM (SELECT 1 FROM decision_terms t
    WHERE t.graph = $1 AND t.term = $2 LIMIT {MAX_COUNTED}) x"""
_OWN_HOLDING = f"""SELECT t.decision FROM decision_terms t JOIN decisions d ON d.key = t.decision
    WHERE t.graph IN {{each_int:1}} AND t.term = $3 AND (d.session = $2 OR EXISTS (
        SELECT 1 FROM decision_terms o WHERE o.graph = t.graph
        AND o.term = '{SESSION_TERM}' || $2 AND o.decision = d.key))
    ORDER BY t.decision DESC LIMIT {MAX_HOLDING}"""
_HOLDING = f"""SELECT t.decision FROM decision_terms t WHERE t.graph = $1 AND t.term = $2
    ORDER BY t.decision DESC LIMIT {MAX_HOLDING + 1}"""
_EDGES_OF = f"""SELECT {EDGE_COLUMNS} FROM {EDGES} WHERE e.graph = $1 AND e.key IN (
        SELECT x.key FROM decision_edges x JOIN decisions d ON d.key = x.source
        WHERE d.graph = $1 AND d.id IN {{each:2}}
        UNION SELECT x.key FROM decision_edges x JOIN decisions d ON d.key = x.target
        WHERE d.graph = $1 AND d.id IN {{each:2}})
    ORDER BY e.key LIMIT {_MAX_EDGES}"""
_EDGES_BETWEEN = f"""SELECT {EDGE_COLUMNS} FROM {EDGES} WHERE e.graph = $1
    AND e.source IN {{each_int:2}} AND e.target IN {{each_int:2}}
    ORDER BY e.key LIMIT {_MAX_EDGES}"""
_BELOW = """SELECT DISTINCT e.target FROM decision_edges e
    WHERE e.graph = $1 AND e.source IN {each_int:2} ORDER BY e.target"""
_PULSE = """SELECT {what} FROM decisions d
    WHERE d.graph = $1 AND d.status = 'active' AND d.data IS NOT NULL"""
_GAP = """ AND d.kind IN ('goal', 'decision') AND NOT EXISTS (
    SELECT 1 FROM decision_edges e JOIN decisions t ON t.key = e.target
    WHERE e.source = d.key AND t.kind IN ('action', 'outcome'))"""
_ORPHAN = """ AND d.kind <> 'goal'
    AND NOT EXISTS (SELECT 1 FROM decision_edges e WHERE e.source = d.key)
    AND NOT EXISTS (SELECT 1 FROM decision_edges e WHERE e.target = d.key)"""
_OPEN = " AND d.kind IN ('goal', 'decision', 'revisit')"
_STALE = f"{_OPEN} AND d.updated < $2"
_FRESH = f"{_OPEN} AND d.updated >= $2"
_LOW = " AND d.confidence < $2"
_BY_KIND = """SELECT d.kind, count(*) FROM decisions d
    WHERE d.graph = $1 AND d.data IS NOT NULL GROUP BY d.kind ORDER BY d.kind {binary}"""
_BY_STATUS = """SELECT d.status, count(*) FROM decisions d
    WHERE d.graph = $1 AND d.data IS NOT NULL GROUP BY d.status ORDER BY d.status {binary}"""
