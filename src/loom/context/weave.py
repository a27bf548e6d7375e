"""`weave`: from everything the agent has, the one request that fits, is whole and keeps the point; with the reasons."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import ceil
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import STAND_IN, Counter, gate_counter, text_counter
from loom.budget.models import Overrides, wire_name
from loom.budget.models import model as find_model
from loom.budget.profiles import Exact, profile_for
from loom.budget.zones import DEFAULTS, Budget, BudgetOptions, allocate_budget, flow
from loom.context.caches import Caches
from loom.context.epochs import Epoch, EpochEnds, Renewal, begin_after, epoch_of, mended
from loom.context.gate import Fitted, Room, cut_of_point
from loom.context.handles import Archive, PathArchive
from loom.context.markers import declares_recall, without_tool
from loom.context.options import Options, check_options
from loom.context.outlook import Outlook, prices_of
from loom.context.places import EVERYWHERE, Places
from loom.context.policy import Policy
from loom.context.report import CUT, LEFT_OUT, Continuation, Item, Piece, Report
from loom.context.sections import (
    OTHER_ZONE,
    TAIL,
    Free,
    Section,
    can_give_way,
    describe_large,
    gives_way,
    has_no_map,
    note_unused_zones,
    place,
    unscale,
    widen,
    widen_whole,
    widen_zones,
)
from loom.context.select import Selected, Setup, filled_by, own_tokens, seed_counter, select, set_aside
from loom.conversation.canonical import to_json, to_sendable
from loom.conversation.handles import to_lines
from loom.conversation.message import Carried, Conversation, Message, Text, Tool, ToolCall, ToolResult
from loom.conversation.turns import Span, in_flight
from loom.dialects import dialect
from loom.dialects.blocks import note_unknown_blocks
from loom.dialects.given import parse_placed, parse_tool
from loom.dialects.plain import is_sdk_object
from loom.dialects.repair import RepairedConversation, repair
from loom.dialects.settings import thinking_tokens
from loom.dialects.settings_repair import has_marks, limit_unstreamed, mend_settings
from loom.errors import CannotFit, ChoiceError, describe

EPOCH_GROWTH = 0.3  # of what is usable: what sections leave free for the calls of an epoch that begins
SECTION_SLACK = 0.1  # of what is usable: what sections leave free that cannot stand whole
MAX_WIDENINGS = 3  # times that free room is given to sections of one request
UNSURE = 0.25  # by how much more a provider may count than the stand-in, before an answer may take what the window leaves


class Context(Struct, frozen=True):
    """The finished request and its report. Render it with the method of the API that gets it."""

    # What the request says, as values.
    conversation: Conversation
    # What is in the request, what is not, and why.
    report: Report
    # What the next call needs to continue the epoch.
    continuation: Continuation
    # How many messages at the end belong to the tail, which is new in each request.
    tail: int = 0
    # Whether the request is one text instead of messages.
    is_document: bool = False
    # Whether the caller gave a limit for the answer. If not, the model and the window limit it.
    is_answer_limited: bool = False
    # Whether the reader writes commands in its text. `recall` is one of them then, not a tool.
    has_commands: bool = False

    def __post_init__(self) -> None:
        self.report.attach(self.continuation)

    @property
    def archive(self) -> Archive:
        """What was left out, by handle."""
        return self.continuation.archive

    def __repr__(self) -> str:
        # Not all that it holds: asyncio writes down what a task returned, and would take longer for it than the weaving took.
        return f"<Context of {self.report.input_tokens:,} tokens in {len(self.conversation.messages):,} messages>"

    def openai(self) -> dict[str, Any]:
        """The request for OpenAI chat completions."""
        return self._render("openai")

    def responses(self) -> dict[str, Any]:
        """The request for OpenAI responses."""
        return self._render("responses")

    def anthropic(self) -> dict[str, Any]:
        """The request for Anthropic messages, with cache marks."""
        conversation = _with_marks(self.sent, self.tail)
        if not self.is_answer_limited:
            conversation = limit_unstreamed(conversation)
        wire: dict[str, Any] = dialect("anthropic").render(conversation).wire
        return wire

    def document(self) -> str:
        """The request as one text."""
        if self.is_document:
            return to_sendable("\n\n".join(message.text for message in (*self.sent.system, *self.sent.messages)))
        text: str = dialect("document").render(self.sent).wire
        return text

    def render(self, name: str) -> Any:
        """The request in the dialect of this name."""
        dialect(name)
        return getattr(self, name)()

    def recall(self, handle: str) -> str:
        """What was left out under this handle: the text of a part, or messages as canonical JSON lines."""
        return self.archive.recall(handle)

    def _render(self, name: str) -> dict[str, Any]:
        wire: dict[str, Any] = dialect(name).render(self.sent).wire
        return wire

    @property
    def sent(self) -> Conversation:
        """The conversation as it is sent: its markers name `recall` only where the request declares that tool."""
        if self.has_commands or declares_recall(self.conversation):
            return self.conversation
        return without_tool(self.conversation, {handle for item in self.report.lines for handle in item.handles})


def weave(
    messages: Conversation | Iterable[Message | Mapping[str, Any]],
    *,
    model: str | None = None,
    system: str | None = None,
    tools: Iterable[Tool | Mapping[str, Any]] | None = None,
    window: int | None = None,
    reserve_output: int | None = None,
    policy: str | Policy = "default",
    sections: Iterable[Section | tuple[str, str]] = (),
    pins: Sequence[int] = (),
    previous: "Report | Context | None" = None,
    overrides: Overrides | None = None,
    ratio: float = 1.0,
    zones: Mapping[str, int] | None = None,
) -> Context:
    """Build one request that fits the window.

    `messages` are the conversation, as values or as the JSON of any dialect. `system` is a text before its own system
    text, and `tools` replace its own tools.

    `model` names the model, which decides the tokenizer and the window. `window` is the size of the whole window in tokens
    (default: the model's window), and `reserve_output` the part of it that is reserved for the answer. `overrides` gives your
    own figures for models. `zones` sets the sizes of zones in tokens. `ratio` corrects the counter by the usage that the
    provider reported.

    `policy` is the name of a policy, or a `Policy`. `sections` are other pieces of context, each for a zone. `pins` are
    the indexes of messages that must stay. `previous` is the report or the context of the last call: the new request
    continues its epoch, so that it begins as the last one did.

    Raises `CannotFit` if what must be in the request is larger than the window.
    """
    previous = previous.report if isinstance(previous, Context) else previous
    options = check_options(
        model=model,
        window=window,
        reserve_output=reserve_output,
        policy=policy,
        sections=sections,
        overrides=overrides,
        ratio=ratio,
        zones=zones,
    )
    _check_pins(pins, previous)
    given, spans = gather(messages, system, tools, options.caches)
    return build(given, options, _find_pinned(pins, given, spans), epoch_of(previous) if previous else None)


def build(
    given: Conversation,
    options: Options,
    pins: Sequence[int],
    previous: Epoch | Renewal | None,
    places: Places = EVERYWHERE,
    fetch: Callable[[str], str] | None = None,
) -> Context:
    """Weave one request from values that were checked.

    `places` tells where the messages of a stored history stand, and `fetch` brings back what was left out of it. Where history has
    nothing left to give but goal and request, sections do, one at a time: summaries, then skills, then memory.
    """
    if isinstance(previous, Epoch):
        try:
            return go_on(given, options, pins, previous, places, fetch)
        except EpochEnds as ends:
            previous = begin_after(previous, ends)
    begins = previous

    def weave_with(options: Options, given_up: Sequence[int]) -> Context:
        return _build(given, options, pins, begins, places, fetch, given_up)

    if options.policy.strategy == "stop_at_limit":  # nothing gives way
        try:
            return weave_with(options, ())
        except CannotFit as error:
            counter = gate_counter(options.model or given.model or None, options.ratio)
            large = describe_large(budget_for(options, given), options.sections, counter)
            if not large:
                raise
            raise CannotFit(f"{error}; {large}: shorten them") from None
    context = _build_giving_way(options, weave_with)
    # Once an epoch had to end, the next one leaves room to grow.
    later = isinstance(begins, Renewal) and begins.number > 0
    growth = options.ahead + int(context.report.usable * EPOCH_GROWTH) if later else options.ahead
    return _widen_sections(context, options, weave_with, growth, {section.zone for section in options.sections})


def _build_giving_way(options: Options, weave_with: Callable[[Options, Sequence[int]], Context]) -> Context:
    """Weave, and let sections go while goal and request are cut for want of what they take."""
    given_up: list[int] = []
    whole = None
    while True:
        try:
            context = weave_with(options, given_up)
            if not _is_short(context.report):
                return context
            whole = whole or context
        except CannotFit:
            if whole is None and gives_way(options.sections, given_up) is None:
                raise
        least = gives_way(options.sections, given_up)
        if least is None:  # nothing that it could give would be enough
            assert whole is not None
            return whole
        given_up.append(least)


def _widen_sections(
    context: Context, options: Options, weave_with: Callable[[Options, Sequence[int]], Context], growth: int, zones: Collection[str]
) -> Context:
    """Give what a request leaves free, but for `growth`, to sections of these zones that were cut; history loses nothing by it."""
    for _ in range(MAX_WIDENINGS):
        report = context.report
        items = [item for item in report.lines if item.place.startswith("sections[")]
        if not any(item.action != "kept" and item.rule == "its zone" for item in items):
            return context
        found = widen_zones(options.sections, items, _free_room(context, options, growth, zones))
        wider = {zone: tokens for zone, tokens in found.items() if tokens > options.widened.get(zone, 0)}
        if not wider:
            return context
        options = replace(options, widened={**options.widened, **wider})
        try:
            made = weave_with(options, context.continuation.given_up)
        except (CannotFit, EpochEnds):
            return context
        if not _keeps_as_much(made.report, report):
            return context
        context = made
    return context


def _free_room(context: Context, options: Options, growth: int, zones: Collection[str]) -> Free:
    """What a request leaves free for these zones."""
    chosen, report, own_room = options.policy, context.report, context.continuation.own_room
    return Free(
        tokens=report.usable - report.margin - report.input_tokens - growth,
        counter=gate_counter(report.model or None, options.ratio),
        own_tokens=own_room - growth if own_room is not None else None,
        own=seed_counter(chosen.counter) if own_room is not None else None,
        zones=frozenset(zones),
        fixed=(DEFAULTS if chosen.history == "zone" else {}) | dict(options.zones),
        slack=int(report.usable * SECTION_SLACK),
    )


def _keeps_as_much(report: Report, before: Report) -> bool:
    """Whether all that a request kept of the history is kept by another."""
    kept = {item.place for item in report.lines if item.zone == "history" and item.action == "kept"}
    return all(item.place in kept for item in before.lines if item.zone == "history" and item.action == "kept")


def go_on(
    given: Conversation,
    options: Options,
    pins: Sequence[int],
    epoch: Epoch,
    places: Places = EVERYWHERE,
    fetch: Callable[[str], str] | None = None,
) -> Context:
    """The next request of an epoch: the last one without its tail, plus what is new. Where it cannot go on, EpochEnds says why."""
    options = replace(options, widened=epoch.widened)

    def weave_with(options: Options, given_up: Sequence[int]) -> Context:
        return _build(given, options, pins, epoch, places, fetch, given_up)

    try:
        context = weave_with(options, epoch.given_up)
    except CannotFit:
        raise EpochEnds("what stands beside the history leaves no room for it", epoch.seen) from None
    # What stands in the system text stays as it is while an epoch goes on.
    return _widen_sections(context, options, weave_with, 0, (*options.policy.tail, *TAIL))


def _is_short(report: Report) -> bool:
    """Whether goal, request or a pin is cut in an epoch that begins, and what sections take that may go would be enough for it."""
    cut = cut_of_point(report.lines)
    return 0 < cut <= sum(item.after for item in report.lines if item.place.startswith("sections[") and can_give_way(item.zone))


def _build(
    given: Conversation,
    options: Options,
    pins: Sequence[int],
    previous: Epoch | Renewal | None,
    places: Places,
    fetch: Callable[[str], str] | None,
    given_up: Sequence[int],
) -> Context:
    chosen, asked = options.policy, list(options.sections)
    model = options.model or given.model or None
    # A text without roles has nothing to mend, and white space belongs to it.
    repaired = (
        RepairedConversation(given, (), {}, range(len(given.messages))) if options.document else repair(given, options.caches.seen)
    )
    conversation = repaired.conversation
    if not conversation.messages and not options.ending and not options.bare:
        raise CannotFit("there is nothing to send: no message is left; give at least one with words, media or a call")
    # Repair may have moved what is pinned; what it dropped cannot be pinned.
    wanted = set(pins)
    pinned = tuple(n for n, origin in enumerate(repaired.origins) if origin in wanted) if wanted else ()
    counter = text_counter(model, options.ratio) if options.document else gate_counter(model, options.ratio)
    exact = isinstance(profile_for(model).text, Exact)
    margin = 0.0 if exact else chosen.margin
    sizes = {**chosen.zones, **options.zones}
    budget = budget_for(options, given)
    # A larger window has the usual reserve, which a small one cannot spare.
    reserve = budget.reserved_output if options.reserve_output is not None else max(budget.reserved_output, chosen.reserve)
    # Repair counts what was read; a report counts the whole path.
    changes = [
        replace(c, message=places.span(Span(c.message, c.message + 1)).start) if c.message >= 0 else c for c in repaired.changes
    ]
    places = places.moved(repaired.origins)
    if fetch:
        archive: Archive = PathArchive(places, fetch, options.digests, options.taken)
    else:
        archive = Archive(before=previous.archive if isinstance(previous, Epoch) else None)

    usable = int(budget.usable * (1 - margin))
    allocated = budget
    if chosen.strategy == "stop_at_limit":
        budget = widen_whole(budget, asked, counter)
    else:
        budget = widen(budget, options.widened, chosen)
    placed, tail, section_items, needs = place(asked, conversation, chosen, budget, counter, archive, sizes, given_up)
    unfed = {zone.name: 0 for zone in budget.zones if zone.name not in ("history", "reserved_output")}
    measured = flow(budget, unfed | needs)
    # What is beside history is counted as it was built: joined sections are not the sum of their parts.
    tool_tokens = counter.count_tools(conversation.tools)
    tail = (Message("user", (Text(options.ending),)), *tail) if options.ending else tail
    settings_tokens = counter.count_settings(conversation.settings)
    beside = sum(map(counter.count_message, (*placed, *tail))) + tool_tokens + settings_tokens + counter.profile.per_list
    if options.document:  # the frames of the system text and of the one message
        beside += gate_counter(model, options.ratio).profile.per_message * (1 + len(placed))
    if beside >= usable:
        raise CannotFit(
            f"system text {sum(map(counter.count_message, conversation.system)):,}, tools {tool_tokens:,}, sections "
            f"{sum(i.after for i in section_items):,}{f', settings {settings_tokens:,}' if settings_tokens else ''}"
            f"{f', uncommitted text {counter.count_text(options.ending):,}' if options.ending else ''} tokens leave nothing of "
            f"{usable:,} usable ({budget.window:,} less {budget.reserved_output:,} for the answer"
            f"{f' and {margin:.0%} margin' if margin else ''}); "
            "shorten them, lower the reserve or choose a model with a larger window"
        )
    ahead = (*placed, *tail)
    fuller = ahead
    if any(item.action != "kept" for item in section_items):
        made = place(asked, conversation, chosen, unscale(allocated, sizes), counter, archive, sizes)
        fuller = (*made[0], *tail[: bool(options.ending)], *made[1])
    larger = beside + max(0, sum(map(counter.count_message, fuller)) - sum(map(counter.count_message, ahead)))
    head_hash = _hash(
        to_json([chosen.name, model or "", options.ratio]) + to_lines(placed) + "".join(map(_tool_text, conversation.tools))
    )
    free = usable - beside
    room = Room(tokens=free - min(options.ahead, free // 4), refill=1.0, beside=larger, reserve=reserve, margin=margin)
    fills = filled_by(chosen, budget, options.asked_window, ahead, conversation.tools)
    own = seed_counter(chosen.counter) if chosen.counter != "best" else counter
    own_beside, own_larger = sum(map(own.count_message, ahead)), sum(map(own.count_message, fuller))
    setup = Setup(
        policy=chosen,
        budget=budget,
        measured=measured,
        counter=counter,
        archive=archive,
        pins=pinned,
        room=room,
        set_aside=set_aside(chosen, measured, sizes, reserve, fills, options.asked_window) + max(0, own_larger - own_beside),
        fills=fills,
        formula=fills if chosen.strategy == "whole_turns" else None,
        beside=own_beside if chosen.strategy == "ladder" else 0,
        larger=max(own_beside, own_larger),
        places=places,
        caches=options.caches,
        document=options.document,
        prices=prices_of(find_model(model, options.overrides)) if min(chosen.early, chosen.cold) < 1 and previous else None,
        cold=options.cold,
        busy=in_flight(given.messages) if options.busy is None else options.busy,
    )
    if isinstance(previous, Renewal):
        previous = mended(previous, repaired.origins, conversation.messages)
    selected = _select(conversation.messages, setup, previous, head_hash)
    fitted = selected.fitted
    history = tuple(message for piece in fitted.pieces for message in piece.messages)
    sent = (*history, *tail)
    if options.document:
        sent = (_written(fitted.pieces, options.ending), *tail[bool(options.ending) :])
    woven = replace(
        conversation,
        system=placed,
        messages=sent,
        model=wire_name(model or ""),
        max_output=_answer_limit(options, given, budget, beside + fitted.tokens),
    )
    woven, changed = mend_settings(woven)
    # That zones were scaled is news only to those who fill them.
    told = (
        measured.notes
        if section_items or chosen.history == "zone"
        else [n for n in measured.notes if not n.startswith("fixed zones")]
    )
    notes = [*told, *(what for _, what in changed)]
    notes += note_unknown_blocks(woven.messages)
    notes += note_unused_zones(options.zones, asked, chosen)
    if has_no_map(asked):
        notes.append(
            f"no map: no file of the project fits in its zone of {budget['repo_map']:,} tokens; enlarge the zone or the window"
        )
    if given_up:
        notes.append(f"{len(given_up)} of {len(asked)} sections left out: there is no room for them beside goal and request")
    if fitted.dropped > chosen.warn_past_dropped:
        notes.append(f"{fitted.dropped:,} messages evicted; consider a summary, or a new session")
    if model and not options.answer and not given.max_output and find_model(model, options.overrides).max_output is None:
        notes.append(
            f"how much {model} can answer is not known: {woven.max_output:,} tokens are allowed, reserve_output sets another limit"
        )
    if not exact:
        notes.append(f"no public tokenizer for {model or 'an unknown model'}: counted by {STAND_IN}, {margin:.0%} kept free")
    if settings_tokens:
        section_items = [
            *section_items,
            Item("settings", "tool_definitions", "kept", "verbatim", settings_tokens, settings_tokens),
        ]
    report = _report(chosen, model, counter, budget, measured, needs, section_items, fitted, changes, notes)
    prefix = to_lines((*placed, *history))
    report = replace(
        report,
        input_tokens=beside + fitted.tokens,
        margin=budget.usable - usable,
        prefix_tokens=beside + fitted.tokens - sum(map(counter.count_message, tail)),
        prefix_hash=_hash(head_hash + prefix),
        epoch=selected.epoch,
        epoch_reason=selected.reason,
        outlook=selected.outlook,
        renewed=selected.renewed,
        rho=selected.rho,
        ids=repaired.ids,
    )
    continuation = Continuation(
        pieces=fitted.pieces,
        head_hash=head_hash,
        history=conversation.messages,
        pins=pinned,
        archive=archive,
        places=places,
        given_up=tuple(given_up),
        widened={zone: tokens for zone, tokens in options.widened.items() if zone not in (*chosen.tail, *TAIL)},
        own_room=_own_room(setup, selected),
        returns=selected.returns,
    )
    return Context(woven, report, continuation, len(tail), options.document, bool(options.answer or given.max_output))


def _own_room(setup: Setup, selected: Selected) -> int | None:
    """By the policy's own counter, what may still come in beside history; None where that counter has no say."""
    if setup.formula is not None:
        return setup.formula - own_tokens(selected.fitted.pieces, seed_counter(setup.policy.counter))
    if selected.rho is not None:
        return int((min(setup.policy.ladder.values()) - selected.rho) * setup.budget.window)
    return None


def _select(history: tuple[Message, ...], setup: Setup, previous: Epoch | Renewal | None, head_hash: str) -> Selected:
    """What of the history goes in. Joined to one text it may take more than its parts, seldom and by little; then less goes in."""
    if not history:
        return Selected(Fitted((), 0, 0), 0, "each call is its own", Outlook(1))
    while True:
        selected = select(history, setup, previous, head_hash)
        if not setup.document:
            return selected
        excess = setup.counter.count_message(_written(selected.fitted.pieces, "")) - setup.room.tokens
        if excess <= 0:
            return selected
        setup = replace(setup, room=replace(setup.room, tokens=setup.room.tokens - excess))


def _written(pieces: Sequence[Piece], ending: str) -> Message:
    """The pieces of a document as one text, markers on lines of their own."""
    texts = []
    for piece in pieces:
        around = "\n" if piece.items[0].action in LEFT_OUT else ""
        texts += [f"{around}{message.text}{around}" for message in piece.messages]
    return Message("user", (Text("".join((*texts, ending))),))


def gather(
    messages: Conversation | Iterable[Message | Mapping[str, Any]],
    system: str | None,
    tools: Iterable[Tool | Mapping[str, Any]] | None,
    caches: Caches | None = None,
) -> tuple[Conversation, list[Span] | None]:
    """One conversation from whatever the caller has; for each message of a list, leading system text too, where it was given."""
    spans = None
    if isinstance(messages, Conversation):
        conversation = messages
    elif isinstance(messages, Mapping | str | bytes) or is_sdk_object(messages) or not isinstance(messages, Iterable):
        raise ChoiceError(f"messages must be a list of messages or a Conversation, found {describe(messages)}")
    else:
        placed = list(parse_placed(messages, caches.lists if caches else None))
        spans, parsed = [span for span, _ in placed], [message for _, message in placed]
        lead = next((n for n, m in enumerate(parsed) if m.role not in ("system", "developer")), len(parsed))
        conversation = Conversation(messages=tuple(parsed[lead:]), system=tuple(parsed[:lead]))
    if system is not None and not isinstance(system, str):
        raise ChoiceError(f"system must be a text, found {describe(system)}; give blocks as a system message of the list")
    if system:
        conversation = replace(conversation, system=(Message("system", (Text(system),)), *conversation.system))
    if tools is not None:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise ChoiceError(f"tools must be a list of tools, found {describe(tools)}")
        conversation = replace(conversation, tools=tuple(parse_tool(tool, f"tools[{n}]") for n, tool in enumerate(tools)))
    return conversation, spans


def _find_pinned(pins: Sequence[int], given: Conversation, spans: list[Span] | None) -> list[int]:
    """The messages that the pinned values of a list became. What became leading system text always stands."""
    if not pins:
        return []
    spans = spans if spans is not None else [Span(index, index + 1) for index in range(len(given.messages))]
    count = spans[-1].stop if spans else 0
    for pin in pins:
        if not 0 <= pin < count:
            raise ChoiceError(f"pin {pin} is not a message of the conversation, which has {count} messages, counted from 0")
    wanted, leading = set(pins), len(spans) - len(given.messages)
    return [n - leading for n, span in enumerate(spans) if n >= leading and not wanted.isdisjoint(range(span.start, span.stop))]


def _check_pins(pins: object, previous: object) -> None:
    if previous is not None and not isinstance(previous, Report):
        raise ChoiceError(f"previous must be the report of the last context, found {describe(previous)}")
    if not isinstance(pins, Sequence) or not all(isinstance(pin, int) for pin in pins):
        raise ChoiceError(f"pins must be a list of places, found {describe(pins)}")


def budget_for(options: Options, given: Conversation) -> Budget:
    """The window and its zones; the reserve is what was asked for, what the request says, or the policy's."""
    model, reserve = options.model or given.model or None, options.reserve_output
    size, note = _window_of(options, given)
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise ChoiceError(
            f"the window must be a positive number of tokens, found {describe(size)}; leave it out for the model's own"
        )
    if reserve is None:
        reserve = _usual_reserve(options, given, size)
    chosen: BudgetOptions = {"zones": {**options.policy.zones, **options.zones}, "overrides": options.overrides}
    if options.window is not None or note:
        chosen["window"] = size
    if reserve is not None:
        chosen["reserved_output"] = reserve
    budget = allocate_budget(model, **chosen)
    return replace(budget, notes=(note, *budget.notes)) if note else budget


def _window_of(options: Options, given: Conversation) -> tuple[int, str]:
    """The window: as asked for, the model's, or what the policy makes of the answer, and a note on that."""
    found = find_model(options.model or given.model or None, options.overrides)
    times = options.policy.window_per_reserve
    if options.window is not None:
        return options.window, ""
    if found.known or not times:
        return found.window, ""
    answer = options.reserve_output or given.max_output or options.policy.reserve
    return times * answer, f"no window is known; {times} times the {answer:,} tokens of the answer are assumed"


def _usual_reserve(options: Options, given: Conversation, window: int) -> int | None:
    """What is kept for an answer where nobody said it: the request's own limit, the policy's reserve; none where neither fits."""
    if given.max_output and given.max_output <= window // 2:
        return given.max_output
    if options.policy.keep_reserve and options.policy.reserve < window:
        return options.policy.reserve
    most = find_model(options.model or given.model or None, options.overrides).max_output or options.policy.reserve
    if options.policy.window_per_reserve:
        return min(options.policy.reserve, most, window // options.policy.window_per_reserve)
    # What is thought counts as answer, so it is kept beside it.
    for usual in (min(options.policy.reserve + thinking_tokens(given.settings), most), min(options.policy.reserve, most)):
        if usual <= window // (4 if usual <= options.policy.reserve else 2):
            return usual
    return None


def _answer_limit(options: Options, given: Conversation, budget: Budget, used: int) -> int:
    """How long the answer may be: as the caller says, else what the model can give, at most what the window leaves.

    Where the model's own limit is not known the reserve of the policy stands for it: a larger one may be refused.
    """
    if options.answer:
        return options.answer
    if options.policy.window_per_reserve and budget.reserved_output:
        return budget.reserved_output
    model = options.model or given.model or None
    is_exact = isinstance(profile_for(model).text, Exact)
    left = budget.window - (used if is_exact else ceil(used * (1 + UNSURE)))
    own = given.max_output or find_model(model, options.overrides).max_output or options.policy.reserve
    return max(1, min(own, max(left, budget.reserved_output)))


def _report(
    chosen: Policy,
    model: str | None,
    counter: Counter,
    budget: Budget,
    measured: Budget,
    needs: dict[str, int],
    section_items: list[Item],
    fitted: Fitted,
    changes: Sequence[Any],
    notes: list[str],
) -> Report:
    used = needs | {"history": fitted.tokens, "reserved_output": budget.reserved_output}
    zones = {zone.name: {"budget": zone.tokens, "used": used.get(zone.name, 0)} for zone in measured.zones}
    for name, tokens in used.items():
        zones.setdefault(name, {"budget": OTHER_ZONE, "used": tokens})
    own = {
        name: needs[name] - sum(i.after for i in section_items if i.zone == name) for name in ("system_prompt", "tool_definitions")
    }
    fixed = [
        Item("system", "system_prompt", "kept", "verbatim", own["system_prompt"], own["system_prompt"]),
        Item("tools", "tool_definitions", "kept", "verbatim", own["tool_definitions"], own["tool_definitions"]),
    ]
    # Repair speaks of the history as it was given, the other items of the history as it was mended.
    mended = [
        Item(f"given[{c.message}]" if c.message >= 0 else "settings", "history", "repaired", f"{c.rule}: {c.what}", 0, 0)
        for c in changes
    ]
    items = (
        *(item for item in fixed if item.after),
        *section_items,
        *mended,
        *(item for piece in fitted.pieces for item in piece.items),
    )
    return Report(
        policy=chosen.name,
        model=model or "",
        counter=counter.profile.name,
        window=budget.window,
        reserved_output=budget.reserved_output,
        input_tokens=0,
        zones=zones,
        lines=items,
        dropped=fitted.dropped,
        truncated=any(item.action in CUT for item in items),
        prefix_tokens=0,
        prefix_hash="",
        epoch=0,
        epoch_reason="",
        notes=tuple(notes),
    )


def _tool_text(tool: Tool) -> str:
    return f"{tool.name}\n{tool.description}\n{tool.schema}\n{tool.carried.fields if tool.carried else ''}\n"


def _hash(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


_MARK = '{"cache_control":{"type":"ephemeral"}}'


def _with_marks(conversation: Conversation, tail: int) -> Conversation:
    """Cache marks at the stable boundaries: tools, system, the end of history and the last message but one before it.

    Where the caller set marks of their own, theirs stand.
    """
    if has_marks(conversation):
        return conversation
    tools, system, messages = list(conversation.tools), list(conversation.system), list(conversation.messages)
    if tools and tools[-1].carried is None:
        tools[-1] = replace(tools[-1], carried=Carried("anthropic", _MARK))
    if system:
        system[-1] = _mark_last(system[-1])
    stable = len(messages) - tail
    for index in {stable - 1, next((n for n in reversed(range(stable - 1)) if messages[n].role == "user"), stable - 1)}:
        if index >= 0:
            messages[index] = _mark_last(messages[index])
    return replace(conversation, tools=tuple(tools), system=tuple(system), messages=tuple(messages))


def _mark_last(message: Message) -> Message:
    for n in reversed(range(len(message.parts))):
        part = message.parts[n]
        if isinstance(part, Text | ToolCall | ToolResult) and part.carried is None:
            marked = replace(part, carried=Carried("anthropic", _MARK))
            return replace(message, parts=(*message.parts[:n], marked, *message.parts[n + 1 :]))
    return message
