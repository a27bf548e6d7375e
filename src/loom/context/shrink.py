"""Make what is too big alone smaller inside: head, marker, tail. Calls stay JSON, pairs stay pairs, the original by handle."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.context.handles import SAMPLE, Archive
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult

HEAD = 0.6  # of what is kept of a text; the rest is its end


def cut_marker(characters: int, handle: str) -> str:
    return f"[… {characters:,} characters left out; recall {handle} …]"


def shrink_text(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str:
    """Head and tail of the text with a marker between, in at most so many tokens; the marker alone where nothing else fits."""
    low, high = 0, len(text)
    best = cut_marker(len(text), handle)
    # Twenty steps find the length to a millionth of the text; each counts only what might be kept.
    high = min(high, tokens * 12)
    for _ in range(20):
        if low >= high:
            break
        middle = (low + high + 1) // 2
        candidate = _cut(text, middle, handle)
        if count(candidate) <= tokens:
            low, best = middle, candidate
        else:
            high = middle - 1
    return best


def _cut(text: str, kept: int, handle: str) -> str:
    # Of little, the beginning tells most: a goal must still be known by its first words.
    head = kept if kept < 160 else int(kept * HEAD)
    tail = kept - head
    begin, end = text[:head], text[len(text) - tail :] if tail else ""
    # A line cut in half misleads; where a line break is near, cut there.
    if (at := begin.rfind("\n")) > head * 0.8:
        begin = begin[: at + 1]
    if 0 <= (at := end.find("\n")) < tail * 0.2:
        end = end[at:]
    return f"{begin}{cut_marker(len(text) - len(begin) - len(end), handle)}{end}"


class _Site(Struct):
    """A thing that can be made smaller: where it stands, what it takes, and how it is written smaller."""

    message: int
    path: tuple[int, ...]
    tokens: int
    kind: str


def shrink_messages(
    messages: tuple[Message, ...], tokens: int, first: int, counter: Counter, archive: Archive
) -> tuple[Message, ...] | None:
    """The messages in at most so many tokens, none dropped and each pair whole; none where even the frames do not fit.

    The largest pieces give way first, all to the same size. Reasoning and opaque pieces cannot be cut: if nothing else helps, they
    go behind a marker, and so do the texts of a message that are many. `first` is the place of the first message in the history.
    """
    if sum(map(counter.count_message, messages)) <= tokens:
        return messages
    made = _to_level(messages, tokens, first, counter, archive)
    if sum(map(counter.count_message, made)) <= tokens:
        return made
    made = smallest(messages, first, counter, archive, tokens)
    return made if sum(map(counter.count_message, made)) <= tokens else None


def smallest(messages: tuple[Message, ...], first: int, counter: Counter, archive: Archive, tokens: int = 0) -> tuple[Message, ...]:
    """The messages as small as they can be made, or as small as they need to be to fit so many tokens."""
    bare = tuple(_joined(_without_closed(m, first + n, archive)) for n, m in enumerate(messages))
    return _to_level(bare, tokens, first, counter, archive)


def _to_level(messages: tuple[Message, ...], tokens: int, first: int, counter: Counter, archive: Archive) -> tuple[Message, ...]:
    """The messages with all that is larger cut down to one size, which is found so that the whole fits if it can."""
    sites = [site for n, message in enumerate(messages) for site in _sites(n, message, counter)]
    total = sum(map(counter.count_message, messages))
    least = counter.count_text(cut_marker(1_000_000, SAMPLE)) + 24
    cap = _level([site.tokens for site in sites], tokens - (total - sum(site.tokens for site in sites)))
    # Sizes add up only nearly: joining texts moves token borders. So the level falls until the whole is counted small enough.
    while cap is not None and cap > least:
        made = _apply(messages, [site for site in sites if site.tokens > cap], cap, first, counter, archive)
        excess = sum(map(counter.count_message, made)) - tokens
        if excess <= 0:
            return made
        cap -= max(8, -(-excess // max(1, sum(site.tokens > cap for site in sites))))
    return _apply(messages, [site for site in sites if site.tokens > least], least, first, counter, archive)


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
    messages: tuple[Message, ...], sites: list[_Site], cap: int, first: int, counter: Counter, archive: Archive
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
            inner[site.path[1]] = _smaller(inner[site.path[1]], cap, place, counter, archive)
            smaller = replace(part, parts=tuple(inner))
        else:
            smaller = _smaller(part, cap, place, counter, archive)
        made[site.message] = replace(message, parts=(*message.parts[: site.path[0]], smaller, *message.parts[site.path[0] + 1 :]))
    return tuple(made)


def _smaller(part: Any, cap: int, place: tuple[int, str], counter: Counter, archive: Archive) -> Any:
    match part:
        case Text():
            return replace(part, text=shrink_text(part.text, cap, counter.count_text, archive.keep_part(*place, part.text)))
        case Media():
            return Text(f"[{part.kind} left out; recall {archive.keep_part(*place, to_json(part))}]")
        case ToolCall():
            handle = archive.keep_part(*place, part.arguments)
            if part.kind == "custom":
                return replace(part, arguments=shrink_text(part.arguments, cap, counter.count_text, handle))
            return replace(part, arguments=shrink_json(part.arguments, cap, counter.count_text, handle))
    raise TypeError(f"a {type(part).__name__} cannot be cut")


def shrink_json(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str:
    """JSON arguments with their long texts cut, still of the same shape; all behind a marker where that is not enough."""
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
        return _cut(value, limit, handle)
    if isinstance(value, list):
        return [_shorter(item, limit, handle) for item in value]
    if isinstance(value, dict):
        return {key: _shorter(item, limit, handle) for key, item in value.items()}
    return value


def _without_closed(message: Message, index: int, archive: Archive) -> Message:
    """Without reasoning and opaque pieces, which cannot be cut; the message as it was stands behind a marker."""
    if not any(isinstance(part, Reasoning | Opaque) for part in message.parts):
        return message
    marker = Text(f"[reasoning left out; recall {archive.keep_part(index, '', to_json(message))}]")
    open_parts = tuple(part for part in message.parts if not isinstance(part, Reasoning | Opaque))
    return replace(message, parts=(marker, *open_parts))


def _joined(message: Message) -> Message:
    """A message of several texts as one, so that one marker is enough."""
    if len(message.parts) < 2 or not all(isinstance(part, Text) for part in message.parts):
        return message
    return replace(message, parts=(Text(message.text),), carried=None)
