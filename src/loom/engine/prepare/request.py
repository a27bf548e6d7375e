"""One request: find what the store has, continue with the last epoch, or begin one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from loom.config.project_file import ProjectFile
from loom.context import (
    Context,
    EpochEnds,
    EpochReason,
    EpochTools,
    Handoff,
    Item,
    Options,
    Renewal,
    add_to_tail,
    budget_for,
    build,
    find_strategy,
    forget_dropped,
    go_on,
)
from loom.conversation.message import Conversation, Message
from loom.engine.prepare.overflow import find_newer_half, note_overflow
from loom.engine.prepare.remember import LastRequest, ratio_of, remember
from loom.engine.prepare.standing import (
    counters,
    dropped_on,
    first_after,
    is_too_much,
    known_stretches,
    place_pieces,
    place_pins,
    shown_on,
    shown_stretches,
    standing_pieces,
)
from loom.engine.prepare.summaries import (
    names_of,
    place_summaries,
    shown_summaries,
    written_by_person,
)
from loom.engine.pressure import COLD_MS
from loom.engine.reading import (
    FIRST_WINDOWS,
    MAX_FIRST_TOKENS,
    USER_SHARE,
    AssembledMessages,
    Reading,
    ReadingPlan,
    ReadingStyle,
    assemble,
    head_of,
    kept_nodes,
    newest_reminders,
    read_less,
    read_on,
    read_ranges,
    read_same,
    read_window,
    shape_of,
)
from loom.engine.recalling import RecallLookup, Recollections
from loom.engine.sources import (
    EPOCH_SOURCES,
    TAIL_SOURCES,
    WINDOW_SOURCES,
    Asking,
    MapRoom,
    begin_texts,
    choose_lasting_notes,
    count_decisions,
    draw_epoch_map,
    drop_repeated_notes,
    gather,
    keep_own_notes,
    keep_shown_map,
    loses_rules,
)
from loom.engine.summing import digests_of, join_texts
from loom.engine.views import View, find_reached, restore_view
from loom.errors import CannotFit
from loom.providers.knowledge import Findings
from loom.stores import Node, Overlay, Path, SessionRow, Store, Summary

if TYPE_CHECKING:
    from loom.project.maps import RankedProject
    from loom.project.skills.choosing import SkillRequest

UNDONE = EpochReason("undone")
DAMAGED_VIEW = "what the store has of the last request is damaged"


class RequestInput(Struct, frozen=True, kw_only=True):
    """What one request is made from: a session and its path, what is asked for, and what is
    remembered of the last request.

    After an overflow an epoch begins in any case, without the older half of what the last request
    showed. So does one that is `renewing`, for the reason given. `handoff` is what the window began
    with, and the map of `project` is in the system text. `notes` are for the report. `find`
    looks for old messages that matter to the request.
    """

    store: Store
    row: SessionRow
    path: Path
    options: Options
    style: ReadingStyle
    pins: Sequence[Node]
    last: LastRequest | None
    fetch: Callable[[str], str]
    overflowed: bool = False
    renewing: EpochReason | None = None
    handoff: Handoff | None = None
    project: "RankedProject | None" = None
    project_file: ProjectFile | None = None
    knowledge: Findings | None = None
    skills: "SkillRequest | None" = None
    remembers: bool = False
    notes: tuple[str, ...] = ()
    find: Callable[[RecallLookup], Recollections] | None = None


class _StoreFindings(Struct, frozen=True, kw_only=True):
    """What the store has for a request. `reason` is why an epoch begins if nothing ends the last
    one.
    """

    overlay: Overlay
    shape: str
    head: Conversation
    asking: Asking
    model: str
    usable: int
    pins: tuple[Node, ...]
    last: LastRequest | None
    view: View | None
    is_damaged: bool
    summaries: list[Summary]
    reason: EpochReason

    @property
    def path(self) -> Path:
        return self.overlay.path

    @property
    def options(self) -> Options:
        return self.asking.options


class _Beginning(Struct, frozen=True, kw_only=True):
    """What an epoch that begins is made from: what was read, what is asked for as it is counted
    from now on, its number.
    """

    options: Options
    number: int
    reading: Reading


def prepare(asked: RequestInput) -> tuple[Context, LastRequest]:
    """The request, and what to remember of it. The last epoch continues if it can, else one begins
    from what is read again.
    """
    with asked.path.snapshot() as now:
        found = _find(asked, now)
        ends = _why_it_ends(asked, found)
        if ends and found.view and found.view.epoch.has_outgrown(found.usable):
            ends = replace(ends, solid=0)
        reading = None
        if found.view and ends is None:
            reading = _read_more(found)
        beginning = None if reading else _read_again(asked, found, ends)
    found = replace(found, overlay=_detach(asked, found.overlay))
    if found.view and reading:
        made = _go_on(asked, found, found.view, reading)
        if not isinstance(made, EpochEnds):
            return made
        ends = made
    if beginning is None:
        with found.path.snapshot() as now:
            now_found = replace(found, overlay=replace(found.overlay, path=now))
            beginning = _read_again(asked, now_found, ends)
    return _begin(asked, found, beginning, ends)


def _find(asked: RequestInput, path: Path) -> _StoreFindings:
    """What the store has for a request, in one snapshot."""
    store, row, style = asked.store, asked.row, asked.style
    last = asked.last
    if not store.views.is_newest(row, find_reached(last.view) if last else None, path):
        last = None
    overlay = style.overlay(path)
    is_pruned = len(overlay.path) < len(path)
    path = overlay.path
    if path.end is None:
        raise CannotFit(
            f"there is nothing to send: {'; '.join(overlay.notes)}; restore it, or switch to "
            "another node"
        )
    head = head_of(
        row, style, overlay, store.sessions.on_path(row, path) if style.document else row.asides
    )
    asking = _ask_sources(asked, path, head)
    options = asking.options
    view, is_damaged = (last.view, False) if last else _find_view(store, row, path)
    return _StoreFindings(
        overlay=overlay,
        shape=shape_of(overlay),
        head=head,
        asking=asking,
        model=options.model or head.model,
        usable=budget_for(options, head).usable,
        pins=_find_pins(asked.pins, overlay),
        last=last,
        view=view,
        is_damaged=is_damaged,
        summaries=store.summaries.on_path(row, path, overlay.hidden),
        reason=EpochReason("pruned" if is_pruned else "first"),
    )


def _ask_sources(asked: RequestInput, path: Path, head: Conversation) -> Asking:
    """What sources look at, and what is asked for with what the window began with."""
    style = asked.style
    asking = Asking(
        store=asked.store,
        row=asked.row,
        path=path,
        style=style,
        options=replace(asked.options, document=style.document, ending=style.buffer),
        handoff=asked.handoff,
        head=head,
        asides=() if style.document else tuple(asked.store.sessions.newest_asides(asked.row, path)),
        project=asked.project,
        folder=asked.project.root if asked.project else "",
        project_file=asked.project_file,
        knowledge=asked.knowledge,
        skills=asked.skills,
        remembers=asked.remembers,
    )
    return replace(asking, options=gather(asking, WINDOW_SOURCES))


def _find_view(store: Store, row: SessionRow, path: Path) -> tuple[View | None, bool]:
    """The newest view of a path that can be read, and whether there was one that is damaged."""
    found = store.views.find_newest(row, path)
    return (restore_view(found.view) if found.view else None), found.is_damaged


def _find_pins(pins: Sequence[Node], overlay: Overlay) -> tuple[Node, ...]:
    """Pins that were asked for and those of the tree. What is pruned by now is not in any
    request.
    """
    asked = [pin for pin in pins if pin.depth < len(overlay.path)]
    return (*asked, *(pin for pin in overlay.pins if pin not in asked))


def _detach(asked: RequestInput, overlay: Overlay) -> Overlay:
    """The same after its snapshot is closed."""
    return replace(overlay, path=Path(asked.path.database, asked.path.tree, overlay.path.end))


# Whether the last epoch continues


def _why_it_ends(asked: RequestInput, found: _StoreFindings) -> EpochEnds | None:
    if asked.renewing:
        return EpochEnds(asked.renewing)
    if asked.overflowed:
        return EpochEnds(EpochReason("refused"))
    if found.view is None:
        return None
    return _why_told_otherwise(asked, found, found.view) or _why_read_otherwise(found, found.view)


def _why_told_otherwise(asked: RequestInput, found: _StoreFindings, view: View) -> EpochEnds | None:
    """That summaries or the map in the system text are others."""
    written = written_by_person(found.summaries)
    if written and view.given != written:
        return EpochEnds(EpochReason("summary_written"))
    if found.options.policy.summary_replaces and view.summaries != names_of(found.summaries):
        return EpochEnds(EpochReason("other_summary"))
    if view.map and asked.project and view.map.project != asked.project.root:
        return EpochEnds(EpochReason("other_project"))
    if not asked.project and (view.map or view.texts.get("rules")):
        return EpochEnds(EpochReason("no_project"))
    return None


def _why_read_otherwise(found: _StoreFindings, view: View) -> EpochEnds | None:
    """That what the last request was made from cannot be read on."""
    path = found.path
    assert path.end is not None
    if view.shape != found.shape:
        return EpochEnds(EpochReason("marks"), 0)
    if len(path) <= view.ranges[-1][0]:
        return EpochEnds(EpochReason("shorter_path"))
    ranges = _grown_ranges(view, path)
    if not all(any(start <= pin.depth < stop for start, stop in ranges) for pin in found.pins):
        return EpochEnds(EpochReason("pin"))
    if is_too_much(view, path, found.usable):
        come = path.end.total - view.total
        return EpochEnds(EpochReason("arrived", {"tokens": come}))
    return None


def _grown_ranges(view: View, path: Path) -> tuple[tuple[int, int], ...]:
    return (*view.ranges[:-1], (view.ranges[-1][0], len(path)))


def _read_more(found: _StoreFindings) -> Reading:
    """What the last request of this epoch was made from, and what has come since."""
    assert found.view is not None
    reading = None
    if found.last:
        reading = read_on(found.last.reading, found.path)
    return reading or read_same(found.path, _grown_ranges(found.view, found.path), found.view.holes)


def _go_on(
    asked: RequestInput, found: _StoreFindings, view: View, reading: Reading
) -> tuple[Context, LastRequest] | EpochEnds:
    """The next request of the last epoch, or why that ends."""
    # what the epoch began with was sent then, so a provider has it as long as an answer's
    is_cold = found.options.cold and asked.style.now - view.as_of > COLD_MS
    options = replace(found.options, ratio=view.ratio, cold=is_cold)
    assembled = assemble(asked.style, reading, found.overlay, view.as_of, options.policy.merge)
    full = gather(
        replace(
            found.asking,
            path=found.path,
            options=options,
            summary=view.told,
            map=view.map,
            memory=keep_own_notes(found.asking, view),
            texts=view.texts,
            messages=assembled.messages,
        ),
        EPOCH_SOURCES,
    )
    said, pins = replace(found.head, messages=assembled.messages), place_pins(found.pins, assembled)
    context = go_on(said, full, pins, view.epoch, assembled.places, asked.fetch)
    if isinstance(context, EpochEnds):
        return context
    context = _recall(asked, found, full, said, context)
    if view.undone:
        report, back = (
            replace(context.report, epoch_reason=UNDONE.sentence),
            replace(context.continuation, is_continued=False, reason=UNDONE),
        )
        context = replace(context, report=report, continuation=back)
        view = replace(view, undone=False, session=0)
    return _with_notes(context, found.overlay, asked, full.notes), remember(
        context, reading, options, found.model, view
    )


# An epoch begins


def _read_again(asked: RequestInput, found: _StoreFindings, ends: EpochEnds | None) -> _Beginning:
    """What the window can hold, and what the last epoch showed. Of what that left out, what is
    known of it.
    """
    path, view = found.path, found.view
    options = replace(found.options, ratio=ratio_of(asked.row, found.model))
    count, own = counters(options, found.model)
    same_shape = view is not None and view.shape == found.shape
    if view and same_shape:
        left = known_stretches(view, options)
    else:
        left = ()
    also = _summary_edges(found, left)
    if same_shape or asked.overflowed:
        also += shown_on(view, path, found.usable)
    if view and same_shape and _tells_of_dropped(options):
        also += dropped_on(view, path, _limit_first_reading(found))
    pins: Sequence[Node] = found.pins
    if not options.document:
        pins = [
            *pins,
            *newest_reminders(path, found.overlay.hidden, options.policy.system_messages == "keep"),
        ]
        pins = [*pins, *kept_nodes(path, found.overlay.hidden, options.policy.rules)]
    plan = ReadingPlan(
        tokens=found.usable,
        count=count.count_message,
        pins=pins,
        hidden=found.overlay.hidden,
        also=also,
        from_start=find_strategy(options.policy.strategy).fills_from_start,
        first_tokens=_count_first_reading(found, options, ends),
        user_tokens=int(found.usable * USER_SHARE) if _tells_of_dropped(options) else 0,
    )
    ranges = read_window(path, plan)
    reading = read_ranges(path, ranges, count.count_message, left, own.count_message)
    last = max(asked.store.views.epoch(asked.row, path), view.epoch.number if view else -1)
    return _Beginning(options=options, number=last + 1, reading=reading)


def _count_first_reading(found: _StoreFindings, options: Options, ends: EpochEnds | None) -> int:
    """How many tokens of the path are read because nothing of the last epoch tells of them: of all
    of it, or of what has come since.
    """
    view, path = found.view, found.path
    assert path.end is not None
    if not _tells_of_dropped(options):
        return 0
    most = _limit_first_reading(found)
    if view is None or not standing_pieces(view, options, found.shape, ends):
        return most
    if is_too_much(view, path, found.usable):
        return min(path.end.total - view.total, most)
    return 0


def _limit_first_reading(found: _StoreFindings) -> int:
    """How many tokens of a path are read at most because nothing tells of them."""
    return min(FIRST_WINDOWS * found.usable, MAX_FIRST_TOKENS)


def _tells_of_dropped(options: Options) -> bool:
    """Whether lines are told of what a request leaves out."""
    return options.policy.cover > 0 and not options.document


def _summary_edges(
    found: _StoreFindings, left: Sequence[tuple[int, int, object]]
) -> list[tuple[int, int]]:
    """The places where summaries begin and end, without those that are known as the ends of what
    was left out.
    """
    policy = found.options.policy
    if policy.summary != "cover" and not policy.summary_replaces:
        return []
    known = {edge for start, stop, _ in left for edge in (start, stop)}
    edges = [edge for summary in found.summaries for edge in (summary.start, summary.stop)]
    return [(edge, edge + 1) for edge in edges if edge not in known]


class _SummaryUse(Struct, frozen=True, kw_only=True):
    """What summaries tell in an epoch that begins, the place before which nothing stands that need
    not, and a note to keep.
    """

    summaries: list[Summary]
    floor: int
    note: Summary | None
    text: str  # of the system text


def _tell_summaries(
    asked: RequestInput, found: _StoreFindings, options: Options, assembled: AssembledMessages
) -> _SummaryUse:
    policy, summaries, floor, note = options.policy, found.summaries, 0, None
    if asked.overflowed:
        floor = find_newer_half(shown_stretches(found.view, len(found.path)), assembled, policy)
    if asked.overflowed and policy.summary != "cover" and not find_strategy(policy.strategy).climbs:
        note = note_overflow(summaries, assembled, floor)
        note = note.with_name(asked.style.now)
        summaries = [note]
    if policy.summary_replaces and summaries:
        floor = max(floor, first_after(assembled, summaries[-1].stop))
    text = ""
    if policy.summary == "system":
        text = join_texts(summaries)
    return _SummaryUse(summaries=summaries, floor=floor, note=note, text=text)


def _begin(
    asked: RequestInput, found: _StoreFindings, beginning: _Beginning, ends: EpochEnds | None
) -> tuple[Context, LastRequest]:
    """The first request of an epoch."""
    reading, style = beginning.reading, asked.style
    options = replace(beginning.options, digests=digests_of(asked.store, asked.row, reading.nodes))
    assembled = assemble(style, reading, found.overlay, style.now, options.policy.merge)
    told = _tell_summaries(asked, found, options, assembled)
    begins = Renewal(
        beginning.number,
        ends.reason if ends else found.reason,
        before=place_pieces(standing_pieces(found.view, options, found.shape, ends), assembled),
        summaries=()
        if options.policy.summary == "system"
        else place_summaries(told.summaries, assembled, options.policy),
        floor=told.floor,
        early=ends is not None and ends.early,
        renew=asked.renewing is not None,
        dropped=sum(known.messages for _, _, known in found.view.left) if found.view else 0,
        tools=found.view.epoch.tools if found.view else EpochTools(),
    )
    asking = replace(found.asking, path=found.path, options=options, summary=told.text, begins=True)
    asking = _draw_map(asking)
    said, pins = replace(found.head, messages=assembled.messages), place_pins(found.pins, assembled)

    def make(messages: Sequence[Message]) -> tuple[Asking, Options, Context]:
        began = _begin_sources(replace(asking, messages=messages))
        full = gather(began, EPOCH_SOURCES)
        return began, full, build(said, full, pins, begins, assembled.places, asked.fetch)

    began_asking, full, context = make(assembled.messages)
    if loses_rules(began_asking, context):
        # Of messages that carry rules, only those count that the request shows.
        began_asking, full, context = make(context.conversation.messages)
        if loses_rules(began_asking, context):
            began_asking, full, context = make(())
    asking = began_asking
    context = _recall(asked, found, full, said, context)
    if found.is_damaged:
        context = _with_damage(context)
    kept, reading = _forget_dropped(asked, found, full, context, reading)
    began = remember(kept, reading, options, found.model, None)
    view = replace(
        began.view,
        as_of=style.now,
        shape=found.shape,
        told=told.text,
        map=keep_shown_map(asking.map, context.report),
        memory=asking.memory,
        texts=asking.texts,
        given=written_by_person(found.summaries),
        summaries=names_of(told.summaries),
        shown=shown_summaries(told.summaries, context),
    )
    return _with_notes(context, found.overlay, asked, full.notes), replace(
        began, view=view, note=told.note
    )


def _begin_sources(asking: Asking) -> Asking:
    """The same with what sources have for an epoch that begins."""
    asking = replace(asking, texts=begin_texts(asking))
    return replace(asking, memory=choose_lasting_notes(asking))


def _draw_map(asking: Asking) -> Asking:
    """The same with the map for an epoch that begins, which has what decisions leave of their
    zone.
    """
    if asking.project is None:
        return asking
    room = MapRoom.find(asking.options, asking.head, count_decisions(asking))
    if "repo_map" in asking.options.zones:  # the caller sized it
        room = replace(room, spare=0)
    made = draw_epoch_map(asking.options, asking.head, asking.project, room)
    return replace(asking, map=made, options=room.widen(asking.options, asking.head, made))


def _forget_dropped(
    asked: RequestInput, found: _StoreFindings, full: Options, context: Context, reading: Reading
) -> tuple[Context, Reading]:
    """The request and what was read for it, without what it left out: later requests of the epoch
    need not read that again.
    """
    if not _tells_of_dropped(full):
        return context, reading
    best, own = counters(full, found.model)
    left_out = context.continuation.left_out(best.count_message, own.count_message)
    less = read_less(reading, left_out)
    if len(less.messages) == len(reading.messages):
        return context, reading
    assembled = assemble(asked.style, less, found.overlay, asked.style.now, full.policy.merge)
    said = replace(found.head, messages=assembled.messages)
    pins = place_pins(found.pins, assembled)
    kept = forget_dropped(context, said, full, pins, assembled.places, asked.fetch)
    return (kept, less) if kept else (context, reading)


def _recall(
    asked: RequestInput, found: _StoreFindings, full: Options, said: Conversation, context: Context
) -> Context:
    """The request with old messages in its tail that matter to it, and that it does not show."""
    if asked.find is None or asked.overflowed:
        return context
    asking = replace(
        found.asking,
        path=found.path,
        options=full,
        context=context,
        overlay=found.overlay,
        find=asked.find,
    )
    for source in TAIL_SOURCES:
        made = source(asking)
        context = add_to_tail(
            context, said, full, list(zip(made.sections, made.handles, strict=True))
        )
        if made.notes:
            report = context.report
            report = replace(report, notes=(*report.notes, *made.notes))
            context = replace(context, report=report)
    return context


def prepare_ending(
    row: SessionRow, path: Path, options: Options, style: ReadingStyle, fetch: Callable[[str], str]
) -> Context:
    """The request of a document of which nothing is committed yet."""
    head = head_of(row, style, style.overlay(path), ())
    options = replace(options, document=True, ending=style.buffer)
    return build(head, options, (), None, fetch=fetch)


def _with_damage(context: Context) -> Context:
    """The context with a report that names the damaged view as the reason of the epoch, and any
    other unusual reason.
    """
    reason, why = context.continuation.reason, DAMAGED_VIEW
    if reason.cause not in ("first", "pruned"):
        why = f"{DAMAGED_VIEW}; {reason.sentence}"
    return replace(context, report=replace(context.report, epoch_reason=why))


def _with_notes(
    context: Context, overlay: Overlay, asked: RequestInput, said: tuple[str, ...]
) -> Context:
    """The context with a line in its report for each message that is hidden from it, and notes of
    the tree, the sources, the project and the knowledge bases.
    """
    notes = drop_repeated_notes((*overlay.notes, *said, *asked.notes))
    for source in (asked.project, asked.knowledge):
        notes = (*notes, *(source.notes if source else ()))
    if not overlay.hidden and not notes:
        return context
    hidden = [
        Item(f"messages[{depth}]", "history", "hidden", why, 0, 0)
        for depth, why in sorted(overlay.hidden.items())
    ]
    report = context.report
    return replace(
        context,
        report=replace(report, lines=(*report.lines, *hidden), notes=(*report.notes, *notes)),
    )
