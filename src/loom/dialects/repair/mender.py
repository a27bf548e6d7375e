"""The mender: one pass over a stream of messages, which moves, maps, drops or adds what every wire
needs, and notes each change.

It holds back a model message until its calls are answered or given up, so it works on a history of
any length.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import is_sendable, to_sendable
from loom.conversation.message import (
    WIRE_NAMES,
    Carried,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.parts import text_of, walk_parts
from loom.dialects import WIRES
from loom.dialects.input.answer_fields import drop_answer_fields
from loom.dialects.openai.rules import MAX_CALLS, MAX_ID, is_author, to_author
from loom.dialects.wire import carried_fields, carried_form, carry, remember
from loom.errors import shorten

UNANSWERED = "[no result: this call was never answered]"
MAX_HELD_MESSAGES = 10_000  # how many messages of a stream are held back for a late result
MAX_HELD_CHARS = 16_000_000  # and how many characters of them
ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_ID}}}")


class Change(Struct, frozen=True):
    """One thing that repair did: which rule asked for it, at which message of the history given
    (-1: outside it), and what.
    """

    rule: str
    message: int
    what: str


class _Call(Struct):
    """A call, the id it was written with, and whether its result has been found."""

    call: ToolCall
    written: str
    answered: bool = False
    early: tuple[int, ToolResult] | None = None


class HeldMessage(Struct):
    """A message on its way out, with the tool messages that answer it."""

    index: int
    message: Message
    calls: list[_Call]
    answers: list[Message]
    origins: list[int] = []

    @property
    def waits(self) -> bool:
        return any(not call.answered for call in self.calls)

    def copy(self) -> "HeldMessage":
        """For whoever lets it go for a try."""
        return HeldMessage(
            self.index,
            self.message,
            [replace(call) for call in self.calls],
            self.answers[:],
            self.origins[:],
        )


class Mender:
    """Mends a stream of messages, holding back only what waits for a result."""

    def __init__(self, reach: int = MAX_HELD_MESSAGES, weight: int = MAX_HELD_CHARS) -> None:
        self.changes: list[Change] = []
        self.ids: dict[str, str] = {}
        self._reach = reach
        self._weight = weight
        self._queue: deque[HeldMessage] = deque()
        self._held = 0  # characters of what is held back
        # written id -> the messages that wait for it, the newest last
        self._waiting: dict[str, list[HeldMessage]] = {}
        self._given_up: dict[str, None] = {}
        self._names: dict[str, int] = {}  # written id -> how many names were made for it
        self._answered: dict[str, None] = {}
        self._used: dict[str, None] = {}
        # results that stand directly before a model message
        self._early: list[tuple[int, ToolResult]] = []

    def mend(self, messages: Iterable[Message]) -> Iterator[Message]:
        index = -1
        for index, message in enumerate(messages):
            self.take(index, message)
            yield from self._release(index, last=False)
        self._drop_early()
        yield from self._release(index, last=True)
        self.changes.sort(key=lambda change: change.message)

    def take_held(self) -> list[HeldMessage]:
        """All that is held back, for whoever lets go of it himself. Only the last stays here too:
        it must be known.
        """
        held = list(self._queue)
        self._queue = deque(held[-1:])
        return held

    def _note(self, rule: str, index: int, what: str) -> None:
        self.changes.append(Change(rule, index, what))

    # ── one message ──

    def mend_system(self, system: Iterable[Message]) -> tuple[Message, ...]:
        kept = []
        for given in system:
            message = self.mend_parts(-1, self._replace_halves(-1, given))
            if message.parts:
                kept.append(message)
            else:
                self._note("empty-message", -1, "dropped an empty system message")
        return tuple(kept)

    def mend_parts(self, index: int, message: Message) -> Message:
        """The message without what no wire, or not every wire, takes: blank texts, reasoning that
        leads to nothing.
        """
        message = self._respell_author(index, self._drop_answer_fields(index, message))
        kept: list[Part] = []
        # whether something to see follows, on each wire
        leads = dict.fromkeys(WIRE_NAMES, False)
        for given in reversed(message.parts):
            part = self._respell(index, given)
            match part:
                case Text() if not part.text.strip():
                    self._note("empty-text", index, "dropped a text without words")
                    continue
                case Opaque() if not part.answers and part.json == "{}":
                    self._note("empty-content", index, "dropped an item without content")
                    continue
                case ToolCall() | Reasoning() if message.role != "assistant":
                    self._note(
                        "block-place",
                        index,
                        f"dropped a {type(part).__name__} from a message of the {message.role}",
                    )
                    continue
                case ToolResult():
                    self._note(
                        "block-place",
                        index,
                        f"dropped a result from a message of the {message.role}: {_excerpt(part)}",
                    )
                    continue
                case Reasoning() if not leads.get(part.origin, False):
                    self._note("reasoning-alone", index, "dropped reasoning that leads to nothing")
                    continue
                case Reasoning() if part.origin == "anthropic" and not _is_signed(part):
                    self._note("thinking-signed", index, "dropped thinking without its signature")
                    continue
                case Text() | Media() | ToolCall():
                    leads = dict.fromkeys(leads, True)
                case Opaque():
                    leads[part.wire] = True
            kept.append(part)
        kept.reverse()
        if len(kept) != len(message.parts) or any(
            a is not b for a, b in zip(kept, message.parts, strict=True)
        ):
            message = replace(message, parts=tuple(kept))
        if (
            "list" in carried_form(message.carried, "openai")
            and not any(isinstance(p, Text | Media | Opaque) for p in kept)
            and kept
        ):
            self._note("empty-content", index, "wrote an empty list of content as none")
            message = replace(message, carried=_without_form(message.carried, "list"))
        return message

    def _replace_halves(self, index: int, message: Message) -> Message:
        """The message in texts that can be sent."""
        if is_sendable_message(message):
            return message
        self._note(
            "surrogate",
            index,
            f"wrote U+FFFD for half of a surrogate pair in a message of the {message.role}",
        )
        return replace(
            message,
            parts=tuple(map(_sendable_part, message.parts)),
            author=to_sendable(message.author),
        )

    def _respell_author(self, index: int, message: Message) -> Message:
        if not message.author or is_author(message.author):
            return message
        author = to_author(message.author)
        self._note("name-form", index, f"wrote the name {shorten(message.author)!r} as {author!r}")
        return replace(message, author=author)

    def _drop_answer_fields(self, index: int, message: Message) -> Message:
        message, dropped = drop_answer_fields(message)
        for rule in dict.fromkeys(dropped.values()):
            names = ", ".join(name for name, broken in dropped.items() if broken == rule)
            self._note(rule, index, f"dropped what only answers have: {names}")
        return message

    def _respell(self, index: int, part: Part) -> Part:
        """The part without a spelling that its own wire refuses."""
        if isinstance(part, Text | ToolCall) and part.carried is not None:
            bad = _REFUSED.get((part.carried.wire, type(part).__name__), frozenset()).intersection(
                part.carried.form
            )
            if isinstance(part, ToolCall) and part.kind not in ("function", "custom"):
                bad = frozenset()
            if bad:
                self._note(
                    "spelling",
                    index,
                    f"wrote a {'text' if isinstance(part, Text) else 'call'} as its wire demands",
                )
                part = replace(part, carried=_without_form(part.carried, *bad))
            if isinstance(part, ToolCall) and "id" in (
                fields := carried_fields(part.carried, "openai")
            ).get("outer", {}):
                self._note("call-id", index, "dropped an id that is not a text")
                del fields["outer"]["id"]
                part = replace(
                    part, carried=carry("openai", fields, carried_form(part.carried, "openai"))
                )
        return part

    def take(self, index: int, message: Message) -> None:
        """Take in the next message, at its place in the history."""
        message = self._replace_halves(index, message)
        if message.role == "tool":
            self._take_results(index, message)
        else:
            self._take(index, message)

    def _take(self, index: int, message: Message) -> None:
        message = self.mend_parts(index, message)
        message = self._drop_server_orphans(index, message)
        if not message.parts:
            self._note("empty-message", index, f"dropped an empty message of the {message.role}")
            self._drop_early()
            return
        calls = [self._name(index, call) for call in message.calls]
        if any(call.call.id != call.written for call in calls):
            renamed = iter(calls)
            parts = tuple(
                next(renamed).call if isinstance(part, ToolCall) else part for part in message.parts
            )
            message = replace(message, parts=parts)
        if len(calls) > MAX_CALLS:
            self._note(
                "too-many-calls",
                index,
                f"split {len(calls)} calls into messages of at most {MAX_CALLS}",
            )
        for chunk in _split(message, calls):
            held = HeldMessage(index, *chunk, [])
            self._queue.append(held)
            self._held += _weight(held.message)
            for call in held.calls:
                self._waiting.setdefault(call.written, []).append(held)
                call.early = self._take_early(call.written)
        self._drop_early()

    def _name(self, index: int, call: ToolCall) -> _Call:
        """The call under an id that every wire accepts and no other call has."""
        new = call.id
        if not ID.fullmatch(new) or new in self._used:
            reason = "an id that a wire refuses"
            if new in self._used:
                reason = "an id that is already used"
            count = self._names.get(call.id, 0)
            while new == call.id or new in self._used:
                new = (
                    "call_"
                    + blake2b(
                        f"{call.id}#{count}".encode(errors="surrogatepass"), digest_size=12
                    ).hexdigest()
                )
                count += 1
            self._names[call.id] = count
            self._note("call-id", index, f"mapped {reason}: {shorten(call.id)!r} is now {new!r}")
            self.ids[new] = call.id
        remember(self._used, new)
        return _Call(call if new == call.id else replace(call, id=new), call.id)

    def _drop_server_orphans(self, index: int, message: Message) -> Message:
        """Without the answers of server tools that nobody asked."""
        asked: set[tuple[str, str]] = set()
        kept: list[Part] = []
        for part in message.parts:
            if isinstance(part, Opaque) and part.call_id and message.role == "assistant":
                key = (part.wire, part.call_id)
                if part.answers and key not in asked:
                    self._note(
                        "server-tool-pair",
                        index,
                        f"dropped a server tool's result without its use {part.call_id!r}",
                    )
                    continue
                asked.discard(key) if part.answers else asked.add(key)
            kept.append(part)
        if len(kept) == len(message.parts):
            return message
        return self.mend_parts(index, replace(message, parts=tuple(kept)))

    def _drop_server_uses(self, held: HeldMessage) -> None:
        """Without what a server tool was asked and never answered; only the last message of all may
        leave that open.
        """
        answered = {
            (p.wire, p.call_id) for p in held.message.parts if isinstance(p, Opaque) and p.answers
        }
        kept: list[Part] = []
        for part in held.message.parts:
            if (
                isinstance(part, Opaque)
                and part.call_id
                and not part.answers
                and (part.wire, part.call_id) not in answered
            ):
                self._note(
                    "server-tool-pair",
                    held.index,
                    f"dropped a server tool's use without a result {part.call_id!r}",
                )
            else:
                kept.append(part)
        if len(kept) != len(held.message.parts):
            held.message = self.mend_parts(held.index, replace(held.message, parts=tuple(kept)))

    # ── results ──

    def _take_results(self, index: int, message: Message) -> None:
        """Give each result to its call; keep the message as it is where all of it belongs to the
        message just before.
        """
        if not message.parts:
            self._note("empty-message", index, "dropped an empty message of the tool")
        shares: list[tuple[HeldMessage, list[Part]]] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                self._note(
                    "empty-message",
                    index,
                    "dropped a part that is not a result from a tool message",
                )
                continue
            held, call = self._find(part.call_id)
            if held is None or call is None:
                if part.call_id in self._given_up:
                    late = (
                        "dropped a result that came too late, its call "
                        f"{shorten(part.call_id)!r} was given up"
                    )
                    self._note("late-result", index, f"{late}: {_excerpt(part)}")
                elif part.call_id in self._answered:
                    self._note(
                        "duplicate-result",
                        index,
                        f"dropped a second result for {shorten(part.call_id)!r}: {_excerpt(part)}",
                    )
                else:
                    self._early.append((index, part))
                continue
            call.answered = True
            remember(self._answered, part.call_id)
            self._given_up.pop(part.call_id, None)
            if held is not self._queue[-1]:
                self._note(
                    "late-result",
                    index,
                    f"moved the result for {shorten(part.call_id)!r} after its call",
                )
            if not shares or shares[-1][0] is not held:
                shares.append((held, []))
            shares[-1][1].append(self._fit_result(index, part, call))
        for held, results in shares:
            self._answer(held, index, message, results)

    def _find(self, call_id: str) -> tuple[HeldMessage | None, _Call | None]:
        """The newest message that waits for a result of this id, and the first such call in it."""
        waiting = self._waiting.get(call_id, [])
        while waiting:
            for call in waiting[-1].calls:
                if call.written == call_id and not call.answered:
                    return waiting[-1], call
            waiting.pop()
        return None, None

    def _answer(self, held: HeldMessage, index: int, message: Message, results: list[Part]) -> None:
        parts = tuple(results)
        answer = None
        if len(parts) == len(message.parts) and all(
            a is b for a, b in zip(parts, message.parts, strict=True)
        ):
            answer = message
        answer = answer or replace(message, parts=parts)
        if held.answers and "apart" in carried_form(answer.carried, "anthropic"):
            self._note("unanswered-call", index, "joined results that were in separate messages")
            answer = replace(
                answer, carried=carry("anthropic", carried_fields(answer.carried, "anthropic"))
            )
        held.answers.append(answer)
        held.origins.append(index)
        self._held += _weight(answer)

    def _fit_result(self, index: int, result: ToolResult, call: _Call) -> ToolResult:
        listed = len(result.parts) > 1 or "list" in carried_form(result.carried, "anthropic")
        kept = tuple(
            p
            for p in result.parts
            if not (
                isinstance(p, Text) and not p.text.strip() and (listed or p.carried is not None)
            )
        )
        if len(kept) != len(result.parts):
            self._note("empty-text", index, "dropped a text without words from a result")
            result = replace(result, parts=kept)
        if not kept:
            refused = {"null", "absent", "list"}.intersection(
                carried_form(result.carried, "openai")
            )
        else:
            refused = set()
        refused |= {"absent"}.intersection(carried_form(result.carried, "responses"))
        if refused:
            self._note(
                "no-content", index, "wrote the missing content of a result as an empty text"
            )
            result = replace(result, carried=_without_form(result.carried, *refused))
        if "tool_call_id" in (fields := carried_fields(result.carried, "openai")):
            self._note("call-id", index, "dropped an id of a result that is not a text")
            del fields["tool_call_id"]
            result = replace(
                result, carried=carry("openai", fields, carried_form(result.carried, "openai"))
            )
        if result.call_id != call.call.id:
            result = replace(result, call_id=call.call.id)
        return result

    def _take_early(self, call_id: str) -> tuple[int, ToolResult] | None:
        for n, (_, result) in enumerate(self._early):
            if result.call_id == call_id:
                return self._early.pop(n)
        return None

    def _drop_early(self) -> None:
        self.changes += self.orphans()
        self._early.clear()

    def orphans(self) -> list[Change]:
        """What is to be said of the results that no call follows, if nothing more comes."""
        dropped = "dropped a result without a call"
        return [
            Change(
                "orphan-result", index, f"{dropped} {shorten(result.call_id)!r}: {_excerpt(result)}"
            )
            for index, result in self._early
        ]

    # ── leaving ──

    def _release(self, index: int, last: bool) -> Iterator[Message]:
        """Let go of what is complete, what has waited too long, and at the end of everything."""
        while self._queue:
            held = self._queue[0]
            near = index - held.index <= self._reach and self._held <= self._weight
            if (
                not last
                and (len(self._queue) == 1 or held.waits)
                and (near or len(self._queue) == 1)
            ):
                return
            self._queue.popleft()
            self._held -= _weight(held.message) + sum(map(_weight, held.answers))
            self.forget(held)
            yield from self.let_go(held, last and not self._queue)

    def forget(self, held: HeldMessage) -> None:
        """Let no call of it wait any longer."""
        for call in held.calls:
            waiting = self._waiting.get(call.written, [])
            waiting[:] = [other for other in waiting if other is not held]
            if not waiting:
                self._waiting.pop(call.written, None)

    def let_go(self, held: HeldMessage, last: bool) -> list[Message]:
        """A message as it leaves, with its answers; nothing where nothing is left of it."""
        if held.waits:
            self._close(held)
        for call in held.calls:
            if call.early is not None:
                at, result = call.early
                self._note(
                    "duplicate-result",
                    at,
                    f"dropped a second result for {shorten(call.written)!r}: {_excerpt(result)}",
                )
        if held.answers or not last:
            self._drop_server_uses(held)
        if held.message.parts:
            return [held.message, *held.answers]
        self._note(
            "empty-message", held.index, f"dropped an empty message of the {held.message.role}"
        )
        return []

    def _close(self, held: HeldMessage) -> None:
        """Answer what was never answered."""
        for call in held.calls:
            if call.answered:
                continue
            name, origin = call.call.name, held.index
            if call.early is not None:
                at, result = call.early
                origin = at
                self._note(
                    "late-result",
                    at,
                    f"moved the result for {shorten(call.written)!r} after its call",
                )
                answer = self._fit_result(at, result, call)
                call.early = None
            else:
                self._note(
                    "unanswered-call",
                    held.index,
                    f"answered the call {shorten(call.written)!r} of {name}: {UNANSWERED}",
                )
                answer = ToolResult(
                    call.call.id, (Text(UNANSWERED),), error=True, kind=call.call.kind
                )
                remember(self._given_up, call.written)
            held.answers.append(Message("tool", (answer,)))
            held.origins.append(origin)
            remember(self._answered, call.written)


def is_sendable_message(message: Message) -> bool:
    """Whether UTF-8 can hold all that a message says."""
    return all(
        is_sendable(text) for part in message.parts for text in _texts(part)
    ) and is_sendable(message.author)


def _texts(part: Part) -> Iterator[str]:
    match part:
        case Text():
            yield part.text
        case ToolCall():
            yield from (part.name, part.arguments)
        case ToolResult():
            yield part.name
            for inner in part.parts:
                yield from _texts(inner)


def _sendable_part(part: Part) -> Part:
    match part:
        case Text():
            return replace(part, text=to_sendable(part.text))
        case ToolCall():
            return replace(part, name=to_sendable(part.name), arguments=to_sendable(part.arguments))
        case ToolResult():
            inner = tuple(
                replace(p, text=to_sendable(p.text)) if isinstance(p, Text) else p
                for p in part.parts
            )
            return replace(part, name=to_sendable(part.name), parts=inner)
    return part


def _split(message: Message, calls: list[_Call]) -> list[tuple[Message, list[_Call]]]:
    """The message as several, each with no more calls than a wire takes."""
    if len(calls) <= MAX_CALLS:
        return [(message, calls)]
    chunks = [calls[start : start + MAX_CALLS] for start in range(0, len(calls), MAX_CALLS)]
    first = {id(call.call) for call in chunks[0]}
    spoken = tuple(
        part for part in message.parts if not isinstance(part, ToolCall) or id(part) in first
    )
    rest = [
        (replace(message, parts=tuple(call.call for call in chunk), carried=None), chunk)
        for chunk in chunks[1:]
    ]
    return [(replace(message, parts=spoken), chunks[0]), *rest]


_REFUSED = {
    (wire.name, part): forms for wire in WIRES for part, forms in wire.refused_forms.items()
}


def _without_form(carried: Carried | None, *spellings: str) -> Carried | None:
    if carried is None:
        return None
    form = tuple(spelling for spelling in carried.form if spelling not in spellings)
    if form or carried.fields:
        return Carried(carried.wire, carried.fields, form)
    return None


def _weight(message: Message) -> int:
    """About how many characters a message holds."""
    return sum(len(text_of(part)) for part in walk_parts(message.parts))


def _is_signed(part: Reasoning) -> bool:
    return bool(part.signature or part.encrypted) or "redacted" in carried_form(
        part.carried, "anthropic"
    )


def _excerpt(result: ToolResult) -> str:
    text = " ".join(part.text for part in result.parts if isinstance(part, Text))
    return repr(shorten(" ".join(text.split()), 60))
