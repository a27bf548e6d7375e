"""A session that is kept: append, prepare a request, absorb the answer, fork, switch, bring back
what was left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from msgspec.structs import replace

from loom.context import Context, Policy, Working
from loom.conversation.agents import Agent
from loom.conversation.checked import (
    check_number,
    check_text,
    checks_arguments,
    refuse_unknown,
    show_options,
)
from loom.conversation.message import Conversation, Message, Tool
from loom.conversation.names import check_name
from loom.dialects.input import Answer, parse_answer, parse_call
from loom.engine.answers import AnswerOutcome
from loom.engine.decisions import SessionDecisions, find_folder
from loom.engine.inputs import Given
from loom.engine.memory import SessionMemory
from loom.engine.options import PrepareOptions, check_prepare_options
from loom.engine.remembered import RememberedOptions, SetOptions
from loom.engine.running import RunClaim
from loom.engine.session_state import skills_values, text_values
from loom.engine.sessions.absorbing import AnswerTaker
from loom.engine.sessions.asking import append_and_prepare, ask_knowledge
from loom.engine.sessions.choices import RequestChoices
from loom.engine.sessions.handoffs import ResumePoint, find_resume_point
from loom.engine.sessions.lifecycle import (
    change_session,
    create_fork,
    create_successor,
    list_inherited,
    purge_session,
    read_conversation,
    switch_to,
    undo_epoch,
)
from loom.engine.sessions.open_request import OpenRequest
from loom.engine.sessions.pins import pin_messages
from loom.engine.sessions.place import PlaceAttribute, SessionPlace
from loom.engine.sessions.recall import recall_shown_text, recall_text, search_messages
from loom.engine.sessions.requests import SessionRequests
from loom.engine.sessions.stashes import use_stash
from loom.engine.sessions.summaries import SessionSummaries
from loom.engine.sessions.tool_calls import start_call, use_tool
from loom.engine.sessions.writing import append_given, append_node, commit_draft, make_draft
from loom.engine.skills import SessionSkills
from loom.engine.sources import check_project
from loom.engine.summarize import check_model
from loom.engine.tools import carry_out
from loom.engine.workspace import EventKind, Workspace
from loom.errors import ChoiceError, describe
from loom.providers.models import Model
from loom.recall.hits import Hit
from loom.runtime.checks import check_label
from loom.runtime.threads import async_form, async_lines, async_value
from loom.stores import HandleTarget, NewNode, Node, Path, SessionRow, export_session

_T = TypeVar("_T")


class Session:
    """A conversation in a store, and the requests that are built from it."""

    row = PlaceAttribute[SessionRow]()
    path = PlaceAttribute[Path]()

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
        self._workspace, self._store = workspace, workspace.store
        self._place = place = SessionPlace(workspace, row, end, guest)
        self._choices = choices = RequestChoices(place)
        open_request = OpenRequest(place, lasting)
        self._requests = SessionRequests(place, choices, open_request)
        self._summaries = SessionSummaries(place, choices)
        self._answers = AnswerTaker(place, choices, open_request, self._summaries)

    def __repr__(self) -> str:
        row, count = self.row, len(self.path)
        title = f" {row.title!r}" if row.title else ""
        messages = "message" if count == 1 else "messages"
        return f"<{type(self).__name__} {row.id}{title}, {count:,} {messages}>"

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
        return await self._place.run_off_loop(work)

    def emit(self, kind: EventKind, **what: Any) -> Self:
        """Let listeners know that something happened to this session."""
        self._place.emit(kind, **what)
        return self

    # What is said

    def refresh(self) -> Self:
        """Read again where the session is. Other programs may have moved it."""
        self._place.move(self._place.read_row())
        return self

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
        return append_given(self._place, messages, after, generation, metadata)

    def metadata(self, node: str) -> dict[str, Any]:
        """The metadata of a message; empty if it has none."""
        found = self._place.node(node)
        return self._store.sessions.metadata(self.row.tree, [found.seq]).get(found.seq, {})

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
        draft = make_draft(message, check_name("generation", generation))
        new = NewNode(draft, records, handles)
        return append_node(self._place, new, behind, move=move, seen=seen)

    # Working state: what the agent decides by, besides what was said

    @property
    def working(self) -> Working:
        """The working state of the session, as it was stored last."""
        return self._place.state.working

    def keep_working(self, working: Working) -> Working:
        """Store another working state.

        The methods of `Working` make one from the last. The next request contains it.
        """
        return self._place.keep_working(working)

    # Text not yet committed, and versions, of a tree in buffer mode

    def draft(self, text: str) -> None:
        """Set the text at the end of a buffer that is sent, but is not a node yet; "" removes it.

        It becomes a node when an answer comes.
        """
        if not self._place.is_text():
            raise ChoiceError(
                f"session {self.id} is on a tree in dialogue mode, which has no drafts; append a "
                "message"
            )
        values = text_values("buffer", "", check_text("what is drafted", text))
        self._place.keep_states(values)

    @property
    def draft_text(self) -> str:
        """The draft at the end of a buffer; "" if there is none."""
        return self._place.draft_text

    def commit(self) -> Node | None:
        """Make a node of the draft, if there is one."""
        return commit_draft(self._place)

    def choose(self, first: str, version: str) -> None:
        """Read this version instead of the node that it was edited from.

        The node itself undoes all edits.
        """
        place = self._place
        place.keep_states(text_values("version", place.node(first).id, place.node(version).id))

    def versions(self) -> dict[str, str]:
        """Which version was chosen for which node."""
        return self._place.versions

    def response(self, node: str) -> str | None:
        """The answer of the provider that made this node, as it came."""
        found = self._store.sessions.records(self.row, self._place.node(node), "response")
        return found[0] if found else None

    # What becomes of it

    def fork(self, at: str | None = None, title: str = "") -> Self:
        """Create a second session that shares the messages up to the node `at`.

        No message is copied.
        """
        row, node = create_fork(self._place, at, title)
        made = type(self)(self._workspace, row, node)
        made._place.keep_states(*list_inherited(self._place))
        return made.emit("forked", origin=self.id)

    def switch(self, to: str) -> Self:
        """Make another node of the tree the current node."""
        switch_to(self._place, to)
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
        change_session(
            self._place, title=title, archived=archived, model=model, system=system, tools=tools
        )
        return self.emit("changed")

    def carry_on(self) -> Self:
        """Archive this session, and create a new one with the same system text, tools, model and
        policy, and with what it remembers. Its title is `Continue: TITLE`.
        """
        self.change(archived=True)
        made = type(self)(self._workspace, create_successor(self._place))
        made._place.keep_states(*self._place.state.copied_values())
        return made.emit("created", origin=self.id)

    def purge(self, *, notes: bool = False) -> tuple[int, int]:
        """Delete for good what only this session contains.

        With `notes`, also notes for other sessions that were remembered in this one, or come from
        what is deleted. Returns how many messages were deleted, and how many were not because other
        sessions share them. If copies of the words are still on disk, `Unfinished` names them. Call
        it again until nothing is left.
        """
        return purge_session(self._place, notes)

    @checks_arguments
    def export(self, missed: list[str] | None = None) -> Iterator[str]:
        """Export the session as JSON lines, to import it anywhere with the same ids.

        Damaged parts are not exported. Their names are appended to `missed`; without that list, an
        error after the last line has them.
        """
        return export_session(self._store, self.row.tree.key, self.row.key, missed)

    def conversation(self) -> Conversation:
        """The whole conversation: every message in its place, including system messages."""
        return read_conversation(self._place)

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
        found = await ask_knowledge(self._place, request, options)
        details = replace(details, knowledge=found)
        return await self.run_off_loop(
            lambda: append_and_prepare(
                self._place, self._requests, request, checked, details, project
            )
        )

    @property
    def policy(self) -> Policy:
        """The policy that is used if `prepare` names none: the one that was named last, then the
        one of the configuration, then `default`.
        """
        return self._choices.policy

    @property
    def remembered_options(self) -> RememberedOptions:
        """The options that are used if `prepare` names none, besides the policy: those that were
        named last.
        """
        return self._place.state.remembered_options

    @show_options
    def set_options(self, **options: Unpack[SetOptions]) -> RememberedOptions:
        """Set options for later requests, as if `prepare` had named them. None makes the session
        forget one.

        Returns all that it remembers, besides the policy.
        """
        refuse_unknown("set_options", options, SetOptions)
        return self._choices.set(options)

    def undo(self) -> int:
        """Continue the epoch before the last one, if it still fits, and use no summary made since
        then. Returns its new number.

        Its policy is used again, if it is one of those that `loom policy list` shows. Limits that
        were learned from refused requests are forgotten.
        """
        number = undo_epoch(self._place)
        self._requests.forget_last()
        self.emit("compressed", path="undone", reason="undone", epoch=number)
        return number

    def resume(self) -> ResumePoint:
        """What is needed to continue after a crash.

        If the store has no working state, it is restored from the last snapshot.
        """
        return find_resume_point(self._place)

    # Summaries

    @property
    def summary(self) -> str:
        """The summary of this session. Requests use it when not all messages fit."""
        return self._summaries.read()

    def set_summary(self, text: str) -> None:
        """Use this text as the summary of all messages except the last ones; "" removes the
        summary.
        """
        self._summaries.set(text)

    async def summarize(self, model: Model | None = None) -> str:
        """Summarize all messages except the last ones with `model`, or with the model of the store.

        Returns the summary, or "" if there was nothing to summarize. Without a model, the summary
        contains the beginning of each message. Messages that are written meanwhile are not
        affected.
        """
        check_model(model)
        return await self._summaries.ask(model)

    # Memory, search, and Loom's own tools

    @property
    def memory(self) -> SessionMemory:
        """What this session remembers: its notes, and the layers of what was said."""
        return SessionMemory(
            self._workspace, lambda: (self.row, self.path), self._place.overlay, self.run_off_loop
        )

    @property
    def decisions(self) -> SessionDecisions:
        """The decisions of the project. What is logged here is logged in this session."""
        return SessionDecisions(
            self._workspace,
            lambda: self.row,
            self.run_off_loop,
            lambda: find_folder(self._choices.find_folder()[0] or ""),
        )

    @property
    def skills(self) -> SessionSkills:
        """The skills of the project that the last request named."""
        return SessionSkills(
            lambda: self._place.state.skills,
            lambda skills: self._place.keep_states(skills_values(skills)),
            lambda: self.path,
            self.run_off_loop,
        )

    @checks_arguments
    def pin(self, name: str, *, on: bool = True) -> int:
        """Keep a message in every request of this path, or stop that.

        `name` is the id of its node, or a handle, which may stand for at most 8 messages. Returns
        how many messages changed.
        """
        return pin_messages(self._place, name, on)

    @checks_arguments
    def stash(self, label: str, text: str | None = None) -> str:
        """Keep a text under a label, outside of requests; without a text, get it back.

        Returns the text. An empty text removes the label.
        """
        return use_stash(self._place, label, text)

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
        return search_messages(self._place, query, limit, tokens, shown, where)

    def use(self, call: Any) -> Node | None:
        """Run a call of one of Loom's own tools, and append its result.

        The call is a `ToolCall`, an object of an SDK, or JSON in any dialect. A call that already
        has a result is not run again; its result is returned. The session must contain the call, so
        absorb the answer first. Returns None for a call of any other tool; then nothing is written.
        What was recalled is not cut again by the next epoch.
        """
        return use_tool(self._place, parse_call(call), partial(carry_out, self))

    def start_call(self, call: Any) -> bool:
        """Note that a call of a tool is about to run, so that a crash does not make it run twice.

        Returns False if the call was started before: then nobody knows whether it finished. The
        session must contain the call, so absorb the answer first.
        """
        return start_call(self._place, parse_call(call))

    @checks_arguments
    def claim_run(self, owner: str, *, task: str = "") -> None:
        """Note that a run of an agent works in this session, or still does. `owner` names the run.
        With the id of a `task` in the session, the run works on that task only.

        Raises `Conflict` while another run works there: one that claimed it within the last minute,
        and whose process is not known to have ended.
        """
        check_name("run", owner)
        check_label("task", task)
        if not self._place.is_guest:
            self._place.state.claim_run(RunClaim(self.id, owner, task), self._place.now())

    @checks_arguments
    def release_run(self, owner: str, *, task: str = "") -> None:
        """Note that a run is over, so that another one may work in this session, or on the task."""
        check_name("run", owner)
        check_label("task", task)
        if not self._place.is_guest:
            self._place.state.release_run(owner, self._place.now(), task)

    def beat(self) -> bool:
        """Note in the working state, if there is one, that the agent is alive.

        Returns whether somebody asked it to stop.
        """
        working = self.working
        if not working.is_empty:
            self.keep_working(working.beat(self._place.now()))
        return working.dashboard.interrupt_requested

    @checks_arguments
    def recall(self, handle: str, *, plain: bool = False) -> str:
        """Get back what was left out under this handle: the text of a part, or messages as JSON
        lines. With `plain`, messages are a text to read: the role, then the words as they were.

        This is for people: it includes what was excluded or pruned since then. Models use the tool
        `recall`, which does not.
        """
        return recall_text(self._place, handle, plain)

    @checks_arguments
    def recall_shown(self, handle: str, *, plain: bool = False) -> tuple[str, int]:
        """Get back what was left out under this handle, for a model: without messages that are now
        excluded or pruned.

        Returns the text and how many messages are missing. With `plain`, messages are a text to
        read, each under its role, and not JSON lines.
        """
        return recall_shown_text(self._place, handle, plain)

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
        answer, speaker = parse_answer(response, choice), self._place.speaker()
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
        outcome, order = self._answers.take(answer, choice, speaker, metadata)
        if speaker is None or order is None:
            return outcome
        results = self._workspace.carry_out(self._workspace, self, speaker, order)
        if order.commands:
            self.refresh()
        return replace(outcome, results=results)

    def take_branch(self, answer: Answer, at: str) -> list[Node]:
        """Write an answer after any node of the tree, as a branch, with its usage.

        The session stays where it is. `→` commands of the answer are left out, and not run.
        """
        return self._answers.take_branch(answer, at)

    # The same off the event loop (`loom.runtime.threads`)

    aabsorb = async_form(absorb)
    aappend = async_form(append)
    aappend_at = async_form(append_at)
    abeat = async_form(beat)
    aclaim_run = async_form(claim_run)
    arelease_run = async_form(release_run)
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
