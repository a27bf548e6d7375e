"""Mend a poisoned history so that every wire accepts it, and report each change.

Repair moves, maps, drops or adds; it never writes a word for the user or the model, and it never
takes one away. The only text it adds is the result of a call that was never answered, which says
so. A history that every wire accepts comes back as it was.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.checked import checks_arguments
from loom.conversation.growing import RecentHistories, message_bytes
from loom.conversation.message import Conversation, Media, Message, Part, Text, ToolCall, ToolResult
from loom.dialects.input.answer_fields import has_answer_fields
from loom.dialects.input.mixed import parse_given
from loom.dialects.input.plain import is_sdk_object
from loom.dialects.openai.rules import MAX_CALLS, is_author
from loom.dialects.repair.mender import (
    ID,
    Change,
    HeldMessage,
    Mender,
    is_sendable_message,
)
from loom.dialects.repair.settings import marks_in, mend_settings
from loom.errors import ChoiceError, describe

MAX_HISTORIES = 8  # histories that were looked at last, sound ones and others
SEEN_BYTES = 32_000_000  # and about how many bytes they may take


class RepairedConversation(Struct, frozen=True):
    """The repaired conversation, every change, and for each mapped call id the one it stands
    for.
    """

    conversation: Conversation
    changes: tuple[Change, ...]
    ids: dict[str, str]
    # For each message of the repaired history, the place of the one it was (a result that repair
    # wrote has its call's).
    origins: Sequence[int] = ()


@checks_arguments
def repair(
    conversation: Conversation | Iterable[Any], seen: "SeenHistories | None" = None
) -> RepairedConversation:
    """Mend a history, also one given as a list of messages in any wire's form or as objects of an
    SDK.

    Of one that was `seen` and has grown since, only what is new is looked at.
    """
    if not isinstance(conversation, Conversation):
        conversation = _as_conversation(conversation)
    looked = _look(tuple(conversation.messages), seen or SeenHistories())
    mender = Mender()
    system = mender.mend_system(conversation.system)
    changes = [*looked.changes, *mender.changes]
    if changes:
        mended = replace(conversation, messages=looked.messages, system=system)
    else:
        mended = conversation
    mended, settings_changes = mend_settings(mended, looked.marked)
    changes += [Change(rule, -1, what) for rule, what in settings_changes]
    return RepairedConversation(mended, tuple(changes), looked.ids, looked.origins)


def _as_conversation(messages: Iterable[Any]) -> Conversation:
    if (
        isinstance(messages, Mapping | str | bytes)
        or is_sdk_object(messages)
        or not isinstance(messages, Iterable)
    ):
        raise ChoiceError(
            f"repair takes a Conversation or a list of messages, found {describe(messages)}"
        )
    parsed = list(parse_given(messages))
    lead = next(
        (n for n, m in enumerate(parsed) if m.role not in ("system", "developer")), len(parsed)
    )
    return Conversation(messages=tuple(parsed[lead:]), system=tuple(parsed[:lead]))


@checks_arguments
def restore_ids(conversation: Conversation, ids: dict[str, str]) -> Conversation:
    """The conversation with mapped call ids as they were before the repair that gave `ids`."""

    def back(part: Part) -> Part:
        match part:
            case ToolCall() if part.id in ids:
                return replace(part, id=ids[part.id])
            case ToolResult() if part.call_id in ids:
                return replace(part, call_id=ids[part.call_id])
        return part

    return replace(
        conversation,
        messages=tuple(replace(m, parts=tuple(map(back, m.parts))) for m in conversation.messages),
    )


class _MendedMessages(Struct, frozen=True, kw_only=True):
    """The messages of a history as they are after repair, and whether some of them may carry cache
    marks.
    """

    messages: tuple[Message, ...]
    origins: Sequence[int]
    changes: Sequence[Change] = ()
    ids: dict[str, str] = {}
    marked: bool = False


def _look(messages: tuple[Message, ...], seen: "SeenHistories") -> _MendedMessages:
    """Go on from where this history was last looked at: quickly as long as it is sound, else with
    the mender.
    """
    sound, mending = seen.sound.take(messages) or _Sound(), seen.mending.take(messages)
    if (mending is None or len(mending.messages) <= len(sound.messages)) and sound.grow(messages):
        made = sound.result()
    else:
        mending = mending or _Mending()
        mending.grow(messages)
        made = mending.result()
    seen.sound.put(sound)
    if mending is not None:
        seen.mending.put(mending)
    return made


class _Mending:
    """A history repaired as far as it was given. A late result may still come for an early call:
    what may change is made again.
    """

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()
        self.size = 0
        self._marked = False
        self._mender = Mender()
        self._last: HeldMessage | None = None
        # what may change, by its place below, and how it stood
        self._open: dict[int, tuple[HeldMessage, tuple[int, bool]]] = {}
        # What became of each message that was taken, with its answers: themselves, their origins,
        # and changes made for the end.
        self._messages: list[list[Message]] = []
        self._origins: list[list[int]] = []
        self._changes: dict[int, list[Change]] = {}

    def grow(self, messages: tuple[Message, ...]) -> None:
        """Take in what is new."""
        fresh = messages[len(self.messages) :]
        for index, message in enumerate(fresh, len(self.messages)):
            self._mender.take(index, message)
        for held in self._mender.take_held():
            if held is not self._last:
                self._open[len(self._messages)] = held, (-1, False)
                self._messages.append([])
                self._origins.append([])
            self._last = held
        for place, (held, before) in list(self._open.items()):
            now = len(held.answers), held is self._last
            if now != before:
                self._open[place] = held, now
                self._leave(place, held)
            if held is not self._last and not held.waits:
                self._mender.forget(held)
                del self._open[place]
        self.messages, self._marked = messages, self._marked or marks_in(fresh)
        self.size += sum(map(message_bytes, fresh))

    def _leave(self, place: int, held: HeldMessage) -> None:
        """Note what becomes of a message if nothing more comes for it."""
        leaving, mender = held.copy(), Mender()
        made = mender.let_go(leaving, held is self._last)
        self._messages[place] = made
        if made:
            self._origins[place] = [leaving.index, *leaving.origins]
        else:
            self._origins[place] = []
        self._changes.pop(place, None)
        if mender.changes:
            self._changes[place] = mender.changes

    def result(self) -> _MendedMessages:
        changes = [*self._mender.changes, *self._mender.orphans()]
        changes += [change for place in sorted(self._changes) for change in self._changes[place]]
        if not changes:
            return _MendedMessages(
                messages=self.messages, origins=range(len(self.messages)), marked=self._marked
            )
        return _MendedMessages(
            messages=tuple(chain.from_iterable(self._messages)),
            origins=tuple(chain.from_iterable(self._origins)),
            changes=sorted(changes, key=attrgetter("message")),
            ids=dict(self._mender.ids),
            marked=self._marked,
        )


class _Sound:
    """A history that needs no repair for sure, with the ids of its calls. What is unusual is left
    to the mender.
    """

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()
        self.size = 0
        self._marked = False
        self._used: set[str] = set()

    def grow(self, messages: tuple[Message, ...]) -> bool:
        """Take in what is new, if nothing may be wrong there."""
        fresh = messages[len(self.messages) :]
        calls = sound_calls(fresh, self._used)
        if calls is None:
            return False
        self._used |= calls
        self.messages, self._marked = messages, self._marked or marks_in(fresh)
        self.size += sum(map(message_bytes, fresh))
        return True

    def result(self) -> _MendedMessages:
        return _MendedMessages(
            messages=self.messages, origins=range(len(self.messages)), marked=self._marked
        )


class SeenHistories:
    """The histories that were looked at last, to continue from where they grow."""

    def __init__(self, size: int = SEEN_BYTES) -> None:
        self.sound: RecentHistories[_Sound] = RecentHistories(MAX_HISTORIES, size // 2)
        self.mending: RecentHistories[_Mending] = RecentHistories(MAX_HISTORIES, size // 2)

    def clear(self) -> None:
        self.sound.clear()
        self.mending.clear()


def sound_calls(messages: Iterable[Message], before: Set[str] = frozenset()) -> set[str] | None:
    """The ids of the calls in these messages, in one quick look; none if something may be
    wrong.
    """
    waiting: set[str] = set()
    used: set[str] = set()
    for message in messages:
        if not is_sendable_message(message) or (message.author and not is_author(message.author)):
            return None
        if message.role == "tool":
            if not _answer_calls(message, waiting):
                return None
            continue
        if waiting or not _says(message):
            return None
        if message.role == "assistant" and not _note_calls(message, waiting, used, before):
            return None
    return None if waiting else used


def _answer_calls(message: Message, waiting: set[str]) -> bool:
    """Take the calls that these results answer from those that wait; whether the results are plain,
    and all of such calls.
    """
    if message.carried is not None or not message.parts:
        return False
    for part in message.parts:
        if not isinstance(part, ToolResult) or part.call_id not in waiting:
            return False
        waiting.discard(part.call_id)
        if len(part.parts) > 1 or part.carried is not None:
            return False
        if part.parts and isinstance(part.parts[0], Text) and part.parts[0].carried is not None:
            return False
    return True


def _note_calls(message: Message, waiting: set[str], used: set[str], before: Set[str]) -> bool:
    """Add the calls of a message to those that wait; whether their ids are new and lawful."""
    if has_answer_fields(message):
        return False
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in used or part.id in before or not ID.fullmatch(part.id):
                return False
            used.add(part.id)
            waiting.add(part.id)
    return len(waiting) <= MAX_CALLS


def _says(message: Message) -> bool:
    """Whether a message has something to say and nothing that may be wrong."""
    if message.carried is not None and "list" in message.carried.form:
        return False
    for part in message.parts:
        if isinstance(part, Text):
            if not part.text or part.text.isspace():
                return False
        elif not isinstance(part, ToolCall | Media) or (
            isinstance(part, ToolCall) and message.role != "assistant"
        ):
            return False
        if part.carried is not None and (part.carried.form or part.carried.wire == "openai"):
            return False
    return bool(message.parts)
