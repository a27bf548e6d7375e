"""What must be true of decisions: each is what its id says, is in the right list, can be found by
its words, and its edges lead to what is there.
"""

from collections.abc import Iterator

from loom.decisions.values import (
    EDGE_KINDS,
    KINDS,
    STATUSES,
    DecisionBody,
    NewDecision,
    decision_id,
    title_key,
)
from loom.stores.decisions.rows import NO_SHELF, choose_shelf, decision_terms, folder_key
from loom.stores.health.checkup import COPY, NOT_UTF_8, CheckedTable, Problem, decoder, read
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import is_garbled

_WORDS = (
    "the decisions are not affected; split their words again: "
    "UPDATE decision_graphs SET version = 0"
)


def _look_at_graph(_: Reader, values: Row, __: int) -> Iterator[Problem]:
    key, tenant, project, name, folder = values
    place = f"decision graph {key} of {tenant}/{project}"
    found = None if is_garbled(values) else read(decoder(str), folder)
    if found is None:
        yield Problem(place, "the folder that it belongs to cannot be read", COPY)
    elif folder_key(found) != name:
        yield Problem(place, "it is not found by the folder that it belongs to", COPY)


def _look_at_decision(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    key, identity, session, kind, status, confidence, parent, generation = values[:8]
    shelf, title, data, tenant, project, folder, session_status = values[8:]
    place = f"decision {identity} in {tenant}/{project}"
    if is_garbled(values):
        yield Problem(place, f"its words or names cannot be read: {NOT_UTF_8}", COPY)
        return
    where = None if folder is None else read(decoder(str), folder)
    if where is None:
        yield Problem(place, "the graph that it belongs to is not there", COPY)
        return
    if kind not in KINDS or status not in STATUSES:
        yield Problem(place, f"nothing is of the kind {kind} and the status {status}", COPY)
        return
    if session and session_status is None:
        yield Problem(place, f"session {session}, which logged it, is not there", COPY)
    if data is None:
        yield from _look_at_purged(reader, place, key, shelf)
        return
    body = read(decoder(DecisionBody), data)
    if body is None or (confidence is not None and not 0 <= confidence <= 100):
        yield Problem(place, "what it says cannot be read", COPY)
        return
    if session and session_status == "purged":
        remedy = f"purge it by hand: UPDATE decisions SET data = NULL WHERE key = {key}"
        yield Problem(place, "its session was purged, and its words are still here", remedy)
    new = NewDecision(
        body=body,
        kind=kind,
        session=session,
        folder=where,
        parent=parent,
        generation=generation,
    )
    if decision_id(new) != identity:
        yield Problem(place, "its words are not those that were logged", COPY)
        return
    if shelf != choose_shelf(kind, status) or title != title_key(body.title):
        yield Problem(place, "it is not in the list in which it belongs", COPY)
    yield from _look_at_terms(reader, place, key, decision_terms(body))


def _look_at_purged(reader: Reader, place: str, key: int, shelf: str) -> Iterator[Problem]:
    if shelf != NO_SHELF:
        yield Problem(place, "it was purged, and is still in a list", COPY)
    yield from _look_at_terms(reader, place, key, [])


def _look_at_terms(reader: Reader, place: str, key: int, terms: list[str]) -> Iterator[Problem]:
    found = sorted(term for (term,) in reader.all(_TERMS, key))
    if found != terms:
        yield Problem(place, "it cannot be found by its words", _WORDS)


def _look_at_edge(_: Reader, values: Row, __: int) -> Iterator[Problem]:
    key, kind, weight, data, graph, source, target = values
    place = f"edge {key} between decisions"
    if is_garbled(values) or (data is not None and read(decoder(str), data) is None):
        yield Problem(place, "why it is there cannot be read", COPY)
        return
    if kind not in EDGE_KINDS or not 0 <= weight < float("inf"):
        yield Problem(place, f"no edge is of the kind {kind} and the weight {weight}", COPY)
    if source is None or target is None:
        yield Problem(place, "a decision that it leads from or to is not there", COPY)
    elif source != graph or target != graph:
        yield Problem(place, "it leads to a decision of another project or folder", COPY)


_GRAPHS = """SELECT key, tenant, project, name, folder FROM decision_graphs
    WHERE key > $1 ORDER BY key LIMIT $2"""
_DECISIONS = """SELECT d.key, d.id, d.session, d.kind, d.status, d.confidence, d.parent,
    d.generation, d.shelf, d.title, d.data, g.tenant, g.project, g.folder, s.status
    FROM decisions d LEFT JOIN decision_graphs g ON g.key = d.graph
    LEFT JOIN sessions s ON s.tenant = g.tenant AND s.project = g.project AND s.id = d.session
    WHERE d.key > $1 ORDER BY d.key LIMIT $2"""
_TERMS = "SELECT term FROM decision_terms WHERE decision = $1"
_EDGES = """SELECT e.key, e.kind, e.weight, e.data, e.graph, s.graph, t.graph FROM decision_edges e
    LEFT JOIN decisions s ON s.key = e.source LEFT JOIN decisions t ON t.key = e.target
    WHERE e.key > $1 ORDER BY e.key LIMIT $2"""


def decision_tables() -> tuple[CheckedTable, ...]:
    """What there is to look at of decisions."""
    return (
        CheckedTable("decision graphs", (0,), _GRAPHS, _look_at_graph),
        CheckedTable("decisions", (0,), _DECISIONS, _look_at_decision),
        CheckedTable("decision edges", (0,), _EDGES, _look_at_edge),
    )
