"""From values that were checked to one request, in one pass.

repair → budget → place sections → select history → assemble the request → report
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import STAND_IN, Counter, gate_counter, seed_counter, text_counter
from loom.budget.models import model as find_model
from loom.budget.models import wire_name
from loom.budget.profiles import Exact, profile_for
from loom.budget.zones import Budget, flow
from loom.context.budgeting import budget_for, count_set_aside, find_formula, limit_answer
from loom.context.handles import Archive, PathArchive
from loom.context.history.epochs import Epoch, EpochEnds, Renewal, Selection, place_after_repair
from loom.context.history.fitting import Fitting
from loom.context.history.outlook import Outlook, Prices, prices_of
from loom.context.history.pieces import FittedHistory
from loom.context.history.places import EVERYWHERE, Places
from loom.context.history.reasons import ALONE, EpochReason
from loom.context.history.select import select
from loom.context.history.strategies import find_strategy
from loom.context.history.whole_turns import own_tokens
from loom.context.options import Options
from loom.context.report import CUT, Action, Continuation, Item, Piece, Report
from loom.context.request import Context
from loom.context.rules import apply_rules, list_items
from loom.context.sections import (
    OTHER_ZONE,
    TAIL,
    PlacedSections,
    Shelves,
    note_unused_zones,
    place,
    unscale,
    widen,
    widen_whole,
)
from loom.context.tool_choice import (
    ToolChoice,
    ToolQuestion,
    apply_choice,
    choose_tools,
    find_missing_loads,
    find_needs,
    find_undeclared,
    name_tools,
    read_named_choice,
)
from loom.context.tool_use import EpochTools, follow_use
from loom.conversation.canonical import to_json
from loom.conversation.compactions import (
    find_compaction,
    is_compaction,
    leave_out_compactions,
)
from loom.conversation.handles import to_lines
from loom.conversation.message import Conversation, Message, Opaque, Text, Tool, ToolCall
from loom.conversation.turns import Span, in_flight
from loom.dialects import compaction_wires, is_for_chat
from loom.dialects.blocks import note_result_media, note_unknown_blocks
from loom.dialects.repair import Change, RepairedConversation, mend_settings, repair
from loom.errors import CannotFit

# In a small window, definitions may take so many tokens, but at most this share of it.
FEW_TOOLS_TOKENS, FEW_TOOLS_SHARE = 4096, 0.75
# the newest messages: the tools that they call are in use, whatever else a request shows
NEWEST_MESSAGES = 8


class Material(Struct, frozen=True, kw_only=True):
    """What a request is made from. `places` tells where messages of a stored history are; `fetch`
    brings back what was left out.
    """

    given: Conversation
    options: Options
    pins: Sequence[int] = ()
    places: Places = EVERYWHERE
    fetch: Callable[[str], str] | None = None

    @property
    def model(self) -> str | None:
        return self.options.model or self.given.model or None


class _History(Struct, frozen=True, kw_only=True):
    """The conversation as repair left it, what repair changed, and where pins and messages are
    now.
    """

    conversation: Conversation
    changes: Sequence[Change]
    ids: dict[str, str]
    origins: Sequence[int]
    pins: tuple[int, ...]
    places: Places


class _Limits(Struct, frozen=True, kw_only=True):
    """How the window is divided and counted."""

    budget: Budget
    counter: Counter
    is_exact: bool  # the model's own tokenizer counts
    margin: float
    usable: int
    reserve: int  # at a larger window

    @property
    def margin_tokens(self) -> int:
        return self.budget.usable - self.usable


class _Tools(Struct, frozen=True, kw_only=True):
    """The tools of a request, how many tokens they may take, and why they are not those of the last
    request. `given` are those that were chosen from.
    """

    given: tuple[Tool, ...]
    choice: ToolChoice
    limit: int
    change: EpochReason | None = None


class _RequestHead(Struct, frozen=True, kw_only=True):
    """What stands next to the history: system text with sections, tools, settings and the tail."""

    placed: PlacedSections
    tail: tuple[Message, ...]  # with the text that is not committed yet
    request: int | None  # the index of the current request in the history
    full: tuple[Message, ...]  # the same messages at a window where no section is cut
    budget: Budget  # with zones as large as they became
    measured: Budget
    tools: int
    settings: int
    tokens: int
    hash: str

    @property
    def messages(self) -> tuple[Message, ...]:
        return (*self.placed.system, *self.placed.before, *self.tail)


class _Parts(Struct, frozen=True, kw_only=True):
    """All that a finished request and its report are put together from."""

    material: Material
    history: _History
    limits: _Limits
    tools: _Tools
    head: _RequestHead
    fitting: Fitting
    selected: Selection
    given_up: Sequence[int]
    dropped_before: int = 0  # messages that the last epoch left out

    @property
    def tokens(self) -> int:
        return self.head.tokens + self.selected.fitted.tokens


def make_request(
    material: Material, previous: Epoch | Renewal | None, given_up: Sequence[int]
) -> Context | EpochEnds:
    """One request, without the sections that were given up; or why the last epoch does not go
    on.
    """
    history = _repair(material)
    limits = _set_limits(material)
    archive = _open_archive(material, history, previous)
    history = _apply_rules(material, history, archive)
    if isinstance(previous, Renewal):
        previous = place_after_repair(previous, history.origins, history.conversation.messages)
    parts = _fit(material, history, limits, archive, previous, given_up)
    if isinstance(parts, EpochEnds):
        return parts
    head = parts.head
    request, changed = _assemble(parts)
    return Context(
        request,
        _report(parts, [*_note_budget(parts), *changed, *_note_request(parts, request)]),
        _continuation(parts),
        len(head.tail),
        material.options.document,
        bool(material.options.answer or material.given.max_output),
        sections=_find_sections(parts),
        compact_at=_find_compact_at(parts),
    )


def _find_compact_at(parts: _Parts) -> int | None:
    """From how many tokens on the provider is asked to compact; 0 if it must not, None if the
    policy leaves it to the caller.
    """
    policy = parts.material.options.policy
    if policy.compaction == "ask":
        return int(parts.head.budget.window * policy.compact_at)
    return 0 if policy.compaction == "forbid" else None


def _fit(
    material: Material,
    history: _History,
    limits: _Limits,
    archive: Archive,
    previous: Epoch | Renewal | None,
    given_up: Sequence[int],
) -> _Parts | EpochEnds:
    """All parts of a request. Each tool that it shows a call of is declared in it: where one is
    not, the tools are chosen again with it.
    """
    in_use = _find_calls(material.given.messages[-NEWEST_MESSAGES:])
    while True:
        tools = _settle_tools(material, history, limits, previous, in_use)
        with_tools = replace(
            history, conversation=replace(history.conversation, tools=tools.choice.tools)
        )
        head = _place_head(material, with_tools, limits, archive, given_up)
        fitting = _make_fitting(material, with_tools, limits, archive, head)
        fitting = _expect_tools(fitting, material, history, limits, tools)
        if previous is not None:
            fitting = replace(fitting, prices=_find_prices(material))
        selected = _select_history(fitting, previous)
        if isinstance(selected, EpochEnds):
            if tools.change and selected.reason.cause == "head":
                return replace(selected, reason=tools.change)
            return selected
        shown = [message for piece in selected.fitted.pieces for message in piece.messages]
        missing = find_undeclared(history.conversation.tools, tools.choice.epoch, shown)
        if not missing or isinstance(previous, Epoch):
            break
        in_use |= missing
    return _Parts(
        material=material,
        history=with_tools,
        limits=limits,
        tools=tools,
        head=head,
        fitting=fitting,
        selected=selected,
        given_up=given_up,
        dropped_before=previous.dropped if isinstance(previous, Renewal) else 0,
    )


def continue_with_less(material: Material, context: Context) -> Continuation | None:
    """What the next call needs to continue a request, where less of its history is at hand: this
    material. None if what the request shows has no place in that.
    """
    found = context.continuation
    history = _repair(material)
    history = _apply_rules(material, history, _open_archive(material, history, None))
    messages, starts = history.conversation.messages, [spot.start for spot in history.places.spots]
    pieces: list[Piece] = []
    for piece in found.pieces:
        place = found.places.span(piece.span)
        begin = pieces[-1].span.stop if pieces else 0
        span = Span(begin, bisect_left(starts, place.stop))
        if len(span) <= 0 or starts[begin] != place.start:
            return None
        if not piece.is_left_out and len(span) != len(piece.messages):
            return None
        if piece.is_whole and piece.messages != messages[span.start : span.stop]:
            return None
        pieces.append(replace(piece, span=span))
    if not pieces or pieces[-1].span.stop != len(messages):
        return None
    return replace(
        found,
        pieces=tuple(pieces),
        history=messages,
        pins=history.pins,
        places=history.places,
    )


# Repair


def _repair(material: Material) -> _History:
    """Mend what a wire would refuse; pins and places move with it."""
    given, _ = leave_out_compactions(material.given, compaction_wires(material.model or ""))
    options, places = material.options, material.places
    # A text without roles has nothing to mend, and white space belongs to it.
    repaired = RepairedConversation(given, (), {}, range(len(given.messages)))
    if not options.document:
        repaired = repair(given, options.caches.seen)
    if not repaired.conversation.messages and not options.ending and not options.bare:
        raise CannotFit(
            "there is nothing to send: no message is left; give at least one with words, media or "
            "a call"
        )
    # Repair may have moved what is pinned; what it dropped cannot be pinned.
    wanted = set(material.pins)
    if wanted:
        pins = tuple(n for n, origin in enumerate(repaired.origins) if origin in wanted)
    else:
        pins = ()
    return _History(
        conversation=repaired.conversation,
        changes=[_place_change(change, places) for change in repaired.changes],
        ids=repaired.ids,
        origins=repaired.origins,
        pins=pins,
        places=places.after_repair(repaired.origins),
    )


def _place_change(change: Change, places: Places) -> Change:
    """Repair counts what was read; a report counts the whole path."""
    if change.message < 0:
        return change
    return replace(change, message=places.span(Span(change.message, change.message + 1)).start)


# Budget


def _set_limits(material: Material) -> _Limits:
    options, model = material.options, material.model
    count = text_counter if options.document else gate_counter
    is_exact = isinstance(profile_for(model).text, Exact)
    margin = 0.0 if is_exact else options.policy.margin
    budget = budget_for(options, material.given)
    reserve = budget.reserved_output
    # a larger window has the usual reserve, which a small one cannot spare
    if options.reserve_output is None:
        reserve = max(reserve, options.policy.reserve)
    return _Limits(
        budget=budget,
        counter=count(model, options.ratio),
        is_exact=is_exact,
        margin=margin,
        usable=int(budget.usable * (1 - margin)),
        reserve=reserve,
    )


def _open_archive(
    material: Material, history: _History, previous: Epoch | Renewal | None
) -> Archive:
    options = material.options
    if material.fetch:
        return PathArchive(history.places, material.fetch, options.digests, options.taken)
    return Archive(before=previous.archive if isinstance(previous, Epoch) else None)


def _apply_rules(material: Material, history: _History, archive: Archive) -> _History:
    """Pin what the policy's rules keep, and hide what they hide. A text without roles has nothing
    that they are about.
    """
    rules = material.options.policy.rules
    if not rules or material.options.document:
        return history
    ruled = apply_rules(rules, history.conversation.messages, history.places, archive)
    conversation = replace(history.conversation, messages=ruled.messages)
    return replace(
        history, conversation=conversation, pins=tuple(sorted({*history.pins, *ruled.kept}))
    )


# Tools


def _settle_tools(
    material: Material,
    history: _History,
    limits: _Limits,
    previous: Epoch | Renewal | None,
    in_use: frozenset[str],
) -> _Tools:
    """The tools of the epoch that goes on, or those for one that begins."""
    given, options, tools = material.given, material.options, history.conversation.tools
    if options.policy.tools == "all" or options.document or not tools:
        return _Tools(given=tools, choice=ToolChoice(tools=tools), limit=0)
    before = EpochTools() if previous is None else previous.tools
    usage = follow_use(before, tools, given.messages, material.places)
    limit = _limit_tools(material, limits)
    if isinstance(previous, Epoch):
        return _keep_tools(material, history, limits, previous, usage)
    choice = choose_tools(
        ToolQuestion(
            tools=tools,
            limit=limit,
            count=_count_tool(limits),
            messages=history.conversation.messages,
            texts=[
                *(message.text for message in history.conversation.system),
                *(section.text for section in options.sections),
            ],
            must=in_use | read_named_choice(given.settings),
            usage=usage,
        )
    )
    return _Tools(given=tools, choice=choice, limit=limit)


def _keep_tools(
    material: Material, history: _History, limits: _Limits, epoch: Epoch, usage: EpochTools
) -> _Tools:
    """The tools of the last request. If the model loaded others since, or called one that is left
    out, they change, and the epoch ends.
    """
    tools, last, change = history.conversation.tools, epoch.tools, None
    loads = find_missing_loads(last, usage)
    called = find_undeclared(tools, last, history.conversation.messages[epoch.seen :])
    called |= find_undeclared(tools, last, _calls_of(read_named_choice(material.given.settings)))
    if called:
        change = EpochReason("tool_called", {"names": name_tools(called)})
    if loads:
        change = EpochReason("tools_loaded", {"names": name_tools(loads)})
    kept = replace(
        usage,
        selects=last.selects,
        whole=(*last.whole, *loads, *sorted(called - {*loads})),
        short=tuple(name for name in last.short if name not in loads),
        order=last.order,
    )
    choice = apply_choice(tools, kept, _count_tool(limits))
    limit = _limit_tools(material, limits)
    return _Tools(given=tools, choice=choice, limit=limit, change=change)


def _calls_of(names: frozenset[str]) -> list[Message]:
    """A message that calls tools of these names."""
    return [Message("assistant", tuple(ToolCall(name, name, "{}") for name in sorted(names)))]


def _find_calls(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(call.name for message in messages for call in message.calls)


def _count_tool(limits: _Limits) -> Callable[[Tool], int]:
    known: dict[Tool, int] = {}

    def count(tool: Tool) -> int:
        if tool not in known:
            known[tool] = limits.counter.count_tools((tool,))
        return known[tool]

    return count


def _limit_tools(material: Material, limits: _Limits) -> int:
    """The tokens that definitions may take: those of the zone, next to the settings. A zone that
    the caller sets counts alone; else it is as large as the policy's share of the window. In a
    small window, the few tools that most agents have stay.
    """
    options, zone = material.options, limits.budget.get("tool_definitions") or 0
    asked = options.zones.get("tool_definitions")
    if asked is not None:
        zone = min(asked, limits.usable // 2)
    elif options.policy.tools_share:
        few = min(FEW_TOOLS_TOKENS, int(limits.usable * FEW_TOOLS_SHARE))
        zone = max(zone, int(limits.usable * options.policy.tools_share), few)
    return max(zone - limits.counter.count_settings(material.given.settings), 0)


def _expect_tools(
    fitting: Fitting, material: Material, history: _History, limits: _Limits, tools: _Tools
) -> Fitting:
    """The fitting, with what tools take at larger windows."""
    share = _find_share(material)
    if not tools.choice.epoch.selects or not share:
        return fitting
    count = limits.counter.count_tools
    return replace(
        fitting,
        tools=count(tools.choice.tools),
        all_tools=count(history.conversation.tools),
        tools_share=share,
        few_tools=FEW_TOOLS_TOKENS,
    )


def _find_share(material: Material) -> float:
    """The share of the window that definitions may take; 0 if the caller sets their zone."""
    if material.options.zones.get("tool_definitions") is not None:
        return 0.0
    return material.options.policy.tools_share


# Sections


def _place_head(
    material: Material,
    history: _History,
    limits: _Limits,
    archive: Archive,
    given_up: Sequence[int],
) -> _RequestHead:
    """What stands next to the history. It is counted as it was built: joined sections are not the
    sum of their parts.
    """
    options, counter, conversation = material.options, limits.counter, history.conversation
    sizes = {**options.policy.zones, **options.zones}
    budget = _widen_zones(limits, options)
    request = _find_request(material, conversation.messages)
    shelves = Shelves(
        policy=options.policy,
        budget=budget,
        counter=counter,
        archive=archive,
        sizes=sizes,
        has_request=request is not None,
    )
    placed = place(options.sections, conversation, shelves, given_up)
    unfed = {
        zone.name: 0 for zone in budget.zones if zone.name not in ("history", "reserved_output")
    }
    ending = (Message("user", (Text(options.ending),)),) if options.ending else ()
    tools, settings = (
        counter.count_tools(conversation.tools),
        counter.count_settings(conversation.settings),
    )
    full = placed
    if any(item.action != "kept" for item in placed.items):
        full = place(
            options.sections, conversation, replace(shelves, budget=unscale(limits.budget, sizes))
        )
    head = _RequestHead(
        placed=placed,
        tail=(*ending, *placed.tail),
        request=request,
        full=(*full.system, *full.before, *ending, *full.tail),
        budget=budget,
        measured=flow(budget, unfed | placed.needs),
        tools=tools,
        settings=settings,
        tokens=sum(map(counter.count_message, (*placed.messages, *ending))) + tools + settings,
        hash=_hash_head(material, placed.system, conversation.tools),
    )
    head = replace(head, tokens=head.tokens + _count_frames(material, limits, placed))
    _check_room(material, history, limits, head)
    return head


def _find_request(material: Material, messages: Sequence[Message]) -> int | None:
    """The index of the current request; None if there is none, as in a document."""
    if material.options.document:
        return None
    return next((n for n in reversed(range(len(messages))) if messages[n].role == "user"), None)


def _widen_zones(limits: _Limits, options: Options) -> Budget:
    """The budget with zones as large as they became."""
    if find_strategy(options.policy.strategy).refuses_to_cut:
        return widen_whole(limits.budget, options.sections, limits.counter)
    return widen(limits.budget, options.widened, options.policy)


def _count_frames(material: Material, limits: _Limits, placed: PlacedSections) -> int:
    """What a list of messages takes beyond them; of a document, the frames of the system text and
    of the one message too.
    """
    frames = limits.counter.profile.per_list
    if material.options.document:
        frames += gate_counter(material.model, material.options.ratio).profile.per_message * (
            1 + len(placed.system)
        )
    return frames


def _check_room(material: Material, history: _History, limits: _Limits, head: _RequestHead) -> None:
    """Refuse a head that leaves nothing for history."""
    if head.tokens < limits.usable:
        return
    counter, ending = limits.counter, material.options.ending
    system = sum(map(counter.count_message, history.conversation.system))
    settings = ""
    if head.settings:
        settings = f", settings {head.settings:,}"
    uncommitted = ""
    if ending:
        uncommitted = f", uncommitted text {counter.count_text(ending):,}"
    margin = ""
    if limits.margin:
        margin = f" and {limits.margin:.0%} margin"
    raise CannotFit(
        f"system text {system:,}, tools {head.tools:,}, sections "
        f"{sum(item.after for item in head.placed.items):,}{settings}"
        f"{uncommitted} tokens leave nothing of {limits.usable:,} usable "
        f"({limits.budget.window:,} less "
        f"{limits.budget.reserved_output:,} for the answer{margin}); "
        "shorten them, lower the reserve or choose a model with a larger window"
    )


def _hash_head(material: Material, system: Sequence[Message], tools: Sequence[Tool]) -> str:
    """What a provider would have to cache again where it changes."""
    options = material.options
    rules = [options.policy.rules] if options.policy.rules else []
    named = to_json([options.policy.name, material.model or "", options.ratio, *rules])
    return _hash(named + to_lines(system) + "".join(map(_tool_text, tools)))


def _tool_text(tool: Tool) -> str:
    carried = ""
    if tool.carried:
        carried = tool.carried.fields
    return f"{tool.name}\n{tool.description}\n{tool.schema}\n{carried}\n"


def _hash(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


# History


def _make_fitting(
    material: Material, history: _History, limits: _Limits, archive: Archive, head: _RequestHead
) -> Fitting:
    """All that is settled before messages of the history are chosen."""
    options, counter, messages = material.options, limits.counter, history.conversation.messages
    policy, budget = options.policy, head.budget
    cut = sum(map(counter.count_message, head.full)) - sum(
        map(counter.count_message, head.messages)
    )
    free = limits.usable - head.tokens
    if policy.counter == "best":
        own = counter
    else:
        own = seed_counter(policy.counter)
    own_beside, own_full = (
        sum(map(own.count_message, shown)) for shown in (head.messages, head.full)
    )
    formula = find_formula(options, budget, head.messages, history.conversation.tools)
    compacted = None
    if not options.document:
        compacted = find_compaction(messages, compaction_wires(material.model or ""))
    can_cut = not find_strategy(policy.strategy).refuses_to_cut
    aside = count_set_aside(options, head.measured, limits.reserve, formula)
    return Fitting(
        history=messages,
        policy=policy,
        counter=counter,
        archive=archive,
        places=history.places,
        caches=options.caches,
        goal=next((message.text for message in messages if message.role == "user"), ""),
        pins=history.pins,
        document=options.document,
        head_hash=head.hash,
        before_hash=_hash_before(history, head),
        window=budget.window,
        reserved_output=budget.reserved_output,
        reserve=limits.reserve,
        margin=limits.margin,
        floor=compacted or 0 if can_cut else 0,
        compacted=compacted,
        beside=head.tokens + max(0, cut),
        room=free - min(options.ahead, free // 4),
        zone=budget.history,
        rest=head.measured.history,
        fills=formula,
        formula=formula if find_strategy(policy.strategy).takes_turns else None,
        set_aside=aside + max(0, own_full - own_beside),
        own_beside=own_beside,
        own_larger=max(own_beside, own_full),
        cold=options.cold,
        busy=in_flight(material.given.messages) if options.busy is None else options.busy,
    )


def _hash_before(history: _History, head: _RequestHead) -> str:
    """What stands before the request, and where; "" if nothing does."""
    if head.request is None or not head.placed.before:
        return ""
    place = history.places.span(Span(head.request, head.request + 1)).start
    return _hash(f"{place}\n{to_lines(head.placed.before)}")


def _find_prices(material: Material) -> Prices | None:
    """What a model costs, where an epoch may begin before it must."""
    policy = material.options.policy
    if min(policy.early, policy.cold) >= 1:
        return None
    return prices_of(find_model(material.model, material.options.overrides))


def _select_history(fitting: Fitting, previous: Epoch | Renewal | None) -> Selection | EpochEnds:
    """What of the history goes in. Joined to one text it may take more than its parts, seldom and
    by little; then less goes in.
    """
    if not fitting.history:
        return Selection(FittedHistory((), 0, 0), 0, ALONE, Outlook(1))
    while True:
        selected = select(fitting, previous)
        if not fitting.document or isinstance(selected, EpochEnds):
            return selected
        excess = (
            fitting.counter.count_message(_write_document(selected.fitted.pieces, ""))
            - fitting.room
        )
        if excess <= 0:
            return selected
        fitting = replace(fitting, room=fitting.room - excess)


# The request


def _assemble(parts: _Parts) -> tuple[Conversation, list[str]]:
    """The conversation that is sent, and notes on settings that had to change."""
    material, head = parts.material, parts.head
    options = material.options
    messages = (*_join_pieces(parts), *head.tail)
    if options.document:
        pieces = parts.selected.fitted.pieces
        messages = (_write_document(pieces, options.ending), *head.placed.tail)
    request = replace(
        parts.history.conversation,
        system=head.placed.system,
        messages=messages,
        model=wire_name(material.model or ""),
        max_output=limit_answer(options, material.given, head.budget, parts.tokens),
    )
    request, changed = mend_settings(request)
    return request, [what for _, what in changed]


def _join_pieces(parts: _Parts) -> tuple[Message, ...]:
    """What is sent before the tail: the pieces of the history, and sections directly before the
    request.
    """
    pieces = parts.selected.fitted.pieces
    messages = [message for piece in pieces for message in piece.messages]
    start, _ = _find_sections(parts)
    return (*messages[:start], *parts.head.placed.before, *messages[start:])


def _find_sections(parts: _Parts) -> tuple[int, int]:
    """Where in the messages the sections are that stand before the request: from, to."""
    head = parts.head
    if head.request is None or not head.placed.before:
        return 0, 0
    start = 0
    for piece in parts.selected.fitted.pieces:
        if piece.span.stop > head.request:
            if not piece.is_left_out:
                start += head.request - piece.span.start
            break
        start += len(piece.messages)
    return start, start + len(head.placed.before)


def _write_document(pieces: Sequence[Piece], ending: str) -> Message:
    """The pieces of a document as one text, markers on lines of their own."""
    texts = []
    for piece in pieces:
        around = "\n" if piece.is_left_out else ""
        texts += [f"{around}{message.text}{around}" for message in piece.messages]
    return Message("user", (Text("".join((*texts, ending))),))


def _continuation(parts: _Parts) -> Continuation:
    options, fitting, selected = parts.material.options, parts.fitting, parts.selected
    tail = (*options.policy.tail, *TAIL)
    return Continuation(
        pieces=selected.fitted.pieces,
        head_hash=parts.head.hash,
        before_hash=fitting.before_hash,
        history=fitting.history,
        pins=fitting.pins,
        archive=fitting.archive,
        places=fitting.places,
        given_up=tuple(parts.given_up),
        widened={zone: tokens for zone, tokens in options.widened.items() if zone not in tail},
        own_room=_find_own_room(fitting, selected),
        section_items=tuple(parts.head.placed.items),
        is_continued=selected.is_continued,
        reason=selected.reason,
        returns=selected.returns,
        input_window=selected.input_window,
        tools=parts.tools.choice.epoch,
        all_tools=parts.tools.given,
    )


def _find_own_room(fitting: Fitting, selected: Selection) -> int | None:
    """By the policy's own counter, what may still come in next to history; None if that counter
    has no say.
    """
    if fitting.formula is not None:
        return fitting.formula - own_tokens(selected.fitted.pieces, fitting.own)
    if selected.rho is not None:
        return int((min(fitting.policy.ladder.values()) - selected.rho) * fitting.window)
    return None


# The report


def _note_budget(parts: _Parts) -> list[str]:
    """What is to be known of zones. That they were scaled is news only to those who fill them."""
    measured, policy = parts.head.measured, parts.material.options.policy
    if parts.head.placed.items or policy.history == "zone":
        return list(measured.notes)
    return [note for note in measured.notes if note != measured.scaled]


def _note_request(parts: _Parts, request: Conversation) -> list[str]:
    """What is to be known of a request beyond its items."""
    material, options, policy = (
        parts.material,
        parts.material.options,
        parts.material.options.policy,
    )
    notes = [
        *note_unknown_blocks(request.messages),
        *note_unused_zones(options.zones, options.sections, policy),
    ]
    if is_for_chat(material.model or ""):
        notes += note_result_media(request.messages)
    notes += _note_tools(parts)
    if parts.given_up:
        left_out = f"{len(parts.given_up)} of {len(options.sections)} sections left out"
        notes.append(f"{left_out}: there is no room for them next to the goal and the request")
    notes += _note_compactions(parts)
    notes += _warn_of_evicted(parts)
    if _is_answer_unknown(material):
        allowed = f"{request.max_output:,} tokens are allowed; reserve_output sets another limit"
        notes.append(f"the largest answer of {material.model} is not known: {allowed}")
    if not parts.limits.is_exact:
        model = material.model or "an unknown model"
        notes.append(
            f"no public tokenizer for {model}: counted by {STAND_IN}, {parts.limits.margin:.0%} "
            "kept free"
        )
    return notes


def _note_compactions(parts: _Parts) -> list[str]:
    """What the provider compacted, and compactions that another provider cannot read."""
    material, fitting = parts.material, parts.fitting
    notes = []
    wires = compaction_wires(material.model or "")
    if fitting.compacted:
        count = fitting.position(fitting.compacted)
        wire = next(
            part.wire
            for part in fitting.history[fitting.compacted].parts
            if isinstance(part, Opaque) and part.wire in wires and is_compaction(part)
        )
        notes.append(
            f"the provider compacted the {count} messages before message {count}; recall brings "
            f"back those that are left out. On a wire other than {wire}, the request has neither "
            "them nor the compaction"
        )
    _, foreign = leave_out_compactions(material.given, wires)
    for wire, count in foreign.items():
        notes.append(
            f"{count} compactions of the {wire} wire are left out, for {material.model} cannot "
            "read them; the original messages are used"
        )
    return notes


def _warn_of_evicted(parts: _Parts) -> list[str]:
    """That many messages are left out: once, when an epoch begins and the last one left out
    fewer.
    """
    dropped, most = parts.selected.fitted.dropped, parts.material.options.policy.warn_past_dropped
    if parts.selected.is_continued or dropped <= most or parts.dropped_before > most:
        return []
    return [f"{dropped} messages evicted—consider summarization or archiving"]


def _note_tools(parts: _Parts) -> list[str]:
    """That tools are left out, and the way back."""
    choice = parts.tools.choice
    if not choice.left_out and not choice.shortened:
        return []
    count = parts.limits.counter.count_tools
    return [
        f"{len(choice.left_out):,} of {len(parts.tools.given):,} tools are left out and "
        f"{len(choice.shortened):,} shortened: their definitions take "
        f"{count(parts.tools.given):,} tokens, and {parts.tools.limit:,} are for tools; "
        f"{choice.tools[-1].name} lists and loads them"
    ]


def _is_answer_unknown(material: Material) -> bool:
    """Whether nobody knows how long an answer may be."""
    if not material.model or material.options.answer or material.given.max_output:
        return False
    return find_model(material.model, material.options.overrides).max_output is None


def _report(parts: _Parts, notes: Sequence[str]) -> Report:
    material, limits, head, selected = parts.material, parts.limits, parts.head, parts.selected
    counter, budget = limits.counter, head.budget
    items = _list_items(parts)
    shown = _join_pieces(parts)
    return Report(
        policy=material.options.policy.name,
        model=material.model or "",
        counter=counter.profile.name,
        window=budget.window,
        reserved_output=budget.reserved_output,
        input_tokens=parts.tokens,
        margin=limits.margin_tokens,
        zones=_list_zones(parts),
        lines=items,
        dropped=selected.fitted.dropped,
        truncated=any(item.action in CUT for item in items),
        prefix_tokens=parts.tokens - sum(map(counter.count_message, head.tail)),
        prefix_hash=_hash(head.hash + to_lines((*head.placed.system, *shown))),
        epoch=selected.number,
        epoch_reason=selected.reason.sentence,
        outlook=selected.outlook,
        renewed=selected.renewed,
        rho=selected.rho,
        notes=tuple(notes),
        ids=parts.history.ids,
    )


def _list_zones(parts: _Parts) -> dict[str, dict[str, int]]:
    """What each zone may take, and what it takes."""
    answer = parts.head.budget.reserved_output
    used = parts.head.placed.needs | {
        "history": parts.selected.fitted.tokens,
        "reserved_output": answer,
    }
    sizes = {zone.name: zone.tokens for zone in parts.head.measured.zones}
    zones = {name: {"budget": tokens, "used": used.get(name, 0)} for name, tokens in sizes.items()}
    for name, tokens in used.items():
        zones.setdefault(name, {"budget": OTHER_ZONE, "used": tokens})
    return zones


def _list_items(parts: _Parts) -> tuple[Item, ...]:
    """A line for every item in the request and every span left out of it."""
    head, placed = parts.head, parts.head.placed
    own = [_count_own(placed, zone) for zone in ("system_prompt", "tool_definitions")]
    cut = _list_cut_tools(parts)
    whole = own[1] - head.settings - sum(item.after for item in cut)
    fixed = (
        Item("system", "system_prompt", "kept", "verbatim", own[0], own[0]),
        Item(
            "tools",
            "tool_definitions",
            "kept",
            "verbatim",
            whole,
            whole,
        ),
    )
    settings = Item(
        "settings", "tool_definitions", "kept", "verbatim", head.settings, head.settings
    )
    return (
        *(item for item in fixed if item.after),
        *cut,
        *placed.items,
        *((settings,) if head.settings else ()),
        *map(_list_change, parts.history.changes),
        *list_items(parts.selected.fitted.pieces, parts.limits.counter, parts.fitting.archive),
    )


def _list_cut_tools(parts: _Parts) -> list[Item]:
    """A line for each tool that is shortened or left out. Its handle brings back the definition,
    and `find_tools` loads it.
    """
    choice, tools = parts.tools.choice, parts.tools.given
    count, archive = parts.limits.counter.count_tools, parts.fitting.archive
    needed: dict[int, int] = {}
    if not choice.epoch.selects:
        return []
    if _find_share(parts.material):
        needed = find_needs(tools, choice, _count_tool(parts.limits))
    items = []
    for n in sorted([*choice.shortened, *choice.left_out]):
        action: Action = "shrunk" if n in choice.shortened else "dropped"
        after = count((choice.shortened[n],)) if n in choice.shortened else 0
        handle = archive.keep_text(f"tool {tools[n].name}", to_json(tools[n]))
        items.append(
            Item(
                f"tools[{n}]",
                "tool_definitions",
                action,
                f"{tools[n].name}: of less value to the request",
                count((tools[n],)),
                after,
                (handle,),
                _find_tool_window(parts, needed.get(n, 0)),
            )
        )
    return items


def _find_tool_window(parts: _Parts, needed: int) -> int:
    """The window at which so many tokens of definitions are sent; 0 if their zone has one size at
    any window.
    """
    share = _find_share(parts.material)
    if not needed:
        return 0
    usable = ceil((needed + parts.head.settings) / share)
    return ceil(usable / (1 - parts.limits.margin)) + parts.limits.reserve + 1


def _count_own(placed: PlacedSections, zone: str) -> int:
    """What a zone takes without its sections."""
    return placed.needs[zone] - sum(item.after for item in placed.items if item.zone == zone)


def _list_change(change: Change) -> Item:
    """Repair speaks of the history as it was given, the other items of the history as it was
    repaired.
    """
    place = "settings"
    if change.message >= 0:
        place = f"given[{change.message}]"
    return Item(place, "history", "repaired", f"{change.rule}: {change.what}", 0, 0)
