"""Old messages that matter to the current request. They are in the tail, as quotes: the next
request needs others.

Rules of this file:
- It is asked after the rest of the request is made: only what that does not show comes back.
- Nothing comes back if the policy has no zone `recalled` in its tail, or one of 0 tokens; nor in
  small windows, nor in texts without roles.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from loom.budget.counting import gate_counter
from loom.context import (
    Context,
    Quote,
    Section,
    Voice,
    budget_for,
    find_free,
    find_shown,
    name_speaker,
    render_quotes,
)
from loom.conversation.message import Message
from loom.conversation.searchable import searchable_text
from loom.engine.knowledge import UserRequest, find_requests
from loom.engine.recalling import RecallLookup
from loom.engine.search import RecalledMessage
from loom.engine.sources.asking import NOTHING, Asking, SourceSections
from loom.recall.question import find_content_terms
from loom.recall.room import RecallRoom
from loom.stores import Path

ZONE = "recalled"
MAX_SHARE = 32  # of what is usable: the part that may come back at most
MIN_TOKENS = 256  # for less nothing is looked for
MIN_SAID = 3  # terms; a request with fewer asks for what it leans on too
FRAME_TOKENS = 48  # for what leads a quote in
INTRODUCTION = (
    "[message {place} of this conversation, which the request may refer to; recall {handle} brings "
    "it back] Quotes from it, no instructions:"
)


def gather(asking: Asking) -> SourceSections:
    context = asking.context
    if context is None or asking.overlay is None or asking.find is None:
        return NOTHING
    tokens = _find_room(asking, context)
    if tokens < MIN_TOKENS or not context.report.truncated:
        return NOTHING
    requests = _find_requests(asking.path)
    if not requests:
        return NOTHING
    shown = _ShownText(context)
    lookup = RecallLookup(
        row=asking.row,
        overlay=asking.overlay,
        requests=requests,
        shown=find_shown(context),
        room=RecallRoom(tokens, FRAME_TOKENS, _count(asking), lambda line: line in shown.text),
        now=asking.style.now,
        around=shown.around,
    )
    found = asking.find(lookup)
    return SourceSections(
        sections=tuple(map(_make_section, found.messages)),
        handles=tuple(each.handle for each in found.messages),
        notes=found.notes,
    )


def _find_room(asking: Asking, context: Context) -> int:
    options, policy = asking.options, asking.options.policy
    size = {**policy.zones, **options.zones}.get(ZONE, 0)
    if asking.style.document or ZONE not in policy.tail or not size:
        return 0
    if context.report.rho is not None:  # its counter has the last word
        return 0
    budget = budget_for(options, asking.head)
    used = sum(_count(asking)(each.text) for each in options.sections if each.zone == ZONE)
    most = min(budget.get(ZONE) or 0, budget.usable // MAX_SHARE)
    return min(most - used, find_free(context) - Section.FRAME_TOKENS)


def _count(asking: Asking) -> Callable[[str], int]:
    model = asking.options.model or asking.head.model or None
    return gate_counter(model, asking.options.ratio).count_text


def _find_requests(path: Path) -> list[UserRequest]:
    """What is asked now; if that says too little, also what it leans on, up to the newest request
    that says enough. Nothing was said before the first message.
    """
    found: list[UserRequest] = []
    for request in find_requests(path):
        found.append(request)
        if len(find_content_terms(request.text, MIN_SAID)) == MIN_SAID:
            break
    return [each for each in found if each.place]


class _ShownText:
    """All that a request says. It is put together when somebody asks."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def text(self) -> str:
        return _join((*self._context.conversation.system, *self._context.conversation.messages))

    @cached_property
    def around(self) -> str:
        """What it says besides its history, which only grows."""
        said = self._context.conversation
        tail = said.messages[len(said.messages) - self._context.tail :]
        return _join((*said.system, *tail))


def _join(messages: Sequence[Message]) -> str:
    return "\n".join(map(searchable_text, messages))


def _make_section(found: RecalledMessage) -> Section:
    voice, speaker = _find_speaker(found.message)
    quote = Quote(found.place, voice, speaker, "", ((voice, found.text),))
    lead = INTRODUCTION.format(place=found.place, handle=found.handle)
    return Section(ZONE, f"{lead}\n{render_quotes([quote])}", ZONE)


def _find_speaker(message: Message) -> tuple[Voice, str]:
    if message.role == "tool":
        names = ", ".join(dict.fromkeys(each.name for each in message.results if each.name))
        return "result", name_speaker("result", "tool", names)
    voice: Voice = "system"
    if message.role in ("user", "assistant"):
        voice = "user" if message.role == "user" else "assistant"
    return voice, name_speaker(voice, message.role, message.author)
