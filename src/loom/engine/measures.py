"""What a request is judged by, whoever made it: tokens, whole pairs, the goal, and what the agent
wrote again later.

Everything here looks at chat messages as they are sent, never at a report: who made the request
must not judge it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Chat = Mapping[str, Any]
Count = Callable[[str], int]
Texts = Sequence[tuple[str, str]]  # role and text of each message

HORIZON_MESSAGES = 40  # messages after a cut in which the agent may write something again
LEAST_GOLD = 3  # of which there must be so many for a cut to tell anything

# Defines the measure and nothing else: what the product takes for worth keeping is wider.
_ANCHOR = re.compile(
    r"(?:[\w.\-~]*/)+[\w.\-]+|https?://\S+|\b[A-Za-z_]\w*(?:_\w+)+\b|\b[a-z]+[A-Z]\w+\b"
    r"|\b[A-Z][a-z]+[A-Z]\w+\b"
    r"|\b\d[\d.,:-]{2,}\b|\b\w+\.(?:py|ts|js|md|json|tsx|go|rs|java|toml|yaml|yml|sh)\b"
    r"|\b[A-Z]{2,}[A-Z0-9_]{2,}\b"
)
_LONG_LINE = 60
_AROUND = 20
_GOAL = 60  # characters of a request by which it is known


def message_tokens(message: Chat, count: Count) -> int:
    """4 for the frame, the text, and each call's name and arguments plus 8."""
    content, tokens = message.get("content"), 4
    if content:
        tokens += count(content if isinstance(content, str) else json.dumps(content))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        tokens += (
            count(function.get("name", ""))
            + count(function.get("arguments") or function.get("input") or "")
            + 8
        )
    return tokens


def torn_pairs(messages: Iterable[Chat]) -> int:
    """Results without a call just before them, and calls without all their results just after
    them.
    """
    torn, pending = 0, set[str]()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") in pending:
                pending.discard(message["tool_call_id"])
            else:
                torn += 1
            continue
        torn += len(pending)
        if message["role"] == "assistant":
            pending = {call["id"] for call in message.get("tool_calls") or ()}
        else:
            pending = set()
    return torn + len(pending)


def text_of(message: Chat) -> str:
    """What a message says: its text, its reasoning, and each call's name and arguments."""
    content = message.get("content") or ""
    if isinstance(content, str):
        text = content
    else:
        text = "\n".join(p.get("text") or "" for p in content if isinstance(p, dict))
    for key in ("reasoning", "reasoning_content"):
        if isinstance(message.get(key), str):
            text += f"\n{message[key]}"
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        text += (
            f"\n{function.get('name', '')} "
            f"{function.get('arguments') or function.get('input') or ''}"
        )
    return text


def goal_missing(texts: Texts, request: str) -> bool:
    """Whether the newest words of the user are gone. Shrunk they are there, while their beginning
    is in a user message.
    """
    start = request.strip()[:_GOAL]
    return not any(role == "user" and start in text for role, text in texts)


def anchors(text: str) -> set[str]:
    """Paths, identifiers, numbers and addresses, as this measure has them."""
    return {found.strip(".,:;)(\"'`") for found in _ANCHOR.findall(text) if len(found) >= 4}


def lookahead_gold(found: Sequence[tuple[str, set[str]]], cut: int) -> set[str]:
    """Of what stood before the cut, that which the agent soon writes again before anything shows it
    again.

    `found` are the role and the anchors of each message of the transcript.
    """
    before, shown, gold = (
        set[str]().union(*(each for _, each in found[:cut])),
        set[str](),
        set[str](),
    )
    for role, each in found[cut : cut + HORIZON_MESSAGES]:
        if role == "assistant":
            gold |= (each & before) - shown
        shown |= each
    return gold


def strict_windows(texts: Texts, gold: set[str]) -> dict[str, dict[str, int]]:
    """For each anchor the spans of original lines around it, and the message in which each stands
    first.
    """
    windows: dict[str, dict[str, int]] = {}
    for index, (_, text) in enumerate(texts):
        for line in map(str.strip, text.splitlines()):
            for anchor in anchors(line) & gold:
                at = line.find(anchor)
                if at >= 0:
                    long = len(line) > _LONG_LINE
                    if long:
                        span = line[max(0, at - _AROUND) : at + len(anchor) + _AROUND]
                    else:
                        span = line
                    windows.setdefault(anchor, {}).setdefault(span, index)
    return windows


def strict_recall(
    text: str, windows: Mapping[str, Mapping[str, int]], gold: set[str], cut: int
) -> float:
    """The share of the gold that a context kept: a span from before the cut is in it
    verbatim.
    """
    kept = (
        any(first < cut and span in text for span, first in windows.get(anchor, {}).items())
        for anchor in gold
    )
    return sum(kept) / len(gold)
