"""Which events of other agents matter for a task: how new they are, what they tell, how many words
of the task they share, and how near the agent is.

Ages are measured to the newest of the task and its events, not to a clock. So the same events are
ranked the same way until something new comes.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from loom.conversation.words import split_terms
from loom.memory.converter import describe_call
from loom.runtime import Task
from loom.runtime.messages import TOOL_CALL

HALF_LIFE_SECONDS = 3600.0
AGE_WEIGHT, ACTION_WEIGHT, WORDS_WEIGHT, NODE_WEIGHT = 0.40, 0.25, 0.20, 0.15
ACTION_SCORES: Mapping[str, float] = {
    "node.thinking": 1.0,
    "node.planning": 0.9,
    "node.tool_call": 0.8,
    "node.error": 0.7,
    "execute": 0.6,
}
OTHER_ACTION_SCORE = 0.5
PARENT_SCORE, SELF_SCORE, OTHER_NODE_SCORE, NO_NODE_SCORE = 1.0, 0.8, 0.5, 0.3


def rank_events(task: Task, events: Sequence[Task], reader: str = "") -> list[Task]:
    """Events, the one that matters most first; of equals, the newer first."""
    now = max((task.created_at, *(event.created_at for event in events)))
    words = frozenset(split_terms(task.content))

    def key(event: Task) -> tuple[float, datetime, str]:
        return score_event(task, event, reader, words, now), event.created_at, event.task_id

    return sorted(events, key=key, reverse=True)


def score_event(
    task: Task, event: Task, reader: str, words: Collection[str], now: datetime
) -> float:
    """How much an event matters, from 0 to 1. `words` are the terms of the task."""
    seconds = max((now - event.created_at).total_seconds(), 0.0)
    score = (
        AGE_WEIGHT * 2 ** (-seconds / HALF_LIFE_SECONDS)
        + ACTION_WEIGHT * ACTION_SCORES.get(event.action, OTHER_ACTION_SCORE)
        + WORDS_WEIGHT * _share_words(event, words)
        + NODE_WEIGHT * _score_node(task, event, reader)
    )
    return round(score, 6)


def event_words(event: Task) -> str:
    """What an event tells."""
    if event.action == TOOL_CALL:
        return describe_call(event)
    return event.content or event.error or ""


def _share_words(event: Task, words: Collection[str]) -> float:
    """The share of the task's words that an event says."""
    if not words:
        return 0.0
    return len(set(split_terms(event_words(event))).intersection(words)) / len(words)


def _score_node(task: Task, event: Task, reader: str) -> float:
    """How near the agent of an event is: it handed over the task, it is the reader, another."""
    node = event.node_id
    if not node:
        return NO_NODE_SCORE
    if reader and node == reader:
        return SELF_SCORE
    is_parent = bool(task.parent) and task.parent in (event.task_id, event.parent)
    if node == task.source_agent or is_parent:
        return PARENT_SCORE
    return OTHER_NODE_SCORE
