"""Make what is too big alone smaller inside: texts are cut, tools' answers by what they are. Calls
stay JSON, pairs stay pairs.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.context.handles import Archive
from loom.context.shorten.condense import condense
from loom.context.shorten.cut import cut_marker, cut_text, shrink_text
from loom.conversation.canonical import from_json, to_json
from loom.conversation.compactions import is_compaction
from loom.conversation.handles import SAMPLE
from loom.conversation.message import (
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

_Cutter = Callable[[str, int, Callable[[str], int], str], str]


# what leads such words in, and tokens left to the text itself
SAID, LEAST = "[A model says of it, for reference only:] ", 64


class _Site(Struct):
    """A thing that can be made smaller: where it is, what it takes, and how it is written
    smaller.
    """

    message: int
    path: tuple[int, ...]
    tokens: int
    kind: str


def shrink_messages(
    messages: tuple[Message, ...], tokens: int, first: int, counter: Counter, archive: Archive
) -> tuple[Message, ...] | None:
    """The messages in at most this many tokens, none dropped and each pair whole; none if even the
    frames do not fit.

    The largest pieces give way first, all to the same size. Reasoning and opaque pieces cannot be
    cut: if nothing else helps, a marker replaces them, and so do the texts of a message that are
    many. `first` is the place of the first message in the history.
    """
    if sum(map(counter.count_message, messages)) <= tokens:
        return messages
    made = _to_level(messages, tokens, first, counter, archive)
    if sum(map(counter.count_message, made)) <= tokens:
        return made
    made = smallest(messages, first, counter, archive, tokens)
    if sum(map(counter.count_message, made)) <= tokens:
        return made
    return None


def smallest(
    messages: tuple[Message, ...], first: int, counter: Counter, archive: Archive, tokens: int = 0
) -> tuple[Message, ...]:
    """The messages as small as they can be made, or as small as they need to be to fit so many
    tokens.
    """
    bare = tuple(_without_closed(m, first + n, archive) for n, m in enumerate(messages))
    return _to_level(bare, tokens, first, counter, archive)


def _to_level(
    messages: tuple[Message, ...], tokens: int, first: int, counter: Counter, archive: Archive
) -> tuple[Message, ...]:
    """The messages with all that is larger cut down to one size, which is found so that the whole
    fits if it can.
    """
    sites = [site for n, message in enumerate(messages) for site in _sites(n, message, counter)]
    total = sum(map(counter.count_message, messages))
    least = counter.count_text(cut_marker(1_000_000, SAMPLE)) + 24
    cap = _level(
        [site.tokens for site in sites], tokens - (total - sum(site.tokens for site in sites))
    )
    # Sizes add up only nearly: joining texts moves token borders. So the level falls until the
    # whole is counted small enough.
    while cap is not None and cap > least:
        made = _apply(
            messages, [site for site in sites if site.tokens > cap], cap, first, counter, archive
        )
        excess = sum(map(counter.count_message, made)) - tokens
        if excess <= 0:
            return made
        cap -= max(8, -(-excess // max(1, sum(site.tokens > cap for site in sites))))
    return _apply(
        messages, [site for site in sites if site.tokens > least], least, first, counter, archive
    )


def _level(sizes: list[int], room: int) -> int | None:
    """The largest size to which all may be cut down so that together they fit."""
    if room <= 0:
        return None
    left, remaining = room, sorted(sizes)
    for n, size in enumerate(remaining):
        share = left // (len(remaining) - n)
        if size > share:
            return share
        left -= size
    return max(remaining, default=0)


def _sites(index: int, message: Message, counter: Counter) -> list[_Site]:
    sites: list[_Site] = []
    for n, part in enumerate(message.parts):
        match part:
            case Text():
                sites.append(_Site(index, (n,), counter.count_text(part.text), "text"))
            case Media():
                sites.append(_Site(index, (n,), _alone(part, counter), "media"))
            case ToolCall():
                sites.append(_Site(index, (n,), counter.count_text(part.arguments), "arguments"))
            case ToolResult():
                for k, inner in enumerate(part.parts):
                    if isinstance(inner, Text):
                        sites.append(_Site(index, (n, k), counter.count_text(inner.text), "text"))
                    elif isinstance(inner, Media):
                        sites.append(_Site(index, (n, k), _alone(inner, counter), "media"))
    return sites


def _alone(media: Media, counter: Counter) -> int:
    return counter.count_message(Message("user", (media,))) - counter.profile.per_message


def _apply(
    messages: tuple[Message, ...],
    sites: list[_Site],
    cap: int,
    first: int,
    counter: Counter,
    archive: Archive,
) -> tuple[Message, ...]:
    made = list(messages)
    for site in sites:
        place = (first + site.message, ".".join(map(str, site.path)))
        message = made[site.message]
        part = message.parts[site.path[0]]
        smaller: Part
        if len(site.path) == 2:
            assert isinstance(part, ToolResult)
            inner = list(part.parts)
            inner[site.path[1]] = _smaller(
                inner[site.path[1]], cap, place, counter, archive, condense
            )
            smaller = replace(part, parts=tuple(inner))
        else:
            smaller = _smaller(part, cap, place, counter, archive, shrink_text)
        made[site.message] = replace(
            message,
            parts=(*message.parts[: site.path[0]], smaller, *message.parts[site.path[0] + 1 :]),
        )
    return tuple(made)


def _smaller(
    part: Any, cap: int, place: tuple[int, str], counter: Counter, archive: Archive, cut: _Cutter
) -> Any:
    match part:
        case Text():
            handle, said = archive.keep_part(*place, part.text), archive.digests.get(part.text, "")
            if said and (room := cap - counter.count_text(f"{SAID}{said}\n") - 2) > LEAST:
                told = f"{SAID}{said}\n{cut(part.text, room, counter.count_text, handle)}"
                if counter.count_text(told) <= cap:
                    return replace(part, text=told)
            return replace(part, text=cut(part.text, cap, counter.count_text, handle))
        case Media():
            return Text(
                f"[{part.kind} left out; recall {archive.keep_part(*place, to_json(part))}]"
            )
        case ToolCall():
            handle = archive.keep_part(*place, part.arguments)
            if part.kind == "custom":
                return replace(
                    part, arguments=shrink_text(part.arguments, cap, counter.count_text, handle)
                )
            return replace(
                part, arguments=shrink_json(part.arguments, cap, counter.count_text, handle)
            )
    raise TypeError(f"a {type(part).__name__} cannot be cut")


def shrink_json(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str:
    """JSON arguments with their long texts cut, still of the same shape; a marker replaces all
    where that is not enough.
    """
    try:
        value = from_json(text)
    except ValueError:
        value = None
    limit = 4096
    while isinstance(value, dict) and limit >= 32:
        made = to_json(_shorter(value, limit, handle))
        if count(made) <= tokens:
            return made
        limit //= 2
    return to_json({"left_out": cut_marker(len(text), handle)})


def _shorter(value: Any, limit: int, handle: str) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return cut_text(value, limit, handle)
    if isinstance(value, list):
        return [_shorter(item, limit, handle) for item in value]
    if isinstance(value, dict):
        return {key: _shorter(item, limit, handle) for key, item in value.items()}
    return value


def _without_closed(message: Message, index: int, archive: Archive) -> Message:
    """Without reasoning and opaque pieces, which cannot be cut; the message as it was is behind
    a marker. Texts are one.

    The marker is a text of its own: it is none of the words that a handle gives back.
    """
    carried = _without_details(message.carried)
    if carried is message.carried and not any(map(_is_closed, message.parts)):
        return _join_texts(message)
    marker = Text(f"[reasoning left out; recall {archive.keep_part(index, '', to_json(message))}]")
    compactions = [part for part in message.parts if is_compaction(part)]
    open_parts = tuple(part for part in message.parts if not isinstance(part, Reasoning | Opaque))
    joined = _join_texts(replace(message, parts=open_parts, carried=carried))
    return replace(joined, parts=(*compactions, marker, *joined.parts))


def _is_closed(part: Part) -> bool:
    """Whether a part cannot be cut, but left out. A compaction stays."""
    return isinstance(part, Reasoning | Opaque) and not is_compaction(part)


def _without_details(carried: Carried | None) -> Carried | None:
    """What a message carries, without the reasoning that some providers put there once more."""
    if carried is None or '"reasoning_details"' not in carried.fields:
        return carried
    fields = from_json(carried.fields)
    fields.pop("reasoning_details", None)
    return replace(carried, fields=to_json(fields) if fields else "")


def _join_texts(message: Message) -> Message:
    """A message of several texts as one, so that one marker is enough."""
    if len(message.parts) < 2 or not all(isinstance(part, Text) for part in message.parts):
        return message
    return replace(message, parts=(Text(message.text),), carried=None)


def find_originals(came: Message, shown: Message) -> tuple[Part, ...]:
    """For each part that is shown of a message, the part as it came; the shown one where that
    cannot be told.
    """
    joined = _join_texts(came).parts
    open_parts = tuple(part for part in came.parts if not isinstance(part, Reasoning | Opaque))
    first = 1 + sum(map(is_compaction, came.parts))
    behind_marker = (*shown.parts[:first], *_join_texts(replace(came, parts=open_parts)).parts)
    for parts in (came.parts, joined, behind_marker):
        if _sizes(parts) == _sizes(shown.parts):
            return parts
    return shown.parts


def _sizes(parts: tuple[Part, ...]) -> list[int]:
    """How many parts each part holds."""
    return [len(part.parts) if isinstance(part, ToolResult) else 0 for part in parts]
