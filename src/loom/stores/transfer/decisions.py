"""Decisions out of a store and back in, and the edges between them.

Out: those that are damaged are left out, and named. In: the id of each is made again and must be
what its line says. A decision that is here already stays as it is, and so does a session that is
here already: decisions come in only for the project, and for sessions that come with them. An edge
comes in with a decision at one of its ends, and only if both are here.
"""

from collections.abc import Collection, Iterator

from loom.conversation.canonical import from_json, to_json
from loom.conversation.names import check_name
from loom.decisions.values import DecisionBody, NewDecision, NewEdge, decision_id, is_decision_id
from loom.errors import ChoiceError, TranscriptError
from loom.stores.decisions.rows import NO_SHELF, DecisionScope, find_graph
from loom.stores.decisions.writing import (
    count_change,
    insert_decision,
    insert_edge,
    lock_graph,
    put_terms,
)
from loom.stores.sessions import Scope
from loom.stores.sql.database import Reader, Row, Writer
from loom.stores.sql.stored import UNREADABLE, decode_stored, is_garbled, read_paged
from loom.stores.transfer.lines import REFUSED, DecisionEdgeLine, DecisionLine, read_line
from loom.stores.transfer.salvage import LeftOut


def has_decisions(reader: Reader, scope: Scope, everywhere: bool) -> bool:
    """Whether an export of a scope has decisions."""
    return next(_rows(reader, _DECISIONS, scope, everywhere), None) is not None


def export_decisions(
    reader: Reader, scope: Scope, everywhere: bool, left_out: LeftOut, session: str | None = None
) -> Iterator[DecisionLine | DecisionEdgeLine]:
    """The decisions of a scope, or of every tenant and project, and then the edges between them;
    with a session, its own. With an agent named, those of its sessions.
    """
    whole = set[int]()
    for row in _rows(reader, _DECISIONS, scope, everywhere, session):
        try:
            if is_garbled(row):
                raise ValueError("a text is not UTF-8")
            line = _line(row, everywhere)
            _check(line)
            read_line(0, to_json(line))  # as an import reads it
        except (*REFUSED, *UNREADABLE, TranscriptError):
            left_out.add(f"decision {row[4]!s:.200}")
        else:
            whole.add(row[0])
            yield line
    for row in _rows(reader, _EDGES, scope, everywhere):
        if row[4] not in whole or row[5] not in whole:
            continue
        try:
            if is_garbled(row):
                raise ValueError("a text is not UTF-8")
            edge = _edge_line(row, everywhere)
            read_line(0, to_json(edge))
            _check_edge(edge)
        except (*REFUSED, *UNREADABLE, TranscriptError):
            left_out.add(f"an edge from decision {row[6]!s:.200}")
        else:
            yield edge


def _rows(
    reader: Reader, sql: str, scope: Scope, everywhere: bool, session: str | None = None
) -> Iterator[Row]:
    where = ("", "") if everywhere else (scope.tenant, scope.project)
    given = (scope.agent, session or "") if sql is _DECISIONS else ()
    return read_paged(reader, sql, (0,), *where, *given)


def _line(row: Row, everywhere: bool) -> DecisionLine:
    _, tenant, project, folder, identity, session, agent, kind, status = row[:9]
    confidence, parent, generation, placed, data, created, updated = row[9:]
    return DecisionLine(
        id=identity,
        tenant=tenant if everywhere else "",
        project=project if everywhere else "",
        folder=decode_stored(folder, str),
        session=session,
        agent=agent,
        kind=kind,
        status=status,
        confidence=confidence,
        parent=parent,
        generation=generation,
        body=None if data is None else decode_stored(data, DecisionBody),
        placed=placed,
        created=created,
        updated=updated,
    )


def _edge_line(row: Row, everywhere: bool) -> DecisionEdgeLine:
    _, tenant, project, folder, _, _, source, target, kind = row[:9]
    weight, session, agent, data, created = row[9:]
    return DecisionEdgeLine(
        source=source,
        target=target,
        tenant=tenant if everywhere else "",
        project=project if everywhere else "",
        folder=decode_stored(folder, str),
        kind=kind,
        weight=weight,
        session=session,
        agent=agent,
        rationale=None if data is None else str(from_json(data)),
        created=created,
    )


def _check(line: DecisionLine) -> None:
    """Raises if a line is not what its id says."""
    for what, name in (("session", line.session), ("agent", line.agent)):
        check_name(what, name)
    if not is_decision_id(line.id) or (line.parent and not is_decision_id(line.parent)):
        raise ValueError("its id is not the id of a decision")
    if line.body is not None and decision_id(_to_new(line, line.body)) != line.id:
        raise ValueError("its id is not made from what it says")


def _to_new(line: DecisionLine, body: DecisionBody) -> NewDecision:
    return NewDecision(
        body=body,
        kind=line.kind,
        confidence=line.confidence,
        agent=line.agent,
        session=line.session,
        folder=line.folder,
        parent=line.parent,
        generation=line.generation,
    )


def _check_edge(line: DecisionEdgeLine) -> NewEdge:
    for what, name in (("session", line.session), ("agent", line.agent)):
        check_name(what, name)
    if line.source == line.target:
        raise ValueError("it leads to where it begins")
    return NewEdge(
        kind=line.kind,
        weight=line.weight,
        rationale=line.rationale or "",
        agent=line.agent,
        session=line.session,
    )


def take_decision(
    writer: Writer, scope: Scope, number: int, line: DecisionLine, fresh: Collection[str]
) -> int:
    """Bring a decision into a scope; its key, or 0 if it is here already, or its session is.
    `fresh` are the sessions that came with the file.
    """
    try:
        _check(line)
    except (ValueError, ChoiceError) as error:
        raise TranscriptError(f"line {number}: decision {line.id!s:.100}: {error}") from None
    if line.session and line.session not in fresh:
        return 0
    graph = lock_graph(writer, DecisionScope(scope.tenant, scope.project, line.folder))
    if writer.first_row(_HERE, graph, line.id) is not None:
        return 0
    new = _to_new(line, line.body or DecisionBody(title="purged"))
    key = insert_decision(writer, graph, line.id, new, line.status, line.created)
    writer.all(_RESTORE, key, line.placed, line.updated)
    if line.body is None:
        writer.all(
            f"UPDATE decisions SET data = NULL, title = '', shelf = '{NO_SHELF}' WHERE key = $1",
            key,
        )
    else:
        put_terms(writer, graph, key, line.body)
    count_change(writer, graph)
    return key


def take_edge(
    writer: Writer, scope: Scope, number: int, line: DecisionEdgeLine, fresh: Collection[int]
) -> None:
    """Bring an edge into a scope, if a decision at one of its ends came with the file and the other
    one is here too. `fresh` are the decisions that came.
    """
    try:
        edge = _check_edge(line)
    except (ValueError, ChoiceError) as error:
        raise TranscriptError(f"line {number}: an edge: {error}") from None
    graph = find_graph(writer, DecisionScope(scope.tenant, scope.project, line.folder))
    ends = [writer.first_row(_HERE, graph, name) for name in (line.source, line.target)]
    keys = [row[0] for row in ends if row is not None]
    if len(keys) < 2 or not any(key in fresh for key in keys):
        return
    insert_edge(writer, graph, keys[0], keys[1], edge, line.created)
    if line.rationale is None:
        writer.all(_NO_REASON, keys[0], keys[1], line.kind)
    count_change(writer, graph)


_HERE = "SELECT key FROM decisions WHERE graph = $1 AND id = $2"
_RESTORE = "UPDATE decisions SET placed = $2, updated = $3 WHERE key = $1"
_NO_REASON = """UPDATE decision_edges SET data = NULL
    WHERE source = $1 AND target = $2 AND kind = $3"""
_IN_SCOPE = "($2 = '' OR g.tenant = $2) AND ($3 = '' OR g.project = $3)"
_DECISIONS = f"""SELECT d.key, g.tenant, g.project, g.folder, d.id, d.session, d.agent, d.kind,
    d.status, d.confidence, d.parent, d.generation, d.placed, d.data, d.created, d.updated
    FROM decisions d JOIN decision_graphs g ON g.key = d.graph
    WHERE d.key > $1 AND {_IN_SCOPE} AND ($5 = '' OR d.session = $5)
    AND ($4 = '' OR d.session IN (SELECT s.id FROM sessions s
        WHERE s.tenant = g.tenant AND s.project = g.project AND s.agent = $4))
    ORDER BY d.key LIMIT 200"""
_EDGES = f"""SELECT e.key, g.tenant, g.project, g.folder, e.source, e.target, s.id, t.id, e.kind,
    e.weight, e.session, e.agent, e.data, e.created
    FROM decision_edges e JOIN decision_graphs g ON g.key = e.graph
    JOIN decisions s ON s.key = e.source JOIN decisions t ON t.key = e.target
    WHERE e.key > $1 AND {_IN_SCOPE} ORDER BY e.key LIMIT 200"""
