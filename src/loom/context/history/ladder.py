"""The ladder of seed 001: at which pressure a view of the history is made smaller, and how.

Rules of this file:
- A rung is a pure function from a view to a view that is never larger. Applied again it changes
  nothing.
- Rungs keep ids, order and pairs: an exchange is touched message by message, or goes whole.
- Pins, the first goal, the current request and what the model has not answered yet are spared.
- What is cut leaves a marker with a handle. Thresholds are a table; a preset takes one rung a call,
  the highest it has reached.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import exp

from msgspec import Struct
from msgspec.structs import replace

from loom.context.history.fitting import Fitting
from loom.context.history.pieces import cost_of, cover, keep, leave_out, shrink
from loom.context.report import Piece
from loom.context.shorten.shrink import find_originals
from loom.conversation.message import Media, Message, Opaque, Part, Text, ToolResult
from loom.conversation.turns import Span, exchanges
from loom.conversation.words import split_terms
from loom.errors import ChoiceError

SNIP_CHARS, REACTIVE_SNIP_CHARS = 2000, 500  # what is left of a long text
PREVIEW_CHARS = 240  # of a tool's result that was answered
FIRST_MESSAGES, LAST_MESSAGES = 3, 5  # what a collapse leaves at either end
MAX_LINE_CHARS, MAX_END_LINES = 120, 60  # of a message in a collapse, and lines at each end of it
# of auto: what it keeps at least, K and lambda
MIN_KEPT_UNITS, SCORE_WEIGHT, SCORE_DECAY = 5, 1.0, 0.5


View = tuple[Piece, ...]
Rung = Callable[[View, Fitting], View]
Tell = Callable[[Sequence[Piece], Fitting], str]
# from what is shown, what came, the message and the place in it
_Shorter = Callable[[str, str, int, str], str]


class Threshold(Struct, frozen=True):
    """A rung and the pressure past which it is taken."""

    name: str
    above: float


class Ladder(Struct, frozen=True):
    """The thresholds, lowest first."""

    steps: tuple[Threshold, ...]

    def __post_init__(self) -> None:
        for step in self.steps:
            if step.name not in RUNGS or not 0 <= step.above <= 1:
                raise ChoiceError(
                    f"rung {step.name!r} above {step.above}: name one of {', '.join(RUNGS)} and a "
                    "share from 0 to 1"
                )
        if any(low.above >= high.above for low, high in pairwise(self.steps)):
            raise ChoiceError("the thresholds of a ladder must rise from step to step")

    def find_reached(self, pressure: float) -> str:
        """The highest rung that this pressure has passed; "" for none."""
        return next((step.name for step in reversed(self.steps) if pressure > step.above), "")


def keep_whole(fitting: Fitting, start: int = 0, stop: int | None = None) -> View:
    """The history as it is from a place on, a piece for each exchange; of a stretch that was not
    read, a marker.
    """
    spans = (
        Span(start + span.start, start + span.stop)
        for span in exchanges(fitting.history[start:stop])
    )
    return tuple(
        _mark(fitting, span) if fitting.places.unread(span.start) else keep(fitting, span, "fits")
        for span in spans
    )


def find_spared(history: Sequence[Message], pins: Iterable[int]) -> frozenset[int]:
    """Pins, the first goal, the current request, and the exchange at the end that the model has not
    read yet.
    """
    users = [n for n, message in enumerate(history) if message.role == "user"]
    found = {*pins, *users[:1], *users[-1:]}
    if history and history[-1].role == "tool":
        newest = exchanges(history)[-1]
        found.update(range(newest.start, newest.stop))
    return frozenset(found)


# Rungs


def snip(view: View, fitting: Fitting, limit: int = SNIP_CHARS) -> View:
    """Long texts become their first characters."""

    own = _handles_by_index(view)

    def shorter(text: str, original: str, index: int, path: str) -> str:
        if len(text) <= limit:
            return text
        cut_before = _SNIPPED.search(text, max(0, len(text) - 80))
        if cut_before and _ends_with_one_of(text, own[index]):
            left, gone, handle = cut_before.start(), int(cut_before[1]), cut_before[2]
        else:
            # what the gate cut before is cut again, so that the handle gives all of it back
            text = original
            left, gone, handle = len(text), 0, fitting.archive.keep_part(index, path, text)
        if left <= limit:
            return text
        return f"{text[:limit]}\n[...snipped {gone + left - limit} chars] (recall {handle})"

    return tuple(_rewritten(piece, fitting, "snip", shorter) for piece in view)


_SNIPPED = re.compile(r"\n\[\.\.\.snipped (\d+) chars\] \(recall (~[a-z2-7]{12})\)$")


def _handles_by_index(view: View) -> dict[int, tuple[str, ...]]:
    """The handles under which texts of each message were cut before."""
    return {
        piece.span.start + n: item.handles for piece in view for n, item in enumerate(piece.items)
    }


def _ends_with_one_of(text: str, handles: tuple[str, ...]) -> bool:
    """Whether a marker of ours stands last; others can write what looks like one."""
    return text.endswith(tuple(f"(recall {handle})" for handle in handles))


def micro(view: View, fitting: Fitting) -> View:
    """Results of tools that were answered already: those that came before are named, others become
    a preview.
    """
    own, seen = _handles_by_index(view), _SeenResults()

    def smaller(part: Part, index: int, number: int) -> Part:
        if not isinstance(part, ToolResult) or index in fitting.spared or not _is_plain(part):
            return part
        shown = _text_of(part)
        if shown.startswith(_CACHED) and _ends_with_one_of(shown, own[index]):
            return part
        text = _find_original(fitting, index, number, shown)
        first = seen.find_first(part, text)
        if not first and len(text) <= PREVIEW_CHARS:
            return part
        made = _name_result(
            part, text, first, fitting.archive.keep_part(index, f"{number}.0", text)
        )
        if len(made) < len(shown):
            return replace(part, parts=(Text(made),))
        return part

    def rewrite(piece: Piece) -> Piece:
        made = []
        for index, message in _kept_messages(piece):
            parts = tuple(smaller(part, index, n) for n, part in enumerate(message.parts))
            made.append(message if parts == message.parts else replace(message, parts=parts))
        return shrink(fitting, piece, made, "micro")

    return tuple(map(rewrite, view))


class _SeenResults:
    """Which results of tools came before."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], str] = {}
        self._called: set[str] = set()

    def find_first(self, result: ToolResult, text: str) -> str:
        """The call that had the same result before; "" where this is the first."""
        first = self._first.setdefault((result.name, text), result.call_id)
        again = first != result.call_id or result.call_id in self._called
        self._called.add(result.call_id)
        return first if again else ""


def _is_plain(result: ToolResult) -> bool:
    """Whether a result is text, and nothing that a preview could not show."""
    return bool(_text_of(result)) and not any(
        isinstance(part, Media | Opaque) for part in result.parts
    )


def _name_result(result: ToolResult, text: str, first: str, handle: str) -> str:
    """What stands for a result: the call that had it before, or a preview."""
    if first:
        return f"[cached {result.name or 'tool'} result from {first}] (recall {handle})"
    preview = " | ".join(line.strip() for line in text.splitlines() if line.strip())[:PREVIEW_CHARS]
    return f"[tool result cached: {len(text)} chars] {preview} (recall {handle})"


_CACHED = ("[cached ", "[tool result cached: ")


def _text_of(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.parts if isinstance(part, Text))


def _find_original(fitting: Fitting, index: int, number: int, shown: str) -> str:
    """The text of a result as it came, which an earlier rung may have cut; what is shown of it
    where it was not read.
    """
    if fitting.places.unread(index) or number >= len(fitting.history[index].parts):
        return shown
    result = fitting.history[index].parts[number]
    if isinstance(result, ToolResult):
        return _text_of(result)
    return shown


def collapse(view: View, fitting: Fitting) -> View:
    """The middle becomes one message that tells how each of its messages begins."""
    if fitting.length < FIRST_MESSAGES + LAST_MESSAGES + 1:
        return view
    middle = [
        piece
        for piece in view
        if fitting.position(piece.span.start) >= FIRST_MESSAGES
        and fitting.position(piece.span.stop) <= fitting.length - LAST_MESSAGES
        and not _is_spared(piece, fitting)
    ]
    return _cover_runs(view, middle, fitting, "collapse", _tell_beginnings)


def auto(view: View, fitting: Fitting) -> View:
    """Of all exchanges the better half stays, by how they relate to the goal and how old they
    are.
    """
    unread = map(fitting.places.unread, (span.start for span in exchanges(fitting.history)))
    most = max(MIN_KEPT_UNITS, sum(spot.exchanges if spot else 1 for spot in unread) // 2)
    standing = [piece for piece in view if piece.action != "dropped"]
    scores = {piece.span.start: score(piece, fitting) for piece in standing}
    must = [piece for piece in standing if _is_spared(piece, fitting)]
    others = sorted(
        (p for p in standing if p not in must),
        key=lambda p: (scores[p.span.start], p.span.start),
        reverse=True,
    )
    gone = others[max(most - len(must), 0) :]
    return _cover_runs(view, gone, fitting, "auto", lambda run, fitting: "")


def reactive(view: View, fitting: Fitting) -> View:
    """After a provider's overflow: the better half, and of that only beginnings."""
    return snip(auto(view, fitting), fitting, REACTIVE_SNIP_CHARS)


RUNGS: dict[str, Rung] = {
    "snip": snip,
    "micro": micro,
    "collapse": collapse,
    "auto": auto,
    "reactive": reactive,
}


def score(piece: Piece, fitting: Fitting) -> float:
    """K · rel · e^(−λ · age): how many of the goal's words an exchange says, and how far back it
    stands.
    """
    goal = frozenset(split_terms(fitting.goal))
    found = {word for message in piece.messages for word in split_terms(_all_text(message))}
    relevance = len(goal & found) / len(goal) if goal else 0.5
    age = (fitting.length - fitting.position(piece.span.start)) / fitting.length
    return round(SCORE_WEIGHT * relevance * exp(-SCORE_DECAY * age), 9)


# Below


def _kept_messages(piece: Piece) -> Iterable[tuple[int, Message]]:
    """The messages of a piece that stand for themselves, with their places; of what was covered,
    none.
    """
    if not piece.is_left_out:
        yield from zip(range(piece.span.start, piece.span.stop), piece.messages, strict=True)


def _is_spared(piece: Piece, fitting: Fitting) -> bool:
    return any(index in fitting.spared for index in range(piece.span.start, piece.span.stop))


def _rewritten(piece: Piece, fitting: Fitting, rule: str, shorter: _Shorter) -> Piece:
    """The piece with its texts made shorter, each from what is shown of it and from the text as it
    came.
    """
    made = []
    for index, message in _kept_messages(piece):
        if index in fitting.spared:
            made.append(message)
            continue
        originals = message.parts
        if not fitting.places.unread(index):
            originals = find_originals(fitting.history[index], message)
        pairs = enumerate(zip(message.parts, originals, strict=True))
        parts = tuple(
            _rewrite_part(part, original, index, f"{n}", shorter) for n, (part, original) in pairs
        )
        made.append(message if parts == message.parts else replace(message, parts=parts))
    return shrink(fitting, piece, made, rule)


def _rewrite_part(part: Part, original: Part, index: int, path: str, shorter: _Shorter) -> Part:
    match part, original:
        case Text(), Text():
            return replace(part, text=shorter(part.text, original.text, index, path))
        case ToolResult(), ToolResult():
            inner = [
                replace(each, text=shorter(each.text, came.text, index, f"{path}.{k}"))
                if isinstance(each, Text) and isinstance(came, Text)
                else each
                for k, (each, came) in enumerate(zip(part.parts, original.parts, strict=True))
            ]
            return replace(part, parts=tuple(inner))
    return part


def _mark(fitting: Fitting, span: Span) -> Piece:
    """A marker for a stretch that was not read, whatever it takes."""
    return leave_out(
        fitting,
        span,
        "not read",
        sum(spot.tokens for spot in fitting.places.spots[span.start : span.stop]),
    )


def _cover_runs(view: View, gone: Sequence[Piece], fitting: Fitting, rule: str, tell: Tell) -> View:
    """The view with each run of these pieces, and of what was covered next to them, as one message
    with a handle.
    """
    away = {piece.span.start for piece in gone}
    made: list[Piece] = []
    run: list[Piece] = []
    for piece in (*view, None):
        if piece is not None and (piece.span.start in away or (run and piece.is_left_out)):
            run.append(piece)
            continue
        if run:
            made += _join_run(run, fitting, rule, tell)
            run = []
        if piece is not None:
            made.append(piece)
    return tuple(made)


def _join_run(run: list[Piece], fitting: Fitting, rule: str, tell: Tell) -> list[Piece]:
    span = Span(run[0].span.start, run[-1].span.stop)
    if len(run) == 1 and run[0].is_left_out:
        return run
    before = sum(piece.tokens_before for piece in run)
    made, text = leave_out(fitting, span, rule, before), tell(run, fitting)
    if text:
        made = cover(fitting, made, f"[{text}] (recall {made.items[0].handles[0]})")
    # A marker that is larger than what it stands for helps nobody.
    if made.tokens < cost_of(run):
        return [made]
    return run


def _tell_beginnings(run: Sequence[Piece], fitting: Fitting) -> str:
    """How each message of some pieces begins; of very many, those at their ends. An earlier
    collapse keeps its lines.
    """
    goal = ""
    if fitting.goal:
        goal = f" (goal: {_first_sentence(fitting.goal)})"
    lines: list[str] = []
    count = 0
    for piece in run:
        messages = fitting.count(piece.span)
        count += messages
        if piece.is_left_out:
            lines += _collapsed_lines(piece, goal) or [f"… {messages} more …"]
        else:
            said = fitting.history[piece.span.start : piece.span.stop]
            lines += [f"[{message.role}] {_first_sentence(_all_text(message))}" for message in said]
    if len(lines) > 2 * MAX_END_LINES:
        more = sum(
            int(found[1]) if (found := _MORE.fullmatch(line)) else 1
            for line in lines[MAX_END_LINES:-MAX_END_LINES]
        )
        lines = [*lines[:MAX_END_LINES], f"… {more} more …", *lines[-MAX_END_LINES:]]
    return f"collapsed {count} messages{goal}: {' | '.join(lines)}"


_MORE = re.compile(r"… (\d+) more …")


def _collapsed_lines(piece: Piece, goal: str) -> list[str]:
    """The lines of an earlier collapse; none of what was left out without a word."""
    found = re.fullmatch(
        rf"\[collapsed \d+ messages{re.escape(goal)}: (.*)\] \(recall ~[a-z2-7]+\)",
        piece.messages[0].text,
        re.DOTALL,
    )
    if found:
        return found[1].split(" | ")
    return []


def _first_sentence(text: str) -> str:
    """The first sentence, or the first characters."""
    line = " ".join(text.split())
    end = _SENTENCE.search(line)
    first = line[: end.end()].strip() if end else line
    if len(first) <= MAX_LINE_CHARS:
        return first
    return line[:MAX_LINE_CHARS]


_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？]")


def _all_text(message: Message) -> str:
    texts = [message.text]
    texts += [
        part.text for result in message.results for part in result.parts if isinstance(part, Text)
    ]
    texts += [f"{call.name} {call.arguments}" for call in message.calls]
    return "\n".join(text for text in texts if text)
