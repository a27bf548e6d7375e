"""Skills in the requests of a session: a list of all, and the texts of those that are active.

Both are in the system text, as they were when the epoch began. A skill that is needed since then
is in the tail: its name if the model can load it with its tool, else its text. A skill that the
model loads is in the history, as the result of its call. An epoch that begins later has it in the
zone.
"""

from collections.abc import Callable, Sequence
from os import PathLike

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context import Options, Section, budget_for
from loom.conversation.message import Conversation
from loom.engine.knowledge import find_question_in
from loom.engine.sources.asking import Asking, SourceSections
from loom.engine.views import EpochText
from loom.project.skills.choosing import (
    MAX_ACTIVE,
    MAX_ACTIVE_TOKENS,
    ActiveSkill,
    SkillRequest,
    count_in_use,
    list_line,
    rank_skills,
    write_active,
    write_catalog,
)
from loom.project.skills.folders import Skill, find_skills

ZONE, TAIL_ZONE, TOOL = "skills", "skill_update", "load_skill"
ORIGIN = "skills"
CATALOG, ACTIVE = "skills", "active_skills"  # the names of both texts
CATALOG_RELEVANCE, ACTIVE_RELEVANCE = 0.6, 0.4
MAX_CATALOG_TOKENS, MAX_CATALOG_SHARE = 1024, 24  # the part of what is usable
MAX_ACTIVE_SHARE, MAX_TAIL_SHARE = 8, 16
# of the zone where the policy does not say: the list, the texts and what joins them
ZONE_TOKENS = MAX_CATALOG_TOKENS + MAX_ACTIVE_TOKENS + 2 * Section.FRAME_TOKENS
MAX_PROBLEM_NOTES = 10
WITH_TOOL = (
    "Skills: instructions for kinds of work, from files of the project. Load a skill with "
    f"{TOOL} before you do such work."
)
WITHOUT_TOOL = (
    "Skills: instructions for kinds of work, from files of the project. The text of a skill is "
    "here when a request asks for such work."
)
ACTIVE_HEAD = "Skills for the current work. Their text comes from files of the project."
UPDATE_HEAD = "Skills for the current request. Their text comes from files of the project."


class _SkillRoom(Struct, frozen=True):
    """The tokens of the zone, those of it that are free, and at most how many of them the list and
    the texts of active skills get.
    """

    zone: int
    free: int
    catalog: int
    active: int


def begin(asking: Asking) -> EpochText | None:
    """The list of all skills, for an epoch that begins; None if there are none."""
    if asking.skills is None or asking.style.document:
        return None
    return _write_catalog(asking.skills, asking.options, asking.head)


def begin_active(asking: Asking) -> EpochText | None:
    """The texts of the skills that the epoch begins with, and the names of those that it shows."""
    if asking.skills is None or asking.style.document:
        return None
    return _write_active(asking.skills, asking.options, asking.head)[0]


def gather(asking: Asking) -> SourceSections:
    """What the epoch began with, and in the tail what the current request needs beyond it.

    If an epoch begins, room is left for the tail of later requests.
    """
    texts = [asking.texts.get(name) for name in (CATALOG, ACTIVE)]
    sections = _make_sections(*texts)
    if asking.skills is None or asking.style.document:
        return SourceSections(sections=sections, rooms=_make_room(asking, sections))
    if _find_room(asking.options, asking.head).zone == 0:
        return SourceSections(sections=sections, notes=_tell_closed(asking.skills))
    rooms = _make_room(asking, sections)
    if asking.begins:
        notes = (
            *_write_active(asking.skills, asking.options, asking.head)[1],
            *_tell_list(asking.skills, texts[0]),
            *_limit_notes(asking.skills.skills.notes),
        )
        ahead = _limit_tail(asking) if asking.skills.skills.found else 0
        return SourceSections(sections=sections, rooms=rooms, ahead=ahead, notes=notes)
    update, notes = _write_update(asking, asking.skills)
    if update:
        sections = (*sections, Section(TAIL_ZONE, update, ORIGIN))
    return SourceSections(sections=sections, rooms=rooms, notes=notes)


class SingleSkills(Struct, frozen=True):
    """The skills of a request that is on its own: sections, the size of their zone, and what is to
    be known of them.
    """

    sections: tuple[Section, ...]
    zones: dict[str, int]
    notes: tuple[str, ...]


def choose_single_skills(
    options: Options,
    given: Conversation,
    project: "str | PathLike[str] | None",
    wanted: tuple[str, ...] = (),
    folders: "tuple[str | PathLike[str], ...]" = (),
) -> SingleSkills:
    """The list of skills, and those that the last request of a conversation asks for."""

    asked = SkillRequest(
        skills=find_skills(project, folders),
        wanted=wanted,
        question=find_question_in(given.messages),
    )
    room = _find_room(options, given)
    if room.zone == 0:
        return SingleSkills((), {}, _tell_closed(asked))
    catalog = _write_catalog(asked, options, given)
    active, notes = _write_active(asked, options, given)
    sections = _make_sections(catalog, active)
    zones = {ZONE: room.zone} if sections else {}
    notes = (*notes, *_tell_list(asked, catalog), *_limit_notes(asked.skills.notes))
    return SingleSkills(sections, zones, notes)


def _make_sections(*texts: EpochText | None) -> tuple[Section, ...]:
    pairs = zip(texts, (CATALOG_RELEVANCE, ACTIVE_RELEVANCE), strict=True)
    return tuple(
        Section(ZONE, made.text, ORIGIN, relevance)
        for made, relevance in pairs
        if made and made.text
    )


def _make_room(asking: Asking, sections: tuple[Section, ...]) -> dict[str, int]:
    """The size of the zone. It depends on the options alone, so that it stays in an epoch."""
    if not sections:
        return {}
    return {ZONE: _find_room(asking.options, asking.head).zone}


def _write_catalog(asked: SkillRequest, options: Options, head: Conversation) -> EpochText | None:
    """The list of all skills. It has what those in use leave, and all others make room for it."""
    found = asked.skills.found
    if not found:
        return None
    room, count = _find_room(options, head), _counter(options, head)
    needed = count_in_use(rank_skills(asked), count, _list_shown(asked))
    if needed:
        needed += count(ACTIVE_HEAD) + 1
    tokens = min(room.catalog, room.free - min(needed, room.active))
    introduction = WITH_TOOL if _has_tool(head) else WITHOUT_TOOL
    text = write_catalog(found, tokens, count, introduction)
    return EpochText(text, tuple(skill.name for skill in found))


def _write_active(
    asked: SkillRequest, options: Options, head: Conversation
) -> tuple[EpochText | None, tuple[str, ...]]:
    """The text and the names of active skills, and a note for each. They have what the list
    leaves.
    """
    ranked = rank_skills(asked)
    if not ranked:
        return None, ()
    count = _counter(options, head)
    hidden = _list_shown(asked)
    room, catalog = _find_room(options, head), _write_catalog(asked, options, head)
    left = room.free - (count(catalog.text) if catalog else 0)
    tokens = min(room.active, left) - count(ACTIVE_HEAD) - 1
    made = write_active(ranked, tokens, count, hidden)
    text = f"{ACTIVE_HEAD}\n{made.text}" if made.text else ""
    return EpochText(text, (*made.names, *hidden)), made.notes


def _list_shown(asked: SkillRequest) -> list[str]:
    """The skills that the history shows."""
    return [each.name for each in asked.loaded if each.is_shown]


def _write_update(asking: Asking, asked: SkillRequest) -> tuple[str, tuple[str, ...]]:
    """What the tail says, and notes: the texts of skills that the caller wants, and of others if
    the model cannot load them; the names of those that it can.
    """

    active, catalog = asking.texts.get(ACTIVE), asking.texts.get(CATALOG)
    seen = {
        *(active.names if active else ()),
        *_list_shown(asked),
    }
    needed = [each for each in rank_skills(asked) if each.is_needed]
    ranked = [each for each in needed[:MAX_ACTIVE] if each.skill.name not in seen]
    has_tool = _has_tool(asking.head)
    hinted = [each for each in ranked if has_tool and not each.is_explicit]
    news = _find_news(catalog, asked)
    lines = [_write_hint(each, is_new=each.skill in news) for each in hinted]
    named = [each.skill for each in ranked]
    lines += _list_news([skill for skill in news if skill not in named], catalog, asked)
    count = _counter(asking.options, asking.head)
    head = "\n".join((UPDATE_HEAD, *lines))
    shown = [each for each in ranked if each not in hinted]
    made = write_active(shown, _limit_tail(asking) - count(head) - 1, count)
    text = "\n".join(filter(None, (head, made.text)))
    if not lines and not made.text:
        text = ""
    if count(text) > _limit_tail(asking):
        return "", ("skills for the current request: left out, no room in the tail",)
    names = active.names if active else ()
    since = (f"skills in the request since the epoch began: {', '.join(names)}",) if names else ()
    hints = tuple(
        f"skill {each.skill.name}: named in the tail, for the model to load ({each.why})"
        for each in hinted
    )
    return text, (*since, *hints, *made.notes)


def _write_hint(active: ActiveSkill, is_new: bool) -> str:
    """A line for a skill that the model can load."""
    said = f"{list_line(active.skill)} New:" if is_new else f"- {active.skill.name}:"
    return f"{said} load it with {TOOL} ({active.why})."


def _find_news(catalog: EpochText | None, asked: SkillRequest) -> list[Skill]:
    """The skills that are new since the epoch began."""
    known = catalog.names if catalog else ()
    return [
        skill for skill in asked.skills.found if skill.name not in known and not skill.is_manual
    ]


def _list_news(fresh: Sequence[Skill], catalog: EpochText | None, asked: SkillRequest) -> list[str]:
    """A line for each skill that is new, and one for those that are gone."""
    found = {skill.name for skill in asked.skills.found}
    gone = [name for name in (catalog.names if catalog else ()) if name not in found]
    lines = ["New skills:"] if fresh else []
    lines += [list_line(skill) for skill in fresh[:MAX_ACTIVE]]
    if len(fresh) > MAX_ACTIVE:
        lines.append(f"{len(fresh) - MAX_ACTIVE:,} more skills are new.")
    if gone:
        lines.append(f"Skills that are no longer there: {', '.join(gone[:MAX_PROBLEM_NOTES])}.")
    return lines


def _find_room(options: Options, head: Conversation) -> _SkillRoom:
    """How large the zone may be, and how it is divided. What the caller says of the zone counts,
    then the policy; a small window has less for it.
    """
    usable, count = budget_for(options, head).usable, _counter(options, head)
    catalog = min(MAX_CATALOG_TOKENS, usable // MAX_CATALOG_SHARE)
    active = min(MAX_ACTIVE_TOKENS, usable // MAX_ACTIVE_SHARE)
    given = [
        section for section in options.sections if section.zone == ZONE and section.origin != ORIGIN
    ]
    taken = sum(count(section.text) + Section.FRAME_TOKENS for section in given)
    size = options.zones.get(ZONE)
    if size is None:
        size = options.policy.zones.get(ZONE, ZONE_TOKENS)
    else:
        active = size
    zones = {**options.zones, ZONE: size}
    sized = budget_for(replace(options, zones=zones), head)[ZONE]
    free = max(sized - taken - 2 * Section.FRAME_TOKENS, 0)
    return _SkillRoom(size, free, min(catalog, free // 2), active)


def _limit_tail(asking: Asking) -> int:
    """The tokens that skills in the tail may take."""

    usable = budget_for(asking.options, asking.head).usable
    return min(MAX_ACTIVE_TOKENS, usable // MAX_TAIL_SHARE) - Section.FRAME_TOKENS


def _tell_closed(asked: SkillRequest) -> tuple[str, ...]:
    """A note if there are skills and their zone is closed."""
    return ("no skills: their zone has 0 tokens",) if asked.skills.found else ()


def _tell_list(asked: SkillRequest, catalog: EpochText | None) -> tuple[str, ...]:
    """A note if there is no room for the list of skills."""
    listed = any(not skill.is_manual for skill in asked.skills.found)
    if listed and not (catalog and catalog.text):
        return ("the list of skills: left out, no room in the zone",)
    return ()


def _limit_notes(notes: tuple[str, ...]) -> tuple[str, ...]:
    if len(notes) <= MAX_PROBLEM_NOTES:
        return notes
    rest = len(notes) - MAX_PROBLEM_NOTES
    return (*notes[:MAX_PROBLEM_NOTES], f"{rest:,} more problems of skills; see loom skills list")


def _has_tool(head: Conversation) -> bool:
    return any(tool.name == TOOL for tool in head.tools)


def _counter(options: Options, head: Conversation) -> Callable[[str], int]:
    return gate_counter(options.model or head.model or None, options.ratio).count_text
