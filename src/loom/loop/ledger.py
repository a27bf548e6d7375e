"""What runs spend: each run has a ledger. The runs that its tools begin count in it, too, and the
continuations that it asks for.
"""

from loom.budget import models
from loom.budget.counting import gate_counter
from loom.context import Context
from loom.dialects.input import Answer
from loom.engine.meter import CURRENT_METER
from loom.loop.values import Limits, LoopEnd, Spending


class Ledger:
    """What a run has spent, with what its children spent, and what it may spend.

    The steps are those of the run itself. Its tokens and dollars include those of its children,
    which end when a limit of a run above them is reached.
    """

    def __init__(self, limits: Limits, above: "Ledger | None" = None) -> None:
        self._limits, self._above = limits, above
        self.spent, self.children = Spending(), Spending()

    def add(self, spending: Spending) -> None:
        """Add what one answer took, here and in all runs above."""
        self.spent += spending
        for ledger in self._runs_above():
            ledger.children += spending
            ledger.spent += spending.without_steps()

    def add_answer(self, answer: Answer, context: Context) -> None:
        """Add a continuation that the run asked for: it counts as an answer of a child."""
        Ledger(Limits(), self).add(measure_answer(answer, context))

    def why_end(self) -> LoopEnd | None:
        """The limit that is reached: one of this run, or tokens or dollars of a run above it."""
        steps = self._limits.steps
        if steps is not None and self.spent.steps >= steps:
            return "steps"
        return self._why_used_up()

    @property
    def is_used_up(self) -> bool:
        """Whether the tokens or dollars of this run, or of one above it, are spent."""
        return self._why_used_up() is not None

    def _why_used_up(self) -> LoopEnd | None:
        for ledger in (self, *self._runs_above()):
            limits, spent = ledger._limits, ledger.spent
            if limits.tokens is not None and spent.tokens >= limits.tokens:
                return "tokens"
            if limits.cost is not None and spent.cost >= limits.cost:
                return "cost"
        return None

    def _runs_above(self) -> list["Ledger"]:
        found: list[Ledger] = []
        above = self._above
        while above is not None:
            found.append(above)
            above = above._above
        return found


def find_ledger() -> Ledger | None:
    """The ledger of the run that this code works for."""
    found = CURRENT_METER.get()
    return found if isinstance(found, Ledger) else None


def measure_answer(answer: Answer, context: Context) -> Spending:
    """What one answer took. If the provider does not say, its tokens are counted here."""
    prompt, completion = answer.prompt, answer.completion
    name = answer.model or context.report.model
    is_estimated = not prompt and not completion
    if is_estimated:
        prompt = context.report.input_tokens
        completion = gate_counter(name).count_messages(answer.messages)
    cost, facts = answer.cost, models.model(name)
    if cost is None and (facts.input is not None or facts.output is not None):
        cost = models.cost(facts, prompt, completion, answer.cached, answer.written)
    return Spending(
        steps=1,
        prompt=prompt,
        completion=completion,
        cached=answer.cached,
        cost=cost or 0.0,
        estimated=int(is_estimated),
        unpriced=int(cost is None),
    )
