"""What a session does under pressure: see when nothing may move, learn from a refusal, and hand its
work to a fresh window.
"""

from msgspec.structs import replace

from loom.budget.zones import Budget
from loom.context import Handoff, Options, Working
from loom.conversation.canonical import to_json
from loom.conversation.turns import in_flight
from loom.providers.overflow import Overflow
from loom.stores import Overlay, Path

COLD_MS = 5 * 60_000  # milliseconds after which providers forget a prefix
DEAD_MS = 10 * 60_000  # milliseconds after which nobody waits for a call's result any more
LAST_MESSAGES = 400  # at the end of a path, from which a handoff is made
# messages at the end of a path in which the last answer and its calls are looked for
_LOOKED_AT = 32
MIN_REFUSED_TOKENS = 64  # tokens that no provider is taken to refuse for their number
_SAFE = 0.95  # of what a provider took, or would have


def moment(path: Path, now: int) -> tuple[bool, bool]:
    """Whether the provider has forgotten the last request by now, and whether a call is in
    flight.
    """
    recent = path[-_LOOKED_AT:]
    answered = next((node.created for node in reversed(recent) if node.role == "assistant"), None)
    cold = answered is not None and now - answered > COLD_MS
    busy = (
        bool(recent)
        and now - recent[-1].created <= DEAD_MS
        and in_flight([node.message for node in recent if node.message])
    )
    return cold, busy


def limit_after_refusal(overflow: Overflow, counted: int, reserve: int) -> int:
    """How many tokens, as we count them, may be sent from now on, once a provider refused so
    many.
    """
    most = counted * _SAFE
    if overflow.limit and overflow.asked:
        most = min(
            most,
            counted * max(overflow.limit - reserve, overflow.limit // 2) / overflow.asked * _SAFE,
        )
    elif overflow.limit:
        most = min(most, max(overflow.limit - reserve, overflow.limit // 2) * _SAFE)
    return max(int(most), MIN_REFUSED_TOKENS)


def fit_into(wish: Options, budget: Budget, most: int) -> Options:
    """What is asked for, in a window of which no more than this is used."""
    if budget.usable <= most:
        return wish
    reserve = min(budget.reserved_output, most)
    return replace(wish, window=most + reserve, reserve_output=reserve, asked_window=budget.window)


def make_handoff(overlay: Overlay, working: Working, before: Handoff | None, now: int) -> Handoff:
    """The handoff of this moment, made from what is shown at the end of a path, with the files that
    earlier ones named.
    """
    path, hidden = overlay.path, overlay.hidden
    shown = [node for node in path[-LAST_MESSAGES:] if node.message and node.depth not in hidden]
    if path.end and path.end.goal is not None:
        goals = path.nodes([path.end.goal])
    else:
        goals = []
    goals = [node for node in goals if node.depth not in hidden] or [
        node for node in shown if node.role == "user"
    ]
    goal = next((node.message.text for node in goals if node.message), "")
    messages = [node.message for node in shown if node.message]
    sprint = before.sprint if before else 0
    return Handoff.make(working, goal, messages, sprint + 1, now).with_files_of(before)


def hidden_names(path: Path, overlay: Overlay) -> str:
    """The nodes of a path that are hidden, and the last one before what is pruned; "" if all is
    shown.
    """
    names = sorted(name for _, name, _ in overlay.path.names_at(overlay.hidden).values())
    if len(overlay.path) < len(path):
        names.append(f"pruned behind {overlay.path.end.id if overlay.path.end else 'nothing'}")
    return to_json(names) if names else ""
