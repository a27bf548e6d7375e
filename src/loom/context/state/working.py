"""Working state: what an agent decides by, besides the conversation. Seed 001's dashboard, plan,
events, knowledge and scratchpad.

Rules of this file:
- Every verb returns another state; nothing here knows a clock or a store.
- It is bounded: what would grow past a limit is aggregated, or its oldest goes.
- It is never compressed by a rung. It is in the tail, because the dashboard changes with every
  call.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.context.state.failures import has_failed
from loom.conversation.checked import CheckedStruct
from loom.conversation.message import Message
from loom.errors import ChoiceError, shorten

Urgency = Literal["low", "normal", "high", "critical"]
ALARMING = ("high", "critical")

# pending events from which on those of one type are told together, and of how many
MAX_EVENTS, MAX_SAME_EVENTS = 10, 3
MAX_DECISIONS, MAX_EVIDENCE, MAX_CITATIONS = 5, 10, 5
MAX_QUESTIONS, MAX_RISKS = 10, 10
MAX_ENTRY_CHARS = 400  # characters of one entry


class Dashboard(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """`rho` is the pressure of the last request, `token_budget` what it left free; None before the
    first one.

    `goal_progress` is the model's own assessment, `error_count` are recent errors, `depth` is how
    deep in sub-agents this is, `last_hb_ts` the last heartbeat (milliseconds, UTC).
    """

    rho: float = 0.0
    token_budget: int | None = None
    goal_progress: str = ""
    error_count: int = 0
    depth: int = 0
    last_hb_ts: int = 0
    interrupt_requested: bool = False


class Incident(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened outside. Of several that are told together, `count` says how many,
    and the summary tells the last.
    """

    event_id: str
    type: str = ""
    summary: str = ""
    urgency: Urgency = "normal"
    count: int = 1


class Evidence(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of knowledge, and where it comes from."""

    source: str
    title: str = ""
    content: str = ""
    score: float = 0.0


class _WorkingState(Struct, frozen=True):
    dashboard: Dashboard = Dashboard()
    scratchpad: str = ""


class _PlanState(Struct, frozen=True):
    plan: tuple[str, ...] = ()


class _EventState(Struct, frozen=True):
    pending_events: tuple[Incident, ...] = ()
    active_risks: tuple[Incident, ...] = ()
    recent_event_decisions: tuple[str, ...] = ()


class _KnowledgeState(Struct, frozen=True):
    active_questions: tuple[str, ...] = ()
    evidence_packs: tuple[Evidence, ...] = ()
    citations: tuple[str, ...] = ()


_STATE_FILES: Mapping[str, type[Struct]] = {
    "working_state.json": _WorkingState,
    "plan_state.json": _PlanState,
    "event_state.json": _EventState,
    "knowledge_state.json": _KnowledgeState,
}


class Working(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it, for one session."""

    MAX_PLAN_STEPS: ClassVar[int] = 20
    MAX_SCRATCHPAD_CHARS: ClassVar[int] = 4000
    FILE_NAMES: ClassVar[tuple[str, ...]] = tuple(_STATE_FILES)

    dashboard: Dashboard = Dashboard()
    plan: tuple[str, ...] = ()
    pending_events: tuple[Incident, ...] = ()
    active_risks: tuple[Incident, ...] = ()
    recent_event_decisions: tuple[str, ...] = ()
    active_questions: tuple[str, ...] = ()
    evidence_packs: tuple[Evidence, ...] = ()
    citations: tuple[str, ...] = ()
    scratchpad: str = ""

    # What happens to it

    def set_measures(self, pressure: float, left: int) -> "Working":
        """What the engine knows by itself: how full the window is, and how many tokens are left."""
        return replace(
            self,
            dashboard=replace(self.dashboard, rho=round(pressure, 2), token_budget=max(left, 0)),
        )

    def assess(
        self,
        *,
        progress: str | None = None,
        plan: Iterable[str] | None = None,
        scratchpad: str | None = None,
    ) -> "Working":
        """What the model says of itself: how far it is, what it will do, what it thinks. What is
        left out stays as it was.
        """
        made = self
        if progress is not None:
            made = replace(made, dashboard=replace(made.dashboard, goal_progress=_line(progress)))
        if plan is not None:
            made = replace(made, plan=tuple(map(_line, plan))[: self.MAX_PLAN_STEPS])
        if scratchpad is not None:
            made = replace(made, scratchpad=scratchpad[: self.MAX_SCRATCHPAD_CHARS])
        return made

    def add_errors(self, errors: int = 1) -> "Working":
        """That something went wrong, so many times; 0 forgets those that were counted."""
        count = self.dashboard.error_count + errors if errors else 0
        return replace(self, dashboard=replace(self.dashboard, error_count=count))

    def subtract_errors(self, times: int = 1) -> "Working":
        """That something went well, so many times: as many errors are no longer recent."""
        count = max(self.dashboard.error_count - times, 0)
        return replace(self, dashboard=replace(self.dashboard, error_count=count))

    def count_errors(self, messages: Iterable[Message]) -> "Working":
        """Count results that tell of an error.

        Each that does not takes one of them back, and a new request begins at 0.
        """
        made = self
        for message in messages:
            if message.role == "user":
                made = made.add_errors(0)
            for result in message.results:
                if has_failed(result):
                    made = made.add_errors()
                else:
                    made = made.subtract_errors()
        return made

    def beat(self, at: int) -> "Working":
        """A sign of life from outside."""
        return replace(self, dashboard=replace(self.dashboard, last_hb_ts=at))

    def deepen(self, depth: int) -> "Working":
        """How deep in sub-agents this is."""
        return replace(self, dashboard=replace(self.dashboard, depth=depth))

    def interrupt(self, on: bool = True) -> "Working":
        """Ask the agent to stop and look, or take that back."""
        return replace(self, dashboard=replace(self.dashboard, interrupt_requested=on))

    def happen(self, event: Incident) -> "Working":
        """An event comes up. The same one comes up once. An urgent one is a risk and interrupts."""
        if any(known.event_id == event.event_id for known in self.pending_events):
            return self
        event = replace(event, summary=_line(event.summary), type=_line(event.type))
        made = replace(self, pending_events=_aggregate_events((*self.pending_events, event)))
        if event.urgency in ALARMING:
            made = replace(made, active_risks=(*made.active_risks, event)[-MAX_RISKS:]).interrupt()
        return made

    def acknowledge(self, event_id: str, decision: str) -> "Working":
        """The agent has dealt with an event: it and its risk go, what was decided stays, and the
        interrupt ends.

        With one that tells of several go the risks of all of them.
        """
        events = (*self.pending_events, *self.active_risks)
        found = [event for event in events if event.event_id == event_id]
        if not found:
            raise _no_event(event_id, events)
        pending = tuple(event for event in self.pending_events if event.event_id != event_id)
        left = {event.event_id for event in pending}
        several = {event.type for event in found if event.count > 1}

        def remains(risk: Incident) -> bool:
            return risk.event_id != event_id and (risk.type not in several or risk.event_id in left)

        made = replace(
            self,
            pending_events=pending,
            active_risks=tuple(filter(remains, self.active_risks)),
            recent_event_decisions=(*self.recent_event_decisions, _line(decision))[-MAX_DECISIONS:],
        )
        return made.interrupt(False)

    def learn(self, evidence: Evidence, citation: str = "") -> "Working":
        """A piece of knowledge comes up. The same one from the same source comes up once; of many
        the best stay.
        """
        evidence = replace(
            evidence, content=evidence.content[: 2 * MAX_ENTRY_CHARS], title=_line(evidence.title)
        )
        known = {_fingerprint(each) for each in self.evidence_packs}
        if _fingerprint(evidence) in known:
            packs = self.evidence_packs
        else:
            packs = (*self.evidence_packs, evidence)
        if len(packs) > MAX_EVIDENCE:
            worst = min(range(len(packs)), key=lambda n: (packs[n].score, n))
            packs = (*packs[:worst], *packs[worst + 1 :])
        cited = self.citations
        if citation and citation not in cited:
            cited = (*cited, _line(citation))[-MAX_CITATIONS:]
        return replace(self, evidence_packs=packs, citations=cited)

    def ask(self, *questions: str) -> "Working":
        """What the agent wants to know now."""
        return replace(self, active_questions=tuple(map(_line, questions))[:MAX_QUESTIONS])

    # How it reads

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return self == Working()

    def render(self) -> str:
        """The working state as the model reads it; "" if there is none."""
        if self.is_empty:
            return ""
        return self.render_dashboard()

    def render_dashboard(self) -> str:
        """The same also where there is nothing in it yet. What was not measured yet is not told."""
        lines = _list_measures(self)
        pending = {event.event_id for event in self.pending_events}
        best = sorted(self.evidence_packs, key=lambda each: each.score, reverse=True)[:MAX_EVIDENCE]
        sections: tuple[tuple[str, list[str]], ...] = (
            ("Current Plan", [f"{n}. {step}" for n, step in enumerate(self.plan, 1)]),
            ("Pending Events", list(map(_describe_with_id, self.pending_events))),
            (
                "Active Risks",
                [
                    _describe(risk) if risk.event_id in pending else _describe_with_id(risk)
                    for risk in self.active_risks
                ],
            ),
            ("Recent Decisions on Events", _list(self.recent_event_decisions)),
            ("Active Questions", _list(self.active_questions)),
            (
                "Knowledge Evidence",
                _list(
                    f"{each.title or each.source}: {' '.join(each.content.split())}"
                    for each in best
                ),
            ),
            ("Knowledge Citations", _list(self.citations)),
            ("Scratchpad", [self.scratchpad] if self.scratchpad else []),
        )
        for title, content in sections:
            if content:
                lines += ["", f"## {title}", *content]
        return "\n".join(lines)

    # As files

    def to_files(self) -> dict[str, Any]:
        """The working state as the contents of its files, by name."""
        made = {}
        for name, kind in _STATE_FILES.items():
            made[name] = msgspec.to_builtins(
                {field: getattr(self, field) for field in kind.__struct_fields__}
            )
        made["working_state.json"]["dashboard"] = asdict(self.dashboard)  # whole: people read it
        made["event_state.json"]["recent_event_decisions"] = self.recent_event_decisions[
            -MAX_DECISIONS:
        ]
        return made

    @classmethod
    def from_files(cls, files: Mapping[str, Any]) -> "Working":
        """The working state in the contents of these files. What a missing file holds is empty."""
        fields: dict[str, Any] = {}
        for name, kind in _STATE_FILES.items():
            if name in files:
                try:
                    fields |= asdict(msgspec.convert(files[name], kind))
                except msgspec.ValidationError as error:
                    raise ChoiceError(
                        f"{name} is not a working state: {error}; repair or remove it, the others "
                        "can be read"
                    ) from None
        return cls(**fields)


def _aggregate_events(events: tuple[Incident, ...]) -> tuple[Incident, ...]:
    if len(events) < MAX_EVENTS:
        return events
    grouped: dict[str, list[Incident]] = {}
    for event in events:
        grouped.setdefault(event.type, []).append(event)
    made: list[Incident] = []
    for event in events:
        alike = grouped[event.type]
        if len(alike) <= MAX_SAME_EVENTS:
            made.append(event)
        elif event is alike[0]:
            count = sum(each.count for each in alike)
            urgency = (
                "critical"
                if any(e.urgency == "critical" for e in alike)
                else max(alike, key=_urgency).urgency
            )
            told = f"{count} {event.type} events; the last: {alike[-1].summary}"
            made.append(
                Incident(
                    event_id=event.event_id,
                    type=event.type,
                    summary=_line(told),
                    urgency=urgency,
                    count=count,
                )
            )
    return tuple(made[-2 * MAX_EVENTS :])


def _urgency(event: Incident) -> int:
    return ("low", "normal", "high", "critical").index(event.urgency)


def _no_event(event_id: str, events: Sequence[Incident]) -> ChoiceError:
    there = dict.fromkeys(event.event_id for event in events)
    names = "; there is none at all"
    if there:
        names = f"; there are {', '.join(shorten(name, 80) for name in there)}"
    return ChoiceError(f"there is no pending event {shorten(event_id)!r}{names}")


def _fingerprint(evidence: Evidence) -> tuple[str, str, str]:
    begins = evidence.content[:200].encode(errors="surrogatepass")
    return evidence.source, evidence.title, blake2b(begins, digest_size=8).hexdigest()


def _line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= MAX_ENTRY_CHARS:
        return line
    return line[: MAX_ENTRY_CHARS - 1] + "…"


def _list_measures(working: Working) -> list[str]:
    """What is measured and assessed; what was not measured yet is left out."""
    board = working.dashboard
    lines = ["## Dashboard"]
    if board.token_budget is not None:
        lines += [f"- rho: {board.rho:.2f}", f"- token_budget: {board.token_budget}"]
    lines += [
        f"- goal_progress: {board.goal_progress or '(not assessed)'}",
        f"- error_count: {board.error_count}",
        f"- depth: {board.depth}",
    ]
    if board.last_hb_ts:
        lines.append(f"- last_hb_ts: {board.last_hb_ts}")
    if board.interrupt_requested:
        lines.append("⚠️ **INTERRUPT REQUESTED**")
    return lines


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _describe(event: Incident) -> str:
    return f"- [{event.urgency}] {event.summary or event.type}"


def _describe_with_id(event: Incident) -> str:
    """The event with the id by which it is acknowledged."""
    return f"{_describe(event)} ({event.event_id})"
