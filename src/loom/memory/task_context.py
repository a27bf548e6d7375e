"""Seed 004's door to requests: from a task, and what its agent knows, the messages for a model.

Rules of this file:
- The order is system prompt, L1, knowledge, events of others, direct messages, current task, and
  what happened in the task so far.
- The given counter chooses. The request fits `max_tokens` by it, and by the best counter that Loom
  has.
- Knowledge is asked with the words of the task, once for each task.
- The same task with nothing changed is the same request, and nothing is counted again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.chat import as_tool
from loom.budget.counting import Counter, gate_counter, seed_counter
from loom.context import Context, Policy, Section, find_policy, weave
from loom.conversation.checked import check_number, check_text, refuse_unknown, show_options
from loom.conversation.message import Conversation, Message, Text, Tool
from loom.conversation.turns import exchanges
from loom.dialects.document import to_plain_text
from loom.engine.options import read_refusal
from loom.engine.pressure import limit_after_refusal
from loom.errors import CannotFit, ChoiceError, describe, shorten
from loom.memory.converter import (
    EXECUTE,
    convert_task,
    name_agent,
    to_current_message,
    to_flight_messages,
    to_message,
    to_messages,
)
from loom.memory.event_ranking import event_words
from loom.memory.own_counter import CountsMessages, MessageCount, check_counter, policy_counter
from loom.memory.shares import SourceTokens, share_room
from loom.memory.shortening import shorten_line
from loom.memory.sources import (
    ContextSource,
    EventBusContextSource,
    MemoryContextSource,
    SourceFindings,
    merge_collected,
)
from loom.providers.knowledge import (
    DEFAULT_SECONDS,
    MAX_ITEMS,
    Findings,
    KnowledgeBase,
    ask_bases,
    check_bases,
    to_sections,
)
from loom.runtime import Task

__all__ = [
    "ContextSource",
    "EventBusContextSource",
    "MemoryContextSource",
    "SourceFindings",
    "TaskContextManager",
    "convert_task",
]

DEFAULT_MAX_TOKENS = 4000
MAX_REMEMBERED_TASKS = 64  # whose last request, and whose knowledge, a manager remembers
MAX_EARLIER_REQUESTS = 7  # for a task, besides its last one, whose handles can be recalled
SHRINKS = 4  # sizes that are tried after a refusal, the smallest first
MAX_ATTEMPTS = 12  # to fit by a counter of which nothing is known
SMALLER = 0.98  # of what a counter allows, where the last attempt was too large
MAX_EVENT_CHARS = 1000  # of one event
SOURCE_SECONDS = 5.0  # that a source has
MAX_NOTE_CHARS = 200
NO_ROOM_FOR_STEPS = (
    "there is no room for all that happened in the task: its oldest steps are left out, and what "
    "is remembered"
)
NO_ROOM_FOR_OTHERS = (
    "there is no room for knowledge, events and messages: the request has the task alone"
)
NO_ROOM = "there is no room for what is remembered: the request has the task alone"
# Zones of a window that a task does not have: they would take room from those that it has.
EMPTY_ZONES = {"decision_context": 0, "repo_map": 0, "tool_definitions": 0}


class TaskContextOptions(TypedDict, total=False):
    """The further options of `TaskContextManager`."""

    # Name of the model. It decides the tokenizer of the last check (default: that of the counter).
    model: str | None
    # Name of a policy, or a `Policy` (default: `tasks`).
    policy: str | Policy
    # How many items of knowledge a request shows (default: 3).
    knowledge_limit: int
    # Seconds that all knowledge bases have together (default: 0.1).
    knowledge_seconds: float


class _TaskMaterial(Struct, frozen=True):
    """All that a request of a task is made from."""

    task: Task
    collected: SourceFindings
    findings: Findings
    tools: tuple[Tool | Mapping[str, Any], ...]
    limit: int  # tokens of the request


class _BuiltRequest(Struct, frozen=True):
    asked: _TaskMaterial
    context: Context
    earlier: tuple[Context, ...] = ()  # the requests before it, the newest first


class _Draft(Struct, frozen=True, kw_only=True):
    """A request before it is woven: messages from tasks, and sections by zone."""

    important: tuple[tuple[Task, tuple[Message, ...]], ...]  # the most important first
    recent: tuple[Message, ...]
    current: Message
    flight: tuple[Message, ...]
    sections: Mapping[str, tuple[Section, ...]]
    answers: tuple[Message, ...] = ()  # of all these, what came of a task


class TaskContextManager:
    """Builds the messages that a model gets for a task.

    `token_counter` is anything with `count_messages(list) -> int`. `sources` find what the agent
    knows. `max_tokens` limits the messages. `knowledge_base` is anything with `query`, or a list of
    such.
    """

    @show_options
    def __init__(
        self,
        token_counter: CountsMessages | None = None,
        sources: Iterable[ContextSource] = (),
        max_tokens: int = DEFAULT_MAX_TOKENS,
        system_prompt: str | None = None,
        knowledge_base: KnowledgeBase | Sequence[KnowledgeBase] | None = None,
        **options: Unpack[TaskContextOptions],
    ) -> None:
        refuse_unknown("TaskContextManager", options, TaskContextOptions)
        self.token_counter = check_counter(token_counter)
        self.sources = _check_sources(sources)
        self.max_tokens = check_number("max_tokens", max_tokens, 1)
        self.system_prompt = check_text("system_prompt", system_prompt or "")
        self.knowledge_bases = check_bases(knowledge_base)
        self.knowledge_limit = check_number(
            "knowledge_limit", options.get("knowledge_limit", MAX_ITEMS), 0
        )
        self.knowledge_seconds = options.get("knowledge_seconds", DEFAULT_SECONDS)
        self.model = options.get("model") or getattr(self.token_counter, "model", None)
        self.policy = _make_policy(options.get("policy", "tasks"), self.token_counter)
        self._count = MessageCount(self.token_counter).count
        self._limit = self.max_tokens  # less, once a provider has refused a request
        self._made: OrderedDict[str, _BuiltRequest] = OrderedDict()
        self._found: OrderedDict[tuple[Any, ...], Findings] = OrderedDict()

    async def build_context(self, task: Task | Mapping[str, Any]) -> list[dict[str, Any]]:
        """The messages for a task, each with `role` and `content`.

        Calls and results of the task in flight have `tool_calls` and `tool_call_id`, too. What was
        left out before the first message has no marker here; `prepare` has one.
        """
        return list_messages(await self.prepare(task))

    async def prepare(
        self,
        task: Task | Mapping[str, Any],
        *,
        tools: Iterable[Tool | Mapping[str, Any]] = (),
        overflow: object = None,
    ) -> Context:
        """The request for a task, with its report.

        `overflow` is the error by which a provider refused the last request as too long: this one
        is smaller, and so are all that follow. Raises `CannotFit` if the system prompt and the task
        are larger than `max_tokens`.
        """
        task = Task.of(task)
        parts = [await _collect(source, task) for source in self.sources]
        collected = merge_collected(parts)
        findings = await self._ask_knowledge(task)
        last = self._made.get(task.task_id)
        asked = _TaskMaterial(task, collected, findings, tuple(tools), self._limit)
        if overflow is not None:
            context = await asyncio.to_thread(self._shrink, asked, last, overflow)
        elif last is not None and last.asked == asked:
            return last.context
        else:
            context = await asyncio.to_thread(self._build, asked, last)
        earlier = (last.context, *last.earlier)[:MAX_EARLIER_REQUESTS] if last else ()
        asked = replace(asked, limit=self._limit)
        _remember(self._made, task.task_id, _BuiltRequest(asked, context, earlier))
        return context

    def recall(self, task: Task | Mapping[str, Any], handle: str) -> str:
        """Get back what one of the last requests for a task left out under a handle, as a text."""
        built = self._made.get(Task.of(task).task_id)
        for context in (built.context, *built.earlier) if built else ():
            if handle in context.archive.handles:
                found = context.archive.find(handle)
                return found if isinstance(found, str) else to_plain_text(found)
        raise ChoiceError(f"no request for this task left out anything under {shorten(handle)!r}")

    def _shrink(
        self, asked: _TaskMaterial, last: _BuiltRequest | None, overflow: object
    ) -> Context:
        """A request that is smaller than the last one, which a provider refused. If even the system
        prompt and the task do not fit what the provider takes, it is as small as it can be.
        """
        read = read_refusal(overflow)
        refused = last.context.report.input_tokens if last else asked.limit
        wanted = limit_after_refusal(read, refused, 0)
        sizes = {wanted + n * (refused - wanted) // SHRINKS for n in range(SHRINKS)}
        for limit in sorted(min(size, asked.limit) for size in sizes):
            try:
                context = self._build(replace(asked, limit=limit), None)
            except CannotFit:
                continue
            self._limit = limit
            return context
        raise self._refuse(replace(asked, limit=wanted))

    async def _ask_knowledge(self, task: Task) -> Findings:
        """What knowledge bases find for a task. They are asked once, unless one of them failed or
        says that it changed.
        """
        if not self.knowledge_bases:
            return Findings()
        question = to_current_message(task).text
        revisions = tuple(getattr(base, "revision", None) for base in self.knowledge_bases)
        key = (task.task_id, question, revisions)
        known = self._found.get(key)
        if known is not None:
            return known
        found = await ask_bases(
            self.knowledge_bases,
            question,
            limit=self.knowledge_limit,
            seconds=self.knowledge_seconds,
        )
        if not found.notes:
            _remember(self._found, key, found)
        return found

    def _build(self, asked: _TaskMaterial, last: _BuiltRequest | None) -> Context:
        """A request that fits. Where there is no room even for markers of what is left out, it has
        the task alone.
        """
        notes = (*asked.collected.notes, *asked.findings.notes)
        for draft, note in _list_drafts(self._draft(asked)):
            try:
                context = self._fit(asked, draft, last)
            except CannotFit:
                continue
            return _finish(context, (*notes, note) if note else notes)
        raise self._refuse(asked)

    def _fit(self, asked: _TaskMaterial, draft: _Draft, last: _BuiltRequest | None) -> Context:
        """A request that fits by the given counter, too, and does not begin with an answer whose
        question is left out. It is made smaller until it does.
        """
        window = asked.limit
        for _ in range(MAX_ATTEMPTS + len(draft.answers)):
            context = self._weave(asked, draft, window, last)
            counted = self._count(_to_chat(context))
            if counted > asked.limit:
                window = min(window - 1, int(window * asked.limit / counted * SMALLER))
            elif (answer := _find_lone_answer(context, draft)) is None:
                return context
            else:
                draft = _join_question(draft, answer)
            if window < 1:
                break
        raise CannotFit("no request was small enough")

    def _refuse(self, asked: _TaskMaterial) -> CannotFit:
        """What is said if not even the task alone fits: what takes how much, by the counter that
        counts more.
        """
        best = gate_counter(self.model)
        request = to_current_message(asked.task)
        parts = {"the task": [request]}
        if self.system_prompt:
            parts["the system prompt"] = [Message("system", (Text(self.system_prompt),))]
        waiting = _drop_finished(to_flight_messages(asked.collected.flight))
        if waiting:
            parts["calls without a result"] = waiting
        by_best = {name: best.count_messages(said) for name, said in parts.items()}
        by_own = {name: self._count(list(map(_to_dict, said))) for name, said in parts.items()}
        is_own = sum(by_own.values()) > sum(by_best.values())
        sizes = by_own if is_own else by_best
        if asked.tools:
            sizes["the tools"] = best.count_tools(map(as_tool, asked.tools))
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in sizes.items())
        counter = type(self.token_counter).__name__ if is_own else best.profile.name
        limit = _name_limit(asked.limit, self.max_tokens)
        return CannotFit(
            f"{limit} is too small: even alone, and with the task cut as "
            f"far as it can be, the request does not fit. Tokens by {counter}: {listed}. Raise "
            f"max_tokens, or shorten {' or '.join(sizes)}"
        )

    def _draft(self, asked: _TaskMaterial) -> _Draft:
        """What tasks say, as messages and as sections."""
        collected, keeps = asked.collected, self.policy.task_results == "keep"
        reader = self._find_reader(asked.task)
        return _Draft(
            important=tuple(
                (task, tuple(to_messages([task], reader=reader))) for task in collected.important
            ),
            recent=tuple(to_messages(collected.recent, keep_results=keeps, reader=reader)),
            current=to_current_message(asked.task),
            flight=tuple(to_flight_messages(collected.flight)),
            sections={
                "knowledge": tuple(to_sections(asked.findings.items)),
                "events": tuple(_event_section(event) for event in collected.events),
                "messages": tuple(_message_section(each) for each in collected.messages),
            },
            answers=_list_answers([*collected.important, *collected.recent]),
        )

    def _find_reader(self, task: Task) -> str:
        """The agent that the request is for, as its sources or the task name it; "" if nobody
        does.
        """
        for source in self.sources:
            if isinstance(source, EventBusContextSource):
                return source.find_reader(task)
        named = task.parameters.get("node_id")
        return task.target_agent or (named if isinstance(named, str) else "")

    def _weave(
        self, asked: _TaskMaterial, draft: _Draft, window: int, last: _BuiltRequest | None
    ) -> Context:
        own = self._own_counter()
        zones, left = self._share(draft, own, window)
        important = _take_important(draft, own, left)
        messages = (*important, *draft.recent, draft.current, *draft.flight)
        has_requests = any(message.role == "user" for message in draft.flight)
        return weave(
            Conversation(messages=messages),
            policy=self.policy,
            model=self.model,
            window=window,
            reserve_output=0,
            system=self.system_prompt or None,
            tools=asked.tools or None,
            sections=[section for group in draft.sections.values() for section in group],
            zones={**EMPTY_ZONES, **zones},
            previous=last.context if last else None,
            # What a user adds to a task is the newest request. The task itself stays, too.
            pins=[len(important) + len(draft.recent)] if has_requests else [],
        )

    def _own_counter(self) -> Counter:
        if self.policy.counter == "best":
            return gate_counter(self.model)
        return seed_counter(self.policy.counter)

    def _share(self, draft: _Draft, own: Counter, window: int) -> tuple[dict[str, int], int]:
        """The sizes of zones by the best counter, and what is left when all sources have their
        share, by the own counter.
        """
        fixed = [draft.current, *draft.flight]
        if self.system_prompt:
            fixed.append(Message("system", (Text(self.system_prompt),)))
        room = window - own.count_messages(fixed)
        sizes = {
            zone: [own.count_message(Message("user", (Text(section.text),))) for section in group]
            for zone, group in draft.sections.items()
        }
        needs = SourceTokens(
            l1=sum(map(own.count_message, draft.recent)),
            messages=sum(sizes["messages"]),
            knowledge=sum(sizes["knowledge"]),
            events=sum(sizes["events"]),
        )
        least = SourceTokens(messages=sum(sizes["messages"][:1]), events=sum(sizes["events"][:2]))
        shares = share_room(room, needs, least)
        best = gate_counter(self.model).count_text
        zones = {"system_prompt": best(self.system_prompt) + Section.FRAME_TOKENS}
        for zone, group in draft.sections.items():
            whole = sum(best(section.text) + Section.FRAME_TOKENS for section in group)
            may, needed = getattr(shares, zone), getattr(needs, zone)
            zones[zone] = whole if may >= needed else int(whole * may / needed)
        used = needs.l1 + shares.messages + shares.knowledge + shares.events
        return zones, room - used


def _list_drafts(draft: _Draft) -> Iterator[tuple[_Draft, str]]:
    """A draft, and smaller ones for where it does not fit, each with its note: without what is
    remembered, then with ever less of what happened in the task, then without what others say.
    """
    yield draft, ""
    if draft.recent or draft.important:
        draft = replace(draft, recent=(), important=())
        yield draft, NO_ROOM
    spans = exchanges(draft.flight)
    kept = len(spans) // 2
    while spans:
        start = spans[-kept].start if kept else len(draft.flight)
        older, newer = draft.flight[:start], draft.flight[start:]
        flight = (*_drop_finished(older), *newer)
        yield replace(draft, flight=flight), NO_ROOM_FOR_STEPS
        if not kept:
            draft = replace(draft, flight=flight)
            break
        kept //= 2
    if any(draft.sections.values()):
        yield replace(draft, sections=dict.fromkeys(draft.sections, ())), NO_ROOM_FOR_OTHERS


def _drop_finished(messages: Sequence[Message]) -> list[Message]:
    """Of what happened in a task, the calls that have no result yet, and what users added."""
    spans = [messages[span.start : span.stop] for span in exchanges(messages)]
    return [each for said in spans if said[-1].calls or said[-1].role == "user" for each in said]


def _name_limit(limit: int, max_tokens: int) -> str:
    if limit == max_tokens:
        return f"max_tokens={max_tokens:,}"
    return f"the limit of {limit:,} tokens that the provider left"


def _find_lone_answer(context: Context, draft: _Draft) -> int | None:
    """Where in L1 the answer is with which a request begins though its question is left out; less
    than 0 if it is one of L2. None if there is no such answer.
    """
    pieces = context.continuation.pieces
    if len(pieces) < 2 or not pieces[0].is_left_out or pieces[1].is_left_out:
        return None
    if pieces[1].messages[0] not in draft.answers:
        return None
    after = len(draft.recent) + 1 + len(draft.flight)
    return pieces[1].span.start - (pieces[-1].span.stop - after)


def _join_question(draft: _Draft, answer: int) -> _Draft:
    """The same with an answer in the message of its question, so that both are left out, under one
    handle.
    """
    if answer < 1:
        return replace(draft, important=())
    question, said = draft.recent[answer - 1], draft.recent[answer]
    joined = Message("user", (Text(f"{question.text}\n\n[Answered: {said.text}]"),))
    recent = (*draft.recent[: answer - 1], joined, *draft.recent[answer + 1 :])
    return replace(draft, recent=recent)


def _list_answers(tasks: Sequence[Task]) -> tuple[Message, ...]:
    """The messages that tell what came of tasks that a user asked for."""
    pairs = [to_messages([task]) for task in tasks if task.action == EXECUTE]
    return tuple(pair[1] for pair in pairs if len(pair) == 2)


async def _collect(source: ContextSource, task: Task) -> SourceFindings:
    """What a source finds within its time. One that fails or hangs costs a note, never the
    request.
    """
    name = type(source).__name__
    try:
        return await asyncio.wait_for(source.collect(task), SOURCE_SECONDS)
    except TimeoutError:
        return SourceFindings(notes=(f"{name} did not answer within {SOURCE_SECONDS:g} s",))
    except (ChoiceError, NotImplementedError):  # a mistake of the caller
        raise
    except Exception as error:
        said = shorten_line(f"{type(error).__name__}: {error}", MAX_NOTE_CHARS)
        return SourceFindings(notes=(f"{name} failed: {said}",))


def list_messages(context: Context) -> list[dict[str, Any]]:
    """The messages of a request as the seed prints them: without a marker before the first one."""
    messages = _to_chat(context)
    pieces = context.continuation.pieces
    if pieces and pieces[0].action == "dropped":
        del messages[len(messages) - len(context.conversation.messages)]
    return messages


def _to_chat(context: Context) -> list[dict[str, Any]]:
    """The messages of a request as chat dictionaries. Content is always a text."""
    listed: list[dict[str, Any]] = context.openai()["messages"]
    return [{**message, "content": message.get("content") or ""} for message in listed]


def _to_dict(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.text}


def _take_important(draft: _Draft, own: Counter, room: int) -> list[Message]:
    """Of L2, what fits the room that everything else leaves, the most important first; in the order
    in which it was said.
    """
    taken: list[tuple[Task, tuple[Message, ...]]] = []
    for task, messages in draft.important:
        tokens = sum(map(own.count_message, messages))
        if tokens <= room:
            room -= tokens
            taken.append((task, messages))
    taken.sort(key=lambda each: each[0].created_at)
    return [message for _, messages in taken for message in messages]


def _event_section(event: Task) -> Section:
    who = name_agent(event.node_id)
    label = event.action.removeprefix("node.").replace("_", " ")
    words = shorten_line(event_words(event), MAX_EVENT_CHARS)
    return Section(
        "events", f"[{who}, another agent: {label}]\n> {words}", f"event {event.task_id}"
    )


def _message_section(message: Task) -> Section:
    found = to_message(message)
    assert found is not None
    return Section("messages", found.text, f"message {message.task_id}", message.priority)


def _check_sources(given: object) -> tuple[ContextSource, ...]:
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise ChoiceError(f"sources must be a list of sources, found {describe(given)}")
    sources = tuple(given)
    for source in sources:
        if not callable(getattr(source, "collect", None)):
            raise ChoiceError(f"a source must have collect(task), found {describe(source)}")
    return sources


def _make_policy(given: str | Policy, counter: CountsMessages) -> Policy:
    """A policy that chooses by the given counter. `max_tokens` is a limit of the caller's and no
    window, so nothing is kept free of it.
    """
    base = find_policy(given)
    chosen = policy_counter(counter)
    name = base.name if isinstance(chosen, str) else f"{base.name} by {type(counter).__name__}"
    return Policy.extends(base, name=name, counter=chosen, margin=0.0)


def _finish(context: Context, notes: Sequence[str]) -> Context:
    """A request with its notes. `max_tokens` limits the messages, so what they leave of it is no
    limit of the answer.
    """
    if context.conversation.max_output is not None:
        conversation = replace(context.conversation, max_output=None)
        context = replace(context, conversation=conversation)
    if not notes:
        return context
    report = context.report
    return replace(context, report=replace(report, notes=(*report.notes, *notes)))


def _remember(kept: "OrderedDict[Any, Any]", key: object, value: object) -> None:
    """Keep a value under a key, and let go of the oldest ones."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > MAX_REMEMBERED_TASKS:
        kept.popitem(last=False)
