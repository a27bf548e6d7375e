"""A session that is kept: append, prepare a request, absorb the answer, fork, switch, bring back what was left out."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from loom.budget import models
from loom.budget.calibration import observe
from loom.budget.counting import gate_counter
from loom.budget.models import Overrides
from loom.context.options import Options, check_options
from loom.context.policy import Policy, policies
from loom.context.policy import policy as find_policy
from loom.context.renewal import Handoff, open_calls, to_system_prompt
from loom.context.report import Report
from loom.context.sections import Section
from loom.context.weave import Context, budget_for
from loom.context.working import EMPTY, Working, measured, render_dashboard
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.checked import check_flag, check_text, checks_arguments
from loom.conversation.handles import to_lines
from loom.conversation.identity import node_id
from loom.conversation.message import Message, ToolCall
from loom.conversation.tree import Source
from loom.dialects.answers import Answer, parse_answer
from loom.dialects.document import to_plain_text
from loom.dialects.given import parse_call
from loom.engine.answered import Acted, Order, digest_of, take_out_commands
from loom.engine.aware import addendum, blocks, headers_from
from loom.engine.home import Home
from loom.engine.mapping import check_project, look_along
from loom.engine.prepare import BY_PERSON, Asked, Prepared, calibration, new_handles, prepare, prepare_ending, ratio_of
from loom.engine.pressure import hand_over, moment, refused, within
from loom.engine.purging import keep_snapshot
from loom.engine.reading import ReadingStyle
from loom.engine.search import LIMIT, Hit, search, shown_in
from loom.engine.session_state import handoff_values, limit_values, request_values, working_values
from loom.engine.summarize import Ask, Made, Model, summarize
from loom.engine.summing import BY_MODEL, DIGEST, Plan, When, plan, summed, undigested, with_digests
from loom.engine.threads import async_form, async_value
from loom.engine.tools import RECALLED, carry_out, is_own_call
from loom.engine.views import reached, store_view
from loom.engine.written import Given, Written, parsed
from loom.errors import CannotFit, ChoiceError, Conflict, StoreError, describe, shorten
from loom.providers.overflow import Overflow, error_text, read_overflow
from loom.stores.nodes import plain
from loom.stores.overlay import Overlay, names_at
from loom.stores.path import Node, Path
from loom.stores.requests import SavedRequest
from loom.stores.sessions import SessionRow, Usage, check_alive
from loom.stores.settings import StateValues
from loom.stores.states import Request
from loom.stores.summaries import join_texts

if TYPE_CHECKING:
    from loom.project.maps import RankedProject

DEFAULT = "default"  # the policy of a session for which nobody named one
_TOLD = 400  # messages at the end of a path from which a handoff is made
_RECENT = 64  # nodes among which an answer is looked for that was written already
_MEMORY_ROOM = 64  # tokens more than an agent's memory takes, so that it stands as it is


class _Look(Struct, frozen=True):
    """What is asked of a request beside how large it may be."""

    pins: tuple[str, ...]
    sources: tuple[Source, ...]
    include: tuple[str, ...]
    preview: bool
    at: str | None
    overflow: Overflow | None = None
    sight: "RankedProject | None" = None
    named: bool = True  # whether the caller says which policy


class Resumed(Struct, frozen=True):
    """What is needed to go on after a crash: a handoff, the working state, and calls that were made and never answered.

    `restored`: the store had no working state, and it came back from the files of the last snapshot.
    """

    handoff: Handoff
    working: Working
    pending: tuple[ToolCall, ...]
    restored: bool


class Session(Written):
    """A session that is kept, and the requests that are made of it."""

    def __init__(self, home: Home, row: SessionRow, end: Node | None = None, guest: bool = False, lasting: bool = False) -> None:
        """`lasting`: others may take the answer to a request of this object, so that the store has to know of it."""
        super().__init__(home, row, end, guest)
        self._last: Prepared | None = None
        self._marked: dict[str, int] = {}  # handles that are kept for this session, each with a hash of what it stands for
        self._wish: Options | None = None
        self._lasting = lasting
        self._request: Request | None = None
        self._request_kept = False

    async def prepare(
        self,
        request: Given | None = None,
        *,
        model: str | None = None,
        window: int | None = None,
        reserve_output: int | None = None,
        policy: str | Policy | None = None,
        sections: Iterable[Section | tuple[str, str]] = (),
        pins: Sequence[str] = (),
        overrides: Overrides | None = None,
        zones: Mapping[str, int] | None = None,
        preview: bool = False,
        at: str | None = None,
        sources: Sequence[Source] = (),
        include: Sequence[str] = (),
        overflow: object = None,
        project: "str | PathLike[str] | None" = None,
    ) -> Context:
        """The request to send now; `request`, if given, is appended first, unless it stands last already: a retry asks once.

        Only what the window needs is read. It continues the epoch of the last one where that still fits, also after a restart.
        Without a `policy` it is the one that was named last, else `default`.
        `pins` name nodes that must stay, `include` annotations to be read. `sources` are what the answer is made from beside the
        path: references and instructions. A `preview` leaves the epoch as it is; `at` is one of the path to another node.
        `overflow` is the error by which a provider refused the last request as too long: this one is shorter, and so are all after.
        `project` is a folder with code: a map of what matters in it stands in the system text, as it was when the epoch began, and
        what this request needs beyond that in the tail. The zone `repo_map` says how large it may be.
        """
        wish = check_options(
            model=model,
            window=window,
            reserve_output=reserve_output,
            policy=DEFAULT if policy is None else policy,
            sections=sections,
            overrides=overrides,
            zones=zones,
        )
        wish = replace(wish, caches=self._home.caches)
        refusal = read_overflow(overflow) if overflow is not None else None
        if overflow is not None and refusal is None:
            raise ChoiceError(
                f"this error does not say that the request was too long: {shorten(error_text(overflow), 500)}; fix what it reports"
            ) from (overflow if isinstance(overflow, BaseException) else None)
        pinned, included = _names("pins", pins), _names("include", include)
        check_flag("preview", preview)
        look = _Look(pinned, check_sources(sources), included, preview or at is not None, at, refusal, named=policy is not None)
        return await self.run_off_loop(lambda: self._append_and_prepare(request, wish, look, project))

    def _append_and_prepare(
        self, request: Given | None, wish: Options, look: "_Look", project: "str | PathLike[str] | None"
    ) -> Context:
        if not look.named:
            wish = replace(wish, policy=self.policy)
        budget_for(wish, self.row.head)  # what is amiss is said before anything is written
        if project is not None:
            check_project(project)
        for name in (*look.pins, *look.include, *([] if look.at is None else [look.at])):
            self._node(name)
        if request is not None and not self._asked(request):
            self.append(request)
        if project is not None:
            look = replace(look, sight=look_along(self._path_to(look.at), project))
        return self._prepare(wish, look)

    def _path_to(self, at: str | None) -> Path:
        return self.path if at is None else Path(self._store.database, self.row.tree.key, self._node(at))

    def _asked(self, request: Given) -> bool:
        end = self.path.end
        return end is not None and end.message is not None and [end.message] == parsed([request])

    def _prepare(self, wish: Options, look: "_Look") -> Context:
        check_alive(self.row, self.row.status)
        path = self._path_to(look.at)
        style = self._style(path, look)
        if path.end is None and not style.buffer:
            raise ChoiceError(f"session {self.id} has no messages yet; append one first")
        if path.end is None or (style.buffer and style.overlay(path).path.end is None):
            return prepare_ending(self.row, path, wish, style, self.recall)
        refused_at = self._counted(wish, look) if look.overflow else 0
        if style.agent and style.agent.loom_aware and (style.agent.kind == "model" or not style.document):
            told = blocks(self._store, self._whose, style.tree, style.agent, path, style.now)
            zone = {"operational_memory": gate_counter(None).count_text(told[0].text) + _MEMORY_ROOM}
            wish = replace(wish, sections=(*wish.sections, *told), zones=zone | dict(wish.zones))
        state = EMPTY if self._guest else self.working
        shown = state != EMPTY or wish.policy.strategy == "ladder"
        if shown:
            text = render_dashboard(state)
            zone = {"working": gate_counter(None).count_text(text) + _MEMORY_ROOM}
            wish = replace(wish, sections=(*wish.sections, Section("working", text)), zones=zone | dict(wish.zones))
        if wish.window is None and style.agent and style.agent.window:
            wish = replace(wish, window=style.agent.window)
        wish = self._within(wish, look, refused_at)
        if wish.policy.cold < 1:
            cold, busy = moment(path, style.now)
            wish = replace(wish, cold=cold, busy=busy)
        handed = self._handed(path, state, look) if wish.policy.renew and not self._guest else None
        pinned = [self._on_path(path, name) for name in look.pins]
        pinned += [node for node in self._recalled(path) if node not in pinned]

        asked = Asked(
            store=self._store,
            row=self.row,
            path=path,
            options=wish,
            style=style,
            pins=pinned,
            last=None if look.at else self._last,
            fetch=self.recall,
            overflowed=look.overflow is not None,
            sight=look.sight,
        )

        def made(handed: Handoff | None, renewing: str = "") -> tuple[Context, Prepared]:
            given = _handing(wish, handed)
            while True:
                context, prepared = prepare(replace(asked, options=given, renewing=renewing))
                clashes = self._store.views.clashes(self.row, new_handles(context, prepared.reading, self._marked).kept)
                if not clashes:
                    return replace(context, has_commands=bool(style.addendum)), prepared
                given = replace(given, taken=given.taken | clashes)

        try:
            context, last = made(handed)
        except CannotFit as error:
            raise (_cannot_shrink(refused_at, f": {error}") if look.overflow else error) from None
        renewed = context.report.renewed and not look.preview and not self._guest
        if renewed:
            handed = self._handoff(path, _measure(state, context.report), handed)
            context, last = made(handed, context.report.epoch_reason)
        marks = new_handles(context, last.reading, self._marked)
        if look.preview:
            with suppress(StoreError):  # a store that can only be read will do for a look
                seen = SavedRequest(view=None, handles=marks.kept, inherited=marks.inherited)
                self._store.requests.save(self.row, seen, self._home.now())
            return context
        if look.overflow and last.counted >= refused_at:
            raise _cannot_shrink(refused_at, f"than {last.counted:,}")
        request = Request(path.end.id, look.sources, last.model, last.counted)
        states: list[StateValues] = []
        if look.overflow:
            limit = refused(look.overflow, refused_at, context.report.reserved_output)
            states.append(limit_values(wish.model or self.row.model, limit))
        if renewed and handed:
            states += handoff_values(handed, _hidden_names(path, self._overlay(path)))
        if style.agent and style.agent.loom_aware:
            states.append(("seen", {"": to_json(str(style.now))}))
        if shown:
            states.append(working_values(_measure(state, context.report)))
        if look.named and not self._guest:
            states += self._state.policy_values(wish.policy)
        states += self._request_values(request)
        saved = SavedRequest(
            view=reached(last.view) if last.view.session == self.row.key else store_view(last.view),
            handles=marks.kept,
            inherited=marks.inherited,
            states=tuple(states),
            note=(self.path[last.note.stop - 1], last.note, style.now) if last.note else None,
        )
        self._store.requests.save(self.row, saved, self._home.now())
        self._marked |= dict.fromkeys(marks.inherited, 0) | marks.hashes
        if renewed and handed:
            self._keep_snapshot(handed, _measure(state, context.report))
        before, self._last = self._last, replace(last, view=replace(last.view, session=self.row.key))
        self._wish, self._request = wish, request
        self._tell(context.report, "reactive" if look.overflow else "proactive", before.counted if before else 0, last.counted)
        return context

    # Under pressure

    def _tell(self, report: Report, path: str, before: int, after: int) -> None:
        """Let listeners know of a request, and that something was left out of it which the last one may have held."""
        epoch, reason = report.epoch, report.epoch_reason
        self.told("prepared", tokens=report.input_tokens, epoch=epoch, reason=reason)
        if report.dropped and reason != "continued":
            about = {"before": before, "after": after, "left_out": report.dropped, "renewed": report.renewed}
            self.told("compressed", path=path, reason=reason, epoch=epoch, **about)

    def _counted(self, wish: Options, look: "_Look") -> int:
        """How many tokens the last request had, uncorrected; after a restart it is made once more to know."""
        if self._last:
            return self._last.counted
        context = self._prepare(wish, replace(look, overflow=None, preview=True))
        return round(context.report.input_tokens / ratio_of(self.row, wish.model or self.row.model))

    def _within(self, wish: Options, look: "_Look", refused_at: int) -> Options:
        """What is asked for, in as many tokens as providers took of this model before; less, if the last request was refused."""
        budget = budget_for(wish, self.row.head)
        model = wish.model or self.row.model
        most = self._state.token_limit(model)
        if look.overflow:
            most = refused(look.overflow, refused_at, budget.reserved_output)
        return within(wish, budget, int(most * ratio_of(self.row, model))) if most else wish

    @property
    def summary(self) -> str:
        """What summaries tell of this session's path; they stand in its requests once there is no room for all of it."""
        return join_texts(
            self._store.summaries.on_path(self.row, self.path, self._style(self.path, _NOTHING).overlay(self.path).hidden)
        )

    def set_summary(self, text: str) -> None:
        """Let these words stand for what was said, all but the last messages; "" for no summary at all."""
        if not check_text("a summary", text).strip():
            gone = self._store.summaries.retire(self.row, 0, self._home.now())
            self.told("compressed", path="given", reason="summaries taken back by a person", summaries=gone)
            return
        planned = self._planned(when="whole")
        if planned is None:
            raise ChoiceError(f"session {self.id} is too short for a summary: there is nothing before its last messages")
        self._store.summaries.add(self.row, planned.end, summed(planned, text, BY_PERSON), self._home.now())
        self.told("compressed", path="given", reason="written by a person", messages=planned.stop)

    async def summarize(self, model: Model | None = None) -> str:
        """Sum up what was said, all but the last messages, with a model: this one, or the one that the store was opened with.

        The text, or "" where there was nothing to sum up. Without a model it is made of beginnings. What is written meanwhile is
        not touched by it.
        """
        _check_model(model)
        planned = await self.run_off_loop(lambda: self._planned(when="now"))
        return await self._sum_up(planned, model or self._home.model, "asked") if planned else ""

    async def _sum_up_what_is_due(self) -> bool:
        """What goes on behind the scenes after an answer; whether it went well."""
        planned = await self.run_off_loop(lambda: self._planned(when="due"))
        well = planned is None or bool(await self._sum_up(planned, self._home.model, "background"))
        if not self._policy.digests:
            return well
        for node in await self.run_off_loop(lambda: undigested(self._store, self.row, self._overlay(self.path))):
            assert node.message is not None
            made = await summarize(self._home.model, Ask(messages=(node.message,), tokens=DIGEST))
            if made.by == "model":
                await self.run_off_loop(partial(self._store.summaries.add_digest, self.row, node, made.text, self._home.now()))
            self.told("compressed", path="background", reason="a large tool result", by=made.by, failures=made.failures)
            well = well and made.by == "model"
        return well

    async def _sum_up(self, planned: Plan, model: Model | None, path: str) -> str:
        made = await summarize(model, planned.ask)
        return await self.run_off_loop(lambda: self._keep_summary(planned, model, path, made))

    def _keep_summary(self, planned: Plan, model: Model | None, path: str, made: Made) -> str:
        """Write down what a model made of a stretch, unless somebody was quicker; the text that is kept, else ""."""
        if not self._is_newest(planned):
            self.told("compressed", path=path, reason="another summary was written meanwhile", calls=made.calls)
            return made.text
        by = BY_MODEL if made.by == "model" else "its beginnings"
        # Where covers tell of what was left out, its telling lines say more than its beginnings.
        kept = made.by == "model" or model is None or self._policy.summary != "cover"
        if kept:
            text = with_digests(made.text, planned.digests)
            self._store.summaries.add(self.row, planned.end, summed(planned, text, by), self._home.now())
        self.told(
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
        return tuple(one.name for one in self._store.summaries.on_path(self.row, self.path, hidden)) == planned.behind

    @property
    def policy(self) -> Policy:
        """The policy that decides where `prepare` names none: the one named last, also before a restart, else `default`."""
        try:
            return self._state.policy or find_policy(DEFAULT)
        except (ChoiceError, ValueError) as error:
            told = f"the policy that session {self.id} remembers cannot be used: {error}; name another with prepare(policy=…)"
            raise ChoiceError(told) from None

    @property
    def _policy(self) -> Policy:
        return self._wish.policy if self._wish else self.policy

    def _planned(self, when: When) -> Plan | None:
        wish = self._wish or check_options(policy=self.policy)
        return plan(self._store, self.row, self.path, wish, self._style(self.path, _NOTHING), when)

    def undo(self) -> int:
        """Let the epoch before this one stand again where it still fits, and no summary that was made since; its new number.

        Its policy decides again, if it is one that ships.
        What providers refused is forgotten too: requests may be as long again as the window allows.
        """
        self._keep_states(self._state.unlimited_values())
        number, began = self._store.views.undo(self.row, self.path, self._home.now())
        self._store.summaries.retire(self.row, began, self._home.now())
        view = self._store.views.newest(self.row, self.path)
        if view and view.epoch.policy in policies():
            self._keep_states(*self._state.policy_values(find_policy(view.epoch.policy)))
        self._last = None
        self.told("compressed", path="undone", reason="undone", epoch=number)
        return number

    @checks_arguments
    def search(self, query: str, limit: int = LIMIT) -> list[Hit]:
        """Search what of this session its last request does not show; each hit has a handle to recall."""
        overlay = self._overlay(self.path)
        shown = shown_in(self._store.views.newest(self.row, self.path), len(self.path))
        return search(self._store, self.row, overlay, query, now=self._home.now(), limit=limit, shown=shown)

    def use(self, call: Any) -> Node | None:
        """Carry out a call of one of Loom's own tools, and write its result behind the cursor. What was recalled stays a while.

        The call may be a `ToolCall`, an SDK's object, or in any wire's form. One that has a result already is not carried out
        again: its result comes back. The session must hold the call, so absorb the answer that makes it first.
        None for a call of any other tool: nothing is written, and whoever has that tool answers it.
        """
        call = parse_call(call)
        if not is_own_call(call, self.row.head.tools):
            return None
        if answered := self._result_of(call):
            return answered
        [node] = self.append(carry_out(self, call))
        if call.name in RECALLED:
            newest = self._store.views.epoch(self.row, self.path)
            self._keep_states(self._state.recalled_values(node.id, newest))
        return node

    def _result_of(self, call: ToolCall) -> Node | None:
        """The node that answers the newest call of this id, if there is one yet; an error where no message makes the call."""
        check_alive(self.row, self._store.sessions.get(self._home.scope, self.id).status)
        result = None
        for node in reversed(self.path[-_TOLD:]):
            message = node.message
            if message is None:
                continue
            if any(made.id == call.id for made in message.calls):
                return result
            if any(answer.call_id == call.id for answer in message.results):
                result = node
        raise ChoiceError(
            f"no call {shorten(call.id)!r} is among the last {_TOLD} messages of session {self.id}; "
            "absorb the answer that makes the call, then use it"
        )

    def _recalled(self, path: Path) -> list[Node]:
        """What was recalled since the last epoch began: it is not cut again at once."""
        nodes = [self._node(name) for name in self._state.recalled(self._store.views.epoch(self.row, path))]
        return [node for node in nodes if node.message and path.holds(node.seq, node.depth)]

    def _overlay(self, path: Path) -> Overlay:
        """What is hidden from a path for this session, and what comes in."""
        return self._style(path, _NOTHING).overlay(path)

    def _handed(self, path: Path, state: Working, look: "_Look") -> Handoff | None:
        """The handoff with which the window last began anew; made again where what is hidden has changed since."""
        handed, hidden = self._state.handoff, _hidden_names(path, self._overlay(path))
        if handed is None or hidden == self._state.hidden_from_handoff:
            return handed
        again = self._handoff(path, state, None)
        again = replace(again, sprint=handed.sprint, handoff_ts=handed.handoff_ts)
        if not look.preview:
            self._keep_states(*handoff_values(again, hidden))
            self._keep_snapshot(again, state)
        return again

    def _handoff(self, path: Path, state: Working, before: Handoff | None) -> Handoff:
        overlay = self._overlay(path)
        path, hidden = overlay.path, overlay.hidden
        shown = [node for node in path[-_TOLD:] if node.message and node.depth not in hidden]
        goals = path.nodes([path.end.goal]) if path.end and path.end.goal is not None else []
        goals = [node for node in goals if node.depth not in hidden] or [node for node in shown if node.role == "user"]
        goal = next((node.message.text for node in goals if node.message), "")
        return hand_over(state, goal, [node.message for node in shown if node.message], before, self._home.now())

    def _keep_snapshot(self, handed: Handoff, state: Working) -> None:
        if self._home.snapshots:
            try:
                keep_snapshot(self._store, self.row, self._home.snapshots, state, handed)
            except StoreError as error:  # the store has it; a full disk elsewhere must not stop the agent
                self.told("compressed", path="renewal", reason="the snapshot could not be written", failures=(str(error),))

    def resume(self) -> Resumed:
        """What is needed to go on after a crash. Working state that the store does not have comes back from its last snapshot."""
        state, before, restored = self.working, self._state.handoff, False
        if self._home.snapshots and (state == EMPTY or before is None) and (found := self._home.snapshots.read(self.id)):
            before = before or found[1]
            if state == EMPTY and found[0] != EMPTY:
                state, restored = self.keep_working(found[0]), True
        handed = self._handoff(self.path, state, before)
        pending = open_calls(node.message for node in self.path[-_TOLD:] if node.message)
        return Resumed(replace(handed, sprint=before.sprint if before else 0), state, pending, restored)

    @property
    def _whose(self) -> SessionRow:
        """The row whose states are this session's; a guest has none."""
        return replace(self.row, key=0, id="") if self._guest else self.row

    def _style(self, path: Path, look: "_Look") -> ReadingStyle:
        """How this session reads its tree."""
        store, row = self._store, self.row
        tree = store.trees.head(row.tree)
        agent = store.settings.agent(self._home.scope, row.agent) if row.agent else None
        aware = agent is not None and agent.loom_aware and tree.head.mode == "dialogue"
        return ReadingStyle(
            tree=tree,
            now=self._home.now(),
            agent=agent,
            chosen={} if tree.head.mode == "dialogue" else self._state.texts("version"),
            sources=look.sources,
            include=frozenset(self._node(name).id for name in look.include),
            buffer="" if tree.head.mode == "dialogue" else self._state.texts("buffer").get("", ""),
            headers=headers_from(store, row) if aware else None,
            addendum=addendum() if aware else "",
        )

    def absorb(self, response: Any, *, choice: int = 0) -> list[Node]:
        """Write what a provider answered behind the cursor, with its usage and the answer as it came.

        Takes the JSON of OpenAI (chat, responses) or Anthropic, their SDKs' objects, or a `Message`. The same answer twice is
        written once: an answer is known by what it says and what it follows, not by the provider's id alone, which some providers
        use again. Another `choice` of the same answer is written beside the first, and costs nothing more. What an agent that knows
        the loom says in `→` commands is carried out; the other words are written.
        """
        return list(self.take(parse_answer(response, choice), choice, self._speaker()).nodes)

    def take(self, answer: Answer, choice: int = 0, speaker: Agent | None = None) -> Acted:
        """Write an answer, and carry out its commands if its speaker knows the loom; what came of it."""
        aware = speaker is not None and speaker.loom_aware
        said, found = take_out_commands(answer.messages) if aware else (answer.messages, ())
        place = self._place(answer, choice, said, self._commit_and_look())
        conflict = self._went_on(answer, choice, said, place) if aware else None
        nodes = self._write(answer, choice, () if conflict else said, place)
        spent = place.request or Request(place.node.id if place.node else "")
        spent = replace(spent, answer=digest_of(answer.raw), choices=(*spent.choices, choice))
        self._keep_request(spent, lasting=answer.choices > 1)
        words = "\n\n".join(message.text for message in said if message.text)
        if speaker is None or not aware or place.again:
            return Acted(words, tuple(nodes))
        at = self.cursor.id if nodes and not place.late and self.cursor else place.at
        results = self._home.carry_out(self._home, self, speaker, Order(found, at, conflict))
        if found:
            self.refresh()
        return Acted(words, tuple(nodes), results)

    def _speaker(self) -> Agent | None:
        return self._store.settings.agent(self._home.scope, self.row.agent) if self.row.agent else None

    def _commit_and_look(self) -> Request | None:
        """The request that an answer may answer. What was not committed was part of it, and is committed by the answer."""
        stood = self.cursor
        request = self._request
        if request is None:
            request = self._state.request
            self._request_kept = request is not None
            if request and not self._lasting and request.answer is None and request.node != (stood.id if stood else ""):
                request = None  # some other object's, which was never answered
        committed = self.commit()
        if request and committed and request.answer is None and request.node == (stood.id if stood else ""):
            return replace(request, node=committed.id)
        return request

    def _place(self, answer: Answer, choice: int, said: Sequence[Message], request: Request | None) -> "_Place":
        """Where an answer belongs: behind what its request ended with; without a request, behind the cursor."""
        if request and answer.raw and request.answer == digest_of(answer.raw):
            node, again = self._node(request.node) if request.node else None, choice in request.choices
            if not self._asked_since(node) if again else answer.choices > 1:
                return _Place(node, request, late=True, other=True, again=again)
        if request and request.answer is not None:
            request = None
        if request is None or not self._lasting:
            return _Place(self._answered(said, answer.raw, _generation(answer, choice)), request)
        node, end = self._node(request.node) if request.node else None, self.path.end
        return _Place(node, request, late=(node.seq if node else None) != (end.seq if end else None), at=request.node)

    def _asked_since(self, node: Node | None) -> bool:
        """Whether somebody asked something behind a node, or is elsewhere: what comes then answers that."""
        if node is not None and not self.path.holds(node.seq, node.depth):
            return True
        newer = self.path[max(node.depth + 1 if node else 0, len(self.path) - _RECENT) :]
        return any(each.role == "user" for each in newer)

    def _went_on(self, answer: Answer, choice: int, said: Sequence[Message], place: "_Place") -> Conflict | None:
        """That others went on since an agent that knows the loom looked: it is told, and may say it again elsewhere."""
        if not place.late or place.other or not said:
            return None
        behind = place.node.id if place.node else ""
        if self.path.says(node_id(self.row.tree.id, behind, said[0], _generation(answer, choice))):
            return None  # it is this answer that went on, and comes once more
        expected, found = (node.short_id if node else "its beginning" for node in (place.node, self.path.end))
        self.told("conflict", expected=expected, found=found)
        return Conflict(self.id, expected, found)

    def _write(self, answer: Answer, choice: int, said: Sequence[Message], place: "_Place") -> list[Node]:
        usage, learnt = self._cost(answer, place)
        beside = [("response", answer.raw)] if answer.raw else []
        beside += [("usage", to_json(usage))] if usage else []
        if place.request and place.request.sources and said:
            beside.append(("sources", to_json(place.request.sources)))
        nodes: list[Node] = []
        if said:
            nodes = self._append(
                said,
                place.node,
                _generation(answer, choice),
                usage=usage,
                records=beside,
                calibration=learnt,
                move=not place.late,
            )
        elif usage and (asked := place.node or self.path.end):
            name, now = digest_of(answer.raw), self._home.now()
            self._now(self._store.sessions.charge(self.row, asked, name, usage, beside, learnt, now))
        cost = usage or Usage()
        self.told("absorbed", prompt=cost.prompt, completion=cost.completion, cached=cost.cached, cost=cost.cost)
        # A turn is over when nothing is called any more; where turns are not what is cut, one need not wait for that.
        if self._policy.strategy != "whole_turns" or not any(message.calls for message in answer.messages):
            self._home.begin(self.id, self._sum_up_what_is_due)
        return nodes

    def _cost(self, answer: Answer, place: "_Place") -> tuple[Usage | None, str]:
        """What an answer cost, and what its tokens teach the counter. A response costs once, however many choices it has."""
        if place.other or not answer.raw:
            return None, ""
        request = place.request
        model = answer.model or (request.model if request else "") or self.row.model
        price = models.cost(models.model(model), answer.prompt, answer.completion, answer.cached, answer.written)
        learnt = ""
        if request and request.counted and answer.prompt:
            learnt = to_json(observe(calibration(self.row), request.model, counted=request.counted, reported=answer.prompt))
        return Usage(answer.prompt, answer.completion, answer.cached, price), learnt

    def _keep_request(self, request: Request, lasting: bool = False) -> None:
        """Remember the last request; in the store too, if another object may have to know it."""
        self._request = request
        self._keep_states(*self._request_values(request, lasting))

    def _request_values(self, request: Request, lasting: bool = False) -> list[StateValues]:
        """What the store has to know of the last request."""
        if self._guest or not (self._lasting or lasting or request.sources or self._request_kept):
            return []
        self._request_kept = True
        return [request_values(request)]

    def _answered(self, messages: Sequence[Message], raw: str, generation: str) -> Node | None:
        """The node that an answer follows: the cursor, unless the same answer was written a moment ago.

        The provider's id alone proves nothing, for some providers repeat theirs. An answer that comes again is one that the path
        ends with, or one of this turn whose calls were answered since.
        """
        said = [message for message in messages if message.role not in ("system", "developer")]
        if not said:
            return self.path.end
        recent = self.path[-_RECENT:]
        for first in range(len(recent) - len(said), -1, -1):
            chain = recent[first : first + len(said)]
            equal = [node.message for node in chain] == said and all(node.generation == generation for node in chain)
            if equal and self._came_before(said, raw, chain[-1], generation):
                return self.path[chain[0].depth - 1] if chain[0].depth else None
            if recent[first].role == "user":
                break
        return self.path.end

    def _came_before(self, said: Sequence[Message], raw: str, node: Node, generation: str) -> bool:
        """Whether an answer that says the same as this node, under the same id, is that answer and not another one."""
        stands_last = self.path.end is not None and node.seq == self.path.end.seq
        if stands_last and generation:
            return True
        calls = any(call.id for message in said for call in message.calls)
        return (stands_last or calls) and raw in self._store.sessions.records(self.row, node, "response")

    @checks_arguments
    def recall(self, handle: str) -> str:
        """What was left out under this handle: the text of a part, or the messages of a span as canonical JSON lines.

        For people: what they excluded or pruned since is there too. Models have `use`, which keeps it from them.
        """
        return self._store.views.recall(self.row, self.path, handle)

    @checks_arguments
    def recall_shown(self, handle: str, *, plain: bool = False) -> tuple[str, int]:
        """The same for a model: without messages that are excluded or pruned by now, and how many these are.

        `plain` writes messages as a text to read, each under the role that speaks, and not as JSON lines.
        """
        overlay = self._overlay(self.path)
        depths = [depth for depth, why in overlay.hidden.items() if why == "excluded"]
        hidden = {seq for seq, _, _ in names_at(overlay.path, depths).values()}
        return self._store.views.recall_shown(self.row, self.path, handle, hidden, to_plain_text if plain else to_lines)

    # The same off the event loop (`loom.engine.threads`)

    aabsorb = async_form(absorb)
    apolicy = async_value(policy)
    arecall = async_form(recall)
    arecall_shown = async_form(recall_shown)
    aresume = async_form(resume)
    asearch = async_form(search)
    aset_summary = async_form(set_summary)
    asummary = async_value(summary)
    atake = async_form(take)
    aundo = async_form(undo)
    ause = async_form(use)


class _Place(Struct, frozen=True):
    """Where an answer is written: behind which node, and as the answer of which request.

    `late`: others went on there meanwhile. `other`: another choice of the answer came before; `again`: this one did.
    `at` is the node where its speaker knows itself to stand.
    """

    node: Node | None
    request: Request | None
    late: bool = False
    other: bool = False
    again: bool = False
    at: str | None = None


def _generation(answer: Answer, choice: int) -> str:
    """The provider's name for an answer tells two equal answers apart; of several choices each is its own."""
    return plain(f"{answer.id}#{choice}" if choice else answer.id)


def _names(what: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise ChoiceError(f"{what} must be a list of node ids, found {describe(given)}")
    return tuple(given)


def check_sources(given: object) -> tuple[Source, ...]:
    """What an answer is made from besides its path, as a caller gives it."""
    if not isinstance(given, list | tuple) or not all(isinstance(source, Source) for source in given):
        raise ChoiceError(f"sources must be a list of Source values, found {describe(given)}")
    return tuple(given)


@checks_arguments
def _check_model(model: Model | None) -> None:
    """Refuse what cannot answer."""


def _cannot_shrink(refused_at: int, why: str) -> CannotFit:
    return CannotFit(
        f"the provider refused {refused_at:,} tokens, and the request cannot be made shorter {why}; "
        "shorten the system text, the tools or the last message"
    )


_NOTHING = _Look((), (), (), True, None)


def _hidden_names(path: Path, overlay: Overlay) -> str:
    """The nodes of a path that are hidden, and the last one before what is pruned; "" where all is shown."""
    names = sorted(name for _, name, _ in names_at(overlay.path, overlay.hidden).values())
    if len(overlay.path) < len(path):
        names.append(f"pruned behind {overlay.path.end.id if overlay.path.end else 'nothing'}")
    return to_json(names) if names else ""


def _measure(state: Working, report: Report) -> Working:
    """The working state with what a request was measured at: the pressure that its report tells, and what it left free."""
    return measured(state, report.pressure, report.usable - report.input_tokens)


def _handing(wish: Options, handed: Handoff | None) -> Options:
    """What is asked for, with a handoff in the system text."""
    if handed is None:
        return wish
    told = to_system_prompt(handed)
    zones = {"handoff": gate_counter(None).count_text(told) + _MEMORY_ROOM}
    return replace(wish, sections=(*wish.sections, Section("handoff", told)), zones=zones | dict(wish.zones))
