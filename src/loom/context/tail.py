"""Add sections to the tail of a request that is finished.

Rules of this file:
- What is before the tail stays as it is, byte for byte; so the next request of the epoch is the
  same with and without what is added.
- Only what is free is used: history gives nothing up for it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context.budgeting import budget_for, limit_answer
from loom.context.options import Options
from loom.context.report import Item, Report
from loom.context.request import Context
from loom.context.sections import ZONE_RULE, Section
from loom.conversation.message import Conversation, Message, Text


def find_shown(context: Context) -> frozenset[int]:
    """The places of the history that a request shows whole."""
    found = context.continuation
    shown: set[int] = set()
    for piece in found.pieces:
        at = found.places.span(piece.span)
        kept = [item.action == "kept" for item in piece.items]
        if len(kept) == at.stop - at.start:
            shown.update(at.start + n for n, is_kept in enumerate(kept) if is_kept)
        elif all(kept):  # several that became one message
            shown.update(range(at.start, at.stop))
    return frozenset(shown)


def find_free(context: Context) -> int:
    """How many tokens a request leaves free."""
    report = context.report
    return max(report.usable - report.margin - report.input_tokens, 0)


def add_to_tail(
    context: Context,
    given: Conversation,
    options: Options,
    added: Sequence[tuple[Section, str]],
) -> Context:
    """The request with sections before the others of its tail, each with the handle that it names;
    the same request if there is no room for them.
    """
    report, request = context.report, context.conversation
    counter = gate_counter(report.model or None, options.ratio)
    history, tail = request.messages, request.messages[len(request.messages) - context.tail :]
    history = history[: len(history) - len(tail)]
    texts = [section.text for section, _ in added]
    texts += [message.text for message in tail]
    made = Message("user", (Text(options.policy.separator.join(texts)),))
    more = counter.count_message(made) - sum(map(counter.count_message, tail))
    if not added or more > find_free(context):
        return context
    used = report.input_tokens + more
    request = replace(
        request,
        messages=(*history, made),
        max_output=limit_answer(options, given, budget_for(options, given), used),
    )
    return replace(
        context,
        conversation=request,
        report=_add_items(report, options, added, used),
        tail=1,
    )


def _add_items(
    report: Report, options: Options, added: Sequence[tuple[Section, str]], used: int
) -> Report:
    count = gate_counter(report.model or None, options.ratio).count_text
    first = sum(line.place.startswith("sections[") for line in report.lines)
    zones = {name: dict(numbers) for name, numbers in report.zones.items()}
    items: list[Item] = []
    for n, (section, handle) in enumerate(added, first):
        tokens = count(section.text)
        after = tokens + Section.FRAME_TOKENS
        items.append(
            Item(f"sections[{n}]", section.zone, "kept", ZONE_RULE, tokens, after, (handle,))
        )
        zone = zones.setdefault(section.zone, {"budget": 0, "used": 0})
        zone["used"] += after
        grown = max(zone["used"] - zone["budget"], 0)
        zone["budget"] += grown
        if "history" in zones:  # an empty zone lends its tokens to history
            zones["history"]["budget"] = max(zones["history"]["budget"] - grown, 0)
    lines = list(report.lines)
    at = max(
        (n + 1 for n, line in enumerate(lines) if line.place.startswith("sections[")),
        default=sum(line.place in ("system", "tools") for line in lines),
    )
    return replace(report, lines=(*lines[:at], *items, *lines[at:]), zones=zones, input_tokens=used)
