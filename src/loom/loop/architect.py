"""Architect mode: one model plans with the whole context, another carries out each step with a
small one.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, Unpack

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Context
from loom.conversation.checked import refuse_unknown
from loom.conversation.message import Message, Text
from loom.dialects.input import Answer
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError, LoomError, shorten
from loom.loop.desks import SessionDesk
from loom.loop.functions import Function
from loom.loop.loop import Loop, add_answer
from loom.loop.plan import PLAN_FORM, PlanStep, WorkPlan, read_plan
from loom.loop.values import Limits, LoopOptions, Spending
from loom.providers.models import Model, conversation_of

EDITOR_WINDOW = 10_000  # tokens of a request of the editor, with its answer
EDITOR_STEPS = 10  # answers of the editor for one step
REPAIRS = 2  # of a plan that cannot be read
MAX_TOLD_CHARS = 400  # of what the editor said at the end of a step
PLANNING = (
    f"Plan the work, and change nothing yet. Answer with {PLAN_FORM}, and nothing else. Each step "
    "concerns one file. `details` has all that is needed to carry out the step without this "
    "conversation."
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

    `full_tokens` are those of the architect's request. `single_tokens` is about what one model
    would have read if it had carried out the same steps with the full context.
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
        return "\n".join((f"{self.plan.summary} {head}".strip(), *lines, spent))


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
        context = await session.prepare(f"{request}\n\n{PLANNING}", **options)
        plan, answer, architect = await self._plan(context)
        await session.aabsorb(answer)
        steps = [await self._carry_out(session, step) for step in plan.plan]
        editors = Spending()
        for step in steps:
            editors = _sum(editors, step.spent)
        outcome = ArchitectOutcome(
            plan, tuple(steps), architect, editors, context.report.input_tokens
        )
        await session.aappend(Message("assistant", (Text(outcome.report),)))
        return outcome

    async def _plan(self, context: Context) -> tuple[WorkPlan, Answer, Spending]:
        """The plan; asked for again with what is wrong, if it cannot be read."""
        request: Any = context
        spent = Spending()
        for tries in range(REPAIRS + 1):
            answer = await self._architect.answer(request)
            spent = add_answer(spent, answer)
            try:
                return read_plan(answer.content), answer, spent
            except ChoiceError as error:
                if tries == REPAIRS:
                    raise
                request = _ask_again(request, answer, str(error))
        raise AssertionError("a plan is read or refused")

    async def _carry_out(self, parent: Session, step: PlanStep) -> StepOutcome:
        """Let the editor carry out a step, in a fresh and small context."""
        editor = await self._loom.anew(
            f"{step.action} {step.file}",
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
        except LoomError as error:
            return _fail(step, editor, str(error), Spending())
        text = shorten(" ".join(outcome.text.split()), MAX_TOLD_CHARS)
        if outcome.end != "done":
            return _fail(
                step, editor, f"it ended at a limit ({outcome.end}). {text}", outcome.spent
            )
        if text.startswith("FAILED"):
            said = text.removeprefix("FAILED").lstrip(": ")
            return _fail(step, editor, said, outcome.spent)
        return StepOutcome(step, "done", text, editor.id, outcome.spent)


def _fail(step: PlanStep, editor: Session, why: str, spent: Spending) -> StepOutcome:
    return StepOutcome(step, "failed", shorten(why, MAX_TOLD_CHARS), editor.id, spent)


def _ask_again(request: Any, answer: Answer, wrong: str) -> Any:
    said = conversation_of(request)
    follow = Message("user", (Text(f"{wrong}. Answer with the JSON object only."),))
    return replace(said, messages=(*said.messages, *answer.messages, follow))


def _sum(one: Spending, other: Spending) -> Spending:
    return Spending(
        one.steps + other.steps,
        one.prompt + other.prompt,
        one.completion + other.completion,
        one.cached + other.cached,
        one.cost + other.cost,
    )
