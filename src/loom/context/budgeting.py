"""The budget of a request: its window, what is kept for the answer, and what a policy's own formula
leaves for history.
"""

from collections.abc import Sequence
from math import ceil

from msgspec.structs import replace

from loom.budget.counting import seed_counter
from loom.budget.models import model as find_model
from loom.budget.profiles import Exact, profile_for
from loom.budget.zones import DEFAULTS, Budget, BudgetOptions, allocate_budget, left_for_history
from loom.context.history.strategies import find_strategy
from loom.context.options import Options
from loom.conversation.message import Conversation, Message, Tool
from loom.dialects.settings import thinking_tokens
from loom.errors import ChoiceError, describe

# by how much more a provider may count than the stand-in, before an answer may take what the window
# leaves
UNSURE = 0.25


def budget_for(options: Options, given: Conversation) -> Budget:
    """The window and its zones; the reserve is what was asked for, what the request says, or the
    policy's.
    """
    model, reserve = options.model or given.model or None, options.reserve_output
    size, note = _window_of(options, given)
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise ChoiceError(
            f"the window must be a positive number of tokens, found {describe(size)}; leave it "
            "out for the model's own"
        )
    if reserve is None:
        reserve = _usual_reserve(options, given, size)
    asked: BudgetOptions = {
        "zones": {**options.policy.zones, **options.zones},
        "overrides": options.overrides,
    }
    if options.window is not None or note:
        asked["window"] = size
    if reserve is not None:
        asked["reserved_output"] = reserve
    budget = allocate_budget(model, **asked)
    if note:
        return replace(budget, notes=(note, *budget.notes))
    return budget


def _window_of(options: Options, given: Conversation) -> tuple[int, str]:
    """The window: as asked for, the model's, or what the policy makes of the answer, and a note on
    that.
    """
    found = find_model(options.model or given.model or None, options.overrides)
    times = options.policy.window_per_reserve
    if options.window is not None:
        return options.window, ""
    if found.known or not times:
        return found.window, ""
    answer = options.reserve_output or given.max_output or options.policy.reserve
    return (
        times * answer,
        f"no window is known; {times} times the {answer:,} tokens of the answer are assumed",
    )


def _usual_reserve(options: Options, given: Conversation, window: int) -> int | None:
    """What is kept for an answer where nobody said it: the request's own limit, the policy's
    reserve; None if neither fits.
    """
    policy = options.policy
    if given.max_output and given.max_output <= window // 2:
        return given.max_output
    if policy.keep_reserve and policy.reserve < window:
        return policy.reserve
    most = (
        find_model(options.model or given.model or None, options.overrides).max_output
        or policy.reserve
    )
    if policy.window_per_reserve:
        return min(policy.reserve, most, window // policy.window_per_reserve)
    # What is thought counts as answer, so it is kept next to it.
    with_thoughts, usual = (
        min(policy.reserve + thinking_tokens(given.settings), most),
        min(policy.reserve, most),
    )
    if with_thoughts > policy.reserve and with_thoughts <= window // 2:
        return with_thoughts
    if usual <= window // 4:
        return usual
    return None


def limit_answer(options: Options, given: Conversation, budget: Budget, used: int) -> int:
    """How long the answer may be: as the caller says, else what the model can give, at most what
    the window leaves.

    Where the model's own limit is not known the reserve of the policy stands for it: a larger one
    may be refused.
    """
    if options.answer:
        return options.answer
    if options.policy.window_per_reserve and budget.reserved_output:
        return budget.reserved_output
    model = options.model or given.model or None
    if not isinstance(profile_for(model).text, Exact):
        used = ceil(used * (1 + UNSURE))
    most = (
        given.max_output
        or find_model(model, options.overrides).max_output
        or options.policy.reserve
    )
    return max(1, min(most, max(budget.window - used, budget.reserved_output)))


def find_formula(
    options: Options, budget: Budget, beside: Sequence[Message], tools: Sequence[Tool]
) -> int | None:
    """What the seeds' formulas leave for history by the policy's own counter; None for policies
    that measure nothing.

    Seed 002 charges system text with its summary, tail, tools and answer; seed 000, where no zones
    are set aside, the words of the system text and the answer. A limit that a provider set by a
    refusal is in true tokens, which the gate counts; the formula has the window that was asked for.
    """
    policy, window = options.policy, options.asked_window or budget.window
    if policy.counter == "best" or policy.history == "zone":
        return None
    own, charges = seed_counter(policy.counter), find_strategy(policy.strategy).charges
    if charges == "messages":
        system = sum(map(own.count_message, beside))
        return left_for_history(window, budget.reserved_output, system, own.count_tools(tools))
    if charges == "words":
        words = sum(own.count_text(message.text) for message in beside)
        return max(0, left_for_history(window, budget.reserved_output, words, 0))
    return None


def count_set_aside(options: Options, measured: Budget, reserve: int, formula: int | None) -> int:
    """What a strategy with a counter of its own leaves free next to history, at a window where
    nothing has to be scaled.
    """
    if formula is not None:
        return (
            (options.asked_window or measured.window) - formula - measured.reserved_output + reserve
        )
    if options.policy.history == "zone":
        sizes = DEFAULTS | {**options.policy.zones, **options.zones}
        return sum(sizes.values()) - DEFAULTS["reserved_output"] + reserve
    return measured.window - measured.history - measured.reserved_output + reserve
