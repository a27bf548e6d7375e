"""Search over what of a session's path is not in its request: words ranked by BM25, names and
phrases as they were written.

Rules of this file:
- One pass over the path, a chunk at a time. Of a message that says something of the query it is
  remembered how often, no more.
- Only the path is searched, and nothing of it that is hidden. Where a version stands for a node,
  that is what is read.
- A hit has a handle that brings back its message; the same message has the same one each time.
- What asks for something that was cut, or repeats it, comes after what said it first.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from math import log
from typing import Any, assert_never

from msgspec import Struct

from loom.context import find_anchors
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from loom.conversation.words import find_words
from loom.errors import ChoiceError, describe, shorten
from loom.recall.hits import Hit
from loom.stores import HandleTarget, Node, Overlay, SessionRow, Store, ViewRecord

DEFAULT_HITS = 10  # hits, where nobody says how many
MAX_QUERY_CHARS = 500  # characters of a query
PASSAGE_CHARS, MARGIN_CHARS = (
    300,
    60,
)  # characters of a hit's text, and of them before what was found
# of BM25: how soon saying it again adds nothing, and how much a long message is held to its length
SATURATION, LENGTH = 1.2, 0.75
EXACT_WEIGHT = 2.0  # what a name, a path, a number or a phrase counts for against a word
# tools that repeat what stands elsewhere, and what that counts for
ECHOES, ECHO_WEIGHT = ("recall", "search_context"), 0.1


class _Query(Struct, frozen=True):
    """What is looked for, each term with its number: words in any case, and what must be written
    exactly so. Phrases must occur.
    """

    words: dict[str, int]
    exact: tuple[tuple[int, re.Pattern[str]], ...]
    phrases: tuple[str, ...]


class _Posting(Struct, frozen=True, gc=False):
    """How often a message says which terms."""

    depth: int
    tokens: int
    said: tuple[tuple[int, int], ...]
    echo: bool


Found = tuple[int, int, int]  # where a term begins and ends in a text, and its number


def search(
    store: Store,
    row: SessionRow,
    overlay: Overlay,
    query: str,
    *,
    now: int,
    limit: int = DEFAULT_HITS,
    shown: Collection[int] = (),
) -> list[Hit]:
    """The messages of a path that say most of a query, best first and of equals the newer, without
    those at the places `shown`.

    `overlay` is the path with what bears on it: what is hidden from it never shows up. Handles are
    kept for the session `row`.
    """
    wanted = _parse_query(query)
    if limit < 1:
        raise ChoiceError(f"the limit of a search must be at least 1, found {limit}")
    shown, count, length = frozenset(shown), 0, 0
    postings: list[_Posting] = []
    asked: set[str] = set()
    for node in overlay.path:
        read, _ = _standing(overlay, node)
        if read.message is None or node.depth in overlay.hidden:
            continue
        echo = _is_echo(read.message, asked)
        if node.depth in shown:
            continue
        count, length = count + 1, length + read.tokens
        if said := _tally(wanted, "\n".join(_texts(read.message))):
            postings.append(_Posting(node.depth, read.tokens, said, echo))
    if not postings:
        return []
    worth = _worth(wanted, postings, count)
    scored = ((_score(posting, worth, length / count), posting.depth) for posting in postings)
    hits: list[Hit] = []
    kept: list[tuple[str, HandleTarget]] = []
    for score, depth in nsmallest(limit, scored, key=lambda one: (-one[0], -one[1])):
        read, name = _standing(overlay, node := overlay.path[depth])
        if read.message is None:  # purged just now
            continue
        # Made as the handle of a marker for this message alone would be.
        kept.append(
            HandleTarget.of_nodes("span", ((name, name),), at="" if name == node.id else node.id)
        )
        hits.append(
            Hit(
                kept[-1][0],
                read.short_id,
                depth,
                read.role,
                score,
                _passage(wanted, worth, read.message),
                row.id,
                read.created,
                read.message,
                tokens=read.tokens,
            )
        )
    store.views.keep(row, kept, now)
    return hits


def shown_in(view: ViewRecord | None, length: int) -> frozenset[int]:
    """The places on a path of this many nodes that are complete in its last request, and those that
    have come since.
    """
    if view is None:
        return frozenset()
    shown = set(range(view.positions[-1][1] if view.positions else view.ranges[-1][0], length))
    for piece, (start, stop) in zip(view.epoch.pieces, view.positions, strict=False):
        kept = [item.action == "kept" for item in piece.items]
        if len(kept) == stop - start:
            shown.update(start + n for n, is_kept in enumerate(kept) if is_kept)
        elif all(kept):  # several nodes that were joined to one message
            shown.update(range(start, stop))
    return frozenset(shown)


def matches(query: str, text: str) -> list[tuple[int, int]]:
    """Where a text says something of a query: stretches in order that do not overlap."""
    made: list[tuple[int, int]] = []
    for start, stop, _ in sorted(_find_matches(_parse_query(query), text)):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return made


# What is looked for


def _parse_query(query: object) -> _Query:
    if not isinstance(query, str) or not query.strip():
        raise ChoiceError(f"a search needs words to look for, found {describe(query)}")
    if len(query) > MAX_QUERY_CHARS:
        raise ChoiceError(
            f"a search takes at most {MAX_QUERY_CHARS} characters, found {len(query):,}; use only "
            "the most specific words"
        )
    phrases = tuple(
        dict.fromkeys(
            phrase for pair in _PHRASE.findall(query) for phrase in pair if phrase.strip()
        )
    )
    found = sorted(find_words(query))
    if not found and not phrases:
        raise ChoiceError(
            f"there are no words in {shorten(query)!r}; put symbols in quotes to find them exactly"
        )
    names = [name for _, _, name in find_anchors(_PHRASE.sub(" ", query))] + [
        word for word in found if _is_half(word)
    ]
    exact = dict.fromkeys((*map(_name_pattern, names), *map(re.escape, phrases)))
    patterns = tuple((len(found) + n, re.compile(pattern)) for n, pattern in enumerate(exact))
    return _Query({word: n for n, word in enumerate(found)}, patterns, phrases)


_PHRASE = re.compile(r'"([^"]+)"|“([^”]+)”')


def _is_half(word: str) -> bool:
    """Whether this is one letter of a script without spaces, which in a text is only found as half
    of a pair.
    """
    return len(word) == 1 and find_words(3 * word) != {3 * word}


def _name_pattern(name: str) -> str:
    """A pattern for a name that is no part of a longer one."""
    begin = r"(?<![A-Za-z0-9_])" if _NAMING.match(name[0]) else ""
    end = r"(?![A-Za-z0-9_])" if _NAMING.match(name[-1]) else ""
    return begin + re.escape(name) + end


_NAMING = re.compile(r"[A-Za-z0-9_]")


# What a message says


def _standing(overlay: Overlay, node: Node) -> tuple[Node, str]:
    """What is read where this node stands: itself, or a version of it; and the name of that."""
    version = overlay.versions.get(node.depth)
    if version:
        return (version.node, version.name)
    return (node, node.id)


def _is_echo(message: Message, asked: set[str]) -> bool:
    """Whether a message does nothing but ask for what was cut, or repeat it; `asked` are the ids of
    calls that did, so far.
    """
    for call in message.calls:
        (asked.add if call.name in ECHOES else asked.discard)(call.id)
    said = [part for part in message.parts if not isinstance(part, Reasoning)]
    return bool(said) and all(
        (isinstance(part, ToolCall) and part.name in ECHOES)
        or (isinstance(part, ToolResult) and (part.name in ECHOES or part.call_id in asked))
        for part in said
    )


def _texts(message: Message) -> Iterator[str]:
    """All that a message says in words, also in calls, results and files that are text."""
    for part in message.parts:
        match part:
            case Text() | Reasoning():
                yield part.text
            case ToolCall():
                yield f"{part.name} {_arguments(part)}"
            case ToolResult():
                yield from (inner.text for inner in part.parts if isinstance(inner, Text))
            case Media():
                yield part.name
                yield part.value if part.source == "text" else ""
            case Opaque():
                pass
            case _:
                assert_never(part)


def _arguments(call: ToolCall) -> str:
    """The arguments of a call; where JSON escapes something in them, as they read, for else an
    escape would stick to a word.
    """
    if "\\" not in call.arguments or call.kind != "function":
        return call.arguments
    try:
        return "\n".join(_leaves(from_json(call.arguments)))
    except ValueError:
        return call.arguments


def _leaves(value: Any) -> Iterator[str]:
    waiting = [("", value)]
    while waiting:
        key, value = waiting.pop()
        match value:
            case dict():
                waiting += reversed(list(value.items()))
            case list():
                waiting += [(key, each) for each in reversed(value)]
            case _:
                if isinstance(value, str):
                    text = value
                else:
                    text = to_json(value)
                yield f"{key}: {text}" if key else text


def _tally(wanted: _Query, text: str) -> tuple[tuple[int, int], ...]:
    """How often a text says which terms; nothing where it lacks a phrase."""
    if not all(phrase in text for phrase in wanted.phrases):
        return ()
    low = text.lower()  # most messages say nothing of a query, and that is seen quickly
    if not wanted.phrases and not any(word in low for word in wanted.words):
        return ()
    return tuple(Counter(number for _, _, number in _find_matches(wanted, text)).items())


def _find_matches(wanted: _Query, text: str) -> Iterator[Found]:
    """All that a text says of a query."""
    for match in _RUN.finditer(text):
        run, start = match[0].lower(), match.start()
        if run in wanted.words:
            yield start, match.end(), wanted.words[run]
        elif not run.isascii():
            for word in find_words(run) & wanted.words.keys():
                number = wanted.words[word]
                yield from (
                    (start + inner.start(), start + inner.end(), number)
                    for inner in re.finditer(re.escape(word), run)
                )
    for number, pattern in wanted.exact:
        yield from ((match.start(), match.end(), number) for match in pattern.finditer(text))


_RUN = re.compile(r"\w+")


# How much it says


def _worth(wanted: _Query, postings: Sequence[_Posting], count: int) -> list[float]:
    """What each term is worth among this many messages: the fewer say it, the more; more again
    where it is written exactly so.
    """
    said_by = Counter(number for posting in postings for number, _ in posting.said)
    rarity = [
        log(1 + (count - said_by[n] + 0.5) / (said_by[n] + 0.5))
        for n in range(len(wanted.words) + len(wanted.exact))
    ]
    return [
        each * (1.0 if n < len(wanted.words) else EXACT_WEIGHT) for n, each in enumerate(rarity)
    ]


def _score(posting: _Posting, worth: Sequence[float], usual: float) -> float:
    held = SATURATION * (1 - LENGTH + LENGTH * posting.tokens / max(usual, 1))
    score = sum(worth[n] * often * (SATURATION + 1) / (often + held) for n, often in posting.said)
    return round(score * ECHO_WEIGHT if posting.echo else score, 4)


def _passage(wanted: _Query, worth: Sequence[float], message: Message) -> str:
    """The line of a message, or the piece of a long one, that says most of a query; of equals the
    first.
    """
    best, most = "", -1.0
    for text in _texts(message):
        for line in filter(None, map(str.strip, text.splitlines())):
            value, start, stop = _densest(line, wanted, worth)
            if value > most:
                best, most = _piece(line, start, stop), value
    return best


def _densest(line: str, wanted: _Query, worth: Sequence[float]) -> tuple[float, int, int]:
    """Where in a line most is said within the length of a passage, and how much that is worth."""
    best, begin, end = 0.0, 0, 0
    inside: Counter[int] = Counter()
    found = sorted(_find_matches(wanted, line))
    first = 0
    for start, stop, number in found:
        inside[number] += 1
        while found[first][0] < start and stop - found[first][0] > PASSAGE_CHARS - 2 * MARGIN_CHARS:
            inside[found[first][2]] -= 1
            first += 1
        value = sum(worth[n] for n, often in inside.items() if often)
        if value > best:
            best, begin, end = value, found[first][0], stop
    return best, begin, end


def _piece(line: str, start: int, stop: int) -> str:
    """As much of a line around this stretch as a passage may have, from a space to a space where
    they are near.
    """
    if len(line) <= PASSAGE_CHARS:
        return line
    low = max(min(start - MARGIN_CHARS, len(line) - PASSAGE_CHARS), 0)
    high = low + PASSAGE_CHARS
    if low and (space := line.find(" ", low, start)) >= 0:
        low = space + 1
    if high < len(line) and (space := line.rfind(" ", max(stop, high - MARGIN_CHARS), high)) >= 0:
        high = space
    return line[low:high]
