"""Writing to a decision graph.

Rules of this file:
- Each verb is one transaction, in which nobody else changes the graph.
- What is logged again is found, as long as it is active. A goal is found by its title alone.
- Only an active decision is superseded, and only by an active one; so no chain of superseding goes
  in a circle. All other edges may: whoever walks the graph remembers where they were.
- Nothing is deleted but words, by a purge. Edges, kinds and states stay.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.words import SPLITTER_VERSION
from loom.decisions.values import (
    LOW_CONFIDENCE,
    MAX_LINKS,
    UNCERTAIN,
    Decision,
    DecisionBody,
    DecisionEdge,
    DecisionStatus,
    NewDecision,
    NewEdge,
    decision_id,
    title_key,
)
from loom.errors import ChoiceError, Conflict
from loom.stores.decisions.rows import (
    COLUMNS,
    EDGE_COLUMNS,
    EDGES,
    GOALS,
    NO_SHELF,
    DecisionScope,
    StoredDecision,
    choose_shelf,
    decision_terms,
    find_named,
    find_worded,
    folder_key,
    read_decisions,
    read_edges,
    write_folder,
)
from loom.stores.sql.database import Reader, Writer
from loom.stores.sql.stored import UNREADABLE, decode_stored, read_rows

DEPENDENCE = ("requires", "blocks")  # edges that uncertainty goes along
MAX_CASCADE_DEPTH = 5  # of these edges, one after the other
MAX_CASCADE = 10_000  # decisions that one change of confidence reaches
_PAGE_ROWS = 500


class Cascade(Struct, frozen=True):
    """What became uncertain because of a decision, and what is certain again."""

    upstream: Decision
    uncertain: tuple[Decision, ...] = ()
    certain: tuple[Decision, ...] = ()


class GraphWriter:
    """A graph inside one transaction, which nobody else changes until it ends.

    `cascades` are the marks of uncertainty that changed.
    """

    def __init__(self, writer: Writer, scope: DecisionScope, now: int) -> None:
        self.writer, self.scope, self.now = writer, scope, now
        self.key = lock_graph(writer, scope)
        self.cascades: list[Cascade] = []

    # Finding

    def find(self, name: str) -> StoredDecision:
        return find_worded(self.writer, self.key, self.scope, name)

    def _by_id(self, identity: str) -> StoredDecision | None:
        rows = read_rows(self.writer, _BY_ID, self.key, identity)
        return next(iter(read_decisions(rows, self.scope)), None)

    def _again(self, found: StoredDecision) -> StoredDecision:
        """A decision as it is now."""
        return find_named(self.writer, self.key, self.scope, found.decision.id)

    # Logging

    def log(self, new: NewDecision, edge: NewEdge) -> StoredDecision:
        """Log a decision under its parent, if it has one; or find it."""
        if new.session:
            check_session(self.writer, self.scope, new.session)
        parent = self.find(new.parent) if new.parent else None
        new = replace(new, parent=parent.decision.id if parent else "")
        found = self._find_same(new)
        if isinstance(found, NewDecision):
            made = self._insert(found)
        else:
            made = self._log_again(found, new)
        if parent is not None and parent.key != made.key:
            if edge.kind == "supersedes":
                self._supersede(parent, made, edge)
            else:
                self._put_edge(parent, made, edge)
        self.count_change()
        return self._again(made)

    def _find_same(self, new: NewDecision) -> StoredDecision | NewDecision:
        """What is logged already, or else what is to be written."""
        if new.kind == "goal":
            rows = read_rows(self.writer, _GOAL, self.key, title_key(new.body.title))
            same = next(iter(read_decisions(rows, self.scope)), None)
            if same is not None:
                return same
        while True:
            found = self._by_id(decision_id(new))
            if found is None:
                return new
            if found.decision.status == "active" and not found.decision.purged:
                return found
            new = replace(new, generation=new.generation + 1)

    def _insert(self, new: NewDecision) -> StoredDecision:
        identity = decision_id(new)
        key = insert_decision(self.writer, self.key, identity, new, "active", self.now)
        put_terms(self.writer, self.key, key, new.body)
        made = self._by_id(identity)
        assert made is not None
        return made

    def _log_again(self, found: StoredDecision, new: NewDecision) -> StoredDecision:
        """Add what is new of a decision that is there."""
        self._change_body(
            found,
            metadata={**found.decision.metadata, **new.body.metadata},
            commits=_join("commits", found.decision.commits, new.body.commits),
            nodes=_join("nodes", found.decision.nodes, new.body.nodes),
            sessions=_join_sessions(found, new.session),
        )
        if new.confidence is not None:
            self.set_confidence(self._again(found), new.confidence)
        return self._again(found)

    def attach(
        self, name: str, commits: Iterable[str], nodes: Iterable[str], metadata: Mapping[str, Any]
    ) -> StoredDecision:
        """Add links and metadata to a decision."""
        found = self.find(name)
        self._change_body(
            found,
            metadata={**found.decision.metadata, **metadata},
            commits=_join("commits", found.decision.commits, commits),
            nodes=_join("nodes", found.decision.nodes, nodes),
        )
        self.count_change()
        return self._again(found)

    def _change_body(self, found: StoredDecision, **changes: Any) -> None:
        decision = found.decision
        old = DecisionBody(
            title=decision.title,
            description=decision.description,
            metadata=decision.metadata,
            commits=decision.commits,
            nodes=decision.nodes,
            sessions=decision.sessions,
        )
        new = replace(old, **changes)
        if new == old:
            return
        self.writer.all(
            "UPDATE decisions SET data = $2, updated = $3 WHERE key = $1",
            found.key,
            to_json(new),
            self.now,
        )
        if (new.commits, new.nodes, new.sessions) != (old.commits, old.nodes, old.sessions):
            self.writer.all("DELETE FROM decision_terms WHERE decision = $1", found.key)
            put_terms(self.writer, self.key, found.key, new)

    # Edges

    def link(self, source: str, target: str, edge: NewEdge) -> DecisionEdge:
        """Make an edge, or change weight and rationale of one that is there. One that judges an
        option judges it again: it is as new as this call.
        """
        if edge.kind == "supersedes":
            return self.supersede(source, target, edge)
        first, last = self.find(source), self.find(target)
        if first.key == last.key:
            raise ChoiceError(f"decision {first.decision.id} cannot have an edge to itself")
        made = self._put_edge(first, last, edge)
        self.count_change()
        return made

    def _put_edge(
        self, source: StoredDecision, target: StoredDecision, edge: NewEdge
    ) -> DecisionEdge:
        insert_edge(self.writer, self.key, source.key, target.key, edge, self.now)
        [made] = self._edge(source, target, edge.kind)
        if edge.kind in DEPENDENCE:
            self._spread(source.key, target.key)
        return made

    def _edge(
        self, source: StoredDecision, target: StoredDecision, kind: str
    ) -> list[DecisionEdge]:
        return read_edges(read_rows(self.writer, _EDGE, source.key, target.key, kind))

    def supersede(self, old: str, new: str, edge: NewEdge) -> DecisionEdge:
        """Replace one decision by another."""
        made = self._supersede(self.find(old), self.find(new), edge)
        self.count_change()
        return made

    def _supersede(self, old: StoredDecision, new: StoredDecision, edge: NewEdge) -> DecisionEdge:
        if old.key == new.key:
            raise ChoiceError(f"decision {old.decision.id} cannot supersede itself")
        there = self._edge(old, new, "supersedes")
        if there and old.decision.status == "superseded":
            return there[0]
        self._check_active(old, "superseded")
        if new.decision.status != "active":
            raise ChoiceError(
                f"decision {new.decision.id} is {new.decision.status}; only an active decision "
                "can supersede another"
            )
        self._set_status(old, "superseded")
        return self._put_edge(old, new, edge)

    def pivot(
        self, old: str, chain: tuple[NewDecision, NewDecision, NewDecision], edge: NewEdge
    ) -> tuple[StoredDecision, StoredDecision, StoredDecision, DecisionEdge]:
        """Replace a decision by another by way of an observation and a revisit."""
        start = self.find(old)
        for new in chain:
            if new.session:
                check_session(self.writer, self.scope, new.session)
        if start.decision.status == "superseded":
            return self._find_pivot(start, chain)
        self._check_active(start, "pivoted")
        leads = replace(edge, kind="leads_to", rationale="")
        made, before = list[StoredDecision](), start
        for new in chain:
            same = self._find_same(replace(new, parent=before.decision.id))
            if isinstance(same, NewDecision):
                step = self._insert(same)
            else:
                step = self._log_again(same, new)
            self._put_edge(before, step, leads)
            made.append(step)
            before = step
        link = self._supersede(start, before, edge)
        self.count_change()
        return made[0], made[1], made[2], link

    def _find_pivot(
        self, start: StoredDecision, chain: Iterable[NewDecision]
    ) -> tuple[StoredDecision, StoredDecision, StoredDecision, DecisionEdge]:
        """The same pivot, which was made before; else a conflict."""
        found, parent = list[StoredDecision](), start.decision.id
        for new in chain:
            step = self._by_id(decision_id(replace(new, parent=parent)))
            if step is None:
                raise self._conflict(start, "pivoted")
            found.append(step)
            parent = step.decision.id
        edges = self._edge(start, found[-1], "supersedes")
        if not edges:
            raise self._conflict(start, "pivoted")
        return found[0], found[1], found[2], edges[0]

    def _check_active(self, found: StoredDecision, verb: str) -> None:
        decision = found.decision
        if decision.status == "active":
            return
        if decision.status == "abandoned":
            raise ChoiceError(
                f"decision {decision.id} was abandoned and cannot be {verb}; log it again first"
            )
        raise self._conflict(found, verb)

    def _conflict(self, found: StoredDecision, verb: str) -> Conflict:
        decision = found.decision
        rows = self.writer.all(_SUPERSEDED_BY, found.key)
        by = rows[0][0] if rows else "another decision"
        return Conflict(
            decision.session,
            "active",
            "superseded",
            f"decision {decision.id} cannot be {verb}: it was superseded by {by} already; look "
            "at that one, then decide again",
        )

    def _set_status(self, found: StoredDecision, status: DecisionStatus) -> None:
        self.writer.all(
            "UPDATE decisions SET status = $2, shelf = $3, placed = $4, updated = $4 "
            "WHERE key = $1",
            found.key,
            status,
            choose_shelf(found.decision.kind, status),
            self.now,
        )
        if _is_low(found.decision):
            self._clear(found)

    def abandon(self, name: str, metadata: Mapping[str, Any]) -> StoredDecision:
        """Give a decision up."""
        found = self.find(name)
        if found.decision.status != "abandoned":
            self._check_active(found, "abandoned")
            self._change_body(found, metadata={**found.decision.metadata, **metadata})
            self._set_status(found, "abandoned")
            self.count_change()
        return self._again(found)

    # Confidence

    def set_confidence(self, found: StoredDecision, confidence: int | None) -> StoredDecision:
        """Set the confidence; what requires or is blocked by it becomes uncertain with it, and
        certain again.
        """
        before = found.decision
        if before.confidence != confidence:
            self.writer.all(
                "UPDATE decisions SET confidence = $2, updated = $3 WHERE key = $1",
                found.key,
                confidence,
                self.now,
            )
        made = self._again(found)
        if _is_low(made.decision):
            uncertain = self._mark(self._walk([made.key]), True)
            self._add_cascade(Cascade(made.decision, uncertain=uncertain))
        elif _is_low(before):
            self._clear(made)
        return made

    def _spread(self, source: int, target: int) -> None:
        """Mark what became uncertain by an edge: its target, and what depends on that, if the
        source is of low confidence or depends on something that is.
        """
        above = [source]
        for distance in range(MAX_CASCADE_DEPTH):
            lows = self._find_low(above)
            if lows:
                reached = [target, *self._walk([target], depth=MAX_CASCADE_DEPTH - distance - 1)]
                alone = lows.intersection(reached) - self._find_dependent(lows)
                uncertain = self._mark([key for key in reached if key not in alone], True)
                [upstream] = self._read([min(lows)])
                return self._add_cascade(Cascade(upstream.decision, uncertain=uncertain))
            above = self._walk(above, _UPSTREAM, depth=1)
        return None

    def _clear(self, found: StoredDecision) -> None:
        """Take the mark from what depended on a decision and on nothing else of low confidence."""
        reached = self._walk([found.key])
        held = self._find_uncertain(reached)
        certain = self._mark([key for key in reached if key not in held], False)
        self._add_cascade(Cascade(self._again(found).decision, certain=certain))

    def _add_cascade(self, cascade: Cascade) -> None:
        if cascade.uncertain or cascade.certain:
            self.cascades.append(cascade)

    def _walk(
        self, start: Iterable[int], sql: str = "", depth: int = MAX_CASCADE_DEPTH
    ) -> list[int]:
        """The decisions that are reached along edges of dependence, nearest first."""
        seen, level = dict.fromkeys(start), list(start)
        first = set(level)
        for _ in range(depth):
            rows = self.writer.all(sql or _DOWNSTREAM, self.key, str(level))
            level = [key for (key,) in rows if key not in seen]
            seen.update(dict.fromkeys(level))
            if not level or len(seen) > MAX_CASCADE:
                break
        return [key for key in seen if key not in first][:MAX_CASCADE]

    def _find_low(self, keys: Collection[int]) -> set[int]:
        """Those of low confidence that are active."""
        return {key for (key,) in self.writer.all(_LOW, str([*keys]), LOW_CONFIDENCE)}

    def _find_uncertain(self, keys: Collection[int]) -> set[int]:
        """Those that still depend on something of low confidence."""
        lows = self._find_low([*keys, *self._walk(keys, _UPSTREAM)])
        # Of what is of low confidence itself, a walk from there does not tell on what it depends.
        return {*self._walk(lows), *self._find_dependent(lows.intersection(keys))}

    def _find_dependent(self, lows: Iterable[int]) -> set[int]:
        """Those that depend on something else of low confidence."""
        return {key for key in lows if self._find_low(self._walk([key], _UPSTREAM))}

    def _mark(self, keys: Collection[int], is_uncertain: bool) -> tuple[Decision, ...]:
        """Set or take the mark; the decisions that it is new to, or gone from."""
        changed: list[Decision] = []
        for found in self._read(keys):
            decision = found.decision
            if decision.purged or decision.is_uncertain == is_uncertain:
                continue
            metadata = {**decision.metadata, UNCERTAIN: True}
            if not is_uncertain:
                del metadata[UNCERTAIN]
            self._change_body(found, metadata=metadata)
            changed.append(self._again(found).decision)
        return tuple(changed)

    def _read(self, keys: Collection[int]) -> list[StoredDecision]:
        if not keys:
            return []
        rows = read_rows(self.writer, _BY_KEYS, self.key, str(sorted(keys)))
        return read_decisions(rows, self.scope)

    # Purging

    def purge(self, name: str) -> StoredDecision:
        """Delete the words of a decision."""
        found = find_named(self.writer, self.key, self.scope, name)
        take_decisions(self.writer, [found.key])
        drop_views(self.writer, self.scope.tenant, self.scope.project)
        self.count_change()
        return self._again(found)

    def count_change(self) -> None:
        count_change(self.writer, self.key)


def _is_low(decision: Decision) -> bool:
    """Whether what depends on a decision is uncertain."""
    confidence = decision.confidence
    return decision.status == "active" and confidence is not None and confidence < LOW_CONFIDENCE


def lock_graph(writer: Writer, scope: DecisionScope) -> int:
    """The key of the graph of a folder, which nobody else changes until this transaction ends.
    Words are split again if other rules split them.
    """
    place = (scope.tenant, scope.project, folder_key(scope.folder))
    writer.all(
        "INSERT INTO decision_graphs (tenant, project, name, folder, version, revision) "
        "VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT (tenant, project, name) DO NOTHING",
        *place,
        write_folder(scope.folder),
        SPLITTER_VERSION,
    )
    row = writer.first_row(_LOCK, *place)
    assert row is not None
    if row[1] != SPLITTER_VERSION:
        _split_again(writer, row[0])
    return int(row[0])


def count_change(writer: Writer, graph: int) -> None:
    writer.all("UPDATE decision_graphs SET revision = revision + 1 WHERE key = $1", graph)


def check_session(reader: Reader, scope: DecisionScope, session: str) -> None:
    """Refuse to log anything in a session that was purged."""
    row = reader.first_row(
        "SELECT status FROM sessions WHERE tenant = $1 AND project = $2 AND id = $3",
        scope.tenant,
        scope.project,
        session,
    )
    if row is None or row[0] == "purged":
        raise ChoiceError(f"session {session} was purged; nothing more can be logged in it")


def insert_decision(
    writer: Writer,
    graph: int,
    identity: str,
    new: NewDecision,
    status: DecisionStatus,
    now: int,
) -> int:
    """Write a decision that is not there; its key."""
    [(key,)] = writer.all(
        _INSERT,
        graph,
        identity,
        new.session,
        new.agent,
        new.kind,
        status,
        new.confidence,
        new.parent,
        new.generation,
        choose_shelf(new.kind, status),
        now,
        title_key(new.body.title),
        to_json(new.body),
    )
    return int(key)


def insert_edge(
    writer: Writer, graph: int, source: int, target: int, edge: NewEdge, now: int
) -> None:
    writer.all(
        _INSERT_EDGE,
        graph,
        source,
        target,
        edge.kind,
        edge.weight,
        edge.session,
        edge.agent,
        to_json(edge.rationale),
        now,
    )


def put_terms(writer: Writer, graph: int, key: int, body: DecisionBody) -> None:
    writer.run_many(
        "INSERT INTO decision_terms (graph, term, decision) VALUES ($1, $2, $3)",
        [(graph, term, key) for term in decision_terms(body)],
    )


def _split_again(writer: Writer, graph: int) -> None:
    writer.all("DELETE FROM decision_terms WHERE graph = $1", graph)
    last = 0
    while rows := writer.all(_NEXT, graph, last):
        for key, data in rows:
            try:
                put_terms(writer, graph, key, decode_stored(data, DecisionBody))
            except UNREADABLE:  # damaged; the doctor tells of it
                continue
        last = rows[-1][0]
    writer.all("UPDATE decision_graphs SET version = $2 WHERE key = $1", graph, SPLITTER_VERSION)


def take_decisions(writer: Writer, keys: Collection[int]) -> None:
    """Take away the words of decisions, and why edges lead from them or to them."""
    each = [(key,) for key in keys]
    writer.run_many("DELETE FROM decision_terms WHERE decision = $1", each)
    writer.run_many(
        f"UPDATE decisions SET data = NULL, agent = '', title = '', shelf = '{NO_SHELF}' "
        "WHERE key = $1",
        each,
    )
    writer.run_many(_TAKE_REASONS, each)


def take_decisions_of(writer: Writer, tenant: str, project: str, session: str) -> None:
    """Take away the words of what was logged in a session, in every folder: decisions and the
    reasons of edges.
    """
    for (graph,) in writer.all(_GRAPHS, tenant, project):
        keys = [key for (key,) in writer.all(_OF_SESSION, graph, session)]
        take_decisions(writer, keys)
        edges = writer.all(_TAKE_SESSION_REASONS, graph, session)
        if keys or edges:
            count_change(writer, graph)
            drop_views(writer, tenant, project)


def drop_views(writer: Writer, tenant: str, project: str) -> None:
    """Take away views that have words of decisions. The next request begins an epoch."""
    writer.all(
        """DELETE FROM views WHERE data LIKE '%"decisions":{%'
            AND session IN (SELECT key FROM sessions WHERE tenant = $1 AND project = $2)""",
        tenant,
        project,
    )


def _join_sessions(found: StoredDecision, session: str) -> tuple[str, ...]:
    """The sessions that logged a decision again, the newest of them."""
    held = found.decision.sessions
    if session in ("", found.decision.session, *held):
        return held
    return (*held, session)[-MAX_LINKS:]


def _join(what: str, held: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    joined = tuple(dict.fromkeys((*held, *more)))
    if len(joined) > MAX_LINKS:
        raise ChoiceError(f"a decision has at most {MAX_LINKS} {what}, found {len(joined):,}")
    return joined


_LOCK = """SELECT key, version FROM decision_graphs
    WHERE tenant = $1 AND project = $2 AND name = $3 {lock}"""
_GRAPHS = "SELECT key FROM decision_graphs WHERE tenant = $1 AND project = $2 ORDER BY key {lock}"
_BY_ID = f"SELECT {COLUMNS} FROM decisions d WHERE d.graph = $1 AND d.id = $2"
_BY_KEYS = f"""SELECT {COLUMNS} FROM decisions d WHERE d.graph = $1 AND d.key IN {{each_int:2}}
    ORDER BY d.key"""
_GOAL = f"""SELECT {COLUMNS} FROM decisions d
    WHERE d.graph = $1 AND d.title = $2 AND d.shelf = '{GOALS}' ORDER BY d.key LIMIT 1"""
_EDGE = f"""SELECT {EDGE_COLUMNS} FROM {EDGES}
    WHERE e.source = $1 AND e.target = $2 AND e.kind = $3"""
_SUPERSEDED_BY = """SELECT t.id FROM decision_edges e JOIN decisions t ON t.key = e.target
    WHERE e.source = $1 AND e.kind = 'supersedes' ORDER BY e.key LIMIT 1"""
_DOWNSTREAM = """SELECT DISTINCT e.target FROM decision_edges e
    WHERE e.graph = $1 AND e.source IN {each_int:2} AND e.kind IN ('requires', 'blocks')
    ORDER BY e.target"""
_UPSTREAM = """SELECT DISTINCT e.source FROM decision_edges e
    WHERE e.graph = $1 AND e.target IN {each_int:2} AND e.kind IN ('requires', 'blocks')
    ORDER BY e.source"""
_LOW = """SELECT d.key FROM decisions d WHERE d.key IN {each_int:1} AND d.confidence < $2
    AND d.status = 'active'"""
_OF_SESSION = "SELECT key FROM decisions WHERE graph = $1 AND session = $2 AND data IS NOT NULL"
_TAKE_REASONS = """UPDATE decision_edges SET data = NULL, agent = ''
    WHERE source = $1 OR target = $1"""
_TAKE_SESSION_REASONS = """UPDATE decision_edges SET data = NULL, agent = ''
    WHERE graph = $1 AND session = $2 AND data IS NOT NULL RETURNING key"""
_NEXT = f"""SELECT key, data FROM decisions WHERE graph = $1 AND key > $2 AND data IS NOT NULL
    ORDER BY key LIMIT {_PAGE_ROWS}"""
_INSERT = """INSERT INTO decisions (graph, id, session, agent, kind, status, confidence, parent,
    generation, shelf, placed, title, data, created, updated)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $11, $11) RETURNING key"""
_INSERT_EDGE = """INSERT INTO decision_edges (graph, source, target, kind, weight, session, agent,
    data, created) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (source, target, kind)
    DO UPDATE SET weight = excluded.weight, data = excluded.data, created = CASE
        WHEN excluded.kind IN ('chosen', 'rejected') AND excluded.created > decision_edges.created
        THEN excluded.created ELSE decision_edges.created END"""
