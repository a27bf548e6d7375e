"""`weave`: from everything the agent has, the one request that fits, is whole and keeps the point;
with the reasons.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack

from msgspec.structs import replace

from loom.budget.counting import gate_counter, seed_counter
from loom.budget.zones import DEFAULTS
from loom.context.assemble import Material, continue_with_less, make_request
from loom.context.budgeting import budget_for
from loom.context.gathering import check_pins, find_pinned, make_conversation
from loom.context.history.epochs import Epoch, EpochEnds, Renewal, begin_after
from loom.context.history.places import EVERYWHERE, Places
from loom.context.history.point import cut_of_point
from loom.context.history.reasons import EpochReason
from loom.context.history.strategies import find_strategy
from loom.context.options import Options, WeaveOptions, check_options
from loom.context.report import Report
from loom.context.request import Context
from loom.context.sections import (
    TAIL,
    ZONE_RULE,
    Free,
    can_give_way,
    describe_large,
    gives_way,
    widen_zones,
)
from loom.conversation.checked import show_options
from loom.conversation.message import Conversation, Message
from loom.errors import CannotFit

# of what is usable: what sections leave free for the calls of an epoch that begins
EPOCH_GROWTH = 0.3
SECTION_SLACK = 0.1  # of what is usable: what sections leave free that cannot be complete
MAX_WIDENINGS = 3  # times that free room is given to sections of one request


@show_options
def weave(
    messages: Conversation | Iterable[Message | Mapping[str, Any]],
    **options: Unpack[WeaveOptions],
) -> Context:
    """Build one request that fits the window.

    `messages` are the conversation, as values or as the JSON of any dialect.

    Raises `CannotFit` if what must be in the request is larger than the window.
    """
    checked = check_options(**options)
    previous, pins = options.get("previous"), options.get("pins", ())
    report = previous.report if isinstance(previous, Context) else previous
    check_pins(pins, report)
    given, spans = make_conversation(
        messages, options.get("system"), options.get("tools"), checked.caches
    )
    return build(
        given, checked, find_pinned(pins, given, spans), Epoch.of(report) if report else None
    )


def build(
    given: Conversation,
    options: Options,
    pins: Sequence[int],
    previous: Epoch | Renewal | None,
    places: Places = EVERYWHERE,
    fetch: Callable[[str], str] | None = None,
) -> Context:
    """Weave one request from values that were checked: the last epoch continues where it can, else
    one begins.

    `places` tells where the messages of a stored history are, and `fetch` brings back what was left
    out of it.
    """
    material = Material(given=given, options=options, pins=pins, places=places, fetch=fetch)
    if isinstance(previous, Epoch):
        continued = _continue(material, previous)
        if isinstance(continued, Context):
            return continued
        previous = begin_after(previous, continued)
    return _begin(material, previous)


def go_on(
    given: Conversation,
    options: Options,
    pins: Sequence[int],
    epoch: Epoch,
    places: Places = EVERYWHERE,
    fetch: Callable[[str], str] | None = None,
) -> Context | EpochEnds:
    """The next request of an epoch: the last one without its tail, plus what is new. Or why the
    epoch ends.
    """
    return _continue(
        Material(given=given, options=options, pins=pins, places=places, fetch=fetch), epoch
    )


def forget_dropped(
    context: Context,
    given: Conversation,
    options: Options,
    pins: Sequence[int],
    places: Places,
    fetch: Callable[[str], str],
) -> Context | None:
    """The same request, as if only this had been read for it: what it shows, and what stands in for
    the rest. None if that does not say the same.
    """
    material = Material(given=given, options=options, pins=pins, places=places, fetch=fetch)
    less = continue_with_less(material, context)
    # The report is another value, so that the first one goes on telling of all that was read.
    return replace(context, report=replace(context.report), continuation=less) if less else None


def _continue(material: Material, epoch: Epoch) -> Context | EpochEnds:
    material = replace(material, options=replace(material.options, widened=epoch.widened))
    try:
        context = make_request(material, epoch, epoch.given_up)
    except CannotFit:
        return EpochEnds(EpochReason("no_room"), epoch.seen)
    if isinstance(context, EpochEnds):
        return context
    # What is in the system text stays as it is while an epoch continues.
    return _widen_sections(context, material, epoch, 0, (*material.options.policy.tail, *TAIL))


def _begin(material: Material, renewal: Renewal | None) -> Context:
    """The first request of an epoch, or one that is its own. If it does not fit, nothing is left
    free for later requests.
    """
    options = material.options
    try:
        return _begin_with(material, renewal)
    except CannotFit:
        if not options.ahead:
            raise
        return _begin_with(replace(material, options=replace(options, ahead=0)), renewal)


def _begin_with(material: Material, renewal: Renewal | None) -> Context:
    options = material.options
    if find_strategy(options.policy.strategy).refuses_to_cut:  # nothing gives way
        return _build_whole(material, renewal)
    context = _build_giving_way(material, renewal)
    growth = options.ahead
    # once an epoch had to end, the next one leaves room to grow
    if renewal is not None and renewal.number > 0:
        growth += int(context.report.usable * EPOCH_GROWTH)
    return _widen_sections(
        context, material, renewal, growth, {section.zone for section in options.sections}
    )


def _make(material: Material, renewal: Renewal | None, given_up: Sequence[int]) -> Context:
    """A request that continues nothing."""
    made = make_request(material, renewal, given_up)
    assert isinstance(made, Context)
    return made


def _build_whole(material: Material, renewal: Renewal | None) -> Context:
    """All of it, or an error that names the sections that are too large too. Only skills give
    way.
    """
    options = material.options
    given_up = [n for n, section in enumerate(options.sections) if section.zone == "skills"]
    for without in [given_up[n:] for n in range(len(given_up), 0, -1)]:
        with suppress(CannotFit):
            return _make(material, renewal, without)
    try:
        return _make(material, renewal, given_up)
    except CannotFit as error:
        counter = gate_counter(material.model, options.ratio)
        large = describe_large(budget_for(options, material.given), options.sections, counter)
        if not large:
            raise
        raise CannotFit(f"{error}; {large}: shorten them") from None


def _build_giving_way(material: Material, renewal: Renewal | None) -> Context:
    """Weave, and let sections go while goal and request are cut for want of what they take:
    summaries, then skills, then memory.
    """
    sections = material.options.sections
    given_up: list[int] = []
    whole = None
    while True:
        try:
            context = _make(material, renewal, given_up)
            if not _is_short(context):
                return context
            whole = whole or context
        except CannotFit:
            if whole is None and gives_way(sections, given_up) is None:
                raise
        least = gives_way(sections, given_up)
        if least is None:  # nothing that it could give would be enough
            assert whole is not None
            return whole
        given_up.append(least)


def _is_short(context: Context) -> bool:
    """Whether goal, request or a pin is cut in an epoch that begins, and what sections take that
    may go would be enough for it.
    """
    cut = cut_of_point(context.report.lines)
    return (
        0
        < cut
        <= sum(item.after for item in context.continuation.section_items if can_give_way(item.zone))
    )


def _widen_sections(
    context: Context,
    material: Material,
    previous: Epoch | Renewal | None,
    growth: int,
    zones: Collection[str],
) -> Context:
    """Give what a request leaves free, but for `growth`, to sections of these zones that were cut;
    history loses nothing by it.
    """
    for _ in range(MAX_WIDENINGS):
        options, items = material.options, context.continuation.section_items
        if all(item.action == "kept" or item.rule != ZONE_RULE for item in items):
            return context
        found = widen_zones(options.sections, items, _free_room(context, options, growth, zones))
        wider = {
            zone: tokens for zone, tokens in found.items() if tokens > options.widened.get(zone, 0)
        }
        if not wider:
            return context
        material = replace(material, options=replace(options, widened={**options.widened, **wider}))
        try:
            made = make_request(material, previous, context.continuation.given_up)
        except CannotFit:
            return context
        if isinstance(made, EpochEnds) or not _keeps_as_much(made.report, context.report):
            return context
        context = made
    return context


def _free_room(context: Context, options: Options, growth: int, zones: Collection[str]) -> Free:
    """What a request leaves free for these zones."""
    policy, report, own_room = options.policy, context.report, context.continuation.own_room
    fixed = DEFAULTS if policy.history == "zone" else {}
    return Free(
        tokens=report.usable - report.margin - report.input_tokens - growth,
        counter=gate_counter(report.model or None, options.ratio),
        own_tokens=None if own_room is None else own_room - growth,
        own=None if own_room is None else seed_counter(policy.counter),
        zones=frozenset(zones),
        fixed={**fixed, **options.zones},
        slack=int(report.usable * SECTION_SLACK),
    )


def _keeps_as_much(report: Report, before: Report) -> bool:
    """Whether all that a request kept of the history is kept by another."""
    kept = {item.place for item in report.lines if item.zone == "history" and item.action == "kept"}
    return all(
        item.place in kept
        for item in before.lines
        if item.zone == "history" and item.action == "kept"
    )
