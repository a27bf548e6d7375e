"""Where a session is in its tree, what it has at hand there, and how it reads the tree."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from loom.context import Working
from loom.conversation.agents import Agent
from loom.engine.aware import addendum, headers_from
from loom.engine.options import RequestDetails
from loom.engine.reading import ReadingStyle
from loom.engine.session_state import SessionState, working_values
from loom.engine.sessions.known_calls import KnownCalls
from loom.engine.workspace import EventKind, Workspace
from loom.errors import ChoiceError
from loom.stores import Node, Overlay, Path, SessionRow, StateValues

_T = TypeVar("_T")
_LOOK = RequestDetails()


class SessionPlace:
    """The row, the path and the state of a session. Whatever a session does begins here.

    A guest only looks: it has no state of its own.
    """

    def __init__(
        self, workspace: Workspace, row: SessionRow, end: Node | None, guest: bool
    ) -> None:
        self.workspace, self.store, self.row = workspace, workspace.store, row
        self.path = workspace.store.sessions.path(row, end)
        self.is_guest = guest
        self.state = SessionState(workspace.store.states, 0 if guest else row.key)
        self.known_calls = KnownCalls()
        self._order = threading.Lock()  # of those verbs that run in threads

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def end_id(self) -> str:
        """The id of the current node; "" before the first message."""
        return self.path.end.id if self.path.end else ""

    def now(self) -> int:
        return self.workspace.now()

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work in a thread of the store, in the turn of the session."""
        return await self.workspace.run_off_loop(work, self._order)

    def emit(self, kind: EventKind, **what: Any) -> None:
        """Let listeners know that something happened to the session."""
        self.workspace.emit(kind, self.id, self.end_id, **what)

    # Where it is

    def move(self, row: SessionRow, nodes: Sequence[Node] = ()) -> None:
        """Be where the row says. The path that leads there may end in these nodes."""
        self.row = row
        if nodes and nodes[-1].seq == row.cursor:
            self.path = self.path.with_nodes(nodes)
        elif row.cursor != (self.path.end.seq if self.path.end else None):
            self.path = self.store.sessions.path(row)

    def read_row(self) -> SessionRow:
        """The row as the store has it now."""
        return self.store.sessions.get(self.workspace.scope, self.id)

    def node(self, name: str) -> Node:
        """A node of the tree by its id."""
        return self.store.sessions.node(self.row, name)

    def node_to_pin(self, path: Path, name: str) -> Node:
        """A node of a path by its id. What is elsewhere cannot be pinned."""
        node = self.node(name)
        if not path.holds(node.seq, node.depth):
            raise ChoiceError(
                f"node {node.short_id} cannot be pinned: it is not on the path of session {self.id}"
            )
        return node

    def is_on(self, path: Path, name: str) -> bool:
        """Whether a path has a node of this id."""
        try:
            node = self.node(name)
        except ChoiceError:
            return False
        return path.holds(node.seq, node.depth)

    def path_to(self, at: str | None) -> Path:
        """The path to a node; None means the path of the session."""
        if at is None:
            return self.path
        return Path(self.store.database, self.row.tree.key, self.node(at))

    def fetch(self, handle: str) -> str:
        """What was left out under a handle. It does not count as recalled."""
        return self.store.views.recall(self.row, self.path, handle)

    # What it has at hand

    def keep_states(self, *values: StateValues) -> None:
        """Store these values of the state, all or none."""
        if values:
            self.state.put(self.now(), *values)

    def keep_working(self, working: Working) -> Working:
        """Store another working state."""
        self.keep_states(working_values(working))
        return working

    def recalled_nodes(self, path: Path) -> list[Node]:
        """What was recalled since the last epoch began: it is not cut again at once."""
        names = self.state.recalled_nodes(self.store.views.epoch(self.row, path))
        nodes = [self.node(name) for name in names]
        return [node for node in nodes if node.message and path.holds(node.seq, node.depth)]

    # How it reads the tree

    def is_text(self) -> bool:
        """Whether the session is on a text without roles, in which a system message has no
        place.
        """
        return self.store.trees.head(self.row.tree).head.mode == "buffer"

    def speaker(self) -> Agent | None:
        """The agent of the session, if it has one."""
        if self.row.agent:
            return self.store.settings.agent(self.workspace.scope, self.row.agent)
        return None

    @property
    def draft_text(self) -> str:
        """The text at the end of a buffer that is not a node yet; "" if there is none."""
        return self.state.texts("buffer").get("", "")

    @property
    def versions(self) -> dict[str, str]:
        """Which version was chosen for which node."""
        return self.state.texts("version")

    def style(self, details: RequestDetails = _LOOK) -> ReadingStyle:
        """How the session reads its tree."""
        agent = self.speaker()
        reading = ReadingStyle(
            tree=self.store.trees.head(self.row.tree),
            now=self.now(),
            agent=agent,
            sources=details.sources,
            include=frozenset(self.node(name).id for name in details.include),
        )
        if reading.document:
            return replace(reading, chosen=self.versions, buffer=self.draft_text)
        if agent is not None and agent.loom_aware:
            headers = headers_from(self.store, self.row)
            return replace(reading, headers=headers, addendum=addendum())
        return reading

    def overlay(self, path: Path) -> Overlay:
        """What is hidden from a path for this session, and what comes in."""
        return self.style().overlay(path)


class PlaceAttribute(Generic[_T]):
    """An attribute of a session whose value its place owns."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, session: Any, owner: type) -> _T:
        if session is None:
            raise AttributeError(f"only a session has {self._name}, not its class")
        value: _T = getattr(session._place, self._name)
        return value
