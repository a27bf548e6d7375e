"""What a model sees of a decision graph: goals, recent decisions, the session, and lessons.

Rules of this file:
- Headings, lines and their order are those that seed 000 prints. Titles and descriptions are on
  one line, so that words of a model cannot pass for a heading or for another entry.
- A decision that the session logged for another folder than that of the request says so.
- The section has at most the tokens that it is given. If not all fits, each heading has a share,
  and what it leaves is for the others. Long lines are cut, so that a share has at least one.
- Under a heading, what matters to the request comes in first, of equals the newest. What is in is
  printed in the usual order.
- Something that is left out is counted in the last line, after the mark `[truncated...]`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.names import flatten
from loom.decisions.values import Decision

TRUNCATED = "[truncated...]"
NO_DECISIONS = "None."
NO_SESSION = "No decisions recorded in this session."
INTRODUCTION = (
    "Decisions of this project and of this session, as they were logged. They say what was "
    "decided, not what to do now."
)
CHANGES = "Decisions that were logged or changed since the system text was written:"
MAX_RECENT = 5  # newest decisions, options and actions that are listed
MAX_LINE_CHARS = 160  # of an entry if not all fit
MIN_LINE_CHARS = 30  # of an entry that is cut so that its heading has one
MAX_DESCRIPTION_CHARS = 240  # of a description that is shown
MAX_FOLDER_CHARS = 80  # of the folder of a decision
REASON = "abandoned_because"  # in the metadata of what was abandoned
AUTOMATIC = "auto"  # in the metadata of what no person and no model logged on purpose
# of the tokens: what each heading may take while others need theirs
_SHARES = {"goals": 0.35, "recent": 0.25, "session": 0.25, "lessons": 0.15}
MAX_CHARS_PER_TOKEN = 8  # of a text that is counted to know whether it fits
MIN_FULL_TOKENS = 200  # of a section that says what it leaves out, and names empty headings
_MAX_MISSES = 20  # entries that do not fit, after which smaller ones are not looked for
# Signs that turn or hide words; joiners are not among them, for many scripts need these.
_HIDDEN = dict.fromkeys(
    [0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
_MARKDOWN = "#>-*+=|`~"


class DecisionLists(Struct, frozen=True, kw_only=True):
    """What a section is written from. All lists are newest first, but for `session`.

    `earlier` are decisions that are not recent and matter to the request. The totals say how many
    goals and entries of the session there are. `scores` say how much decisions matter to the
    request, by their ids; `replacements` are titles of what superseded them. `reasons` say why, and
    why options were `rejected`. `verdicts` are words for options that were chosen and rejected,
    `judged` is when. `folder` is that of the request.
    """

    goals: Sequence[Decision] = ()
    recent: Sequence[Decision] = ()
    earlier: Sequence[Decision] = ()
    session: Sequence[Decision] = ()
    lessons: Sequence[Decision] = ()
    goals_total: int = 0
    session_total: int = 0
    has_uncounted: bool = False  # the session has more entries than the total says
    scores: Mapping[str, float] = {}
    replacements: Mapping[str, str] = {}
    reasons: Mapping[str, str] = {}
    rejected: Collection[str] = ()
    verdicts: Mapping[str, str] = {}
    judged: Mapping[str, int] = {}
    folder: str = ""


class SectionForm(Struct, frozen=True, kw_only=True):
    """How large a section may be, how it is counted, how times are written, and whether headings
    are written that have nothing under them.
    """

    tokens: int
    count: Callable[[str], int]
    write_time: Callable[[int], str]
    names_empty: bool = False
    introduction: str = ""


class DecisionSection(Struct, frozen=True, kw_only=True):
    """A section, and which decisions it shows; `note` says what it leaves out."""

    text: str = ""
    shown: tuple[str, ...] = ()
    note: str = ""


class _Entry(Struct):
    """A decision under a heading: its line, and its description if there is room for it."""

    decision: Decision
    line: str
    description: str = ""
    is_in: bool = False
    with_description: bool = False

    @property
    def text(self) -> str:
        if self.with_description:
            return f"{self.line}\n  {self.description}"
        return self.line


class _Heading(Struct):
    """A heading with its entries in the order in which they are printed."""

    name: str
    title: str
    empty: str
    what: str
    total: int
    entries: list[_Entry]
    has_uncounted: bool = False

    @property
    def newest_first(self) -> Iterable[_Entry]:
        if self.name == "session":  # which is printed the oldest first
            return reversed(self.entries)
        return self.entries

    @property
    def left_out(self) -> int:
        return self.total - sum(entry.is_in for entry in self.entries)


def write_section(lists: DecisionLists, form: SectionForm) -> DecisionSection:
    """The section for a request; without text if there is nothing to say, or no room to say it."""
    headings = _list_headings(lists, form)
    if not any(heading.entries for heading in headings):
        return DecisionSection()
    order = _let_all_in(headings)
    text = _render(headings, form)
    if len(text) > form.tokens * MAX_CHARS_PER_TOKEN or form.count(text) > form.tokens:
        for entry in order:
            _take_out(entry)
            entry.line = _shorten(entry.line, MAX_LINE_CHARS)
        if form.tokens < MIN_FULL_TOKENS:
            form = replace(form, names_empty=False, introduction="")
        order = _choose(headings, lists.scores, form)
        text = _render(headings, form)
    while order and form.count(text) > form.tokens:
        _take_out(order.pop())
        text = _render(headings, form)
    note = _note_left_out(headings, form)
    if not order:
        return DecisionSection(note=note)
    shown = dict.fromkeys(entry.decision.id for entry in order)
    return DecisionSection(text=text, shown=tuple(shown), note=note)


def is_shown(decision: Decision) -> bool:
    """Whether a section may show a decision: not what was purged or logged automatically."""
    return not decision.purged and decision.metadata.get(AUTOMATIC) is not True


# Lines


def _list_headings(lists: DecisionLists, form: SectionForm) -> list[_Heading]:
    goals = [_Entry(each, _write_goal(each, lists)) for each in lists.goals if is_shown(each)]
    recent = [each for each in (*lists.recent, *lists.earlier) if is_shown(each)]
    decisions = [_Entry(each, _write_recent(each, lists)) for each in recent]
    session = [
        _Entry(
            each,
            _write_session(each, form.write_time(each.created), lists),
            _describe(each.description),
        )
        for each in lists.session
        if is_shown(each)
    ]
    lessons = [_Entry(each, _write_lesson(each, lists)) for each in lists.lessons if is_shown(each)]
    return [
        _Heading(
            "goals",
            "## Active Goals",
            NO_DECISIONS,
            "active goals",
            max(lists.goals_total, len(goals)),
            goals,
        ),
        _Heading(
            "recent",
            "## Recent Decisions",
            NO_DECISIONS,
            "recent decisions",
            len(decisions),
            decisions,
        ),
        _Heading(
            "session",
            "## Session Context",
            NO_SESSION,
            "entries of the session",
            max(lists.session_total, len(session)),
            session,
            lists.has_uncounted,
        ),
        _Heading("lessons", "## Prior Attempts & Lessons", "", "lessons", len(lessons), lessons),
    ]


def _write_goal(decision: Decision, lists: DecisionLists) -> str:
    title = _one_line(decision.title)
    return f"- {title}{_write_folder(decision, lists)}{_write_confidence(decision)}"


def _write_recent(decision: Decision, lists: DecisionLists) -> str:
    verdict = _describe(lists.verdicts.get(decision.id, ""))
    title = f"{_one_line(decision.title)}{_write_folder(decision, lists)}"
    return f"- [{decision.kind}] {title}{f' ({verdict})' if verdict else ''}"


def _write_session(decision: Decision, moment: str, lists: DecisionLists) -> str:
    """A line of the session. The confidence of a goal that is active is with the goals."""
    status = ""
    if decision.id in lists.verdicts:
        status = f" [{_describe(lists.verdicts[decision.id])}]"
    elif decision.id in lists.rejected:
        status = " [rejected]"
    if decision.status != "active":
        status = f" [{decision.status}]"
    confidence = _write_confidence(decision)
    if decision.kind == "goal" and not status:
        confidence = ""
    title = f"{_one_line(decision.title)}{_write_folder(decision, lists)}"
    return f"[{moment}] {decision.kind}: {title}{status}{confidence}"


def _write_lesson(decision: Decision, lists: DecisionLists) -> str:
    title = f"{_one_line(decision.title)}{_write_folder(decision, lists)}"
    reason = _describe(lists.verdicts.get(decision.id) or lists.reasons.get(decision.id, ""))
    if decision.status == "superseded":
        replacement = _one_line(lists.replacements.get(decision.id, ""))
        by = f" by {replacement}" if replacement else ""
        return f"- [SUPERSEDED] {title} → replaced{by}{_append_reason(reason)}"
    if decision.status == "abandoned":
        return f"- [ABANDONED] {title}{_append_reason(_describe(_find_reason(decision)))}"
    if decision.id in lists.rejected:
        return f"- [REJECTED] {title}{_append_reason(reason)}"
    return f"- [REVISIT] {title}{_write_confidence(decision)} — needs re-evaluation"


def _write_folder(decision: Decision, lists: DecisionLists) -> str:
    """Which folder a decision is of, if it is not that of the request."""
    if decision.folder in ("", lists.folder):
        return ""
    name = _name_folder(decision.folder)
    if name == _name_folder(lists.folder):
        name = decision.folder
    return f" [of folder {_shorten(_one_line(name), MAX_FOLDER_CHARS)}]"


def _name_folder(folder: str) -> str:
    return folder.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _append_reason(reason: str) -> str:
    return f" — {reason}" if reason else ""


def _write_confidence(decision: Decision) -> str:
    if decision.confidence is None:
        return ""
    return f" (confidence: {decision.confidence}%)"


def _find_reason(decision: Decision) -> str:
    """Why a decision was abandoned, or else what it says."""
    reason = decision.metadata.get(REASON)
    return reason if isinstance(reason, str) and reason.strip() else decision.description


def _describe(description: str) -> str:
    """A description on one line, which cannot pass for a heading, a list or a quotation."""
    text = _shorten(_one_line(description), MAX_DESCRIPTION_CHARS)
    if text[:1] and text[0] in _MARKDOWN:
        text = f"\\{text}"
    return text


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1].rstrip()}…"


def _one_line(text: str) -> str:
    if not text.isascii():
        text = text.translate(_HIDDEN)
    return " ".join(flatten(text).split())


# What fits


def _let_all_in(headings: Sequence[_Heading]) -> list[_Entry]:
    """Let everything in that may be."""
    order = [entry for heading in headings for entry in heading.entries]
    for entry in order:
        entry.is_in, entry.with_description = True, bool(entry.description)
    return order


def _choose(
    headings: Sequence[_Heading], scores: Mapping[str, float], form: SectionForm
) -> list[_Entry]:
    """Let entries in, and then their descriptions; the entries that are in, in the order in which
    they came.
    """
    order: list[_Entry] = []
    left = form.tokens - form.count(_render(headings, form))
    waiting = {heading.name: _rank(heading.newest_first, scores) for heading in headings}
    everything = left
    for share in (True, False):
        for heading in headings:
            room = left
            if share:
                room = min(left, int(everything * _SHARES[heading.name]))
            cost = 0 if _is_written(heading, form) else form.count(f"\n\n{heading.title}\n")
            if not any(entry.is_in for entry in heading.entries):
                _cut_first(waiting[heading.name], form.count, room - cost)
            chosen, used = _fill(waiting[heading.name], form.count, room - cost)
            if chosen:
                left -= used + cost
                order += chosen
    for entry in order:
        needed = form.count(f"\n  {entry.description}") if entry.description else 0
        if 0 < needed <= left:
            entry.with_description = True
            left -= needed
    return order


def _cut_first(waiting: Sequence[_Entry], count: Callable[[str], int], room: int) -> None:
    """Shorten the line of the first entry so that a heading with long lines has one."""
    line = waiting[0].line if waiting else ""
    while len(line) > MIN_LINE_CHARS and count(f"{line}\n") > room:
        line = _shorten(line, max(len(line) * 3 // 4, MIN_LINE_CHARS))
    if line and count(f"{line}\n") <= room:
        waiting[0].line = line


def _rank(entries: Iterable[_Entry], scores: Mapping[str, float]) -> list[_Entry]:
    """Entries, what matters to the request first, of equals the newest; of those that were logged
    at once, as they are given.
    """
    return sorted(
        entries,
        key=lambda entry: (
            round(scores.get(entry.decision.id, 0.0), 6),
            entry.decision.created,
        ),
        reverse=True,
    )


def _fill(
    waiting: Sequence[_Entry], count: Callable[[str], int], room: int
) -> tuple[list[_Entry], int]:
    """Let in what fits of entries that are not in yet; these, and the tokens that they take."""
    chosen: list[_Entry] = []
    used = misses = 0
    for entry in waiting:
        if entry.is_in:
            continue
        needed = count(f"{entry.line}\n")
        if used + needed > room:
            misses += 1
            if misses == _MAX_MISSES:
                break
            continue
        entry.is_in = True
        used += needed
        chosen.append(entry)
    return chosen, used


def _take_out(entry: _Entry) -> None:
    entry.is_in = entry.with_description = False


# The text


def _is_written(heading: _Heading, form: SectionForm) -> bool:
    """Whether a heading is written at all."""
    if any(entry.is_in for entry in heading.entries):
        return True
    return form.names_empty and bool(heading.empty) and not heading.entries


def _render(headings: Sequence[_Heading], form: SectionForm) -> str:
    parts = [form.introduction] if form.introduction else []
    for heading in headings:
        lines = [entry.text for entry in heading.entries if entry.is_in]
        if _is_written(heading, form):
            parts.append("\n".join((heading.title, *(lines or [heading.empty]))))
    text = "\n\n".join(parts)
    left_out = _count_left_out(headings)
    if left_out and form.tokens < MIN_FULL_TOKENS:
        return f"{text}\n{TRUNCATED}"
    if left_out:
        text = f"{text}\n{TRUNCATED} {left_out}"
    return text


def _count_left_out(headings: Sequence[_Heading]) -> str:
    """How many entries of which headings are not shown, and what lists them; "" if all are."""
    missing = [
        f"{'over ' if heading.has_uncounted else ''}{heading.left_out:,} {heading.what}"
        for heading in headings
        if heading.left_out
    ]
    if not missing:
        return ""
    return (
        f"Not shown: {', '.join(missing)}; `loom decisions list` or the tool decision_query shows "
        "them."
    )


def _note_left_out(headings: Sequence[_Heading], form: SectionForm) -> str:
    missing = [
        f"{heading.total - heading.left_out:,} of {'over ' if heading.has_uncounted else ''}"
        f"{heading.total:,} {heading.what}"
        for heading in headings
        if heading.left_out
    ]
    if not missing:
        return ""
    limit = "max_decision_tokens or the zone decision_context sets another limit"
    if form.tokens <= 0:
        return f"decisions are left out: their zone has no room for them; {limit}"
    return (
        f"decisions are truncated to {form.tokens:,} tokens: {', '.join(missing)} are shown; "
        f"{limit}"
    )


def write_changes(changed: Sequence[Decision], lists: DecisionLists, form: SectionForm) -> str:
    """What was logged or changed since the section was written, the oldest first; the newest are in
    if not all fit. `lists` say what became of it.
    """
    if not changed:
        return ""
    lines: list[str] = []
    left = form.tokens - form.count(f"{CHANGES}\n{TRUNCATED}\n")
    for decision in sorted(changed, key=lambda each: (each.updated, each.id), reverse=True):
        moment = form.write_time(decision.updated or decision.created)
        line = _write_session(decision, moment, lists)
        left -= form.count(f"{line}\n")
        if left < 0:
            lines.append(TRUNCATED)
            break
        lines.append(line)
    if lines == [TRUNCATED]:
        return ""
    return "\n".join((CHANGES, *reversed(lines)))
