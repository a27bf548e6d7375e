"""`Loom.open` and its sessions: append, prepare a request, absorb the answer, fork, switch, bring back what was left out."""

import asyncio
import time
import warnings
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath, urandom
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from loom.budget import models
from loom.budget.calibration import observe
from loom.budget.models import Overrides
from loom.context.policy import Policy
from loom.context.sections import Section
from loom.context.weave import Context, Wish, check_wish, gate_counter, gather
from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation, Message, Tool
from loom.dialects.answers import parse_answer
from loom.dialects.given import parse_given
from loom.engine.prepare import Prepared, calibration, cuts_of, prepare
from loom.errors import ChoiceError, Conflict, StoreError, WireError, describe
from loom.stores.exchange import Imported, export_all, export_session, import_lines
from loom.stores.nodes import Draft, plain
from loom.stores.path import Node
from loom.stores.sessions import Scope, SessionRow, Usage, check_alive, check_name
from loom.stores.store import Store

Happened = Literal["created", "appended", "conflict", "prepared", "absorbed", "forked", "switched", "changed", "purged"]
_RECENT = 64  # nodes among which an answer is looked for that was written already
Given = str | Message | Mapping[str, Any]
_TITLE = 60  # letters of the first request that name a session


class Event(Struct, frozen=True):
    """Something that happened to a session: at which node, and what a listener may want to know of it."""

    kind: Happened
    session: str
    node: str
    what: Mapping[str, Any]
    at: int


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _fresh_id() -> str:
    return b32encode(urandom(10)).decode().lower()


class Loom:
    """A store, seen from one scope. Close it, or use it in a `with` block."""

    def __init__(self, store: Store, scope: Scope, now: Callable[[], int], fresh_id: Callable[[], str]) -> None:
        self.store, self.scope, self.now, self.fresh_id = store, scope, now, fresh_id
        self._listeners: list[Callable[[Event], None]] = []

    @classmethod
    def open(
        cls,
        url: "str | PathLike[str] | None" = None,
        *,
        tenant: str = "default",
        project: str = "default",
        agent: str = "",
        now: Callable[[], int] = _milliseconds,
        fresh_id: Callable[[], str] = _fresh_id,
    ) -> "Loom":
        """Open a store: a path, `sqlite:///PATH`, `:memory:` or `postgres://…`; by default LOOM_STORE, else the user's data folder.

        Nothing of another tenant or project is ever seen; with an agent named, nothing of other agents.
        """
        if url is not None and not isinstance(url, str | PathLike):
            raise ChoiceError(f"a store is named by a path or an address, found {describe(url)}")
        return cls(Store(None if url is None else fspath(url)), Scope(tenant, project, agent), now, fresh_id)

    def new(
        self,
        title: str = "",
        *,
        model: str = "",
        system: str | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        origin: str = "",
    ) -> "Session":
        """A session that has said nothing yet."""
        head = replace(gather((), system, tools)[0], model=check_name("model", model))
        row = self.store.sessions.create(self.scope, self.fresh_id(), now=self.now(), title=title, head=head, origin=origin)
        return self._told("created", Session(self, row), title=title)

    def session(self, name: str) -> "Session":
        """The session of this id, or the one whose id begins so."""
        return Session(self, self.store.sessions.get(self.scope, name))

    def sessions(self, *, archived: bool = False, limit: int = 0) -> list[SessionRow]:
        """The sessions in scope, the one used last first."""
        return self.store.sessions.listed(self.scope, ("archived",) if archived else ("active", "importing"), limit)

    def recognise(self, messages: Iterable[Message | Mapping[str, Any]]) -> "tuple[Session | None, int]":
        """The session of a client that sends its whole history again, and how many of its messages are known.

        Where no session stands at the last of those, one is forked there.
        """
        said = [message for message in _parsed(messages) if message.role not in ("system", "developer")]
        rows, node, count = self.store.sessions.recognise(self.scope, said)
        if node is None or not rows:
            return None, 0
        standing = next((row for row in rows if row.cursor == node.seq), None)
        return (Session(self, standing) if standing else Session(self, rows[0]).fork(at=node.id)), count

    def recall(self, handle: str) -> str:
        """What was left out under this handle in any session in scope."""
        return self.store.views.recall_any(self.scope, handle)

    def export(self, *, everywhere: bool = False) -> Iterator[str]:
        """All sessions in scope as JSON lines; `everywhere`, those of every tenant and project."""
        return export_all(self.store, self.scope, everywhere)

    def import_lines(
        self, lines: Iterable[str], *, everywhere: bool = False, progress: Callable[[int], None] | None = None
    ) -> list[Imported]:
        """Bring in what was exported, with the same ids. What is here already is not written twice."""
        return import_lines(self.store, self.scope, lines, self.now(), everywhere, progress)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call this with every event from now on."""
        self._listeners.append(listener)

    def _told(self, kind: Happened, session: "Session", **what: Any) -> "Session":
        for listener in self._listeners:
            try:
                listener(Event(kind, session.id, session.cursor.id if session.cursor else "", what, self.now()))
            except Exception as error:  # what happened has happened; a listener cannot make it fail
                warnings.warn(f"a listener failed on {kind!r}: {error!r}", RuntimeWarning, stacklevel=2)
        return session

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> "Loom":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Session:
    """A cursor on a tree. It goes on from where it last saw itself; where somebody else moved it, `Conflict` says so."""

    def __init__(self, loom: Loom, row: SessionRow, end: Node | None = None) -> None:
        self._loom, self._store, self.row = loom, loom.store, row
        self.path = loom.store.sessions.path(row, end)
        self._last: Prepared | None = None

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def cursor(self) -> Node | None:
        """The node that this session stands on, as it last saw it. `path` leads there, and reads only where one looks."""
        return self.path.end

    def refresh(self) -> "Session":
        """Look again where the session stands."""
        return self._now(self._store.sessions.get(self._loom.scope, self.row.id))

    def append(self, *messages: Given, after: str | None = None, generation: str = "") -> list[Node]:
        """Write messages behind the cursor, all or none, and move it there. A text is what the user says.

        `after` names the node they come after ("" for none); writing the same again behind the same node writes nothing.
        System messages become system text of the session. `generation` tells identical regenerations apart.
        """
        behind = self.path.end if after is None else self._store.sessions.node(self.row, after) if after else None
        nodes = self._append(_parsed(messages), behind, check_name("generation", generation))
        self._loom._told("appended", self, messages=len(nodes))
        return nodes

    def _append(self, said: Sequence[Message], behind: Node | None, generation: str, **beside: Any) -> list[Node]:
        count = gate_counter(None).count_message
        drafts: list[Draft] = []
        asides: list[tuple[int, Message]] = []
        for message in said:
            if message.role in ("system", "developer"):
                asides.append((len(drafts), message))
            else:
                drafts.append(Draft(message, count(message), generation))
        now, title = self._loom.now(), title_of(said)
        try:
            row, nodes = self._store.sessions.append(self.row, behind, drafts, now=now, title=title, asides=asides, **beside)
        except Conflict as conflict:
            self._loom._told("conflict", self, expected=conflict.expected, found=conflict.found)
            raise
        self._now(row, nodes)
        return nodes

    async def prepare(
        self,
        request: Given | None = None,
        *,
        model: str | None = None,
        window: int | None = None,
        reserve_output: int | None = None,
        policy: str | Policy = "default",
        sections: Iterable[Section | tuple[str, str]] = (),
        pins: Sequence[str] = (),
        overrides: Overrides | None = None,
        zones: Mapping[str, int] | None = None,
        preview: bool = False,
    ) -> Context:
        """The request to send now; `request`, if given, is appended first, unless it stands last already: a retry asks once.

        Only what the window needs is read. It continues the epoch of the last one where that still fits, also after a restart.
        `pins` name nodes that must stay. A `preview` leaves the epoch as it is.
        """
        wish = check_wish(model, window, reserve_output, policy, sections, overrides, 1.0, zones)
        if request is not None and not self._asked(request):
            self.append(request)
        if self._store.database.name == "sqlite":  # answers at once; a thread would only cost
            return self._prepare(wish, pins, preview)
        return await asyncio.to_thread(self._prepare, wish, pins, preview)

    def _asked(self, request: Given) -> bool:
        end = self.path.end
        return end is not None and end.message is not None and [end.message] == _parsed([request])

    def _prepare(self, wish: Wish, pins: Sequence[str], preview: bool) -> Context:
        check_alive(self.row, self.row.status)
        if self.path.end is None:
            raise ChoiceError(f"session {self.id} has no messages yet; append one first")
        pinned = [self._on_path(name) for name in pins]
        context, last = prepare(self._store, self.row, self.path, wish, pinned, self._last, self.recall)
        cuts = cuts_of(context, last.reading)
        if preview:
            with suppress(StoreError):  # a store that can only be read will do for a look
                self._store.views.save(self.row, None, cuts, self._loom.now())
            return context
        self._store.views.save(self.row, last.view, cuts, self._loom.now())
        self._last = replace(last, view=replace(last.view, session=self.row.key))
        report = context.report
        self._loom._told("prepared", self, tokens=report.input_tokens, epoch=report.epoch, reason=report.epoch_reason)
        return context

    def absorb(self, response: Any, *, choice: int = 0) -> list[Node]:
        """Write what a provider answered behind the cursor, with its usage and the answer as it came.

        Takes the JSON of OpenAI (chat, responses) or Anthropic, or their SDKs' objects. The same answer twice is written once.
        """
        answer = parse_answer(response, choice)
        model = answer.model or (self._last.model if self._last else "") or self.row.model
        price = models.cost(models.model(model), answer.prompt, answer.completion, answer.cached, answer.written)
        learnt = ""
        if self._last and answer.prompt:
            seen = observe(calibration(self.row), self._last.model, counted=self._last.counted, reported=answer.prompt)
            learnt = to_json(seen)
        usage = Usage(answer.prompt, answer.completion, answer.cached, price)
        beside = [("response", answer.raw), ("usage", to_json(usage))]
        # The provider's name for the answer tells two equal answers apart; of several choices each is its own.
        generation = f"{answer.id}#{choice}" if answer.id and choice else answer.id
        behind = self._behind(plain(generation))
        nodes = self._append(answer.messages, behind, plain(generation), usage=usage, records=beside, calibration=learnt)
        self._loom._told("absorbed", self, prompt=usage.prompt, completion=usage.completion, cached=usage.cached, cost=usage.cost)
        return nodes

    def _behind(self, generation: str) -> Node | None:
        """Where an answer belongs: behind the cursor, or where it stands already if it came a moment ago."""
        recent = self.path[-_RECENT:] if generation else []
        first = next((n for n, node in enumerate(recent) if node.generation == generation), None)
        if first is None:
            return self.path.end
        return recent[first - 1] if first else self.path[recent[0].depth - 1] if recent[0].depth else None

    def response(self, node: str) -> str | None:
        """The provider's answer, as it came, that made this node."""
        found = self._store.sessions.records(self.row, self._store.sessions.node(self.row, node), "response")
        return found[0] if found else None

    def recall(self, handle: str) -> str:
        """What was left out under this handle: the text of a part, or the messages of a span as canonical JSON lines."""
        return self._store.views.recall(self.row, self.path, handle)

    def fork(self, at: str | None = None, title: str = "") -> "Session":
        """A second session that begins with what this one has said, up to the node `at`. Nothing is copied."""
        node = self.path.end if at is None else self._store.sessions.node(self.row, at)
        identity, title = self._loom.fresh_id(), title or self.row.title
        row = self._store.sessions.fork(self._loom.scope, self.row, node, identity, title, self._loom.now())
        return self._loom._told("forked", Session(self._loom, row, node), origin=self.id)

    def switch(self, to: str) -> "Session":
        """Move the cursor to another node of the tree."""
        node = self._store.sessions.node(self.row, to)
        self._now(self._store.sessions.switch(self.row, node, self._loom.now()), [node])
        return self._loom._told("switched", self)

    def change(
        self,
        *,
        title: str | None = None,
        archived: bool | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
    ) -> "Session":
        """Give the session another title, model, system text or tools; put it away, or take it back."""
        before = head = self._store.sessions.get(self._loom.scope, self.id).head
        if model is not None:
            head = replace(head, model=model)
        if system is not None:
            head = replace(head, system=gather((), system, None)[0].system)
        if tools is not None:
            head = replace(head, tools=gather((), None, tools)[0].tools)
        status: Literal["active", "archived"] | None = None if archived is None else "archived" if archived else "active"
        changed = head if head is not before else None
        self._now(self._store.sessions.change(self.row, now=self._loom.now(), title=title, status=status, head=changed))
        return self._loom._told("changed", self)

    def carry_on(self) -> "Session":
        """Put this session away and begin a fresh one with its system text, tools and model, called `Continue: TITLE`."""
        self.change(archived=True)
        row = self._store.sessions.create(
            replace(self._loom.scope, agent=self.row.agent),
            self._loom.fresh_id(),
            now=self._loom.now(),
            title=f"Continue: {self.row.title}"[:200],
            head=self.row.head,
            origin=self.id,
        )
        return self._loom._told("created", Session(self._loom, row), origin=self.id)

    def purge(self) -> tuple[int, int]:
        """Take away for good what only this session holds: how many messages went, and how many stay because others hold them."""
        gone, kept = self._store.sessions.purge(self.row, self._loom.now())
        self._loom._told("purged", self, gone=gone, kept=kept)
        return gone, kept

    def export(self) -> Iterator[str]:
        """The session as JSON lines, to be imported anywhere with the same ids."""
        return export_session(self._store, self.row)

    def conversation(self) -> Conversation:
        """All of it: every message in its place, system messages too."""
        asides: dict[str, list[Message]] = {}
        for aside in self._store.sessions.on_path(self.row, self.path):
            asides.setdefault(aside.after, []).append(aside.message)
        said = list(asides.pop("", []))
        for node in self.path:
            said += [node.message] if node.message else []
            said += asides.get(node.id, [])
        lead = next((n for n, m in enumerate(said) if m.role not in ("system", "developer")), len(said))
        return replace(self.row.head, system=(*self.row.head.system, *said[:lead]), messages=tuple(said[lead:]))

    def _on_path(self, name: str) -> Node:
        node = self._store.sessions.node(self.row, name)
        if not self.path.holds(node.seq, node.depth):
            raise ChoiceError(f"node {node.local} cannot be pinned: it is not on the path of session {self.id}")
        return node

    def _now(self, row: SessionRow, nodes: Sequence[Node] = ()) -> "Session":
        """Stand where the row says; the path that leads there may end in these nodes."""
        self.row = row
        if nodes and nodes[-1].seq == row.cursor:
            self.path = self.path.grown(nodes)
        elif row.cursor != (self.path.end.seq if self.path.end else None):
            self.path = self._store.sessions.path(row)
        return self


def _parsed(messages: object) -> list[Message]:
    if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping):
        raise ChoiceError(f"messages must be a list, found {describe(messages)}")
    given = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    try:
        return list(parse_given(given))
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError("messages", "values that JSON can hold", str(error)) from None


def title_of(said: Iterable[Message]) -> str:
    """The first line of the first request."""
    return one_line(next((message.text for message in said if message.role == "user" and message.text.strip()), ""))


def one_line(text: str) -> str:
    """The first line of a text, short enough for a title."""
    line = "".join(c if c.isprintable() else " " for c in text.strip().partition("\n")[0]).strip()
    line = line.encode(errors="replace").decode()
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"
