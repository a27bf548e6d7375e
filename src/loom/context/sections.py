"""Sections: pieces of context from outside the conversation, each within its zone, in one of three
places: the system text, directly before the current request, or the tail.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.budget.zones import DEFAULTS, Budget, Zone, flow
from loom.context.handles import Archive
from loom.context.policy import Policy
from loom.context.report import Item
from loom.context.shorten.cut import shrink_text
from loom.context.state.partitions import PARTITIONS, partition_of
from loom.conversation.checked import CheckedStruct, is_one_slip, to_snake_case
from loom.conversation.message import Conversation, Message, Text
from loom.errors import ChoiceError

# zones that change with every call, whatever the policy
TAIL = (
    "working",
    "operational_memory",
    "loom_context",
    "map_update",
    "memory_update",
    "decision_update",
    "rules_update",
    "skill_update",
)
# partitions whose sections may be left out, the first to go first
GIVING_WAY = ("history", "skill", "memory")
# of what a policy's own counter leaves, what is given away; and its tokens for markers
OWN_SHARE, OWN_MARKERS = 0.97, 64
MIN_WIDENED = 200  # tokens; for less a section that stays cut is not shown again
OTHER_ZONE = 2048  # what a zone may take that neither the seed nor the policy names


ZONE_RULE = "its zone"  # the rule of a section that is as large as its zone lets it be


class Section(CheckedStruct, frozen=True):
    """One piece of context ready to place: the zone it belongs to, its text, where it came from,
    and how much it matters.

    Where there is no room for all of a partition, the less relevant goes first.
    """

    FRAME_TOKENS: ClassVar[int] = 8  # for what joins a section to its neighbours
    # of what is drawn of a project; an empty map is one for which there was no room
    PROJECT_ORIGIN: ClassVar[str] = "project"

    zone: str
    text: str
    origin: str = ""
    relevance: float = 0.5


def zone_names(chosen: Policy) -> frozenset[str]:
    """The zones that something is said of: by the window's division, partitions, the policy, or the
    tail.
    """
    placed = (*chosen.system, *chosen.before_request, *chosen.tail)
    named = [*DEFAULTS, *TAIL, *chosen.zones, *placed, "history"]
    return frozenset(named).union(*(zones for zones, _ in PARTITIONS.values()))


def check_zone(what: str, zone: str, chosen: Policy) -> None:
    """Refuse the name of a zone that is a slip of a known one; any other is a zone of the caller's
    own.
    """
    known = zone_names(chosen)
    if zone in known:
        return
    right = next(
        (name for name in sorted(known) if to_snake_case(zone) == name or is_one_slip(zone, name)),
        "",
    )
    if right:
        raise ChoiceError(
            f"{what}: there is no zone {zone!r}; the nearest is {right!r}, and a zone of your own "
            "needs another name"
        )


def note_unused_zones(
    zones: Iterable[str], sections: Sequence[Section], chosen: Policy
) -> list[str]:
    """A line for each zone that was given a size, that nobody knows, and that nothing was placed
    in.
    """
    used = {section.zone for section in sections}
    return [
        f"zone {zone!r} is not known and stays empty: no section names it"
        for zone in zones
        if zone not in used | zone_names(chosen)
    ]


def can_give_way(zone: str) -> bool:
    """Whether what is in a zone may be left out where there is no room: summaries, skills and
    memory may.
    """
    return partition_of(zone) in GIVING_WAY and zone not in TAIL


def gives_way(sections: Sequence[Section], given_up: Collection[int]) -> int | None:
    """What goes next where messages have nothing left to give: summaries, then skills, then memory.

    Of one partition it is the least relevant, of equals the last.
    """
    left = [
        n
        for n, section in enumerate(sections)
        if n not in given_up and section.text.strip() and can_give_way(section.zone)
    ]

    def protection(n: int) -> tuple[int, float, int]:
        return GIVING_WAY.index(partition_of(sections[n].zone)), round(sections[n].relevance, 6), -n

    return min(left, key=protection, default=None)


class Free(Struct, frozen=True, kw_only=True):
    """What a request leaves free, and for which zones: tokens, and what the policy's `own` counter
    may still count if it has a say.

    `fixed` tells how large zones may become whose size the caller set, or the seed of the policy.
    """

    tokens: int
    counter: Counter
    own_tokens: int | None
    own: Counter | None
    zones: frozenset[str]
    fixed: Mapping[str, int]
    slack: int  # tokens that what cannot be complete leaves free


class _Cut(Struct):
    """A zone in which a section was cut: all its texts, the tokens that they have, and how relevant
    the best of what was cut is.
    """

    zone: str
    texts: list[str]
    used: int
    relevance: float

    @property
    def rank(self) -> tuple[bool, float]:
        return self.zone not in TAIL, -self.relevance


def _find_cut(
    sections: Sequence[Section], items: Sequence[Item], zones: Collection[str]
) -> list[_Cut]:
    """The zones, of these, in which a section was cut: the tail first, then what is most
    relevant.
    """
    found: dict[str, _Cut] = {}
    cut: set[str] = set()
    for section, item in zip(sections, items, strict=True):
        if item.rule != ZONE_RULE or section.zone not in zones:
            continue
        about = found.setdefault(section.zone, _Cut(section.zone, [], 0, 0.0))
        about.texts.append(section.text)
        about.used += item.after
        if item.action != "kept":
            cut.add(section.zone)
            about.relevance = max(about.relevance, section.relevance)
    return sorted((found[zone] for zone in cut), key=lambda about: (about.rank, about.zone))


def _own_share(cut: _Cut, needed: int, free: Free) -> float:
    """How much the policy's own counter counts for a token of these texts; 0 where it has no
    say.
    """
    if free.own:
        return max(sum(map(free.own.count_text, cut.texts)) / max(needed, 1), 0.01)
    return 0.0


def widen_zones(sections: Sequence[Section], items: Sequence[Item], free: Free) -> dict[str, int]:
    """The zones in which a section was cut, each as large as what is free allows."""
    left = free.tokens
    own_left = int((free.own_tokens or 0) * OWN_SHARE) - OWN_MARKERS
    made: dict[str, int] = {}
    for cut in _find_cut(sections, items, free.zones):
        needed = sum(map(free.counter.count_text, cut.texts)) + Section.FRAME_TOKENS * len(
            cut.texts
        )
        lacking = min(needed, free.fixed.get(cut.zone, needed)) - cut.used
        share = _own_share(cut, needed, free)
        if share:
            more = min(lacking, left, int(own_left / share))
        else:
            more = min(lacking, left)
        if more < lacking:  # what stays cut in any case leaves room for the next message
            more -= free.slack
        if more > 0 and (more == lacking or more >= MIN_WIDENED):
            own_left -= ceil(more * share)
            made[cut.zone] = cut.used + more
            left -= more
    return made


def widen(budget: Budget, widened: Mapping[str, int], chosen: Policy) -> Budget:
    """The budget with zones as large as they became; history pays, unless its zone stands whatever
    the others take.
    """
    sizes = {zone.name: zone.tokens for zone in budget.zones}
    for zone, tokens in widened.items():
        more = max(tokens - sizes.get(zone, OTHER_ZONE), 0)
        sizes[zone] = sizes.get(zone, OTHER_ZONE) + more
        if chosen.history != "zone":
            sizes["history"] = max(sizes["history"] - more, 0)
    if widened:
        return replace(budget, zones=tuple(Zone(name, tokens) for name, tokens in sizes.items()))
    return budget


def widen_whole(budget: Budget, sections: Sequence[Section], counter: Counter) -> Budget:
    """The budget with zones large enough for all of their sections; history pays for them."""
    sizes = {zone.name: zone.tokens for zone in budget.zones}
    for zone, (needed, size) in _needed_by_zone(budget, sections, counter).items():
        if needed > size:
            sizes[zone] = needed
            sizes["history"] = max(sizes["history"] - (needed - size), 0)
    return replace(budget, zones=tuple(Zone(name, tokens) for name, tokens in sizes.items()))


def describe_large(budget: Budget, sections: Sequence[Section], counter: Counter) -> str:
    """The zones whose sections take more than these have, with the numbers."""
    found = _needed_by_zone(budget, sections, counter).items()
    return ", ".join(
        f"sections in {zone} take {needed:,} tokens, and the zone has {size:,}"
        for zone, (needed, size) in found
        if needed > size
    )


def _needed_by_zone(
    budget: Budget, sections: Sequence[Section], counter: Counter
) -> dict[str, tuple[int, int]]:
    """For each zone with sections, the tokens that these take whole, and those that the zone
    has.
    """
    sizes = {zone.name: zone.tokens for zone in budget.zones}
    made: dict[str, tuple[int, int]] = {}
    for section in sections:
        needed, size = made.get(section.zone, (0, sizes.get(section.zone, OTHER_ZONE)))
        made[section.zone] = (
            needed + counter.count_text(section.text) + Section.FRAME_TOKENS,
            size,
        )
    return made


class Shelves(Struct, frozen=True, kw_only=True):
    """Where sections are put: the zones of a budget, how they are counted, and what keeps what does
    not fit.

    `sizes` are those of zones, before any is scaled to the window.
    """

    policy: Policy
    budget: Budget
    counter: Counter
    archive: Archive
    sizes: Mapping[str, int]
    has_request: bool = True  # whether there is a message of a user, before which sections may be


class PlacedSections(Struct, frozen=True):
    """System text with its sections, a message for each section before the request, the tail, an
    item for each section, and what each zone needs.
    """

    system: tuple[Message, ...]
    before: tuple[Message, ...]
    tail: tuple[Message, ...]
    items: list[Item]
    needs: dict[str, int]

    @property
    def messages(self) -> tuple[Message, ...]:
        return (*self.system, *self.before, *self.tail)


def place(
    sections: Sequence[Section],
    conversation: Conversation,
    shelves: Shelves,
    given_up: Collection[int] = (),
) -> PlacedSections:
    """Put each section in its zone: whole, shrunk, or not at all. Some may have been given up."""
    counter = shelves.counter
    needs = {
        "system_prompt": sum(map(counter.count_message, conversation.system)),
        # The schema of an answer and the like stand with the tools: both tell the model what shape
        # its words must have.
        "tool_definitions": counter.count_tools(conversation.tools)
        + counter.count_settings(conversation.settings),
    }
    zones = _size_zones(sections, shelves, needs, given_up)
    kept_free = _keep_free(sections, shelves, zones, given_up)
    texts: dict[str, list[str]] = {}
    used: dict[str, int] = {}
    items: list[Item] = []
    for n, section in enumerate(sections):
        free = zones.get(section.zone, OTHER_ZONE) - used.get(section.zone, 0) - kept_free[n]
        cap = max(free - Section.FRAME_TOKENS, 0)
        item, text = _put(n, section, shelves, cap, n in given_up)
        items.append(item)
        if text:
            texts.setdefault(section.zone, []).append(text)
            used[section.zone] = used.get(section.zone, 0) + item.after
    before = _take_before_request(texts, shelves)
    system, tail = _join_zones(texts, conversation, shelves.policy)
    for zone, tokens in used.items():
        needs[zone] = needs.get(zone, 0) + tokens
    return PlacedSections(system, before, tail, items, needs)


def _size_zones(
    sections: Sequence[Section],
    shelves: Shelves,
    needs: Mapping[str, int],
    given_up: Collection[int],
) -> dict[str, int]:
    """The tokens of each zone. What one zone does not need another may have: decisions that are few
    leave room to the map.
    """
    wanted = dict.fromkeys(("decision_context", "repo_map"), 0)
    for n, section in enumerate(sections):
        if n not in given_up:
            wanted[section.zone] = (
                wanted.get(section.zone, 0)
                + shelves.counter.count_text(section.text)
                + Section.FRAME_TOKENS
            )
    zones = {zone.name: zone.tokens for zone in flow(shelves.budget, {**needs, **wanted}).zones}
    # What is protected has the size that it was given, also in a window in which others are scaled.
    for zone, size in shelves.sizes.items():
        if partition_of(zone) in ("system", "working"):
            zones[zone] = max(size, zones.get(zone, 0))
    return zones


def _keep_free(
    sections: Sequence[Section],
    shelves: Shelves,
    zones: Mapping[str, int],
    given_up: Collection[int],
) -> list[int]:
    """The tokens that each section leaves to those after it in its zone. One that is larger than
    its part of the zone leaves room for all that are smaller: it is cut in any case.
    """
    sizes = [
        0 if n in given_up else shelves.counter.count_text(section.text) + Section.FRAME_TOKENS
        for n, section in enumerate(sections)
    ]
    counts: dict[str, int] = {}
    for section in sections:
        counts[section.zone] = counts.get(section.zone, 0) + 1
    parts = {zone: zones.get(zone, OTHER_ZONE) // count for zone, count in counts.items()}
    small_after = dict.fromkeys(parts, 0)
    kept_free = [0] * len(sections)
    for n in reversed(range(len(sections))):
        zone = sections[n].zone
        if sizes[n] > parts[zone]:
            kept_free[n] = small_after[zone]
        else:
            small_after[zone] += sizes[n]
    return kept_free


def _put(
    n: int, section: Section, shelves: Shelves, cap: int, is_given_up: bool
) -> tuple[Item, str]:
    """The item of a section that may take this many tokens, and what is shown of it."""
    count = shelves.counter.count_text
    place, before = f"sections[{n}]", count(section.text)
    if not section.text.strip():
        return Item(place, section.zone, "dropped", "empty", before, 0), ""
    if not is_given_up and before <= cap:
        return Item(
            place, section.zone, "kept", ZONE_RULE, before, before + Section.FRAME_TOKENS
        ), section.text
    handles = (shelves.archive.keep_text(f"section {n}", section.text),)
    if is_given_up:
        return Item(
            place, section.zone, "dropped", "no room beside history", before, 0, handles
        ), ""
    text = shrink_text(section.text, cap, count, handles[0])
    if count(text) > cap:
        return Item(place, section.zone, "dropped", ZONE_RULE, before, 0, handles), ""
    return Item(
        place,
        section.zone,
        "shrunk",
        ZONE_RULE,
        before,
        count(text) + Section.FRAME_TOKENS,
        handles,
    ), text


def _take_before_request(texts: dict[str, list[str]], shelves: Shelves) -> tuple[Message, ...]:
    """The messages of the zones that are before the request. A document has no request: there they
    stay with the others.
    """
    if not shelves.has_request:
        return ()
    return tuple(
        Message(role, (Text(text),))
        for zone, role in shelves.policy.before_request.items()
        if zone not in TAIL
        for text in texts.pop(zone, ())
    )


def _join_zones(
    texts: dict[str, list[str]], conversation: Conversation, policy: Policy
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The system text with the sections that belong to it, and the tail."""
    ordered = [text for zone in policy.system for text in texts.pop(zone, ())]
    last = [text for zone in (*policy.tail, *TAIL) for text in texts.pop(zone, ())]
    others = [text for zone in texts.values() for text in zone]
    system = _system(conversation.system, [*ordered, *others], policy.separator)
    tail = (Message("user", (Text(policy.separator.join(last)),)),) if last else ()
    return system, tail


def unscale(budget: Budget, sizes: Mapping[str, int]) -> Budget:
    """The zones as large as they are at a window where none has to be scaled."""
    full = DEFAULTS | dict(sizes)
    return replace(
        budget,
        zones=tuple(
            Zone(zone.name, max(zone.tokens, full.get(zone.name, 0))) for zone in budget.zones
        ),
    )


def _system(system: tuple[Message, ...], texts: list[str], separator: str) -> tuple[Message, ...]:
    """The system text as it is, and sections after it in the same message: providers refuse
    several.
    """
    if not texts:
        return system
    if not system:
        return (Message("system", (Text(separator.join(texts)),)),)
    last = system[-1]
    match last.parts:
        case (Text(text, None),):
            joined = replace(last, parts=(Text(separator.join((text, *texts))),))
        case _:
            joined = replace(last, parts=(*last.parts, Text(separator.join(texts))))
    return (*system[:-1], joined)
