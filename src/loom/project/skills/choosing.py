"""Which skills are in a request: those in use, those that it asks for, those that were of use last.

At most `MAX_ACTIVE` are in it, within a number of tokens. One in use is never left out while there
is room for a part of it: the caller or the request names it, or the model loaded it in this turn.
It may be cut. All others make room, those first that have not been of use for longest.

The text of a skill is in a fence that nothing in it can close, so that it cannot pass for a heading
of Loom.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from loom.project.rules.pieces import make_fence
from loom.project.skills.folders import Skill, Skills
from loom.project.skills.matching import match_skills

MAX_ACTIVE = 3
MAX_ACTIVE_TOKENS = 4000
MAX_NAMED = 7  # skills that are left out and have a note each
MIN_CUT_TOKENS = 200  # of a skill that is cut; with less one that is not in use is left out
MAX_LISTED_CHARS = 240  # of a description in the list
SHORT_LISTED_CHARS = 80
CUT = "..."
SENTENCE_ENDS = (".", "!", "?", "…", ":", ";", "。", "！", "？")
Count = Callable[[str], int]


class LoadedSkill(Struct, frozen=True):
    """A skill that the model loaded: its name, whether it did so in this turn, and whether the
    request shows the result of that.
    """

    name: str
    is_of_turn: bool = False
    is_shown: bool = False


class SkillRequest(Struct, frozen=True, kw_only=True):
    """What is asked of skills: those that there are, the names that the caller wants, what is
    asked, what the model loaded, the newest first, and what it put away in this turn.
    """

    skills: Skills
    wanted: tuple[str, ...] = ()
    question: str = ""
    loaded: tuple[LoadedSkill, ...] = ()
    unloaded: frozenset[str] = frozenset()


class ActiveSkill(Struct, frozen=True):
    """A skill for a request, and why.

    `is_in_use`: it is rather cut than left out. `is_explicit`: its text must be there, also if the
    model could load it. `is_needed`: the current request asks for it.
    """

    skill: Skill
    why: str
    is_in_use: bool = False
    is_explicit: bool = False
    is_needed: bool = True


class ActiveText(Struct, frozen=True):
    """The text of active skills, their names, and a line for each that is in, cut or left out."""

    text: str
    names: tuple[str, ...]
    notes: tuple[str, ...]


def rank_skills(request: SkillRequest) -> list[ActiveSkill]:
    """The skills that a request could have, the first to be in it first."""
    found: dict[str, ActiveSkill] = {}

    def add(ranked: Iterable[ActiveSkill]) -> None:
        for each in ranked:
            found.setdefault(each.skill.name, each)

    wanted = map(request.skills.get, request.wanted)
    add(ActiveSkill(skill, "the caller names it", True, True) for skill in wanted)
    matches = match_skills(request.skills.found, request.question)
    add(ActiveSkill(match.skill, match.why, True) for match in matches if match.is_named)
    by_name = {skill.name: skill for skill in request.skills.found}
    loaded = [each for each in request.loaded if each.name in by_name]
    add(
        ActiveSkill(by_name[each.name], "loaded in this turn", True, not each.is_shown)
        for each in loaded
        if each.is_of_turn
    )
    fresh = (match for match in matches if match.skill.name not in request.unloaded)
    add(ActiveSkill(match.skill, match.why) for match in fresh)
    add(ActiveSkill(by_name[each.name], "loaded before", is_needed=False) for each in loaded)
    return list(found.values())


def write_active(
    ranked: Sequence[ActiveSkill], tokens: int, count: Count, hidden: Iterable[str] = ()
) -> ActiveText:
    """The texts of the skills that may be in a request, within these tokens. Those of `hidden` are
    shown elsewhere in it, so they take no tokens.
    """
    shown_elsewhere = frozenset(hidden)
    chosen, notes = _limit_many(ranked)
    for each in chosen:
        if each.skill.name in shown_elsewhere:
            notes.append(f"skill {each.skill.name}: in the history ({each.why})")
    rest = [each for each in chosen if each.skill.name not in shown_elsewhere]
    texts: dict[str, str] = {}
    left = tokens
    for n, each in enumerate(rest):
        share = left
        if each.is_in_use:
            in_use = sum(other.is_in_use for other in rest[n:])
            share = max(left // in_use, left - _count_others(rest[n + 1 :], count))
        text = _write_share(each, share, left, count)
        name = each.skill.name
        if not text:
            notes.append(f"skill {name}: left out, no room in the zone ({each.why})")
            continue
        texts[name] = text
        used = count(text) + 1
        left -= used
        whole = count(write_skill(each.skill, None, count))
        size = (
            f"{used - 1:,} tokens" if used > whole else f"cut to {used - 1:,} of {whole:,} tokens"
        )
        notes.append(f"skill {name}: in the request, {size} ({each.why})")
    return ActiveText("\n".join(texts.values()), tuple(texts), tuple(notes))


def _limit_many(ranked: Sequence[ActiveSkill]) -> tuple[list[ActiveSkill], list[str]]:
    """The first of these, and all in use; a line for each of the next ones."""
    many = max(MAX_ACTIVE, sum(each.is_in_use for each in ranked))
    others = ranked[many:]
    notes = [
        f"skill {each.skill.name}: left out, {MAX_ACTIVE} others come first ({each.why})"
        for each in others[:MAX_NAMED]
    ]
    if len(others) > MAX_NAMED:
        notes.append(f"{len(others) - MAX_NAMED:,} more skills: left out, others come first")
    return list(ranked[:many]), notes


def count_in_use(ranked: Sequence[ActiveSkill], count: Count, hidden: Iterable[str] = ()) -> int:
    """The tokens that the skills in use need to be whole."""
    shown_elsewhere = frozenset(hidden)
    return _count_others([each for each in ranked if each.skill.name not in shown_elsewhere], count)


def _count_others(others: Sequence[ActiveSkill], count: Count) -> int:
    """The tokens that others in use need."""
    texts = (write_skill(each.skill, None, count) for each in others if each.is_in_use)
    return sum(count(text) + 1 for text in texts)


def _write_share(each: ActiveSkill, share: int, left: int, count: Count) -> str:
    """A skill within its share. One in use gets more of what is left before it is left out."""
    text = write_skill(each.skill, share, count)
    if text or not each.is_in_use:
        return text
    least = min(left, max(share, MIN_CUT_TOKENS))
    return write_skill(each.skill, least, count) or _write_part(
        each.skill, least, count, brief=True
    )


def write_skill(skill: Skill, tokens: int | None, count: Count) -> str:
    """A skill as a model reads it, at most so many tokens; an empty text if too little of it would
    be left. What is cut ends with `...`.
    """
    whole = _frame(skill, skill.body)
    if tokens is None or count(whole) <= tokens:
        return whole
    return _write_part(skill, tokens, count) if tokens >= MIN_CUT_TOKENS else ""


def _write_part(skill: Skill, tokens: int, count: Count, *, brief: bool = False) -> str:
    """As much of a skill as fits; an empty text if that is nothing of it."""
    low, high = 0, len(skill.body)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_frame(skill, f"{skill.body[:middle]}{CUT}", brief=brief)) <= tokens:
            low = middle
        else:
            high = middle - 1
    part = skill.body[:low].rstrip()
    return _frame(skill, f"{part}{CUT}", brief=brief) if part else ""


def _frame(skill: Skill, body: str, *, brief: bool = False) -> str:
    """This of a skill in its fence, after what Loom says of it: in brief its name and file."""
    about = skill.file
    if skill.files and not brief:
        about += f"; other files in its folder: {', '.join(skill.files)}"
    if skill.allowed_tools and not brief:
        about += f"; tools it uses: {', '.join(skill.allowed_tools)}"
    fence, inner = make_fence(skill.body), body.replace("</skill", "< /skill")
    return (
        f'Skill {skill.name} ({about}):\n<skill name="{skill.name}">\n'
        f"{fence}markdown\n{inner}\n{fence}\n</skill>"
    )


def write_catalog(skills: Sequence[Skill], tokens: int, count: Count, introduction: str) -> str:
    """A line for each skill, shorter if they do not fit, then only as many as fit; an empty text
    if there are none or there is no room.
    """
    listed = [skill for skill in skills if not skill.is_manual]
    if not listed:
        return ""
    for chars in (MAX_LISTED_CHARS, SHORT_LISTED_CHARS, 0):
        text = "\n".join((introduction, *(list_line(skill, chars) for skill in listed)))
        if count(text) <= tokens:
            return text
    low, high = 0, len(listed)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_write_names(listed, middle, introduction)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return _write_names(listed, low, introduction) if low else ""


def _write_names(listed: Sequence[Skill], many: int, introduction: str) -> str:
    lines = (list_line(skill, 0) for skill in listed[:many])
    return "\n".join((introduction, *lines, f"- {CUT} and {len(listed) - many:,} more"))


def list_line(skill: Skill, chars: int = MAX_LISTED_CHARS) -> str:
    """A skill as one line of the list: its name, and what it is for."""
    about = skill.description
    if skill.when_to_use:
        stop = "" if not about or about.endswith(SENTENCE_ENDS) else "."
        about = f"{about}{stop} {skill.when_to_use}".lstrip()
    if not chars:
        return f"- {skill.name}"
    if len(about) > chars:
        about = about[:chars].rstrip() + CUT
    return f"- {skill.name}: {about}"
