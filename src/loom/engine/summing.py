"""What of a session is due to be summarized, and what is written of it. A model is asked outside of
any transaction.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from loom.budget.counting import Counter, gate_counter, seed_counter
from loom.context import (
    Options,
    Policy,
    SummaryLimits,
    SummaryTask,
    budget_for,
    find_strategy,
)
from loom.conversation.message import Conversation, Message, Text, ToolResult
from loom.engine.reading import ReadingStyle, head_of, message_of
from loom.stores import Node, Overlay, Path, SessionRow, Store, Summary

BY_MODEL = "a model"  # whose words a summary has
MAX_MESSAGES_AT_ONCE = 2000  # messages that are summarized at once; what is left is due again
MOST_BEHIND = 16  # summaries that come after one another before one tells of all
MIN_SUMMARY = 50  # tokens of a summary in a small window
MAX_SUMMARY_TOKENS = 2000  # tokens of one summary among several
# tokens of a tool's result that a model is asked about, and of what it may say
LARGE_RESULT_TOKENS, RESULT_DIGEST_TOKENS = 3000, 400
MAX_NEW_MESSAGES = 32  # messages among which such results are looked for
# results of which a model said something that no summary holds yet: more would take too much of the
# next one
MAX_WAITING_TASKS = 2
_DIGESTED = "[A model says of a tool's result, for reference only:] "


class Plan(Struct, frozen=True, kw_only=True):
    """A stretch of a path that is to be summarized, its last node, why, and what is asked for."""

    start: int
    stop: int
    end: Node
    why: str
    hidden: tuple[int, ...]
    behind: tuple[str, ...]  # the summaries that there were
    task: SummaryTask
    # what models said of large results in the stretch, to be shown with its summary
    digests: tuple[str, ...] = ()


When = Literal["due", "now", "whole"]


class _Stretch(Struct, frozen=True, kw_only=True):
    """What could be summarized: nodes after what the last summary told, or all of them."""

    nodes: list[Node]
    hidden: Collection[int]
    chain: list[Summary]  # the summaries that there are, one after the other
    head: Conversation
    digests: dict[int, str]

    @property
    def last_stop(self) -> int:
        """Where the last summary ends."""
        if self.chain:
            return self.chain[-1].stop
        return 0


def plan(
    store: Store, row: SessionRow, path: Path, options: Options, style: ReadingStyle, when: When
) -> Plan | None:
    """What is to be summarized: if anything is `due`, or `now` in any case, or the `whole` path
    again.
    """
    stretch = None
    if not style.document:
        stretch = _find_stretch(store, row, path, style, when)
    if stretch is None:
        return None
    policy = options.policy
    best = gate_counter(options.model or stretch.head.model or None)
    if policy.counter == "best":
        own = best
    else:
        own = seed_counter(policy.counter)
    messages = [message_of(node) for node in stretch.nodes]
    above = policy.summarize_above_in(budget_for(options, stretch.head).window)
    limits = SummaryLimits(
        messages=policy.summarize_past,
        above=above if when == "due" else 1e-9,
        keep=policy.summarize_keep,
        whole_turns=find_strategy(policy.strategy).takes_turns,
    )
    room = _room_for_history(stretch, options, own)
    found = limits.find_due(messages, sum(map(own.count_message, messages)), room)
    if found is None:
        return None
    tokens = _summary_tokens(policy, room)
    # Summaries come after one another until they take too much. Then, or if there is room for one
    # only, it tells of all.
    several = _has_room_for_several(
        stretch, policy, room, best.count_text(join_texts(stretch.chain)) + tokens
    )
    start = stretch.last_stop if several and when != "whole" else 0
    nodes = stretch.nodes[: found.stop]
    stop = nodes[-1].depth + 1
    return Plan(
        start=start,
        stop=stop,
        end=nodes[-1],
        why=found.reason,
        hidden=tuple(sorted(at for at in stretch.hidden if start <= at < stop)),
        behind=tuple(summary.name for summary in stretch.chain),
        task=SummaryTask(
            messages=tuple(messages[: found.stop]),
            existing="" if several else join_texts(stretch.chain),
            tokens=tokens,
            omit=limits.whole_turns,
        ),
        digests=_new_digests(stretch, nodes),
    )


def join_texts(summaries: Iterable[Summary]) -> str:
    """What summaries tell, as one text."""
    return "\n\n".join(summary.text for summary in summaries)


def _find_stretch(
    store: Store, row: SessionRow, path: Path, style: ReadingStyle, when: When
) -> _Stretch | None:
    with path.snapshot() as whole:
        overlay = style.overlay(whole)
        whole, hidden = overlay.path, overlay.hidden
        if whole.end is None:
            return None
        chain = store.summaries.on_path(row, whole, hidden)
        if when == "due" and chain and not _is_shown(store, row, whole, chain[-1]):
            return None  # another one would make it worthless
        done = chain[-1].stop if chain else 0
        if when == "whole":
            read = whole[-MAX_MESSAGES_AT_ONCE:]
        else:
            read = whole[done : done + MAX_MESSAGES_AT_ONCE]
        nodes = [node for node in read if node.depth not in hidden and node.message]
        return _Stretch(
            nodes=nodes,
            hidden=hidden,
            chain=chain,
            head=head_of(row, style, overlay, row.asides),
            digests=store.summaries.digests(row, [node for node in nodes if _is_large(node)]),
        )


def _room_for_history(stretch: _Stretch, options: Options, own: Counter) -> int:
    """What the history may take, in tokens of the policy's own counter."""
    budget = budget_for(options, stretch.head)
    if options.policy.history == "zone":
        return max(budget.history, 1)
    fixed = sum(map(own.count_message, stretch.head.system)) + own.count_tools(stretch.head.tools)
    fixed += own.count_text(join_texts(stretch.chain))
    fixed += sum(own.count_text(section.text) for section in options.sections)
    return max(budget.usable - fixed, 1)


def _summary_tokens(policy: Policy, room: int) -> int:
    """How long a summary may be."""
    tokens = max(MIN_SUMMARY, min(policy.summary_tokens, room // 4))
    if policy.summary == "cover":
        tokens = max(tokens, min(int(room * policy.cover), MAX_SUMMARY_TOKENS))
    return tokens


def _has_room_for_several(stretch: _Stretch, policy: Policy, room: int, tokens: int) -> bool:
    """Whether one more summary may come after the others, if all of them take this many tokens."""
    return (
        policy.summary == "cover"
        and len(stretch.chain) < MOST_BEHIND
        and tokens <= room * policy.covers / 2
    )


def _new_digests(stretch: _Stretch, nodes: Sequence[Node]) -> tuple[str, ...]:
    """What models said of large results that no summary told of yet."""
    fresh = (node for node in nodes if node.depth >= stretch.last_stop)
    return tuple(stretch.digests[node.seq] for node in fresh if node.seq in stretch.digests)


def _is_shown(store: Store, row: SessionRow, path: Path, newest: Summary) -> bool:
    """Whether requests show a summary, so that a model was not asked in vain; one of a person
    was.
    """
    view = store.views.read_newest(row, path)
    return newest.by != BY_MODEL or (view is not None and newest.name in view.shown)


def find_undigested(store: Store, row: SessionRow, overlay: Overlay) -> list[Node]:
    """Large results among the newest messages of which no model has said anything yet, and the next
    summary can show it.

    What is hidden no model is asked about.
    """
    chain = store.summaries.on_path(row, overlay.path, overlay.hidden)
    done = chain[-1].stop if chain else 0
    untold = [
        node
        for node in overlay.path[max(done, len(overlay.path) - MAX_MESSAGES_AT_ONCE) :]
        if node.depth not in overlay.hidden
    ]
    large = [node for node in untold if _is_large(node)]
    known = store.summaries.digests(row, large)
    newest = [
        node
        for node in large
        if node.seq not in known and node.depth >= len(overlay.path) - MAX_NEW_MESSAGES
    ]
    return newest[: max(0, MAX_WAITING_TASKS - len(known))]


def _is_large(node: Node) -> bool:
    return (
        node.tokens > LARGE_RESULT_TOKENS
        and node.message is not None
        and bool(result_text(node.message))
    )


def result_text(message: Message) -> str:
    """The text of a message that is one tool's result and nothing else; "" for any other."""
    match message.parts:
        case (ToolResult(parts=(Text(text=text),)),):
            return text
    return ""


def digests_of(store: Store, row: SessionRow, nodes: Sequence[Node]) -> dict[str, str]:
    """What models said of large results among these nodes, by their texts."""
    large = {
        node.seq: result_text(node.message) for node in nodes if _is_large(node) and node.message
    }
    known = store.summaries.digests(row, [node for node in nodes if node.seq in large])
    return {large[seq]: text for seq, text in known.items()}


def with_digests(text: str, digests: Sequence[str]) -> str:
    """A summary with what models said of large results in its stretch."""
    return "\n".join((text, *(f"{_DIGESTED}{digest}" for digest in digests)))


def make_summary(planned: Plan, text: str, by: str) -> Summary:
    """What is written of a plan that was carried out."""
    return Summary(
        text=text,
        start=planned.start,
        stop=planned.stop,
        by=by,
        why=planned.why,
        hidden=planned.hidden,
    )
