"""A session that is kept: append, prepare a request, absorb the answer, fork, switch, bring back
what was left out.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.budget.counting import gate_counter
from loom.context import (
    Context,
    Handoff,
    Options,
    Policy,
    Report,
    SummaryTask,
    Working,
    answer_find_tools,
    budget_for,
    check_options,
    find_policy,
    find_strategy,
    finder_name,
    open_calls,
    policies,
)
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.checked import (
    check_flag,
    check_number,
    check_text,
    checks_arguments,
    refuse_unknown,
    show_options,
)
from loom.conversation.handles import to_lines
from loom.conversation.message import Conversation, Message, Text, Tool, ToolCall
from loom.conversation.metadata import write_metadata
from loom.conversation.names import check_name
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.dialects.document import to_plain_text
from loom.dialects.input import Answer, parse_answer, parse_call
from loom.engine.answers import (
    AnswerOutcome,
    AnswerPlace,
    AnswerPlacer,
    Order,
    cost_of,
    digest_of,
    generation_of,
    records_of,
    take_out_commands,
)
from loom.engine.aware import addendum, headers_from
from loom.engine.decisions import SessionDecisions, find_folder
from loom.engine.inputs import Given, parse_head, parse_with_metadata, title_of
from loom.engine.knowledge import find_question, learn_cited, make_evidence
from loom.engine.memory import SessionMemory
from loom.engine.options import (
    DEFAULT_POLICY,
    PrepareOptions,
    RequestDetails,
    check_prepare_options,
)
from loom.engine.prepare import (
    BY_PERSON,
    LastRequest,
    NewHandles,
    RequestInput,
    new_handles,
    prepare,
    prepare_ending,
    ratio_of,
)
from loom.engine.pressure import (
    LAST_MESSAGES,
    fit_into,
    hidden_names,
    limit_after_refusal,
    make_handoff,
    moment,
)
from loom.engine.purging import keep_snapshot, what_remains
from loom.engine.reading import ReadingStyle
from loom.engine.remembered import (
    RememberedOptions,
    RequestDefaults,
    SetOptions,
    check_remembered,
    fill_options,
    read_defaults,
)
from loom.engine.search import check_search, search_session, shown_in
from loom.engine.session_state import (
    SessionState,
    handoff_values,
    limit_values,
    offered_values,
    remembered_values,
    request_values,
    skills_values,
    text_values,
    working_values,
)
from loom.engine.skills import (
    SessionSkills,
    SkillsState,
    ask_skills,
    note_result,
    refuse_unknown_skills,
)
from loom.engine.sources import (
    SESSION_SOURCES,
    Asking,
    check_project,
    gather,
    is_in_requests,
    rank_project,
)
from loom.engine.summarize import MadeSummary, check_model, summarize
from loom.engine.summing import (
    BY_MODEL,
    RESULT_DIGEST_TOKENS,
    Plan,
    When,
    find_undigested,
    join_texts,
    make_summary,
    plan,
    with_digests,
)
from loom.engine.tools import RECALLED, carry_out, is_own_call, loaded_skill
from loom.engine.urgent_events import EVENTS_SEEN, bring_urgent_events
from loom.engine.views import find_reached, store_view
from loom.engine.workspace import EventKind, Workspace
from loom.errors import CannotFit, ChoiceError, Conflict, StoreError, Unfinished, describe, shorten
from loom.providers.knowledge import Findings, ask_bases, find_cited
from loom.providers.models import Model
from loom.providers.overflow import Overflow
from loom.recall.hits import Hit
from loom.runtime.threads import async_form, async_lines, async_value
from loom.stores import (
    Addition,
    Draft,
    FlagMark,
    HandleTarget,
    Marks,
    NewNode,
    NewSession,
    Node,
    Overlay,
    Path,
    Request,
    SavedRequest,
    SessionRow,
    Stash,
    StateValues,
    Usage,
    export_session,
)

if TYPE_CHECKING:
    from loom.project.skills.choosing import SkillRequest

_T = TypeVar("_T")
MAX_PINNED_MESSAGES = 8  # by one handle
MAX_STASHES = 50  # of a session
MAX_STASH_CHARS = 100_000

_LOOK = RequestDetails()


class _RequestParts(Struct, frozen=True, kw_only=True):
    """What a request is made from. `refused_at` are the tokens that a provider refused.

    `is_handoff_new`: the handoff is not the one that the store has.
    """

    asked: RequestInput
    working: Working
    refused_at: int
    is_handoff_new: bool


class _WovenRequest(Struct, frozen=True, kw_only=True):
    """A request that was made, what is remembered of it, and whether a fresh window begins with
    it.
    """

    context: Context
    prepared: LastRequest
    handles: NewHandles
    handoff: Handoff | None
    is_renewed: bool


class ResumePoint(Struct, frozen=True):
    """What is needed to continue after a crash: a handoff, the working state, and calls that were
    made and never answered.

    `restored`: the store had no working state, and it came back from the files of the last
    snapshot.
    """

    handoff: Handoff
    working: Working
    pending: tuple[ToolCall, ...]
    restored: bool


class Session:
    """A conversation in a store, and the requests that are built from it."""

    def __init__(
        self,
        workspace: Workspace,
        row: SessionRow,
        end: Node | None = None,
        guest: bool = False,
        lasting: bool = False,
    ) -> None:
        """A `guest` only looks: it has nothing of its own here.

        `lasting`: others may take the answer to a request of this object, so that the store has to
        know of it.
        """
        self._workspace, self._store, self.row = workspace, workspace.store, row
        self.path = workspace.store.sessions.path(row, end)
        self._guest, self._lasting = guest, lasting
        self._state = SessionState(workspace.store.states, 0 if guest else row.key)
        self._order = threading.Lock()  # of those verbs that run in threads
        self._last: LastRequest | None = None
        # kept for this session, each with a hash of what it stands for
        self._known_handles: dict[str, int] = {}
        self._options: Options | None = None
        self._request: Request | None = None
        self._is_request_kept = False

    def __repr__(self) -> str:
        title = f" {self.row.title!r}" if self.row.title else ""
        count = len(self.path)
        return (
            f"<{type(self).__name__} {self.row.id}{title}, {count:,} "
            f"{'message' if count == 1 else 'messages'}>"
        )

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.row.id

    @property
    def cursor(self) -> Node | None:
        """The current node: the one that the next message follows.

        None before the first message.
        """
        return self.path.end

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on this session in a thread of the store.

        The work of one session runs in order.
        """
        return await self._workspace.run_off_loop(work, self._order)

    def emit(self, kind: EventKind, **what: Any) -> Self:
        """Let listeners know that something happened to this session."""
        self._workspace.emit(kind, self.id, self.cursor.id if self.cursor else "", **what)
        return self

    # What is said

    def refresh(self) -> Self:
        """Read again where the session is. Other programs may have moved it."""
        return self._now(self._store.sessions.get(self._workspace.scope, self.row.id))

    def append(
        self,
        *messages: Given,
        after: str | None = None,
        generation: str = "",
        metadata: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    ) -> list[Node]:
        """Append messages after the current node: all of them, or none.

        A text is a message of the user. `after` is the id of the node that they must follow ("" for
        the beginning); if the session is at another node, `Conflict` is raised. The same messages
        after the same node are stored once, so a retry is safe. `generation` distinguishes
        identical answers.

        `metadata` is what your program says of the messages: an object of JSON for all of them, or
        a list with one for each. It is stored beside the messages, comes back with hits of
        `search`, and is never sent to a provider. The key `metadata` of a message that is a mapping
        means the same. A message that is stored already keeps what it has.

        System messages before the first message become system text. Later ones stay in their place.
        """
        behind = self.path.end
        if after is not None:
            behind = self._node(after) if after else None
        parsed, beside = parse_with_metadata(messages, metadata)
        nodes = self._append(parsed, behind, check_name("generation", generation), metadata=beside)
        self._learn_cited("\n".join(each.text for each in parsed if each.role == "assistant"))
        self.emit("appended", messages=len(nodes))
        return nodes

    def metadata(self, node: str) -> dict[str, Any]:
        """The metadata of a message; empty if it has none."""
        found = self._node(node)
        return self._store.sessions.metadata(self.row.tree, [found.seq]).get(found.seq, {})

    def _append(
        self,
        messages: Sequence[Message],
        behind: Node | None,
        generation: str,
        added: Addition | None = None,
        move: bool = True,
        metadata: Sequence[str] = (),
    ) -> list[Node]:
        count = gate_counter(None).count_message
        drafts: list[Draft] = []
        asides: list[tuple[int, Message]] = []
        for message, beside in zip_longest(messages, metadata, fillvalue=""):
            assert isinstance(message, Message)
            if message.role in SYSTEM_ROLES and (
                (behind is None and not drafts) or self._is_text()
            ):
                if beside:
                    raise ChoiceError(
                        "a system message that becomes system text has no metadata; give a list "
                        "with one for each message, and None for this one"
                    )
                asides.append((len(drafts), message))
            else:
                drafts.append(Draft(message, count(message), generation, beside))
        now, title = self._workspace.now(), title_of(messages)
        try:
            added = replace(added or Addition(), title=title, asides=asides)
            row, nodes = self._store.sessions.append(
                self.row, behind, drafts, now=now, added=added, move=move
            )
        except Conflict as conflict:
            self.emit("conflict", expected=conflict.expected, found=conflict.found)
            raise
        self._now(row, nodes)
        self._workspace.indexer.count_written(len(nodes))
        if any(message.role == "user" or message.results for message in messages):
            self._count_errors(messages)
        return nodes

    def _count_errors(self, messages: Sequence[Message]) -> None:
        """Count results that tell of an error in the working state, if there is one."""
        state = self.working
        if state.is_empty:
            counted = state
        else:
            counted = state.count_errors(messages)
        if counted != state:
            self.keep_working(counted)

    def _is_text(self) -> bool:
        """Whether the session is on a text without roles, in which a system message has no
        place.
        """
        return self._store.trees.head(self.row.tree).head.mode == "buffer"

    @checks_arguments
    def append_at(
        self,
        message: Message,
        behind: Node | None,
        records: Sequence[tuple[str, str]] = (),
        *,
        generation: str = "",
        handles: Sequence[tuple[str, HandleTarget]] = (),
        move: bool = False,
        seen: int | None = None,
    ) -> Node:
        """Write a message after any node of the tree, with its records, and `move` there
        if asked.

        `seen` is when its writer last looked: where somebody continued after that node since, that
        is a conflict.
        """
        if not isinstance(message, Message):
            raise ChoiceError(f"expected a Message, found {describe(message)}")
        if seen is not None:
            check_number("when the writer last looked", seen)
        draft = _draft(message, check_name("generation", generation))
        return self._append_node(NewNode(draft, records, handles), behind, move=move, seen=seen)

    def _append_node(
        self,
        new: NewNode,
        behind: Node | None,
        *,
        move: bool,
        seen: int | None = None,
        commits: bool = False,
    ) -> Node:
        """Write a node. What `commits` is the text that was not committed."""
        now = self._workspace.now()
        try:
            row, node = self._store.growth.append_at(
                self.row, behind, new, now=now, move=move, seen=seen, commits=commits
            )
        except Conflict as conflict:
            self.emit("conflict", expected=conflict.expected, found=conflict.found)
            raise
        self._now(row, [node])
        self.emit("appended", messages=1)
        return node

    # Working state: what the agent decides by, besides what was said

    @property
    def working(self) -> Working:
        """The working state of the session, as it was stored last."""
        return self._state.working

    def keep_working(self, working: Working) -> Working:
        """Store another working state.

        The methods of `Working` make one from the last. The next request contains it.
        """
        self._keep_states(working_values(working))
        return working

    def _keep_states(self, *values: StateValues) -> None:
        if values:
            self._state.put(self._workspace.now(), *values)

    # Text not yet committed, and versions, of a tree in buffer mode

    def draft(self, text: str) -> None:
        """Set the text at the end of a buffer that is sent, but is not a node yet; "" removes it.

        It becomes a node when an answer comes.
        """
        if self._store.trees.head(self.row.tree).head.mode != "buffer":
            raise ChoiceError(
                f"session {self.id} is on a tree in dialogue mode, which has no drafts; append a "
                "message"
            )
        self._keep_states(text_values("buffer", "", check_text("what is drafted", text)))

    @property
    def draft_text(self) -> str:
        """The draft at the end of a buffer; "" if there is none."""
        return self._state.texts("buffer").get("", "")

    def commit(self) -> Node | None:
        """Make a node of the draft, if there is one."""
        text = self.draft_text
        if not text:
            return None
        draft = _draft(Message("user", (Text(text),), self.row.agent))
        return self._append_node(NewNode(draft), self.path.end, move=True, commits=True)

    def choose(self, first: str, version: str) -> None:
        """Read this version instead of the node that it was edited from.

        The node itself undoes all edits.
        """
        self._keep_states(text_values("version", self._node(first).id, self._node(version).id))

    def versions(self) -> dict[str, str]:
        """Which version was chosen for which node."""
        return self._state.texts("version")

    def response(self, node: str) -> str | None:
        """The answer of the provider that made this node, as it came."""
        found = self._store.sessions.records(
            self.row, self._store.sessions.node(self.row, node), "response"
        )
        return found[0] if found else None

    def fork(self, at: str | None = None, title: str = "") -> Self:
        """Create a second session that shares the messages up to the node `at`.

        No message is copied.
        """
        if at is None:
            node = self.path.end
        else:
            node = self._store.sessions.node(self.row, at)
        identity, title = self._workspace.fresh_id(), title or self.row.title
        row = self._store.sessions.fork(
            self._workspace.scope, self.row, node, identity, title, self._workspace.now()
        )
        made = type(self)(self._workspace, row, node)
        # The same path is read the same way.
        versions = [
            text_values("version", name, version) for name, version in self.versions().items()
        ]
        made._keep_states(*versions, *self._state.copied_values())
        return made.emit("forked", origin=self.id)

    def switch(self, to: str) -> Self:
        """Make another node of the tree the current node."""
        node = self._store.sessions.node(self.row, to)
        self._now(self._store.sessions.switch(self.row, node, self._workspace.now()), [node])
        return self.emit("switched")

    def change(
        self,
        *,
        title: str | None = None,
        archived: bool | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
    ) -> Self:
        """Change the title, model, system text or tools of the session; archive it, or make it
        active again.
        """
        before = head = self._store.sessions.get(self._workspace.scope, self.id).head
        if model is not None:
            head = replace(head, model=check_name("model", model))
        if system is not None:
            head = replace(head, system=parse_head(system, None).system)
        if tools is not None:
            head = replace(head, tools=parse_head(None, tools).tools)
        status: Literal["active", "archived"] | None = None
        if archived is not None:
            check_flag("archived", archived)
            status = "archived" if archived else "active"
        if model is not None and self._state.remembered_options.model is not None:
            self._keep_states(
                remembered_values(replace(self._state.remembered_options, model=None))
            )
        changed = head if head is not before else None
        self._now(
            self._store.sessions.change(
                self.row, now=self._workspace.now(), title=title, status=status, head=changed
            )
        )
        return self.emit("changed")

    def carry_on(self) -> Self:
        """Archive this session, and create a new one with the same system text, tools, model and
        policy, and with what it remembers. Its title is `Continue: TITLE`.
        """
        self.change(archived=True)
        row = self._store.sessions.create(
            replace(self._workspace.scope, agent=self.row.agent),
            NewSession(
                id=self._workspace.fresh_id(),
                title=f"Continue: {self.row.title}"[:200],
                head=self.row.head,
                origin=self.id,
            ),
            now=self._workspace.now(),
        )
        made = type(self)(self._workspace, row)
        made._keep_states(*self._state.copied_values())
        return made.emit("created", origin=self.id)

    def purge(self, *, notes: bool = False) -> tuple[int, int]:
        """Delete for good what only this session contains.

        With `notes`, also notes for other sessions that were remembered in this one, or come from
        what is deleted. Returns how many messages were deleted, and how many were not because other
        sessions share them. If copies of the words are still on disk, `Unfinished` names them. Call
        it again until nothing is left.
        """
        check_flag("notes", notes)
        gone, kept = self._store.sessions.purge(self.row, self._workspace.now(), notes)
        self._workspace.caches.clear()
        self._workspace.pulses.clear()
        self._workspace.recaller.forget()
        self._store.forget()
        remains = what_remains(self._store, self.row, self._workspace.snapshots)
        left_alone = self._store.snapshots.unproven(self.row)
        if not remains:
            self._store.sessions.purge_ended(self.row)
        self.emit("purged", gone=gone, kept=kept, remains=remains, left_alone=left_alone)
        if remains:
            raise Unfinished(self.id, tuple(remains))
        return gone, kept

    @checks_arguments
    def export(self, missed: list[str] | None = None) -> Iterator[str]:
        """Export the session as JSON lines, to import it anywhere with the same ids.

        Damaged parts are not exported. Their names are appended to `missed`; without that list, an
        error after the last line has them.
        """
        return export_session(self._store, self.row.tree.key, self.row.key, missed)

    def conversation(self) -> Conversation:
        """The whole conversation: every message in its place, including system messages."""
        asides: dict[str, list[Message]] = {}
        for aside in self._store.sessions.on_path(self.row, self.path):
            asides.setdefault(aside.after, []).append(aside.message)
        said = list(asides.pop("", []))
        for node in self.path:
            said += [node.message] if node.message else []
            said += asides.get(node.id, [])
        lead = next((n for n, m in enumerate(said) if m.role not in SYSTEM_ROLES), len(said))
        return replace(
            self.row.head, system=(*self.row.head.system, *said[:lead]), messages=tuple(said[lead:])
        )

    # A request: read, gather, weave, save

    @show_options
    async def prepare(
        self, request: Given | None = None, **options: Unpack[PrepareOptions]
    ) -> Context:
        """Build the request to send now.

        It continues the epoch of the last request if that still fits, also after a restart.

        `request` is appended first, unless it is already the last message, so a retry is safe. Only
        what the window needs is read from the store.
        """
        refuse_unknown("prepare", options, PrepareOptions)
        if (project := options.get("project")) is not None:
            check_project(project)
        checked, details = check_prepare_options(options, self._workspace.caches)
        details = replace(details, knowledge=await self._ask_knowledge(request, options))
        return await self.run_off_loop(
            lambda: self._append_and_prepare(request, checked, details, project)
        )

    async def _ask_knowledge(
        self, request: Given | None, options: PrepareOptions
    ) -> Findings | None:
        """What knowledge bases say of the request; None if there are none to ask."""
        lookup = self._workspace.knowledge_lookup.choose(
            options.get("knowledge"),
            options.get("knowledge_seconds"),
            lambda: self._workspace.knowledge,
        )
        if not lookup.bases:
            return None
        at = options.get("at")
        question = await self.run_off_loop(lambda: self._find_question(request, at))
        return await ask_bases(lookup.bases, question, seconds=lookup.seconds)

    def _find_question(self, request: Given | None, at: str | None) -> str:
        """What is asked now; "" of a text without roles, which asks nothing."""
        if self._is_text():
            return ""
        asked = ""
        if request is not None and not self._is_asked(request):
            asked = "\n".join(
                each.text for each in parse_with_metadata([request])[0] if each.role == "user"
            )
        return find_question(self._path_to(at), asked)

    def _append_and_prepare(
        self,
        request: Given | None,
        options: Options,
        details: RequestDetails,
        project: "str | PathLike[str] | None",
    ) -> Context:
        notes: tuple[str, ...] = ()
        if project is None:
            project, notes = self._find_folder()
        defaults = self._find_defaults(project)
        details = replace(details, notes=(*notes, *defaults.notes))
        with defaults.name_origins():
            options = self._fill_options(options, details, defaults)
            budget_for(options, self.row.head)  # what is wrong is said before anything is written
        refuse_unknown_skills(project, details.skills)
        for name in (
            *details.pins,
            *details.include,
            *([] if details.at is None else [details.at]),
        ):
            self._node(name)
        if request is not None and not self._is_asked(request):
            self.append(request)
        if self.row.agent and not self._guest and not details.preview:
            self._bring_urgent_events()
        if project is not None:
            details = replace(details, project=rank_project(self._path_to(details.at), project))
        with defaults.name_origins():
            return self._prepare(options, details)

    def _find_defaults(self, folder: "str | PathLike[str] | None") -> RequestDefaults:
        """What the configuration of a folder says; without a folder, that of the store."""
        if folder is None:
            return self._workspace.defaults
        return read_defaults(folder)

    def _fill_options(
        self, options: Options, details: RequestDetails, defaults: RequestDefaults
    ) -> Options:
        """Options with what the session remembers, and then with the configuration, where the
        caller names no value.
        """
        remembered, usual = self._state.remembered_options, defaults.values
        if details.values.zones is not None:
            remembered = replace(remembered, zones=None)
        if self.row.model:
            usual = replace(usual, model=None)
        agent = self._speaker()
        if agent and agent.window:
            usual = replace(usual, window=None)
        options = fill_options(fill_options(options, remembered), usual)
        if details.named:
            return options
        return replace(options, policy=self._find_policy(defaults))

    def _find_folder(self) -> tuple[str | None, tuple[str, ...]]:
        """The folder of code that the session remembers, and notes on it."""
        folder = self._state.remembered_options.project
        if folder is None or os.path.isdir(folder):
            return folder, ()
        note = (
            f"the folder {folder}, which the session remembers as its project, is not there; name "
            "another with prepare(project=…), or forget it with set_options(project=None)"
        )
        return None, (note,)

    def _bring_urgent_events(self) -> None:
        """Let urgent events for the agent come up in the working state."""
        before, seen = self.working, self._state.events_seen
        working, upto = bring_urgent_events(self._workspace, self.row, before, seen)
        if upto > seen:
            states: list[StateValues] = [(EVENTS_SEEN, {"": to_json(str(upto))})]
            if working != before:
                states.append(working_values(working))
            self._keep_states(*states)

    def _path_to(self, at: str | None) -> Path:
        if at is None:
            return self.path
        return Path(self._store.database, self.row.tree.key, self._node(at))

    def _is_asked(self, request: Given) -> bool:
        """Whether a request is what was said last."""
        end = self.path.end
        return (
            end is not None
            and end.message is not None
            and [end.message] == parse_with_metadata([request])[0]
        )

    def _prepare(self, options: Options, details: RequestDetails) -> Context:
        self.row.check_alive()
        path, style = self._path_to(details.at), self._style(details)
        if path.end is None and not style.buffer:
            raise ChoiceError(f"session {self.id} has no messages yet; append one first")
        if path.end is None or (style.buffer and style.overlay(path).path.end is None):
            return prepare_ending(self.row, path, options, style, self._fetch)
        gathered = self._gather(options, details, path, style)
        woven = self._weave(gathered, details)
        self._save(gathered, woven, details)
        return woven.context

    def _style(self, details: RequestDetails = _LOOK) -> ReadingStyle:
        """How this session reads its tree."""
        store, row = self._store, self.row
        tree = store.trees.head(row.tree)
        agent = self._speaker()
        reading = ReadingStyle(
            tree=tree,
            now=self._workspace.now(),
            agent=agent,
            sources=details.sources,
            include=frozenset(self._node(name).id for name in details.include),
        )
        if reading.document:
            return replace(reading, chosen=self.versions(), buffer=self.draft_text)
        if agent is not None and agent.loom_aware:
            return replace(reading, headers=headers_from(store, row), addendum=addendum())
        return reading

    def _gather(
        self, options: Options, details: RequestDetails, path: Path, style: ReadingStyle
    ) -> _RequestParts:
        """What a request is made from: what sources add to what is asked for, in what window, with
        which pins.
        """
        refused_at = 0
        if details.overflow:
            refused_at = self._count_refused(options, details)
        working = Working() if self._guest else self.working
        if self._guest:
            row = replace(self.row, key=0, id="")
        else:
            row = self.row
        asking = Asking(
            store=self._store,
            row=row,
            path=path,
            style=style,
            head=self.row.head,
            options=options,
            working=working,
        )
        options = gather(asking, SESSION_SOURCES)
        if options.window is None and style.agent and style.agent.window:
            options = replace(options, window=style.agent.window)
        options = self._keep_within(options, details.overflow, refused_at)
        if options.policy.cold < 1:
            cold, busy = moment(path, style.now)
            options = replace(options, cold=cold, busy=busy)
        handoff, is_new = None, False
        if options.policy.renew and not self._guest:
            handoff, is_new = self._find_handoff(path, working)
        pins = [self._on_path(path, name) for name in details.pins]
        pins += [node for node in self._recalled_nodes(path) if node not in pins]
        asked = RequestInput(
            store=self._store,
            row=self.row,
            path=path,
            options=options,
            style=style,
            pins=pins,
            last=None if details.at else self._last,
            fetch=self._fetch,
            overflowed=details.overflow is not None,
            handoff=handoff,
            project=details.project,
            knowledge=details.knowledge,
            skills=self._ask_skills(details, path),
            remembers=not self._guest,
            notes=details.notes,
            find=self._workspace.recaller.find,
        )
        return _RequestParts(
            asked=asked, working=working, refused_at=refused_at, is_handoff_new=is_new
        )

    def _ask_skills(self, details: RequestDetails, path: Path) -> "SkillRequest | None":
        """What is asked of skills; None if neither a project nor skills are named."""
        if details.project is None and not details.skills:
            return None
        project = details.project.root if details.project else ""
        state = SkillsState() if self._guest else self._state.skills
        shown = () if self._guest else self._recalled_nodes(path)
        return ask_skills(
            state, details.skills, project, path, shown, lambda node: self._is_on(path, node)
        )

    def _is_on(self, path: Path, name: str) -> bool:
        """Whether a path has a node of this id."""
        try:
            node = self._node(name)
        except ChoiceError:
            return False
        return path.holds(node.seq, node.depth)

    def _count_refused(self, options: Options, details: RequestDetails) -> int:
        """How many tokens the last request had, uncorrected. After a restart it is made once more
        to know.
        """
        if self._last:
            return self._last.counted
        context = self._prepare(options, replace(details, overflow=None, preview=True))
        return round(
            context.report.input_tokens / ratio_of(self.row, options.model or self.row.model)
        )

    def _keep_within(self, options: Options, overflow: Overflow | None, refused_at: int) -> Options:
        """Options for as many tokens as providers took of this model before; for less if the last
        request was refused.
        """
        budget = budget_for(options, self.row.head)
        model = options.model or self.row.model
        limit = self._state.token_limit(model)
        if overflow:
            limit = limit_after_refusal(overflow, refused_at, budget.reserved_output)
        if limit:
            return fit_into(options, budget, int(limit * ratio_of(self.row, model)))
        return options

    def _weave(self, gathered: _RequestParts, details: RequestDetails) -> _WovenRequest:
        """The request. If a fresh window begins, it is made again with the handoff of this
        moment.
        """
        asked = gathered.asked
        try:
            woven = self._weave_once(asked)
        except CannotFit as error:
            raise (
                _cannot_shrink(gathered.refused_at, f": {error}") if details.overflow else error
            ) from None
        report = woven.context.report
        if report.renewed and not details.preview and not self._guest:
            working = _measure(gathered.working, report)
            handoff = self._make_handoff(asked.path, working, asked.handoff)
            again = self._weave_once(
                replace(asked, handoff=handoff, renewing=woven.context.continuation.reason)
            )
            woven = replace(again, is_renewed=True)
        if (
            details.overflow
            and not details.preview
            and woven.prepared.counted >= gathered.refused_at
        ):
            raise _cannot_shrink(gathered.refused_at, f"than {woven.prepared.counted:,}")
        return woven

    def _weave_once(self, asked: RequestInput) -> _WovenRequest:
        """The request, with handles that stand for nothing else in the store."""
        while True:
            context, prepared = prepare(asked)
            handles = new_handles(context, prepared.reading, self._known_handles)
            clashes = self._store.views.clashes(self.row, handles.kept)
            if not clashes:
                context = replace(context, has_commands=bool(asked.style.addendum))
                return _WovenRequest(
                    context=context,
                    prepared=prepared,
                    handles=handles,
                    handoff=asked.handoff,
                    is_renewed=False,
                )
            asked = replace(
                asked, options=replace(asked.options, taken=asked.options.taken | clashes)
            )

    def _save(self, gathered: _RequestParts, woven: _WovenRequest, details: RequestDetails) -> None:
        """Keep what the next request needs: in one transaction, then in this object. Of a preview,
        only its handles.
        """
        handles, prepared, report = woven.handles, woven.prepared, woven.context.report
        saved = SavedRequest(view=None, handles=handles.kept, inherited=handles.inherited)
        if details.preview:
            with suppress(StoreError):  # a store that can only be read will do for a look
                self._store.requests.save(self.row, saved, self._workspace.now())
            return
        end, note, asked = gathered.asked.path.end, prepared.note, gathered.asked
        request = Request(end.id if end else "", details.sources, prepared.model, prepared.counted)
        saved = replace(
            saved,
            view=find_reached(prepared.view)
            if prepared.view.session == self.row.key
            else store_view(prepared.view),
            states=(
                *self._request_states(gathered, woven, details),
                *self._request_values(request),
            ),
            note=(self.path[note.stop - 1], note, asked.style.now) if note else None,
        )
        self._store.requests.save(self.row, saved, self._workspace.now())
        self._known_handles |= dict.fromkeys(handles.inherited, 0) | handles.hashes
        if woven.handoff and woven.is_renewed:
            self._keep_snapshot(woven.handoff, _measure(gathered.working, report))
        elif woven.handoff and gathered.is_handoff_new:
            self._keep_snapshot(woven.handoff, gathered.working)
        before = self._last.counted if self._last else 0
        self._last = replace(prepared, view=replace(prepared.view, session=self.row.key))
        self._options, self._request = asked.options, request
        self._emit_prepared(
            report, "reactive" if details.overflow else "proactive", before, prepared.counted
        )

    def _request_states(
        self, gathered: _RequestParts, woven: _WovenRequest, details: RequestDetails
    ) -> list[StateValues]:
        """What the session has at hand after a request."""
        asked, report = gathered.asked, woven.context.report
        options, agent = asked.options, asked.style.agent
        states: list[StateValues] = []
        if details.overflow:
            limit = limit_after_refusal(
                details.overflow, gathered.refused_at, report.reserved_output
            )
            states.append(limit_values(options.model or self.row.model, limit))
        if woven.handoff and (woven.is_renewed or gathered.is_handoff_new):
            states += handoff_values(
                woven.handoff, hidden_names(asked.path, self._overlay(asked.path))
            )
        if agent and agent.loom_aware:
            states.append(("seen", {"": to_json(str(asked.style.now))}))
        if is_in_requests(gathered.working, options.policy):
            states.append(working_values(_measure(gathered.working, report)))
        if details.named and not self._guest:
            states += self._state.policy_values(options.policy)
        if not self._guest:
            states += self._state.remembered_values(details.values)
        states += self._skill_places(details)
        if details.knowledge and details.knowledge.items and not self._guest:
            states.append(offered_values(make_evidence(details.knowledge.items)))
        return states

    def _skill_places(self, details: RequestDetails) -> list[StateValues]:
        """Where skills are, for the tool that loads them; nothing if that is known."""
        if self._guest or (details.project is None and not details.skills):
            return []
        before = self._state.skills
        project = details.project.root if details.project else ""
        after = replace(before, project=project, folders=details.skills.folders)
        return [] if after == before else [skills_values(after)]

    def _emit_prepared(self, report: Report, path: str, before: int, after: int) -> None:
        """Let listeners know of a request, and that something was left out of it which the last one
        may have held.
        """
        epoch, reason = report.epoch, report.epoch_reason
        self.emit("prepared", tokens=report.input_tokens, epoch=epoch, reason=reason)
        if report.dropped and not report.continuation.is_continued:
            about = {
                "before": before,
                "after": after,
                "left_out": report.dropped,
                "renewed": report.renewed,
            }
            self.emit("compressed", path=path, reason=reason, epoch=epoch, **about)

    def _recalled_nodes(self, path: Path) -> list[Node]:
        """What was recalled since the last epoch began: it is not cut again at once."""
        nodes = [
            self._node(name)
            for name in self._state.recalled_nodes(self._store.views.epoch(self.row, path))
        ]
        return [node for node in nodes if node.message and path.holds(node.seq, node.depth)]

    def _overlay(self, path: Path) -> Overlay:
        """What is hidden from a path for this session, and what comes in."""
        return self._style().overlay(path)

    @property
    def policy(self) -> Policy:
        """The policy that is used if `prepare` names none: the one that was named last, then the
        one of the configuration, then `default`.
        """
        return self._find_policy(self._find_defaults(self._find_folder()[0]))

    def _find_policy(self, defaults: RequestDefaults) -> Policy:
        try:
            return self._state.policy or defaults.policy or find_policy(DEFAULT_POLICY)
        except (ChoiceError, ValueError) as error:
            told = (
                f"the policy that session {self.id} remembers cannot be used: {error}; name "
                "another with prepare(policy=…)"
            )
            raise ChoiceError(told) from None

    @property
    def remembered_options(self) -> RememberedOptions:
        """The options that are used if `prepare` names none, besides the policy: those that were
        named last.
        """
        return self._state.remembered_options

    @show_options
    def set_options(self, **options: Unpack[SetOptions]) -> RememberedOptions:
        """Set options for later requests, as if `prepare` had named them. None makes the session
        forget one.

        Returns all that it remembers, besides the policy.
        """
        refuse_unknown("set_options", options, SetOptions)
        if (project := options.get("project")) is not None:
            check_project(project)
        given = check_remembered(options)
        named = {name: getattr(given, name) for name in options if name != "policy"}
        remembered = replace(self._state.remembered_options, **named)
        states = [remembered_values(remembered)]
        if "policy" in options:
            chosen = options["policy"]
            states += (
                [("policy", {"": None})]
                if chosen is None
                else self._state.policy_values(find_policy(chosen))
            )
        self._keep_states(*states)
        self.emit("changed")
        return remembered

    def undo(self) -> int:
        """Continue the epoch before the last one, if it still fits, and use no summary made since
        then. Returns its new number.

        Its policy is used again, if it is one of those that `loom policy list` shows. Limits that
        were learned from refused requests are forgotten.
        """
        self._keep_states(self._state.unlimited_values())
        number, began = self._store.views.undo(self.row, self.path, self._workspace.now())
        self._store.summaries.retire(self.row, began, self._workspace.now())
        view = self._store.views.read_newest(self.row, self.path)
        if view and view.epoch.policy in policies():
            self._keep_states(*self._state.policy_values(find_policy(view.epoch.policy)))
        self._last = None
        self.emit("compressed", path="undone", reason="undone", epoch=number)
        return number

    # Handoffs

    def _find_handoff(self, path: Path, working: Working) -> tuple[Handoff | None, bool]:
        """The handoff with which the window last began again, and whether it is a new one.

        It is made again if what is hidden has changed since.
        """
        handoff, hidden = self._state.handoff, hidden_names(path, self._overlay(path))
        if handoff is None or hidden == self._state.hidden_from_handoff:
            return handoff, False
        again = self._make_handoff(path, working, None)
        return replace(again, sprint=handoff.sprint, handoff_ts=handoff.handoff_ts), True

    def _make_handoff(self, path: Path, working: Working, before: Handoff | None) -> Handoff:
        return make_handoff(self._overlay(path), working, before, self._workspace.now())

    def _keep_snapshot(self, handoff: Handoff, working: Working) -> None:
        if not self._workspace.snapshots:
            return
        try:
            keep_snapshot(self._store, self.row, self._workspace.snapshots, working, handoff)
        # the store has it; a full disk elsewhere must not stop the agent
        except StoreError as error:
            reason = "the snapshot could not be written"
            self.emit("compressed", path="renewal", reason=reason, failures=(str(error),))

    def resume(self) -> ResumePoint:
        """What is needed to continue after a crash.

        If the store has no working state, it is restored from the last snapshot.
        """
        working, before, restored = self.working, self._state.handoff, False
        snapshots = self._workspace.snapshots
        found = None
        if snapshots and (working.is_empty or before is None):
            found = snapshots.read(self.id)
        if found:
            before = before or found[1]
            if working.is_empty and not found[0].is_empty:
                working, restored = self.keep_working(found[0]), True
        handoff = self._make_handoff(self.path, working, before)
        pending = open_calls(node.message for node in self.path[-LAST_MESSAGES:] if node.message)
        return ResumePoint(
            replace(handoff, sprint=before.sprint if before else 0), working, pending, restored
        )

    # Summaries

    @property
    def summary(self) -> str:
        """The summary of this session. Requests use it when not all messages fit."""
        return join_texts(
            self._store.summaries.on_path(self.row, self.path, self._overlay(self.path).hidden)
        )

    def set_summary(self, text: str) -> None:
        """Use this text as the summary of all messages except the last ones; "" removes the
        summary.
        """
        if not check_text("a summary", text).strip():
            gone = self._store.summaries.retire(self.row, 0, self._workspace.now())
            self.emit(
                "compressed",
                path="given",
                reason="summaries taken back by a person",
                summaries=gone,
            )
            return
        planned = self._plan_summary(when="whole")
        if planned is None:
            raise ChoiceError(
                f"session {self.id} is too short for a summary: there is nothing before its last "
                "messages"
            )
        self._store.summaries.add(
            self.row, planned.end, make_summary(planned, text, BY_PERSON), self._workspace.now()
        )
        self.emit("compressed", path="given", reason="written by a person", messages=planned.stop)

    async def summarize(self, model: Model | None = None) -> str:
        """Summarize all messages except the last ones with `model`, or with the model of the store.

        Returns the summary, or "" if there was nothing to summarize. Without a model, the summary
        contains the beginning of each message. Messages that are written meanwhile are not
        affected.
        """
        check_model(model)
        planned = await self.run_off_loop(lambda: self._plan_summary(when="now"))
        if planned:
            return await self._sum_up(planned, model or self._workspace.model, "asked")
        return ""

    async def _sum_up_what_is_due(self) -> bool:
        """What goes on behind the scenes after an answer; whether it went well."""
        planned = await self.run_off_loop(lambda: self._plan_summary(when="due"))
        well = planned is None or bool(
            await self._sum_up(planned, self._workspace.model, "background")
        )
        if not self._policy.digests:
            return well
        for node in await self.run_off_loop(
            lambda: find_undigested(self._store, self.row, self._overlay(self.path))
        ):
            assert node.message is not None
            made = await summarize(
                self._workspace.model,
                SummaryTask(messages=(node.message,), tokens=RESULT_DIGEST_TOKENS),
            )
            if made.by == "model":
                await self.run_off_loop(
                    partial(
                        self._store.summaries.add_digest,
                        self.row,
                        node,
                        made.text,
                        self._workspace.now(),
                    )
                )
            self.emit(
                "compressed",
                path="background",
                reason="a large tool result",
                by=made.by,
                failures=made.failures,
            )
            well = well and made.by == "model"
        return well

    async def _sum_up(self, planned: Plan, model: Model | None, path: str) -> str:
        made = await summarize(model, planned.task)
        return await self.run_off_loop(lambda: self._keep_summary(planned, model, path, made))

    def _keep_summary(
        self, planned: Plan, model: Model | None, path: str, made: MadeSummary
    ) -> str:
        """Write down what a model made of a stretch, unless somebody was quicker; the text that is
        kept, else "".
        """
        if not self._is_newest(planned):
            self.emit(
                "compressed",
                path=path,
                reason="another summary was written meanwhile",
                calls=made.calls,
            )
            return made.text
        by = BY_MODEL if made.by == "model" else "its beginnings"
        # Where covers tell of what was left out, its telling lines say more than its beginnings.
        kept = made.by == "model" or model is None or self._policy.summary != "cover"
        if kept:
            text = with_digests(made.text, planned.digests)
            self._store.summaries.add(
                self.row, planned.end, make_summary(planned, text, by), self._workspace.now()
            )
        self.emit(
            "compressed",
            path=path,
            reason=planned.why,
            messages=planned.stop - planned.start,
            by=by if kept else "nobody",
            calls=made.calls,
            failures=made.failures,
            notes=made.notes,
        )
        return made.text if kept else ""

    def _is_newest(self, planned: Plan) -> bool:
        """Whether nobody wrote a summary, or took one back, since this one was planned."""
        hidden = self._overlay(self.path).hidden
        return (
            tuple(one.name for one in self._store.summaries.on_path(self.row, self.path, hidden))
            == planned.behind
        )

    @property
    def _policy(self) -> Policy:
        """The policy of the last request. After a restart it is `default` if that one had a
        function.
        """
        if self._options:
            return self._options.policy
        try:
            return self.policy
        except ChoiceError:
            return find_policy(DEFAULT_POLICY)

    def _plan_summary(self, when: When) -> Plan | None:
        defaults = self._find_defaults(self._find_folder()[0])
        options = self._options
        if options is None:
            options = self._fill_options(check_options(policy=self._policy), _LOOK, defaults)
        options = replace(options, policy=defaults.add_headroom(options.policy))
        return plan(self._store, self.row, self.path, options, self._style(), when)

    # Memory, search, and Loom's own tools

    @property
    def memory(self) -> SessionMemory:
        """What this session remembers: its notes, and the layers of what was said."""
        return SessionMemory(
            self._workspace, lambda: (self.row, self.path), self._overlay, self.run_off_loop
        )

    @property
    def decisions(self) -> SessionDecisions:
        """The decisions of the project. What is logged here is logged in this session."""
        return SessionDecisions(
            self._workspace,
            lambda: self.row,
            self.run_off_loop,
            lambda: find_folder(self._find_folder()[0] or ""),
        )

    @property
    def skills(self) -> SessionSkills:
        """The skills of the project that the last request named."""
        return SessionSkills(
            lambda: self._state.skills,
            lambda skills: self._keep_states(skills_values(skills)),
            lambda: self.path,
            self.run_off_loop,
        )

    @checks_arguments
    def pin(self, name: str, *, on: bool = True) -> int:
        """Keep a message in every request of this path, or stop that.

        `name` is the id of its node, or a handle, which may stand for at most 8 messages. Returns
        how many messages changed.
        """
        check_flag("on", on)
        self._store.sessions.get(self._workspace.scope, self.id).check_alive()
        nodes = self._find_nodes(name)
        marks = self._store.trees.marks(self.row.tree.key, [node.seq for node in nodes])
        changed = [node for node in nodes if marks.get(node.seq, Marks()).flags.pinned != on]
        flag = FlagMark("pinned", on, "")
        if changed:
            self._store.growth.mark(
                self.row, [(node.seq, flag) for node in changed], self._workspace.now()
            )
        for node in changed:
            self.emit("marked", marked=node.id)
        return len(changed)

    def _find_nodes(self, name: str) -> list[Node]:
        """The nodes of the path that a name or a handle stands for."""
        if not name.startswith("~"):
            return [self._on_path(self.path, name)]
        stretches = [
            (self._on_path(self.path, first).depth, self._on_path(self.path, last).depth + 1)
            for first, last in self._store.views.target(self.row, self.path, name).nodes
        ]
        count = sum(stop - start for start, stop in stretches)
        if not 0 < count <= MAX_PINNED_MESSAGES:
            raise ChoiceError(
                f"{name} stands for {count:,} messages, and at most {MAX_PINNED_MESSAGES} can be "
                "pinned at once; search finds handles of single messages"
            )
        return [node for start, stop in stretches for node in self.path[start:stop]]

    @checks_arguments
    def stash(self, label: str, text: str | None = None) -> str:
        """Keep a text under a label, outside of requests; without a text, get it back.

        Returns the text. An empty text removes the label.
        """
        stashes = self._store.states.read(self.row.key, "stash", Stash)
        name = check_name("label", label).strip()
        if not name:
            raise ChoiceError("a stash needs a label that is not empty")
        if text is None:
            if name not in stashes:
                known = ", ".join(map(repr, stashes)) or "none"
                raise ChoiceError(
                    f"nothing is stashed under {shorten(name)!r}; the labels are {shorten(known)}"
                )
            return stashes[name].text
        _check_stash(name, check_text("a stash", text), stashes)
        value = to_json(Stash(text)) if text.strip() else None
        self._store.states.put(self.row.key, "stash", {name: value}, self._workspace.now())
        return text

    @checks_arguments
    def search(
        self,
        query: str,
        limit: int | None = None,
        *,
        tokens: int | None = None,
        shown: bool = False,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Search the messages of the session, by words, and by meaning if there is an embedder.

        Finds at most `limit` messages (default: 10), or with `tokens` as many as fit. What the last
        request contains is not found, unless `shown` is True. `where` has values that the metadata
        must have. Each hit has a handle to recall.
        """
        request = check_search(query, tokens, limit, where, self._workspace.now())
        places = frozenset[int]()
        if not shown:
            newest = self._store.views.read_newest(self.row, self.path)
            places = shown_in(newest, len(self.path))
        self._workspace.indexer.catch_up(self.row.tree.key)
        return search_session(
            self._store,
            self.row,
            self._overlay(self.path),
            request,
            places,
            self._workspace.indexer.embedder,
        )

    def use(self, call: Any) -> Node | None:
        """Run a call of one of Loom's own tools, and append its result.

        The call is a `ToolCall`, an object of an SDK, or JSON in any dialect. A call that already
        has a result is not run again; its result is returned. The session must contain the call, so
        absorb the answer first. Returns None for a call of any other tool; then nothing is written.
        What was recalled is not cut again by the next epoch.
        """
        call = parse_call(call)
        tools = self.row.head.tools
        finds = call.name == finder_name(tools)
        if not finds and not is_own_call(call, tools):
            return None
        if answered := self._result_of(call):
            return answered
        if finds:
            [node] = self.append(answer_find_tools(tools, call))
            return node
        [node] = self.append(carry_out(self, call))
        skill = loaded_skill(call)
        if call.name in RECALLED or skill:
            newest = self._store.views.epoch(self.row, self.path)
            self._keep_states(self._state.recalled_values(node.id, newest))
        if skill:
            self._keep_states(skills_values(note_result(self._state.skills, skill, node.id)))
        return node

    def start_call(self, call: Any) -> bool:
        """Note that a call of a tool is about to run, so that a crash does not make it run twice.

        Returns False if the call was started before: then nobody knows whether it finished. The
        session must contain the call, so absorb the answer first.
        """
        call = parse_call(call)
        if self._result_of(call) is not None:
            return False
        caller = self._find_caller(call)
        if self._state.started_calls.get(call.id) == caller.id:
            return False
        self._keep_states(self._state.started_values(call.id, caller.id))
        return True

    def _find_caller(self, call: ToolCall) -> Node:
        """The node of the newest message that makes a call."""
        for node in reversed(self.path[-LAST_MESSAGES:]):
            if node.message and any(made.id == call.id for made in node.message.calls):
                return node
        raise AssertionError(call.id)

    def beat(self) -> bool:
        """Note in the working state, if there is one, that the agent is alive.

        Returns whether somebody asked it to stop.
        """
        working = self.working
        if not working.is_empty:
            self.keep_working(working.beat(self._workspace.now()))
        return working.dashboard.interrupt_requested

    def _result_of(self, call: ToolCall) -> Node | None:
        """The node that answers the newest call of this id, if there is one yet; an error where no
        message makes the call.
        """
        self._store.sessions.get(self._workspace.scope, self.id).check_alive()
        result = None
        for node in reversed(self.path[-LAST_MESSAGES:]):
            message = node.message
            if message is None:
                continue
            if any(made.id == call.id for made in message.calls):
                return result
            if any(answer.call_id == call.id for answer in message.results):
                result = node
        raise ChoiceError(
            f"no call {shorten(call.id)!r} is among the last {LAST_MESSAGES} messages of session "
            f"{self.id}; "
            "absorb the answer that makes the call, then use it"
        )

    def _fetch(self, handle: str) -> str:
        """What was left out under a handle; nobody opened it."""
        return self._store.views.recall(self.row, self.path, handle)

    @checks_arguments
    def recall(self, handle: str, *, plain: bool = False) -> str:
        """Get back what was left out under this handle: the text of a part, or messages as JSON
        lines. With `plain`, messages are a text to read: the role, then the words as they were.

        This is for people: it includes what was excluded or pruned since then. Models use the tool
        `recall`, which does not.
        """
        write = to_plain_text if plain else to_lines
        text = self._store.views.recall(self.row, self.path, handle, write)
        self._workspace.open_handle(handle, self.row)
        self.emit("recalled", handle=handle, characters=len(text))
        return text

    @checks_arguments
    def recall_shown(self, handle: str, *, plain: bool = False) -> tuple[str, int]:
        """Get back what was left out under this handle, for a model: without messages that are now
        excluded or pruned.

        Returns the text and how many messages are missing. With `plain`, messages are a text to
        read, each under its role, and not JSON lines.
        """
        overlay = self._overlay(self.path)
        depths = [depth for depth, why in overlay.hidden.items() if why == "excluded"]
        hidden = {seq for seq, _, _ in overlay.path.names_at(depths).values()}
        write = to_plain_text if plain else to_lines
        text, missing = self._store.views.recall_shown(self.row, self.path, handle, hidden, write)
        self._workspace.open_handle(handle, self.row)
        self.emit("recalled", handle=handle, characters=len(text))
        return text, missing

    # Answers

    def absorb(
        self, response: Any, *, choice: int = 0, metadata: Mapping[str, Any] | None = None
    ) -> list[Node]:
        """Append the answer of a provider, with its usage.

        The answer is an `Answer`, JSON of OpenAI (chat or responses) or Anthropic, an object of
        their SDKs, or a `Message`. The same answer twice is written once: an answer is identified
        by its content and by what it follows. Another `choice` of the same answer becomes a branch
        next to the first, and costs nothing more. If the agent of the session is loom-aware, its
        `→` commands are run and the rest is written. `metadata` is what your program says of the
        answer, as in `append`.
        """
        answer, speaker = parse_answer(response, choice), self._speaker()
        return list(self.take(answer, choice, speaker, metadata).nodes)

    def take(
        self,
        answer: Answer,
        choice: int = 0,
        speaker: Agent | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AnswerOutcome:
        """Append a parsed answer, and run its commands if its speaker is loom-aware.

        Returns what happened.
        """
        beside = write_metadata(metadata)
        aware = speaker is not None and speaker.loom_aware
        if aware:
            messages, commands = take_out_commands(answer.messages)
        else:
            messages, commands = answer.messages, ()
        request = self._commit_and_look()
        placer = AnswerPlacer(self._store, self.row, self.path, self._lasting)
        place = placer.place(answer, choice, messages, request)
        conflict = None
        if aware:
            conflict = self._find_conflict(placer, place, messages, generation_of(answer, choice))
        nodes = self._write(answer, choice, () if conflict else messages, place, beside)
        spent = place.request or Request(place.node.id if place.node else "")
        spent = replace(spent, answer=digest_of(answer.raw), choices=(*spent.choices, choice))
        self._keep_request(spent, lasting=answer.choices > 1)
        words = "\n\n".join(message.text for message in messages if message.text)
        if nodes:
            self._learn_cited(words)
        if speaker is None or not aware or place.again:
            return AnswerOutcome(words, tuple(nodes))
        at = self.cursor.id if nodes and not place.late and self.cursor else place.at
        results = self._workspace.carry_out(
            self._workspace, self, speaker, Order(commands, at, conflict)
        )
        if commands:
            self.refresh()
        return AnswerOutcome(words, tuple(nodes), results)

    def take_branch(self, answer: Answer, at: str) -> list[Node]:
        """Write an answer after any node of the tree, as a branch, with its usage.

        The session stays where it is. `→` commands of the answer are left out, and not run.
        """
        speaker, messages = self._speaker(), answer.messages
        if speaker is not None and speaker.loom_aware:
            messages, _ = take_out_commands(messages)
        return self._write(answer, 0, messages, AnswerPlace(self._node(at), None, late=True))

    def _learn_cited(self, words: str) -> None:
        """Remember what an answer cites of the evidence that its request had."""
        if self._guest or not find_cited(words):
            return
        working = self.working
        learnt = learn_cited(working, self._state.offered_evidence, words)
        if learnt != working:
            self.keep_working(learnt)

    def _speaker(self) -> Agent | None:
        if self.row.agent:
            return self._store.settings.agent(self._workspace.scope, self.row.agent)
        return None

    def _commit_and_look(self) -> Request | None:
        """The request that an answer may answer. What was not committed was part of it, and is
        committed by the answer.
        """
        stood = self.cursor.id if self.cursor else ""
        request = self._request or self._find_request(stood)
        committed = self.commit()
        if request and committed and request.answer is None and request.node == stood:
            return replace(request, node=committed.id)
        return request

    def _find_request(self, stood: str) -> Request | None:
        """The last request in the store, without that of another object which was never
        answered.
        """
        request = self._state.request
        self._is_request_kept = request is not None
        if request and not self._lasting and request.answer is None and request.node != stood:
            return None
        return request

    def _find_conflict(
        self, placer: AnswerPlacer, place: AnswerPlace, messages: Sequence[Message], generation: str
    ) -> Conflict | None:
        """That others continued since an agent that knows the loom looked: it is told, and may say
        it again elsewhere.
        """
        if (
            not place.late
            or place.other
            or not messages
            or placer.is_written(place, messages[0], generation)
        ):
            return None
        expected, found = (
            node.short_id if node else "its beginning" for node in (place.node, self.path.end)
        )
        self.emit("conflict", expected=expected, found=found)
        return Conflict(self.id, expected, found)

    def _write(
        self,
        answer: Answer,
        choice: int,
        messages: Sequence[Message],
        place: AnswerPlace,
        metadata: str = "",
    ) -> list[Node]:
        usage, learnt = cost_of(self.row, answer, place)
        records = records_of(answer, usage, place, spoken=bool(messages))
        nodes: list[Node] = []
        if messages:
            nodes = self._append(
                messages,
                place.node,
                generation_of(answer, choice),
                Addition(usage=usage, records=records, calibration=learnt),
                move=not place.late,
                metadata=[metadata] * len(messages),
            )
        elif usage and (asked := place.node or self.path.end):
            name, now = digest_of(answer.raw), self._workspace.now()
            self._now(
                self._store.sessions.charge(self.row, asked, name, usage, records, learnt, now)
            )
        if usage:
            self.emit("used", **asdict(usage))
        cost = usage or Usage()
        self.emit(
            "absorbed",
            prompt=cost.prompt,
            completion=cost.completion,
            cached=cost.cached,
            cost=cost.cost,
        )
        # A turn is over when nothing is called any more; where turns are not what is cut, one need
        # not wait for that.
        if not find_strategy(self._policy.strategy).takes_turns or not any(
            message.calls for message in answer.messages
        ):
            self._workspace.start(self.id, self._sum_up_what_is_due)
        return nodes

    def _keep_request(self, request: Request, lasting: bool = False) -> None:
        """Remember the last request; in the store too, if another object may have to know it."""
        self._request = request
        self._keep_states(*self._request_values(request, lasting))

    def _request_values(self, request: Request, lasting: bool = False) -> list[StateValues]:
        """What the store has to know of the last request."""
        if self._guest or not (
            self._lasting or lasting or request.sources or self._is_request_kept
        ):
            return []
        self._is_request_kept = True
        return [request_values(request)]

    # Where the session stands

    def _node(self, name: str) -> Node:
        return self._store.sessions.node(self.row, name)

    def _on_path(self, path: Path, name: str) -> Node:
        node = self._node(name)
        if not path.holds(node.seq, node.depth):
            raise ChoiceError(
                f"node {node.short_id} cannot be pinned: it is not on the path of session {self.id}"
            )
        return node

    def _now(self, row: SessionRow, nodes: Sequence[Node] = ()) -> Self:
        """Stand where the row says; the path that leads there may end in these nodes."""
        self.row = row
        if nodes and nodes[-1].seq == row.cursor:
            self.path = self.path.with_nodes(nodes)
        elif row.cursor != (self.path.end.seq if self.path.end else None):
            self.path = self._store.sessions.path(row)
        return self

    # The same off the event loop (`loom.runtime.threads`)

    aabsorb = async_form(absorb)
    aappend = async_form(append)
    aappend_at = async_form(append_at)
    abeat = async_form(beat)
    acarry_on = async_form(carry_on)
    achange = async_form(change)
    achoose = async_form(choose)
    acommit = async_form(commit)
    aconversation = async_form(conversation)
    adraft = async_form(draft)
    adraft_text = async_value(draft_text)
    aexport = async_lines(export)
    afork = async_form(fork)
    akeep_working = async_form(keep_working)
    ametadata = async_form(metadata)
    apolicy = async_value(policy)
    aremembered_options = async_value(remembered_options)
    aset_options = async_form(set_options)
    apin = async_form(pin)
    apurge = async_form(purge)
    arecall = async_form(recall)
    arecall_shown = async_form(recall_shown)
    arefresh = async_form(refresh)
    aresponse = async_form(response)
    aresume = async_form(resume)
    asearch = async_form(search)
    aset_summary = async_form(set_summary)
    astart_call = async_form(start_call)
    astash = async_form(stash)
    asummary = async_value(summary)
    aswitch = async_form(switch)
    atake = async_form(take)
    atake_branch = async_form(take_branch)
    aundo = async_form(undo)
    ause = async_form(use)
    aversions = async_form(versions)
    aworking = async_value(working)


def _draft(message: Message, generation: str = "") -> Draft:
    return Draft(message, gate_counter(None).count_message(message), generation)


def _cannot_shrink(refused_at: int, why: str) -> CannotFit:
    return CannotFit(
        f"the provider refused {refused_at:,} tokens, and the request cannot be made shorter "
        f"{why}; "
        "shorten the system text, the tools or the last message"
    )


def _measure(state: Working, report: Report) -> Working:
    """The working state with what a request was measured at: the pressure that its report tells,
    and what it left free.
    """
    return state.set_measures(report.pressure, report.usable - report.input_tokens)


def _check_stash(label: str, text: str, stashes: Mapping[str, Stash]) -> None:
    """Refuse a text that is too long, and a label beyond those that a session may have."""
    if len(text) > MAX_STASH_CHARS:
        raise ChoiceError(
            f"a stash can have at most {MAX_STASH_CHARS:,} characters, found {len(text):,}; stash "
            "a part of it"
        )
    if label not in stashes and len(stashes) >= MAX_STASHES:
        raise ChoiceError(
            f"there are {MAX_STASHES} stashes already; remove one with an empty text first"
        )
