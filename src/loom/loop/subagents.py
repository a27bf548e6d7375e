"""Subagents: a child works in a session of its own, with what it is handed down, and hands back a
short result.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Literal, Unpack

from msgspec import Meta, Struct

from loom.budget.counting import gate_counter
from loom.conversation.checked import CheckedStruct, refuse_unknown
from loom.dialects.document import to_plain_text
from loom.engine.inputs import first_line
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError, describe
from loom.loop.desks import SessionDesk
from loom.loop.functions import Function, describe_error
from loom.loop.loop import Loop
from loom.loop.values import LoopEnd, LoopOptions, Spending
from loom.providers.models import Model

HANDED_TOKENS = 2_000  # of what a child is handed down besides its goal and constraints
RESULT_TOKENS = 500  # of what it hands back
MAX_DEPTH = 3  # of children of children
ChildEnd = LoopEnd | Literal["failed"]
_CUT_STOPS = {
    "length": "the answer of the helper was cut off at its limit of length",
    "refusal": "the model of the helper refused",
}
_LETTERS = 12  # for a token, at most
# The depth of the child that this code works for. Tools inherit it.
_CURRENT_DEPTH: ContextVar[int] = ContextVar("loom_depth", default=0)
CHILD = (
    "You work for another agent, on one goal. You see only what you were handed. Your last message "
    "is your result: it must stand by itself, and be short."
)


class HandDown(CheckedStruct, frozen=True, kw_only=True):
    """What a child is given: its goal, what it must keep to, and nodes and handles of its parent
    whose words it gets, the first ones first.
    """

    goal: str
    constraints: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()  # ids of other children, whose results it gets


class ChildResult(Struct, frozen=True):
    """What a child handed back. The whole of a long result is in the stash of the parent, under
    `stash`.
    """

    text: str
    session: str
    end: ChildEnd
    spent: Spending
    stash: str = ""
    left_out: tuple[str, ...] = ()  # what it was to be given and had no room for


class Subagents:
    """The children of a session.

    `functions` are their tools, `window` is that of a child, and the options are those of its loop.
    Each child has a session of its own: it sees neither its parent nor its siblings, except what it
    is handed. With `levels` of 2 or 3, children get the tool to have children of their own.
    """

    def __init__(
        self,
        loom: Loom,
        parent: Session,
        model: Model,
        functions: Iterable[Function | Callable[..., Any]] = (),
        *,
        window: int | None = None,
        levels: int = 1,
        **options: Unpack[LoopOptions],
    ) -> None:
        refuse_unknown("Subagents", options, LoopOptions)
        if levels not in range(1, MAX_DEPTH + 1):
            raise ChoiceError(f"levels must be from 1 to {MAX_DEPTH}, found {describe(levels)}")
        self._loom, self._parent, self._model = loom, parent, model
        self._functions, self._window = tuple(functions), window
        self._levels, self._options = levels, options
        self._children: dict[str, str] = {}  # results, by the ids of their sessions

    def function(self) -> Function:
        """A tool by which the parent's model lets a child work."""

        async def delegate(
            goal: Annotated[str, Meta(description="What the helper is to find out or to do.")],
            constraints: Annotated[
                list[str], Meta(description="What the helper must keep to.")
            ] = [],  # noqa: B006
            handles: Annotated[
                list[str],
                Meta(description="Handles of texts that the helper needs, the first ones first."),
            ] = [],  # noqa: B006
        ) -> str:
            """Let a helper with a context of its own work on a part of the task, and get its short
            result. It sees nothing of this conversation but what you give it.
            """
            handed = HandDown(goal=goal, constraints=tuple(constraints), handles=tuple(handles))
            result = await self.run(handed)
            return result.text

        return Function(delegate, operation="delegate", target=lambda given: given["goal"])

    async def run(self, handed: HandDown) -> ChildResult:
        """Let a child work on a goal, and take its result."""
        depth = max(self._parent.working.dashboard.depth, _CURRENT_DEPTH.get()) + 1
        if depth > MAX_DEPTH:
            raise ChoiceError(
                f"a child at depth {depth} is too deep: at most {MAX_DEPTH} are allowed; do the "
                "work here"
            )
        task, left_out = await self._parent.run_off_loop(lambda: self._write_task(handed))
        child = await self._loom.anew(
            first_line(handed.goal),
            model=self._parent.row.model,
            system=CHILD,
            origin=f"child of {self._parent.id}",
        )
        await child.akeep_working(child.working.deepen(depth))
        options: dict[str, Any] = {} if self._window is None else {"window": self._window}
        loop = Loop(
            SessionDesk(child, **options),
            self._model,
            self._functions_for(child),
            **self._options,
        )
        token = _CURRENT_DEPTH.set(depth)
        try:
            outcome = await loop.run(task)
        except Exception as error:
            text = f"The helper failed: {describe_error(error)}"
            return await self._take(child, text, "failed", loop.spending, left_out)
        finally:
            _CURRENT_DEPTH.reset(token)
        text = outcome.text or "(no words)"
        if outcome.end != "done":
            text = f"{text}\n[the helper ended early: {outcome.end}]"
        elif outcome.stop in _CUT_STOPS:
            text = f"{text}\n[{_CUT_STOPS[outcome.stop]}]"
        return await self._take(child, text, outcome.end, outcome.spent, left_out)

    def _functions_for(self, child: Session) -> tuple[Function | Callable[..., Any], ...]:
        """The tools of a child: with one for children of its own, if it may have them."""
        if self._levels == 1:
            return self._functions
        own = Subagents(
            self._loom,
            child,
            self._model,
            self._functions,
            window=self._window,
            levels=self._levels - 1,
            **self._options,
        )
        return (*self._functions, own.function())

    async def _take(
        self,
        child: Session,
        text: str,
        end: ChildEnd,
        spent: Spending,
        left_out: Sequence[str],
    ) -> ChildResult:
        self._children[child.id] = text
        short, stash = _cut(text, RESULT_TOKENS), ""
        if short != text:
            stash = f"child {child.id}"
            await self._parent.astash(stash, text)
            rest = len(text) - len(short)
            short = f"{short}\n[{rest:,} more characters; the stash {stash!r} has all of it]"
        return ChildResult(short, child.id, end, spent, stash, tuple(left_out))

    def _write_task(self, handed: HandDown) -> tuple[str, list[str]]:
        """The first message of a child, and what had no room in it."""
        lines = [f"Goal: {handed.goal}"]
        lines += [f"Constraint: {each}" for each in handed.constraints]
        left, left_out = HANDED_TOKENS, []
        count = gate_counter(None).count_text
        for name, text in self._handed_texts(handed):
            quoted = "\n".join(f"> {line}" for line in text.splitlines())
            block = f"\nFrom the other agent ({name}):\n{quoted}"
            needed = count(block)
            if needed > left:
                left_out.append(name)
                continue
            left -= needed
            lines.append(block)
        if left_out:
            lines.append(f"\n[no room for: {', '.join(left_out)}]")
        return "\n".join(lines), left_out

    def _handed_texts(self, handed: HandDown) -> Iterable[tuple[str, str]]:
        """The texts that a child is given, by their names."""
        for name in handed.nodes:
            node = self._loom.store.sessions.node(self._parent.row, name)
            yield f"message {name}", to_plain_text([node.message] if node.message else [])
        for handle in handed.handles:
            yield f"handle {handle}", self._parent.recall_shown(handle, plain=True)[0]
        for sibling in handed.siblings:
            if sibling not in self._children:
                raise ChoiceError(f"there is no child {sibling!r} of session {self._parent.id}")
            yield f"helper {sibling}", self._children[sibling]


def _cut(text: str, tokens: int) -> str:
    """The beginning of a text that has at most so many tokens."""
    count = gate_counter(None).count_text
    if len(text) <= tokens or count(text) <= tokens:
        return text
    low, high = 0, min(len(text), tokens * _LETTERS)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]
