"""Rows of the decision graph: whose they are, how they are found by name, and how they are read.

A decision is on a shelf, so that each list that requests need is one question to one index: active
goals, recent decisions, prior attempts. `placed` is when it came there.
"""

import re
from base64 import b32encode
from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.conversation.words import split_terms_for_index
from loom.decisions.values import (
    ID_CHARS,
    RECENT_KINDS,
    Decision,
    DecisionBody,
    DecisionEdge,
    DecisionKind,
    DecisionStatus,
)
from loom.errors import ChoiceError, shorten
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import decode_stored, read_each, read_rows

_NAME = re.compile(f"[a-z2-7]{{1,{ID_CHARS}}}")
_FOLDER_BYTES = 15
# no word of a text has a colon
COMMIT_TERM, NODE_TERM, SESSION_TERM = "commit:", "node:", "session:"
GOALS, RECENT, PRIOR, NO_SHELF = "goal", "recent", "prior", ""


class DecisionScope(Struct, frozen=True):
    """Whose decisions are meant: those of a folder of a project. Others are never seen.

    With a session named, what was logged in it, or again in it, is seen too, whatever folder it had
    then.
    """

    tenant: str
    project: str
    folder: str = ""
    session: str = ""


class StoredDecision(Struct, frozen=True):
    """A decision, with its key in the store."""

    key: int
    decision: Decision


def folder_key(folder: str) -> str:
    """The name of a folder in an index: paths may be longer than an index holds."""
    said = folder.encode(errors="surrogatepass")
    digest = blake2b(said, digest_size=_FOLDER_BYTES, person=b"folder").digest()
    return b32encode(digest).decode().lower() if folder else ""


def find_graph(reader: Reader, scope: DecisionScope) -> int:
    """The key of the graph of a folder; 0 if nothing was logged there."""
    row = reader.first_row(_GRAPH, scope.tenant, scope.project, folder_key(scope.folder))
    return int(row[0]) if row else 0


class SeenGraphs(Struct, frozen=True):
    """The graph of a scope, 0 if there is none, and the other graphs that have decisions of the
    session in scope, of which only these are seen.
    """

    main: int
    others: tuple[int, ...] = ()
    revision: int = 0

    @property
    def keys(self) -> tuple[int, ...]:
        return (self.main, *self.others)


def find_graphs(reader: Reader, scope: DecisionScope) -> SeenGraphs:
    """The graphs that are seen from a scope, and how often these changed."""
    name = folder_key(scope.folder)
    if not scope.session:
        row = reader.first_row(_GRAPH, scope.tenant, scope.project, name)
        return SeenGraphs(row[0], revision=row[1]) if row else SeenGraphs(0)
    own = (scope.session, SESSION_TERM + scope.session)
    rows = reader.all(_SEEN_GRAPHS, scope.tenant, scope.project, name, *own)
    main = next((key for key, _, is_main in rows if is_main), 0)
    others = tuple(key for key, _, is_main in rows if not is_main)
    return SeenGraphs(main, others, sum(revision for _, revision, _ in rows))


def choose_shelf(kind: DecisionKind, status: DecisionStatus) -> str:
    """The list in which a decision is shown."""
    if status != "active" or kind == "revisit":
        return PRIOR
    if kind == "goal":
        return GOALS
    return RECENT if kind in RECENT_KINDS else NO_SHELF


def find_named(reader: Reader, graph: int, scope: DecisionScope, name: str) -> StoredDecision:
    """A decision by its id, or by the first characters of it."""
    found: list[StoredDecision] = []
    if _NAME.fullmatch(name):
        last = name + "z" * (ID_CHARS - len(name))
        found = read_decisions(read_rows(reader, _NAMED, graph, name, last), scope)
    if len(found) == 1:
        return found[0]
    if found:
        raise ChoiceError(f"several decisions begin with {shorten(name)!r}; give more characters")
    raise ChoiceError(
        f"there is no decision {shorten(name)!r} here; loom decisions list shows them"
    )


def is_named_in(reader: Reader, graph: int, name: str, session: str = "") -> bool:
    """Whether a graph has a decision whose id begins so; with a session, one that it logged."""
    if not _NAME.fullmatch(name):
        return False
    last = name + "z" * (ID_CHARS - len(name))
    own = (session, SESSION_TERM + session)
    return reader.first_row(_IS_NAMED, graph, name, last, *own) is not None


def find_worded(reader: Reader, graph: int, scope: DecisionScope, name: str) -> StoredDecision:
    """The same; it must have words."""
    found = find_named(reader, graph, scope, name)
    if found.decision.purged:
        raise ChoiceError(f"decision {found.decision.id} was purged; its words are gone")
    return found


def read_decisions(rows: Iterable[Row], scope: DecisionScope) -> list[StoredDecision]:
    """What rows hold; those that cannot be read are named and left out."""
    return read_each(rows, lambda row: read_decision(row, scope), lambda row: f"decision {row[1]}")


def read_folder(reader: Reader, graph: int) -> str:
    """The folder that a graph belongs to."""
    row = reader.first_row("SELECT folder FROM decision_graphs WHERE key = $1", graph)
    return decode_stored(row[0], str) if row else ""


def read_decision(row: Row, scope: DecisionScope) -> StoredDecision:
    key, identity, session, agent, kind, status, confidence, parent, generation = row[:9]
    data, created, updated = row[9:12]
    body = None if data is None else decode_stored(data, DecisionBody)
    decision = Decision(
        id=identity,
        kind=kind,
        title=body.title if body else "",
        description=body.description if body else "",
        status=status,
        confidence=confidence,
        metadata=body.metadata if body else {},
        agent=agent,
        session=session,
        folder=scope.folder,
        parent=parent,
        generation=generation,
        commits=body.commits if body else (),
        nodes=body.nodes if body else (),
        sessions=body.sessions if body else (),
        created=created,
        updated=updated,
        purged=body is None,
    )
    return StoredDecision(key, decision)


def read_edges(rows: Iterable[Row]) -> list[DecisionEdge]:
    """What rows of edges hold; those that cannot be read are named and left out."""
    return read_each(rows, _read_edge, lambda row: f"an edge from decision {row[0]}")


def _read_edge(row: Row) -> DecisionEdge:
    source, target, kind, weight, session, agent, data, created = row[:8]
    return DecisionEdge(
        source=source,
        target=target,
        kind=kind,
        weight=weight,
        rationale="" if data is None else decode_stored(data, str),
        agent=agent,
        session=session,
        created=created,
    )


def decision_terms(body: DecisionBody) -> list[str]:
    """The terms by which a decision is found, each once: its words and its links."""
    said = f"{body.title}\n{body.description}".encode(errors="replace").decode()
    links = [
        *(COMMIT_TERM + each for each in body.commits),
        *(NODE_TERM + each for each in body.nodes),
        *(SESSION_TERM + each for each in body.sessions),
    ]
    return sorted({*split_terms_for_index(said), *links})


def write_folder(folder: str) -> str:
    """A folder as its column holds it: a path may have characters that no database holds."""
    return to_json(folder)


_GRAPH = """SELECT key, revision FROM decision_graphs
    WHERE tenant = $1 AND project = $2 AND name = $3"""
_SEEN_GRAPHS = """SELECT g.key, g.revision, CASE WHEN g.name = $3 THEN 1 ELSE 0 END
    FROM decision_graphs g WHERE g.tenant = $1 AND g.project = $2 AND (g.name = $3 OR EXISTS (
        SELECT 1 FROM decisions d WHERE d.graph = g.key AND d.session = $4) OR EXISTS (
        SELECT 1 FROM decision_terms o WHERE o.graph = g.key AND o.term = $5))
    ORDER BY g.key"""
COLUMNS = """d.key, d.id, d.session, d.agent, d.kind, d.status, d.confidence, d.parent,
    d.generation, d.data, d.created, d.updated"""
_NAMED = f"""SELECT {COLUMNS} FROM decisions d
    WHERE d.graph = $1 AND d.id >= $2 AND d.id <= $3 ORDER BY d.id LIMIT 2"""
_IS_NAMED = """SELECT 1 FROM decisions d WHERE d.graph = $1 AND d.id >= $2 AND d.id <= $3
    AND ($4 = '' OR d.session = $4 OR EXISTS (SELECT 1 FROM decision_terms o
        WHERE o.graph = d.graph AND o.term = $5 AND o.decision = d.key)) LIMIT 1"""
EDGE_COLUMNS = "s.id, t.id, e.kind, e.weight, e.session, e.agent, e.data, e.created"
EDGES = """decision_edges e JOIN decisions s ON s.key = e.source
    JOIN decisions t ON t.key = e.target"""
