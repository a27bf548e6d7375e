"""Architect mode: one model plans with the whole context, another carries out each step with a
small one.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, Unpack

from msgspec import Struct

from loom.budget.counting import gate_counter
from loom.context import Context
from loom.conversation.checked import refuse_unknown
from loom.conversation.message import Message, Text
from loom.engine.inputs import Given, first_line
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError, shorten
from loom.loop.desks import SessionDesk
from loom.loop.functions import Function, as_function, describe_error
from loom.loop.loop import Loop
from loom.loop.plan import PLAN_FORM, PlanStep, WorkPlan, read_plan
from loom.loop.values import Limits, LoopOptions, Spending
from loom.providers.models import Model

EDITOR_WINDOW = 10_000  # tokens of a request of the editor, with its answer
EDITOR_STEPS = 10  # answers of the editor for one step
PLANNING_STEPS = 20  # answers of the architect until it has a plan
CARRY_OUT = "Carry out the plan."
_FAILED = re.compile(r"FAILED\b")
REPAIRS = 2  # of a plan that cannot be read
MAX_TOLD_CHARS = 400  # of what the editor said at the end of a step
PLANNING = (
    f"Plan the work, and change nothing yet. Answer with {PLAN_FORM}, and nothing else. Each step "
    "concerns one file. `details` has all that is needed to carry out the step without this "
    "conversation. If there is nothing to do, `plan` is an empty list."
)
EDITING = (
    "You carry out one step of a plan. You see nothing but this step: read the file before you "
    "change it, and make no other changes. When the step is done, say in one sentence what you "
    "did. If it cannot be done, begin your last message with FAILED and say why."
)


class StepOutcome(Struct, frozen=True):
    """How one step ended: its session, what the editor said, what it took."""

    step: PlanStep
    end: Literal["done", "failed"]
    text: str
    session: str
    spent: Spending

    @property
    def line(self) -> str:
        failed = "[FAILED] " if self.end == "failed" else ""
        return f"{failed}{self.step.action} {self.step.file}: {self.text}"


class ArchitectOutcome(Struct, frozen=True):
    """What came of a plan.

    `full_tokens` are those of the architect's first request and of the editor's tools.
    `single_tokens` is about what one model would have read if it had carried out the same steps
    with the full context.
    """

    plan: WorkPlan
    steps: tuple[StepOutcome, ...]
    architect: Spending
    editors: Spending
    full_tokens: int

    @property
    def single_tokens(self) -> int:
        return self.full_tokens * (1 + self.editors.steps)

    @property
    def report(self) -> str:
        """What was done, for people and for the next request."""
        done = sum(step.end == "done" for step in self.steps)
        lines = [f"{n}. {step.line}" for n, step in enumerate(self.steps, 1)]
        spent = (
            f"Tokens: architect {self.architect.tokens:,}, editors {self.editors.tokens:,}; one "
            f"model with the full context would have read about {self.single_tokens:,}."
        )
        head = f"{done} of {len(self.steps)} steps are done."
        if not self.steps:
            head = "There is nothing to do."
        if self.plan.is_cut:
            head += " The plan was cut off: there may be more to do."
        return "\n".join((f"{self.plan.summary} {head}".strip(), *lines, spent))


class _PlanningDesk(SessionDesk):
    """The session of an architect, with the size of its first request."""

    first_tokens = 0

    async def prepare(
        self, request: Given | None, overflow: BaseException | None = None
    ) -> Context:
        context = await super().prepare(request, overflow)
        self.first_tokens = self.first_tokens or context.report.input_tokens
        return context


class Architect:
    """Plans in a session, and lets an editor carry out each step in a session of its own.

    `functions` are the editor's tools. A step that fails is recorded, and the next one follows. The
    options are those of the editor's loop.
    """

    def __init__(
        self,
        loom: Loom,
        architect: Model,
        editor: Model,
        functions: Iterable[Function | Callable[..., Any]] = (),
        *,
        editor_model: str = "",
        **options: Unpack[LoopOptions],
    ) -> None:
        refuse_unknown("Architect", options, LoopOptions)
        self._loom, self._architect, self._editor = loom, architect, editor
        self._functions, self._editor_model = tuple(functions), editor_model
        self._options: LoopOptions = {"limits": Limits(steps=EDITOR_STEPS), **options}

    async def run(self, session: Session, request: str, **options: Any) -> ArchitectOutcome:
        """Plan the request with the full context of a session, and carry out the plan.

        The options are those of `prepare`. The plan and the report are stored in the session.
        """
        desk = _PlanningDesk(session, **options)
        plan, architect = await self._plan(desk, request)
        steps = [await self._carry_out(session, step) for step in plan.plan]
        editors = sum((step.spent for step in steps), Spending())
        full = desk.first_tokens + self._count_tools()
        outcome = ArchitectOutcome(plan, tuple(steps), architect, editors, full)
        await session.aappend(Message("user", (Text(CARRY_OUT),)))
        await session.aappend(Message("assistant", (Text(outcome.report),)))
        return outcome

    def _count_tools(self) -> int:
        """The tokens of the editor's tools, which a single model would have to be given."""
        tools = [as_function(each).tool for each in self._functions]
        return gate_counter(self._editor_model or None).count_tools(tools)

    async def _plan(self, desk: "_PlanningDesk", request: str) -> tuple[WorkPlan, Spending]:
        """The plan; asked for again with what is wrong, if it cannot be read. What the architect
        says is stored in its session, and it may use Loom's own tools.
        """
        loop = Loop(desk, self._architect, limits=Limits(steps=PLANNING_STEPS))
        spent = Spending()
        words = f"{request}\n\n{PLANNING}"
        for tries in range(REPAIRS + 1):
            outcome = await loop.run(words)
            spent += outcome.spent
            try:
                return read_plan(outcome.text), spent
            except ChoiceError as error:
                if outcome.end != "done":
                    raise ChoiceError(
                        f"the architect has no plan: its run ended early ({outcome.end})"
                    ) from None
                if tries == REPAIRS:
                    raise
                words = f"{error}. Answer with the JSON object only."
        raise AssertionError("a plan is read or refused")

    async def _carry_out(self, parent: Session, step: PlanStep) -> StepOutcome:
        """Let the editor carry out a step, in a fresh and small context."""
        editor = await self._loom.anew(
            first_line(f"{step.action} {step.file}"),
            model=self._editor_model or parent.row.model,
            system=EDITING,
            origin=f"architect of {parent.id}",
        )
        loop = Loop(
            SessionDesk(editor, window=EDITOR_WINDOW),
            self._editor,
            self._functions,
            **self._options,
        )
        task = f"Step: {step.action} {step.file}\n{step.description}\n\n{step.details}".strip()
        try:
            outcome = await loop.run(task)
        except Exception as error:
            return _fail(step, editor, describe_error(error), loop.spending)
        text = shorten(" ".join(outcome.text.split()), MAX_TOLD_CHARS)
        if outcome.end != "done":
            return _fail(
                step, editor, f"it ended at a limit ({outcome.end}). {text}", outcome.spent
            )
        if outcome.stop in ("length", "refusal"):
            why = f"its last answer was cut off or refused ({outcome.stop}). {text}"
            return _fail(step, editor, why, outcome.spent)
        if _FAILED.match(text):
            said = text.removeprefix("FAILED").lstrip(": ")
            return _fail(step, editor, said, outcome.spent)
        return StepOutcome(step, "done", text, editor.id, outcome.spent)


def _fail(step: PlanStep, editor: Session, why: str, spent: Spending) -> StepOutcome:
    return StepOutcome(step, "failed", shorten(why, MAX_TOLD_CHARS), editor.id, spent)
