"""Summaries by a model, the part that needs none: when one is due, what the model is given, and
what is made of its answer.

Rules of this file:
- A cut tears no exchange, and no turn where turns are to stay whole.
- What a model is given fits its window. What it is not given is told in a note, never left out in
  silence.
- What a model says is words: it brings no roles, commands, markers or handles into a request.
- A summary has each note once, at its end.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import assert_never

from msgspec import Struct

from loom.conversation.handles import HANDLE_CHARS
from loom.conversation.message import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from loom.conversation.turns import exchanges, find_safe_boundary, in_flight, parse_turn_boundaries
from loom.errors import shorten

EMERGENCY = "[Emergency compression dropped {count} oldest messages due to context limit]"
OMITTED = "[Note: Some oversized messages were omitted from this summary for efficiency.]"
SHORTENED = "[Note: {count} oversized messages were summed up from their beginning and end only.]"
UNKNOWN = "[no such handle]"
MESSAGES_TOGETHER = 10  # messages that are summarized in one piece, if they fit
MIN_TASK_TOKENS = 64  # tokens of a conversation that are worth asking about
# characters and percent of a message in an extract; fewer where it must be
SNIPPET_CHARS, SHARE, SNIPPETS = 200, 10, (200, 100, 50, 25)
MAX_OPAQUE_CHARS = 2000  # characters of a piece that only its own wire understands
HEAD_SHARE = 0.6  # of what is kept of an oversized message; the rest is its end

Count = Callable[[str], int]


# When


class Due(Struct, frozen=True):
    """Messages up to `stop` are to be summarized, and why."""

    stop: int
    reason: str


class SummaryLimits(Struct, frozen=True, kw_only=True):
    """When to summarize: past this many messages (0: whatever their number), or above such a share
    of the room for history (0 likewise).

    The last messages, `keep` of them, are not summarized.
    """

    messages: int
    above: float
    keep: int = 4
    whole_turns: bool = True

    def find_due(self, messages: Sequence[Message], tokens: int, room: int) -> Due | None:
        """Whether messages that are not summarized yet should be; `tokens` is what they take of the
        room that history has.
        """
        reason = ""
        if self._is_too_many(len(messages)):
            reason = f"{len(messages):,} messages, more than {self.messages:,}"
        elif self.above > 0 and len(messages) > self.keep and tokens > self.above * room:
            reason = f"{tokens:,} tokens, more than {self.above:.0%} of {max(room, 0):,}"
        stop = self._safe_cut(messages) if reason else 0
        # A long turn may hold back a cut that leaves too many; then the next one is due at once, so
        # it is made now.
        while (
            stop
            and self._is_too_many(len(messages) - stop)
            and (more := self._safe_cut(messages[stop:]))
        ):
            stop += more
        if stop:
            return Due(stop, reason)
        return None

    def _is_too_many(self, count: int) -> bool:
        return 0 < self.messages < count and count > self.keep

    def _safe_cut(self, messages: Sequence[Message]) -> int:
        """The cut nearest to what is kept that tears nothing and parts no call from an answer yet
        to come; 0 where there is none.
        """
        target = len(messages) - self.keep
        if self.whole_turns:
            starts = parse_turn_boundaries(messages)
        else:
            starts = []
        if starts:
            stop = find_safe_boundary(messages, target)
        else:
            stop = target
        if in_flight(messages):
            stop = min(stop, max(n for n, message in enumerate(messages) if message.role != "tool"))
        whole = {span.stop for span in exchanges(messages)}
        allowed = whole & set(starts) if starts else whole
        return max((cut for cut in allowed if cut <= stop), default=0)


# What a model is given


class Notes(Struct, frozen=True):
    """What a summary says of itself: messages that were dropped before it, messages it saw the ends
    of, and whether it saw all.
    """

    dropped: int = 0
    shortened: int = 0
    omitted: bool = False

    def __add__(self, other: "Notes") -> "Notes":
        return Notes(
            self.dropped + other.dropped,
            self.shortened + other.shortened,
            self.omitted or other.omitted,
        )

    @property
    def lines(self) -> tuple[str, ...]:
        shortened = (SHORTENED.format(count=self.shortened),) if self.shortened else ()
        dropped = (EMERGENCY.format(count=self.dropped),) if self.dropped else ()
        return (OMITTED,) * self.omitted + shortened + dropped


class Parts(Struct, frozen=True):
    """A conversation as text, in parts that fit a model's window; none if nothing is said or
    nothing fits.
    """

    texts: tuple[str, ...]
    notes: Notes = Notes()


class _Line(Struct, frozen=True):
    """A message as it is told; `turn` is where a turn begins, `whole` where an exchange does."""

    text: str
    turn: bool
    whole: bool


def parts(
    messages: Sequence[Message], window: int, count: Count, *, omit: bool = False, beside: int = 0
) -> Parts:
    """What a model of this window is given of the messages; each part takes at most half of it, and
    leaves `beside` tokens free.

    A message that is larger alone is given by its beginning and end, or left out where `omit` says
    so; a note tells of it.
    """
    room = min(window // 2, window - beside)
    if room < MIN_TASK_TOKENS:
        return Parts(())
    whole = {span.start for span in exchanges(messages)}
    lines: list[_Line] = []
    oversized = 0
    for n, text in enumerate(describe_messages(messages)):
        if not text:
            continue
        if count(text) > room:
            oversized += 1
            if omit:
                continue
            text = _keep_both_ends(text, room // 2, count)
        lines.append(_Line(text, messages[n].role == "user", n in whole))
    if len(lines) > MESSAGES_TOGETHER:
        at = _middle(lines)
        texts = _halves(lines[:at], room, count) + _halves(lines[at:], room, count)
    else:
        texts = _halves(lines, room, count) if lines else []
    return Parts(tuple(texts), Notes(omitted=oversized > 0) if omit else Notes(shortened=oversized))


def _halves(lines: Sequence[_Line], room: int, count: Count) -> list[str]:
    text = "\n".join(line.text for line in lines)
    if len(lines) < 2 or count(text) <= room:
        return [text]
    at = _middle(lines)
    return _halves(lines[:at], room, count) + _halves(lines[at:], room, count)


def _middle(lines: Sequence[_Line]) -> int:
    """Where to part lines: at the turn that begins nearest to the middle, else at the exchange that
    does, else there.
    """
    middle = len(lines) // 2
    inner = range(1, len(lines))
    near = [n for n in inner if lines[n].turn] or [n for n in inner if lines[n].whole] or [middle]
    return min(near, key=lambda n: abs(n - middle))


def describe_messages(messages: Iterable[Message]) -> list[str]:
    """Each message as a model reads of it: `role: words`, and a line `tool NAME: …` for each call
    and each result.
    """
    names: dict[str, str] = {}
    return [_describe_message(message, names) for message in messages]


def _describe_message(message: Message, names: dict[str, str]) -> str:
    thoughts: list[str] = []
    said: list[str] = []
    used: list[str] = []
    for part in message.parts:
        match part:
            case Reasoning():
                thoughts += (
                    [f"{message.role} (thinking): {_one_line(part.text)}"]
                    if part.text.strip()
                    else []
                )
            case ToolCall():
                names[part.id] = _one_line(part.name)
                used.append(
                    f"tool {names[part.id]}: called with {_one_line(part.arguments) or 'nothing'}"
                )
            case ToolResult():
                name = _one_line(part.name) or names.get(part.call_id, "unknown")
                failed = "failed: " if part.error else ""
                used.append(
                    f"tool {name}: "
                    f"{failed}{_one_line(' '.join(map(_inner, part.parts))) or 'no output'}"
                )
            case Text() | Media() | Opaque():
                said.append(_inner(part))
            case _:
                assert_never(part)
    words = _printable("\n".join(said)).strip()
    return "\n".join((*thoughts, *([f"{message.role}: {words}"] if words else []), *used))


def _inner(part: Text | Media | Opaque) -> str:
    match part:
        case Text():
            return part.text
        case Media():
            if part.name:
                shown = f"[{part.kind} {_one_line(part.name)}]"
            else:
                shown = f"[{part.kind}]"
            if part.source == "text":
                return f"{shown} {part.value}"
            return shown
        case Opaque():
            return f"[{part.wire}] {shorten(part.json, MAX_OPAQUE_CHARS)}"


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _keep_both_ends(text: str, tokens: int, count: Count) -> str:
    """Beginning and end of a text, and how much is missing between them, in at most so many
    tokens.
    """

    def kept(length: int) -> str:
        head = int(length * HEAD_SHARE)
        tail = length - head
        return (
            f"{text[:head]}[… {len(text) - length:,} characters left out "
            f"…]{text[len(text) - tail :] if tail else ''}"
        )

    return kept(
        _find_longest(lambda length: count(kept(length)) <= tokens, min(len(text), tokens * 12))
    )


def _find_longest(fits: Callable[[int], bool], most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


@cache
def _prompt(name: str) -> str:
    return (
        files("loom.context")
        .joinpath("prompts", f"{name}.txt")
        .read_text(encoding="utf-8")
        .removesuffix("\n")
    )


def system_prompt(tokens: int) -> str:
    """What a model that summarizes is told of its work."""
    return _prompt("system").format(words=max(1, tokens * 3 // 4))


def summary_prompt(conversation: str, existing: str = "") -> str:
    """Seed 002's words, around a conversation in a fence that nothing in it can close."""
    runs = re.findall(r"`{3,}", conversation)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    before = f"Existing context: {existing}\n" if existing else ""
    return _prompt("summary").format(
        existing=before, conversation=f"{fence}\n{conversation}\n{fence}"
    )


def merge_prompt(first: str, second: str) -> str:
    """Seed 002's words."""
    return _prompt("merge").format(first=first, second=second)


# What is made without a model


def fallback(messages: Iterable[Message], tokens: int, count: Count, existing: str = "") -> str:
    """Seed 002's summary where no model makes one: the beginning of each message, after what was
    summarized before.

    In at most this many tokens: then less of each message, and at last only the first and the last
    of them.
    """
    lines = [_one_line(text).partition(": ") for text in describe_messages(messages) if text]
    before = f"{existing}\n\n" if existing else ""
    for least in SNIPPETS:
        share = SHARE if least == SNIPPET_CHARS else 0
        made = _extract(lines, share, least)
        if count(before + made) <= tokens:
            return before + made
    if existing:
        before = f"{_cut(existing, tokens // 2, count)}\n\n"
    return _cut(
        before + _keep_both_ends(made, max(0, tokens - count(before) - 1), count), tokens, count
    )


def _extract(lines: Iterable[tuple[str, str, str]], share: int, least: int) -> str:
    said = []
    for role, _, words in lines:
        kept = max(len(words) * share // 100, least)
        said.append(f"{role}: {words[:kept]}{'...' if kept < len(words) else ''}")
    return f"Conversation summary: {' | '.join(said)}"


# What is made of an answer

_HANDLE = re.compile(rf"~[a-z2-7]{{{HANDLE_CHARS - 1}}}", re.IGNORECASE)
# Control characters, halves of surrogate pairs, and characters that nobody sees or that turn others
# around.
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_ROLES = "system|developer|user|assistant|human|instructions?"
_IMITATES = re.compile(
    rf"[\s*_#`+-]*(?:(?:{_ROLES}|tool)[\s*_`]*[:：]|tool\s+\S{{1,64}}[:：]"
    r"|context_summary|existing context:|conversation:)"
    rf"|\s*(?:→|={{3,}}|</?\s*(?:{_ROLES}|tool|conversation|summary)\b)"
    r"|\s*\[(?:[^\]]{0,200}\brecall\b|(?:emergency compression|note|summary|collapsed)\b"
    r"|\w{1,12}\] .{1,80} · )"
    r"|(?!>).*(?:<\||\|>|\[/?INST\]|<</?SYS>>)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?…][\"')\]]*(?=\s)|[。！？]|\n")


def clean_summary(text: str, tokens: int, count: Count, known_handles: Collection[str] = ()) -> str:
    """What a model said, as harmless words in at most this many tokens; "" if nothing is left.

    A handle that is not known is taken out, and a line that looks like a role, a marker or a
    command is quoted.
    """
    lines = [line.rstrip() for line in _printable(text).strip().split("\n")]
    quoted = "\n".join(f"> {line}" if _IMITATES.match(line) else line for line in lines)
    known = _HANDLE.sub(lambda found: found[0] if found[0] in known_handles else UNKNOWN, quoted)
    made = _cut(known, tokens, count)
    if any(map(str.isalnum, made.replace(UNKNOWN, ""))):
        return made
    return ""


def _printable(text: str) -> str:
    """A text without control characters, halves of surrogate pairs, and what turns or hides
    characters; every line break is one.
    """
    return _HIDDEN.sub("", "\n".join(text.splitlines()))


def _cut(text: str, tokens: int, count: Count) -> str:
    """The text up to a sentence or a line that ends within this many tokens."""
    if count(text) <= tokens:
        return text

    def kept(length: int) -> str:
        return f"{text[:length].rstrip()} …"

    length = _find_longest(
        lambda length: count(kept(length)) <= tokens, min(len(text), tokens * 12)
    )
    ends = [found.end() for found in _SENTENCE.finditer(text, 0, length)]
    # Too much would be lost with a sentence that is long; then a word is the end, and at last a
    # letter.
    if ends and ends[-1] * 2 > length:
        best = ends[-1]
    else:
        best = text.rfind(" ", 0, length)
    best = best if best * 2 > length else length
    # A tokenizer may take more for less.
    best = next((n for n in (best, length) if count(kept(n)) <= tokens), 0)
    return kept(best) if best else ""


# Notes


def add_dropped_note(summary: str, count: int) -> str:
    """The summary with a note that this many messages more were dropped before it."""
    words, notes = apart(summary)
    return add_notes(words, notes + Notes(dropped=max(0, count)))


def add_notes(words: str, notes: Notes) -> str:
    """A summary with its notes, that of dropped messages apart from the others."""
    others = Notes(shortened=notes.shortened, omitted=notes.omitted).lines
    summary = "\n".join(filter(None, (words, *others)))
    return "\n\n".join(filter(None, (summary, *Notes(notes.dropped).lines)))


def apart(summary: str) -> tuple[str, Notes]:
    """The words of a summary, and its notes added up."""
    dropped, shortened = (
        sum(map(int, _pattern(note).findall(summary))) for note in (EMERGENCY, SHORTENED)
    )
    omitted = bool(_pattern(OMITTED).search(summary))
    for note in (EMERGENCY, SHORTENED, OMITTED):
        summary = _pattern(note).sub("", summary)
    return summary.rstrip(), Notes(dropped, shortened, omitted)


@cache
def _pattern(note: str) -> re.Pattern[str]:
    words = re.escape(note).replace(re.escape("{count}"), r"(\d{1,12})")
    return re.compile(rf"^{words}[^\S\n]*(?:\n|\Z)", re.MULTILINE)
