"""Replay: a transcript played call by call, as its agent would have made the calls, and what each
policy made of it.

Before every message of the model there was a call with everything before it. A session in memory is
asked for it, as an agent's would be, and its request is judged by what is sent, as chat messages,
whatever its report says.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.budget.counting import gate_counter
from loom.budget.models import ModelFacts, Overrides, cost
from loom.budget.models import model as find_model
from loom.context import Context, Policy, Report, find_policy
from loom.conversation.message import Conversation, Media, Message, ToolResult
from loom.dialects.openai import render_messages
from loom.engine.loom import Loom
from loom.engine.measures import (
    LEAST_GOLD,
    Chat,
    Texts,
    anchors,
    goal_missing,
    lookahead_gold,
    message_tokens,
    strict_recall,
    strict_windows,
    text_of,
    torn_pairs,
)
from loom.errors import CannotFit, ChoiceError

FIRST_CUT, CUTS_APART = 100, 80  # messages at which look-ahead recall is measured

Sent = Callable[[str, int, Context], None]
# milliseconds: the clock of a replay begins here, and advances by one at each look
FIRST_TIME_MS = 1_700_000_000_000
USUAL = "gpt-4o"  # whose window, tokenizer and prices are meant where nobody names a model


class Call(Struct, frozen=True, kw_only=True):
    """One model call: what was sent, of it the prefix shared with the last request and the tail,
    and what was new to send.

    A call that was refused, because what must be in does not fit, sends nothing and says why.
    """

    message: int
    tokens: int = 0
    shared: int = 0
    tail: int = 0
    new: int = 0
    renewed: bool = False
    over_budget: bool = False
    torn_pairs: bool = False
    goal_missing: bool = False
    seconds: float = 0.0
    recall: float | None = None
    refused: str = ""

    @property
    def bad(self) -> bool:
        return self.over_budget or self.torn_pairs or self.goal_missing or bool(self.refused)


class ReplayFigures(Struct, frozen=True, kw_only=True):
    """What a policy came to. What cannot be told is None: prices of an unknown model, recall where
    the transcript is short.
    """

    calls: int
    refused: int
    over_budget: int
    torn_pairs: int
    goal_missing: int
    usable: int | None
    mean_tokens: float | None
    cacheable_share: float | None
    uncached_per_call: float | None
    recache_factor: float | None
    recache_factor_with_tail: float | None
    tail_tokens: float | None
    cost_with_cache: float | None
    cost_without_cache: float | None
    epochs: int
    ms_per_call: float | None
    lookahead_recall: float | None

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON has them, without those that cannot be told."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class PlayedPolicy(Struct, frozen=True, kw_only=True):
    """A transcript as one policy would have sent it. Window and reserve are those of its requests,
    none if all were refused.
    """

    policy: str
    model: str
    counter: str
    window: int | None
    reserve: int | None
    calls: tuple[Call, ...]
    figures: ReplayFigures


class _WeighedMessage(Struct, frozen=True):
    """A message as chat has it, and what it takes and says."""

    chat: tuple[Chat, ...]
    tokens: int
    texts: tuple[tuple[str, str], ...]


class _Wishes(Struct, frozen=True):
    """What every call asks for."""

    model: str | None
    window: int | None
    reserve: int | None
    overrides: Overrides | None


class _Scale:
    """Weighs messages as chat has them, each once."""

    def __init__(self, model: str | None) -> None:
        self._counter = gate_counter(model)
        self._known: dict[Message, _WeighedMessage] = {}

    def __call__(self, message: Message) -> _WeighedMessage:
        known = self._known.get(message)
        if known is None:
            chat = tuple(render_messages((message,), []))
            # Counted here even where it is not used: else the policy that is played first would be
            # timed for all of them.
            counted = self._counter.count_message(message)
            # Pictures are counted by the provider's formula: their characters are no text that
            # anybody reads.
            pictured = _has_media(message)
            if pictured:
                tokens = counted
            else:
                tokens = sum(message_tokens(each, self._counter.count_text) for each in chat)
            known = _WeighedMessage(
                chat, tokens, tuple((each["role"], text_of(each)) for each in chat)
            )
            self._known[message] = known
        return known

    def head(self, conversation: Conversation) -> int:
        """What the tools take, which come before everything."""
        return self._counter.count_tools(conversation.tools)


class _Transcript:
    """What is known of a transcript before anybody plays it: its calls, what each was about, and
    what recall looks for.
    """

    def __init__(self, conversation: Conversation, scale: _Scale) -> None:
        self.conversation, self.scale = conversation, scale
        messages = conversation.messages
        self.cuts = [n for n, message in enumerate(messages) if message.role == "assistant" and n]
        self.weighed = [scale(message) for message in messages]
        self.fixed = scale.head(conversation) + sum(
            scale(message).tokens for message in conversation.system
        )
        self.request: list[str | None] = [None]  # the newest words of the user before each message
        for weighed in self.weighed:
            said = [text for role, text in weighed.texts if role == "user"]
            self.request.append(said[-1] if said else self.request[-1])
        texts = [
            (message.role, "\n".join(text for _, text in weighed.texts))
            for message, weighed in zip(messages, self.weighed, strict=True)
        ]
        self.gold = _gold(texts, self.cuts, len(conversation.system))
        if self.gold:
            self.windows = strict_windows(texts, set[str]().union(*self.gold.values()))
        else:
            self.windows = {}

    def new(self, seen: int, cut: int) -> int:
        """Tokens that came since a call; before the first one also what comes before all
        messages.
        """
        return sum(weighed.tokens for weighed in self.weighed[seen:cut]) + (
            0 if seen else self.fixed
        )

    def recall(self, cut: int, texts: Texts) -> float | None:
        """What a request kept of that which the agent soon writes again; none if that is not
        measured.
        """
        gold = self.gold.get(cut)
        if gold:
            return strict_recall("\n".join(text for _, text in texts), self.windows, gold, cut)
        return None


def _gold(texts: Texts, cuts: Sequence[int], leading: int) -> dict[int, set[str]]:
    """What recall looks for, by the call nearest to each place where it is measured; places count
    system text, as chat does.
    """
    places = range(max(FIRST_CUT - leading, 0), len(texts), CUTS_APART)
    if not places or not cuts:
        return {}
    found = [(role, anchors(text)) for role, text in texts]
    nearest = sorted({min(cuts, key=lambda cut: abs(cut - place)) for place in places})
    golds = {cut: lookahead_gold(found, cut) for cut in nearest}
    return {cut: gold for cut, gold in golds.items() if len(gold) >= LEAST_GOLD}


def replay(
    conversation: Conversation,
    policies: Sequence[str | Policy] = ("default",),
    *,
    model: str | None = None,
    window: int | None = None,
    reserve_output: int | None = None,
    overrides: Overrides | None = None,
    sent: Sent | None = None,
) -> dict[str, PlayedPolicy]:
    """Play a transcript by each policy. `sent` is told the policy, the number of the call and the
    context of each request.
    """
    chosen = [find_policy(given) for given in policies]
    names = [each.name for each in chosen]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ChoiceError(f"the policy {min(twice)!r} is named twice; name each once")
    model = model or conversation.model or USUAL
    transcript = _Transcript(conversation, _Scale(model))
    wishes = _Wishes(model, window, reserve_output, overrides)
    return {each.name: _play(transcript, each, wishes, sent) for each in chosen}


def _play(
    transcript: _Transcript, policy: Policy, wishes: _Wishes, sent: Sent | None
) -> PlayedPolicy:
    with ThreadPoolExecutor(1) as thread:  # who calls may have an event loop of their own
        calls, last = thread.submit(
            asyncio.run, _play_calls(transcript, policy, wishes, sent)
        ).result()
    return PlayedPolicy(
        policy=policy.name,
        model=wishes.model or "",
        counter=gate_counter(wishes.model).profile.name,
        window=last.window if last else wishes.window,
        reserve=last.reserved_output if last else wishes.reserve,
        calls=tuple(calls),
        figures=_figures(calls, last, find_model(wishes.model, wishes.overrides)),
    )


async def _play_calls(
    transcript: _Transcript, policy: Policy, wishes: _Wishes, sent: Sent | None
) -> tuple[list[Call], Report | None]:
    conversation, scale = transcript.conversation, transcript.scale
    calls: list[Call] = []
    last: Report | None = None
    before: list[_WeighedMessage] = []
    appended = seen = 0
    clock, ids = count(FIRST_TIME_MS), count()
    with Loom.open(
        ":memory:", now=lambda: next(clock), fresh_id=lambda: f"{next(ids):032x}"
    ) as loom:
        session = loom.new(tools=conversation.tools)
        session.append(*conversation.system)
        for number, cut in enumerate(transcript.cuts):
            start = perf_counter()
            await session.aappend(*conversation.messages[appended:cut])
            appended = cut
            try:
                context = await session.prepare(
                    model=wishes.model,
                    window=wishes.window,
                    reserve_output=wishes.reserve,
                    policy=policy,
                    overrides=wishes.overrides,
                )
            except CannotFit as error:
                calls.append(Call(message=cut, refused=str(error)))
                continue
            seconds = perf_counter() - start
            sending = [
                scale(message)
                for message in (*context.conversation.system, *context.conversation.messages)
            ]
            call = _judge(transcript, cut, context, sending, before)
            renewed = last is not None and context.report.epoch != last.epoch
            calls.append(
                replace(call, new=transcript.new(seen, cut), renewed=renewed, seconds=seconds)
            )
            if sent is not None:
                sent(policy.name, number, context)
            last, before, seen = context.report, sending, cut
    return calls, last


def _judge(
    transcript: _Transcript,
    cut: int,
    context: Context,
    sending: Sequence[_WeighedMessage],
    before: Sequence[_WeighedMessage],
) -> Call:
    """What is to be said of a request for itself, and next to the last one."""
    tools = transcript.scale.head(context.conversation)
    texts = [text for weighed in sending for text in weighed.texts]
    tokens = tools + sum(weighed.tokens for weighed in sending)
    tail = sum(weighed.tokens for weighed in sending[len(sending) - context.tail :])
    shared = tools if before else 0  # of one conversation, which keeps its tools
    for one, other in zip(before, sending, strict=False):
        if one is not other and one.chat != other.chat:
            break
        shared += other.tokens
    request = transcript.request[cut]
    return Call(
        message=cut,
        tokens=tokens,
        shared=min(shared, tokens - tail),
        tail=tail,
        over_budget=tokens > context.report.usable,
        torn_pairs=torn_pairs(each for weighed in sending for each in weighed.chat) > 0,
        goal_missing=request is not None and goal_missing(texts, request),
        recall=transcript.recall(cut, texts),
    )


def _figures(calls: Sequence[Call], last: Report | None, priced: ModelFacts) -> ReplayFigures:
    made = [call for call in calls if not call.refused]
    tokens, shared = sum(call.tokens for call in made), sum(call.shared for call in made)
    tail, new = sum(call.tail for call in made), sum(call.new for call in made)
    recalls = [call.recall for call in made if call.recall is not None]
    known = bool(made) and priced.input is not None
    return ReplayFigures(
        calls=len(calls),
        refused=len(calls) - len(made),
        over_budget=sum(call.over_budget for call in made),
        torn_pairs=sum(call.torn_pairs for call in made),
        goal_missing=sum(call.goal_missing for call in made),
        usable=last.usable if last else None,
        mean_tokens=_ratio(tokens, len(made), 1),
        cacheable_share=_ratio(shared, tokens, 4),
        uncached_per_call=_ratio(tokens - shared, len(made), 1),
        recache_factor=_ratio(tokens - shared - tail, new, 3),
        recache_factor_with_tail=_ratio(tokens - shared, new, 3),
        tail_tokens=_ratio(tail, len(made), 1),
        # What is new is written to the cache, the tail is not: it is in no later request.
        cost_with_cache=cost(priced, tokens, 0, cached=shared, written=tokens - shared - tail)
        if known
        else None,
        cost_without_cache=cost(priced, tokens, 0) if known else None,
        epochs=sum(call.renewed for call in made),
        ms_per_call=_ratio(sum(call.seconds for call in made) * 1000, len(made), 3),
        lookahead_recall=_ratio(sum(recalls), len(recalls), 4),
    )


def _ratio(amount: float, parts: float, digits: int) -> float | None:
    """An amount for each of its parts, rounded; None if there are no parts."""
    if parts:
        return round(amount / parts, digits)
    return None


def _has_media(message: Message) -> bool:
    inner = (
        piece for part in message.parts if isinstance(part, ToolResult) for piece in part.parts
    )
    return any(isinstance(part, Media) for part in (*message.parts, *inner))
