"""The point of a request: which messages have to be in, and why.

Every policy keeps request, goal and pins. It says which message is the goal, and whether what the
request leans on is kept.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from loom.context.history.fitting import Fitting
from loom.context.history.requests import find_goals, find_leaned_on
from loom.context.policy import Policy
from loom.context.report import Item
from loom.conversation.message import Message
from loom.conversation.system_messages import SYSTEM_ROLES, newest_of_kinds

MustRule = Literal[
    "the end of the text",
    "current request",
    "the request leans on it",
    "current goal",
    "first goal",
    "system text",
    "compaction of the provider",
    "pin",
    "recent nodes",
]
# what is shrunk rather than left out
POINT: tuple[MustRule, ...] = ("current request", "first goal", "pin")
# what is shrunk first, to a share of the room, so that it leaves room to the work itself
BACKGROUND: tuple[MustRule, ...] = ("the request leans on it", "current goal")
BACKGROUND_SHARE = 0.12  # of the room, for each of them
REMINDER = "newest system message of its kind"
# of the room for history, what the newest system messages of each kind may take
SYSTEM_SHARE = 0.25


def must_stay(
    history: Sequence[Message],
    pins: Sequence[int],
    policy: Policy,
    document: bool,
    compacted: int | None = None,
) -> dict[int, MustRule]:
    """The messages that have to be in, by their places, the most important first, and why.

    `compacted` is the place of the newest compaction of the provider.
    """
    why: dict[int, MustRule] = {}
    if document:
        why[len(history) - 1] = "the end of the text"
    elif history:
        why |= _request_and_goal(history, policy)
    if policy.system_messages == "keep":
        for index, message in enumerate(history):
            if message.role in SYSTEM_ROLES:
                add_rule(why, index, "system text")
    if compacted is not None:
        add_rule(why, compacted, "compaction of the provider")
    for pin in pins:
        add_rule(why, pin, "pin")
    return why


def add_rule(why: dict[int, MustRule], place: int, rule: MustRule) -> None:
    """Say why something has to be in. If two rules say so and one of them may leave it out in the
    end, the other one counts.
    """
    if place not in why or (why[place] in BACKGROUND and rule not in BACKGROUND):
        why[place] = rule


def _request_and_goal(history: Sequence[Message], policy: Policy) -> dict[int, MustRule]:
    users = [n for n, message in enumerate(history) if message.role == "user"]
    if not users:
        return {0: "first goal"}
    found: dict[int, MustRule] = {users[-1]: "current request"}
    if policy.leaned_on:
        for place in find_leaned_on(history, users):
            add_rule(found, place, "the request leans on it")
    if policy.goal == "request":
        return found
    first = current = users[0]
    if policy.goal == "task":
        first, current = find_goals([(n, history[n].text) for n in users])
    if current != first:
        add_rule(found, current, "current goal")
    add_rule(found, first, "first goal")
    return found


def find_must(fitting: Fitting) -> dict[int, MustRule]:
    """The messages of a fitting that have to be in, and why."""
    return must_stay(
        fitting.history, fitting.pins, fitting.policy, fitting.document, fitting.compacted
    )


def must_and_reminders(fitting: Fitting) -> dict[int, str]:
    """The messages that have to be in and the newest system messages of each kind, by their places,
    and why.
    """
    why: dict[int, str] = dict(find_must(fitting))
    if fitting.document:
        return why
    left = int(fitting.room * SYSTEM_SHARE)
    for index in newest_of_kinds(fitting.history):
        left -= fitting.counter.count_message(fitting.history[index])
        if left < 0:
            break
        why.setdefault(index, REMINDER)
    return why


def cut_of_point(items: Iterable[Item]) -> int:
    """How many tokens of goal, request and pins were cut."""
    return sum(
        item.before - item.after for item in items if item.action == "shrunk" and item.rule in POINT
    )
