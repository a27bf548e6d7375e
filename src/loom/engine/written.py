"""A cursor on a tree that is kept: write behind it, fork, move, put away; and what its session has at hand beside what was said."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context.renewal import has_failed
from loom.context.weave import gather
from loom.context.working import EMPTY, Working, erred, succeed
from loom.conversation.checked import check_flag, check_number, check_text, checks_arguments
from loom.conversation.message import Conversation, Message, Text, Tool
from loom.conversation.names import flatten
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.dialects.given import parse_given
from loom.dialects.plain import is_sdk_object
from loom.engine.home import Happened, Home
from loom.engine.purging import what_remains
from loom.engine.session_state import SessionState, text_values, working_values
from loom.engine.threads import async_form, async_lines, async_value
from loom.errors import ChoiceError, Conflict, Unfinished, WireError, describe
from loom.stores.exchange import export_session
from loom.stores.nodes import Draft
from loom.stores.path import Node, Path
from loom.stores.sessions import SessionRow, check_name
from loom.stores.settings import StateValues
from loom.stores.views import Kept

_T = TypeVar("_T")
Given = Any  # a text, a Message, a message in any wire's form, or an object of an SDK
_TITLE = 60  # letters of the first request that name a session


class Written:
    """A cursor on a tree. It goes on from where it last saw itself; where somebody else moved it, `Conflict` says so."""

    def __init__(self, home: Home, row: SessionRow, end: Node | None = None, guest: bool = False) -> None:
        self._guest = guest  # who only looks: it has nothing of its own here
        self._home, self._store, self.row = home, home.store, row
        self.path = home.store.sessions.path(row, end)
        self._state = SessionState(home.store.states, 0 if guest else row.key)
        self._order = threading.Lock()  # of those verbs that run in threads

    def __repr__(self) -> str:
        title = f" {self.row.title!r}" if self.row.title else ""
        count = len(self.path)
        return f"<{type(self).__name__} {self.row.id}{title}, {count:,} {'message' if count == 1 else 'messages'}>"

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def cursor(self) -> Node | None:
        """The node that this session stands on, as it last saw it. `path` leads there, and reads only where one looks."""
        return self.path.end

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work of this session in a thread of the store's; what one session does is done one after the other."""
        return await self._home.run_off_loop(work, self._order)

    def told(self, kind: Happened, **what: Any) -> Self:
        """Let listeners know that something happened to this session."""
        self._home.tell(kind, self.id, self.cursor.id if self.cursor else "", **what)
        return self

    def refresh(self) -> Self:
        """Look again where the session stands."""
        return self._now(self._store.sessions.get(self._home.scope, self.row.id))

    def append(self, *messages: Given, after: str | None = None, generation: str = "") -> list[Node]:
        """Write messages behind the cursor, all or none, and move it there. A text is what the user says.

        `after` names the node they come after ("" for none); writing the same again behind the same node writes nothing.
        System messages before the first word become system text of the session; later ones stand in their place, as others do.
        `generation` tells identical regenerations apart.
        """
        behind = self.path.end if after is None else self._store.sessions.node(self.row, after) if after else None
        nodes = self._append(parsed(messages), behind, check_name("generation", generation))
        self.told("appended", messages=len(nodes))
        return nodes

    def _append(self, said: Sequence[Message], behind: Node | None, generation: str, **beside: Any) -> list[Node]:
        count = gate_counter(None).count_message
        drafts: list[Draft] = []
        asides: list[tuple[int, Message]] = []
        for message in said:
            if message.role in SYSTEM_ROLES and ((behind is None and not drafts) or self._is_text()):
                asides.append((len(drafts), message))
            else:
                drafts.append(Draft(message, count(message), generation))
        now, title = self._home.now(), title_of(said)
        try:
            row, nodes = self._store.sessions.append(self.row, behind, drafts, now=now, title=title, asides=asides, **beside)
        except Conflict as conflict:
            self.told("conflict", expected=conflict.expected, found=conflict.found)
            raise
        self._now(row, nodes)
        self._count_errors(said)
        return nodes

    def _is_text(self) -> bool:
        """Whether the session is on a text without roles, in which a system message has no place."""
        return self._store.trees.head(self.row.tree).head.mode == "buffer"

    def _count_errors(self, said: Sequence[Message]) -> None:
        """Results that tell of an error are counted in the working state, where there is one.

        Each that does not takes one of them back, and a new request begins at 0.
        """
        if not any(message.role == "user" or message.results for message in said) or (state := self.working) == EMPTY:
            return
        counted = state
        for message in said:
            if message.role == "user":
                counted = erred(counted, 0)
            for result in message.results:
                counted = erred(counted) if has_failed(result) else succeed(counted)
        if counted != state:
            self.keep_working(counted)

    @checks_arguments
    def append_at(
        self,
        message: Message,
        behind: Node | None,
        records: Sequence[tuple[str, str]] = (),
        *,
        generation: str = "",
        handles: Sequence[tuple[str, Kept]] = (),
        move: bool = False,
        seen: int | None = None,
        commits: bool = False,
    ) -> Node:
        """Write a message behind any node of the tree, with what stands beside it, and `move` there if asked.

        `seen` is when its writer last looked: where somebody went on behind that node since, that is a conflict. What `commits`
        is the text that was not committed.
        """
        if not isinstance(message, Message):
            raise ChoiceError(f"expected a Message, found {describe(message)}")
        if seen is not None:
            check_number("when the writer last looked", seen)
        draft = Draft(message, gate_counter(None).count_message(message), check_name("generation", generation))
        try:
            row, node = self._store.growth.append_at(
                self.row,
                behind,
                draft,
                now=self._home.now(),
                records=records,
                handles=handles,
                move=move,
                seen=seen,
                commits=commits,
            )
        except Conflict as conflict:
            self.told("conflict", expected=conflict.expected, found=conflict.found)
            raise
        self._now(row, [node])
        self.told("appended", messages=1)
        return node

    # Working state: what the agent decides by, beside what was said

    @property
    def working(self) -> Working:
        """The session's working state, as it was last kept."""
        return self._state.working

    def keep_working(self, working: Working) -> Working:
        """Keep another working state; the verbs of `loom.context.working` make one from the last. It stands in the next request."""
        self._keep_states(working_values(working))
        return working

    def _keep_states(self, *values: StateValues) -> None:
        if values:
            self._state.put(self._home.now(), *values)

    # Text not yet committed, and versions, of a tree in buffer mode

    def draft(self, text: str) -> None:
        """What stands at the end of the document and is not committed; "" for nothing. It is, when an answer comes."""
        if self._store.trees.head(self.row.tree).head.mode != "buffer":
            raise ChoiceError(f"session {self.id} is on a tree in dialogue mode, which has no drafts; append a message")
        self._keep_states(text_values("buffer", "", check_text("what is drafted", text)))

    @property
    def drafted(self) -> str:
        return self._state.texts("buffer").get("", "")

    def commit(self) -> Node | None:
        """Make a node of the text that is not committed yet, if there is any."""
        text = self.drafted
        if not text:
            return None
        return self.append_at(Message("user", (Text(text),), self.row.agent), self.path.end, move=True, commits=True)

    def choose(self, first: str, version: str) -> None:
        """Let this version stand for the node that it was edited from; the node itself, to undo all edits."""
        self._keep_states(text_values("version", self._node(first).id, self._node(version).id))

    def versions(self) -> dict[str, str]:
        """Which version was chosen for which node."""
        return self._state.texts("version")

    def response(self, node: str) -> str | None:
        """The provider's answer, as it came, that made this node."""
        found = self._store.sessions.records(self.row, self._store.sessions.node(self.row, node), "response")
        return found[0] if found else None

    def fork(self, at: str | None = None, title: str = "") -> Self:
        """A second session that begins with what this one has said, up to the node `at`. Nothing is copied."""
        node = self.path.end if at is None else self._store.sessions.node(self.row, at)
        identity, title = self._home.fresh_id(), title or self.row.title
        row = self._store.sessions.fork(self._home.scope, self.row, node, identity, title, self._home.now())
        made = type(self)(self._home, row, node)
        # The same path is read the same way.
        versions = [text_values("version", name, version) for name, version in self.versions().items()]
        made._keep_states(*versions, *self._state.copied_policy_values())
        return made.told("forked", origin=self.id)

    def switch(self, to: str) -> Self:
        """Move the cursor to another node of the tree."""
        node = self._store.sessions.node(self.row, to)
        self._now(self._store.sessions.switch(self.row, node, self._home.now()), [node])
        return self.told("switched")

    def change(
        self,
        *,
        title: str | None = None,
        archived: bool | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
    ) -> Self:
        """Give the session another title, model, system text or tools; put it away, or take it back."""
        before = head = self._store.sessions.get(self._home.scope, self.id).head
        if model is not None:
            head = replace(head, model=check_name("model", model))
        if system is not None:
            head = replace(head, system=given_head(system, None).system)
        if tools is not None:
            head = replace(head, tools=given_head(None, tools).tools)
        if archived is not None:
            check_flag("archived", archived)
        status: Literal["active", "archived"] | None = None if archived is None else "archived" if archived else "active"
        changed = head if head is not before else None
        self._now(self._store.sessions.change(self.row, now=self._home.now(), title=title, status=status, head=changed))
        return self.told("changed")

    def carry_on(self) -> Self:
        """Put this session away and begin a fresh one with its system text, tools, model and policy, called `Continue: TITLE`."""
        self.change(archived=True)
        row = self._store.sessions.create(
            replace(self._home.scope, agent=self.row.agent),
            self._home.fresh_id(),
            now=self._home.now(),
            title=f"Continue: {self.row.title}"[:200],
            head=self.row.head,
            origin=self.id,
        )
        made = type(self)(self._home, row)
        made._keep_states(*self._state.copied_policy_values())
        return made.told("created", origin=self.id)

    def purge(self) -> tuple[int, int]:
        """Take away for good what only this session holds: how many messages went, and how many stay because others hold them.

        Where copies of the words are still on disk, `Unfinished` says where. It can be called again until nothing is left.
        """
        gone, kept = self._store.sessions.purge(self.row, self._home.now())
        self._home.caches.clear()
        remains = what_remains(self._store, self.row, self._home.snapshots)
        left_alone = self._store.snapshots.unproven(self.row)
        if not remains:
            self._store.sessions.purge_ended(self.row)
        self.told("purged", gone=gone, kept=kept, remains=remains, left_alone=left_alone)
        if remains:
            raise Unfinished(self.id, tuple(remains))
        return gone, kept

    @checks_arguments
    def export(self, missed: list[str] | None = None) -> Iterator[str]:
        """The session as JSON lines, to be imported anywhere with the same ids.

        What is damaged is left out and named in `missed`; without that list, in an error after the last line.
        """
        return export_session(self._store, self.row.tree.key, self.row.key, missed)

    def conversation(self) -> Conversation:
        """All of it: every message in its place, system messages too."""
        asides: dict[str, list[Message]] = {}
        for aside in self._store.sessions.on_path(self.row, self.path):
            asides.setdefault(aside.after, []).append(aside.message)
        said = list(asides.pop("", []))
        for node in self.path:
            said += [node.message] if node.message else []
            said += asides.get(node.id, [])
        lead = next((n for n, m in enumerate(said) if m.role not in SYSTEM_ROLES), len(said))
        return replace(self.row.head, system=(*self.row.head.system, *said[:lead]), messages=tuple(said[lead:]))

    # The same off the event loop

    aappend = async_form(append)
    acarry_on = async_form(carry_on)
    achange = async_form(change)
    achoose = async_form(choose)
    acommit = async_form(commit)
    aconversation = async_form(conversation)
    adraft = async_form(draft)
    adrafted = async_value(drafted)
    aexport = async_lines(export)
    afork = async_form(fork)
    aappend_at = async_form(append_at)
    akeep_working = async_form(keep_working)
    apurge = async_form(purge)
    arefresh = async_form(refresh)
    aresponse = async_form(response)
    aswitch = async_form(switch)
    aversions = async_form(versions)
    aworking = async_value(working)

    def _node(self, name: str) -> Node:
        return self._store.sessions.node(self.row, name)

    def _on_path(self, path: Path, name: str) -> Node:
        node = self._node(name)
        if not path.holds(node.seq, node.depth):
            raise ChoiceError(f"node {node.short_id} cannot be pinned: it is not on the path of session {self.id}")
        return node

    def _now(self, row: SessionRow, nodes: Sequence[Node] = ()) -> Self:
        """Stand where the row says; the path that leads there may end in these nodes."""
        self.row = row
        if nodes and nodes[-1].seq == row.cursor:
            self.path = self.path.with_nodes(nodes)
        elif row.cursor != (self.path.end.seq if self.path.end else None):
            self.path = self._store.sessions.path(row)
        return self


def parsed(messages: object) -> list[Message]:
    if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping) or is_sdk_object(messages):
        raise ChoiceError(f"messages must be a list, found {describe(messages)}")
    given = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    try:
        return [_on_one_line(message) for message in parse_given(given)]
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError("messages", "values that JSON can hold", str(error)) from None


def one_message(given: Given) -> Message:
    """What a caller gives as one message."""
    said = parsed([given])
    if len(said) != 1:
        raise ChoiceError(f"expected one message, found {len(said)} in one; give each its own")
    return said[0]


def _on_one_line(message: Message) -> Message:
    """A message whose author's name is on one line: it stands in headers, where a line break could forge another."""
    name = flatten(message.author)
    return message if name == message.author else replace(message, author=name)


def given_head(system: str | None, tools: Iterable[Tool | Mapping[str, Any]] | None) -> Conversation:
    """The system text and the tools of a session, as a caller gives them."""
    try:
        return gather((), system, tools)[0]
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError("tools", "values that JSON can hold", str(error)) from None


def title_of(said: Iterable[Message]) -> str:
    """The first line of the first request."""
    return one_line(next((message.text for message in said if message.role == "user" and message.text.strip()), ""))


def one_line(text: str) -> str:
    """The first line of a text, short enough for a title."""
    line = "".join(c if c.isprintable() else " " for c in text.strip().partition("\n")[0]).strip()
    line = line.encode(errors="replace").decode()
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"
