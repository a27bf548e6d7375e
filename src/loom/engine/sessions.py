"""A session that is kept: append, prepare a request, absorb the answer, fork, switch, bring back what was left out."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from loom.budget import models
from loom.budget.calibration import observe
from loom.budget.models import Overrides
from loom.context.policy import Policy
from loom.context.sections import Section
from loom.context.weave import Context, Wish, check_wish, gate_counter, gather
from loom.context.working import EMPTY, Working, erred, measured, render
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Conversation, Message, Text, Tool
from loom.conversation.tree import Source
from loom.dialects.answers import parse_answer
from loom.dialects.given import parse_given
from loom.engine.assemble import Manner
from loom.engine.aware import addendum, blocks, headers_from
from loom.engine.home import Happened, Home
from loom.engine.prepare import Prepared, calibration, cuts_of, prepare, prepare_ending
from loom.errors import ChoiceError, Conflict, StoreError, WireError, describe
from loom.stores.exchange import export_session
from loom.stores.nodes import Draft, plain
from loom.stores.path import Node, Path
from loom.stores.sessions import SessionRow, Usage, check_alive, check_name

_RECENT = 64  # nodes among which an answer is looked for that was written already
Given = str | Message | Mapping[str, Any]
_MEMORY_ROOM = 64  # tokens more than an agent's memory takes, so that it stands as it is
_TITLE = 60  # letters of the first request that name a session


class _Look(Struct, frozen=True):
    """What is asked of a request beside how large it may be."""

    pins: tuple[str, ...]
    sources: tuple[Source, ...]
    include: tuple[str, ...]
    preview: bool
    at: str | None


class Session:
    """A cursor on a tree. It goes on from where it last saw itself; where somebody else moved it, `Conflict` says so."""

    def __init__(self, home: Home, row: SessionRow, end: Node | None = None, guest: bool = False) -> None:
        self._guest = guest  # who only looks: it has nothing of its own here
        self._home, self._store, self.row = home, home.store, row
        self.path = home.store.sessions.path(row, end)
        self._last: Prepared | None = None
        self._sources: tuple[Source, ...] = ()

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def _mind(self) -> SessionRow:
        """The row whose states are this session's; a guest has none."""
        return replace(self.row, key=0, id="") if self._guest else self.row

    @property
    def cursor(self) -> Node | None:
        """The node that this session stands on, as it last saw it. `path` leads there, and reads only where one looks."""
        return self.path.end

    def told(self, kind: Happened, **what: Any) -> "Session":
        """Let listeners know that something happened to this session."""
        self._home.tell(kind, self.id, self.cursor.id if self.cursor else "", **what)
        return self

    def refresh(self) -> "Session":
        """Look again where the session stands."""
        return self._now(self._store.sessions.get(self._home.scope, self.row.id))

    def append(self, *messages: Given, after: str | None = None, generation: str = "") -> list[Node]:
        """Write messages behind the cursor, all or none, and move it there. A text is what the user says.

        `after` names the node they come after ("" for none); writing the same again behind the same node writes nothing.
        System messages become system text of the session. `generation` tells identical regenerations apart.
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
            if message.role in ("system", "developer"):
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

    def _count_errors(self, said: Sequence[Message]) -> None:
        """Results that tell of an error are counted in the working state, where there is one; a new request begins anew."""
        asked = any(message.role == "user" for message in said)
        errors = sum(result.error for message in said for result in message.results)
        if (asked or errors) and (state := self.working) != EMPTY:
            counted = erred(erred(state, 0) if asked else state, errors) if errors else erred(state, 0)
            if counted != state:
                self.keep_working(counted)

    def graft(
        self,
        message: Message,
        behind: Node | None,
        records: Sequence[tuple[str, str]] = (),
        *,
        generation: str = "",
        handles: Sequence[tuple[str, str]] = (),
        move: bool = False,
        seen: int | None = None,
        commits: bool = False,
    ) -> Node:
        """Write a message behind any node of the tree, with what stands beside it, and `move` there if asked.

        `seen` is when its writer last looked: where somebody went on behind that node since, that is a conflict. What `commits`
        is the text that was not committed.
        """
        draft = Draft(message, gate_counter(None).count_message(message), check_name("generation", generation))
        try:
            row, node = self._store.growth.graft(
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
        kept = self._store.states.all(self.row.key, "working").get("")
        return msgspec.convert(from_json(kept), Working) if kept else EMPTY

    def keep_working(self, working: Working) -> Working:
        """Keep another working state; the verbs of `loom.context.working` make one from the last. It stands in the next request."""
        kept = to_json(working) if working != EMPTY else None
        self._store.states.put(self.row.key, "working", {"": kept}, self._home.now())
        return working

    # Text not yet committed, and versions, of a tree in buffer mode

    def draft(self, text: str) -> None:
        """What stands at the end of the document and is not committed; "" for nothing. It is, when an answer comes."""
        if self._store.trees.head(self.row.tree).head.mode != "buffer":
            raise ChoiceError(f"session {self.id} is on a tree in dialogue mode, where nothing is uncommitted; append a message")
        self._store.states.put(self.row.key, "buffer", {"": to_json(text) if text else None}, self._home.now())

    @property
    def drafted(self) -> str:
        return _texts(self._store.states.all(self.row.key, "buffer")).get("", "")

    def commit(self) -> Node | None:
        """Make a node of the text that is not committed yet, if there is any."""
        text = self.drafted
        if not text:
            return None
        return self.graft(Message("user", (Text(text),), self.row.agent), self.path.end, move=True, commits=True)

    def choose(self, first: str, version: str) -> None:
        """Let this version stand for the node that it was edited from; the node itself, to undo all edits."""
        self._store.states.put(self.row.key, "version", {first: to_json(version)}, self._home.now())

    def versions(self) -> dict[str, str]:
        """Which version was chosen for which node."""
        return _texts(self._store.states.all(self._mind.key, "version"))

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
        at: str | None = None,
        sources: Sequence[Source] = (),
        include: Sequence[str] = (),
    ) -> Context:
        """The request to send now; `request`, if given, is appended first, unless it stands last already: a retry asks once.

        Only what the window needs is read. It continues the epoch of the last one where that still fits, also after a restart.
        `pins` name nodes that must stay, `include` annotations to be read. `sources` are what the answer is made from beside the
        path: references and instructions. A `preview` leaves the epoch as it is; `at` is one of the path to another node.
        """
        wish = check_wish(model, window, reserve_output, policy, sections, overrides, 1.0, zones)
        if request is not None and not self._asked(request):
            self.append(request)
        look = _Look(tuple(pins), tuple(sources), tuple(include), preview or at is not None, at)
        if self._store.database.name == "sqlite":  # answers at once; a thread would only cost
            return self._prepare(wish, look)
        return await asyncio.to_thread(self._prepare, wish, look)

    def _asked(self, request: Given) -> bool:
        end = self.path.end
        return end is not None and end.message is not None and [end.message] == parsed([request])

    def _prepare(self, wish: Wish, look: "_Look") -> Context:
        check_alive(self.row, self.row.status)
        path = self.path if look.at is None else Path(self._store.database, self.row.tree.key, self._node(look.at))
        manner = self._manner(path, look)
        if path.end is None and not manner.buffer:
            raise ChoiceError(f"session {self.id} has no messages yet; append one first")
        if path.end is None or (manner.buffer and manner.bears(path).path.end is None):
            return prepare_ending(self.row, path, wish, manner, self.recall)
        if manner.agent and manner.agent.loom_aware and (manner.agent.kind == "model" or not manner.document):
            told = blocks(self._store, self._mind, manner.tree, manner.agent, path, manner.now)
            zone = {"operational_memory": gate_counter(None).count_text(told[0].text) + _MEMORY_ROOM}
            wish = replace(wish, sections=(*wish.sections, *told), zones=zone | dict(wish.zones))
        state = EMPTY if self._guest else self.working
        shown = state != EMPTY or wish.policy.strategy == "ladder"
        if shown:
            wish = replace(wish, sections=(*wish.sections, Section("working", render(state) or render(measured(state, 0.0, 1)))))
        if wish.window is None and manner.agent and manner.agent.window:
            wish = replace(wish, window=manner.agent.window)
        pinned = [self._on_path(path, name) for name in look.pins]
        context, last = prepare(self._store, self.row, path, wish, manner, pinned, None if look.at else self._last, self.recall)
        cuts = cuts_of(context, last.reading)
        if look.preview:
            with suppress(StoreError):  # a store that can only be read will do for a look
                self._store.views.save(self.row, None, cuts, self._home.now())
            return context
        self._store.views.save(self.row, last.view, cuts, self._home.now())
        if manner.agent and manner.agent.loom_aware:
            self._store.states.put(self.row.key, "seen", {"": to_json(str(manner.now))}, manner.now)
        if shown:
            left = context.report.usable - context.report.input_tokens
            self.keep_working(measured(state, context.report.pressure, left))
        self._last = replace(last, view=replace(last.view, session=self.row.key))
        self._sources = look.sources
        report = context.report
        self.told("prepared", tokens=report.input_tokens, epoch=report.epoch, reason=report.epoch_reason)
        return context

    def _manner(self, path: Path, look: "_Look") -> Manner:
        """How this session reads its tree."""
        store, row = self._store, self.row
        tree = store.trees.head(row.tree)
        agent = store.settings.agent(self._home.scope, row.agent) if row.agent else None
        aware = agent is not None and agent.loom_aware and tree.head.mode == "dialogue"
        states = store.states
        return Manner(
            tree=tree,
            now=self._home.now(),
            agent=agent,
            chosen={} if tree.head.mode == "dialogue" else _texts(states.all(self._mind.key, "version")),
            sources=look.sources,
            include=frozenset(self._node(name).id for name in look.include),
            buffer="" if tree.head.mode == "dialogue" else _texts(states.all(self._mind.key, "buffer")).get("", ""),
            headers=headers_from(store, row) if aware else None,
            addendum=addendum() if aware else "",
        )

    def absorb(self, response: Any, *, choice: int = 0) -> list[Node]:
        """Write what a provider answered behind the cursor, with its usage and the answer as it came.

        Takes the JSON of OpenAI (chat, responses) or Anthropic, or their SDKs' objects. The same answer twice is written once.
        """
        answer = parse_answer(response, choice)
        self.commit()
        model = answer.model or (self._last.model if self._last else "") or self.row.model
        price = models.cost(models.model(model), answer.prompt, answer.completion, answer.cached, answer.written)
        learnt = ""
        if self._last and answer.prompt:
            seen = observe(calibration(self.row), self._last.model, counted=self._last.counted, reported=answer.prompt)
            learnt = to_json(seen)
        usage = Usage(answer.prompt, answer.completion, answer.cached, price)
        beside = [("response", answer.raw), ("usage", to_json(usage))]
        if self._sources:
            beside.append(("sources", to_json(self._sources)))
            self._sources = ()
        # The provider's name for the answer tells two equal answers apart; of several choices each is its own.
        generation = f"{answer.id}#{choice}" if answer.id and choice else answer.id
        behind = self._behind(plain(generation))
        nodes = self._append(answer.messages, behind, plain(generation), usage=usage, records=beside, calibration=learnt)
        self.told("absorbed", prompt=usage.prompt, completion=usage.completion, cached=usage.cached, cost=usage.cost)
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
        identity, title = self._home.fresh_id(), title or self.row.title
        row = self._store.sessions.fork(self._home.scope, self.row, node, identity, title, self._home.now())
        made = Session(self._home, row, node)
        if chosen := self.versions():  # the same path is read the same way
            self._store.states.put(
                row.key, "version", {name: to_json(version) for name, version in chosen.items()}, self._home.now()
            )
        return made.told("forked", origin=self.id)

    def switch(self, to: str) -> "Session":
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
    ) -> "Session":
        """Give the session another title, model, system text or tools; put it away, or take it back."""
        before = head = self._store.sessions.get(self._home.scope, self.id).head
        if model is not None:
            head = replace(head, model=model)
        if system is not None:
            head = replace(head, system=gather((), system, None)[0].system)
        if tools is not None:
            head = replace(head, tools=gather((), None, tools)[0].tools)
        status: Literal["active", "archived"] | None = None if archived is None else "archived" if archived else "active"
        changed = head if head is not before else None
        self._now(self._store.sessions.change(self.row, now=self._home.now(), title=title, status=status, head=changed))
        return self.told("changed")

    def carry_on(self) -> "Session":
        """Put this session away and begin a fresh one with its system text, tools and model, called `Continue: TITLE`."""
        self.change(archived=True)
        row = self._store.sessions.create(
            replace(self._home.scope, agent=self.row.agent),
            self._home.fresh_id(),
            now=self._home.now(),
            title=f"Continue: {self.row.title}"[:200],
            head=self.row.head,
            origin=self.id,
        )
        return Session(self._home, row).told("created", origin=self.id)

    def purge(self) -> tuple[int, int]:
        """Take away for good what only this session holds: how many messages went, and how many stay because others hold them."""
        gone, kept = self._store.sessions.purge(self.row, self._home.now())
        self.told("purged", gone=gone, kept=kept)
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

    def _node(self, name: str) -> Node:
        return self._store.sessions.node(self.row, name)

    def _on_path(self, path: Path, name: str) -> Node:
        node = self._node(name)
        if not path.holds(node.seq, node.depth):
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


def _texts(states: Mapping[str, str]) -> dict[str, str]:
    return {name: str(from_json(data)) for name, data in states.items()}


def parsed(messages: object) -> list[Message]:
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
