"""Python functions as tools of a model. What a function takes is read from its signature, and its
description from its docstring.
"""

import asyncio
import contextvars
import inspect
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Media, Text, Tool, ToolCall, ToolResult
from loom.engine.tools import read_arguments
from loom.errors import ChoiceError, describe, shorten

MAX_RESULT_CHARS = 400_000  # of what a function returns: more is cut out of its middle
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as all providers take it
_NOT_NAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
ResultParts = tuple[Text | Media, ...]


class Function:
    """A function that a model may call.

    `operation` is the kind of work that it does, by the words of the project's rules (`read`,
    `write`, `run` …), and `target` makes from its arguments what the rules speak of, such as a
    path, or several of it. `repeatable`: it may run again if nobody knows whether it finished.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        *,
        name: str = "",
        about: str = "",
        operation: str = "",
        target: Callable[[Mapping[str, Any]], str | tuple[str, ...]] | None = None,
        repeatable: bool = False,
    ) -> None:
        if not callable(run):
            raise ChoiceError(f"a tool must be a function, found {describe(run)}")
        self.run, self.operation, self.target = run, operation, target
        self.repeatable = repeatable
        plain = _unwrap(run)
        self.name = name or getattr(plain, "__name__", type(plain).__name__)
        if not _TOOL_NAME.fullmatch(self.name):
            raise ChoiceError(
                f"a tool is named by letters, digits, _ and -, 64 at most, found "
                f"{shorten(self.name)!r}; give it a name: Function(run, name=…)"
            )
        about = about or inspect.cleandoc(inspect.getdoc(plain) or "")
        self._takes = _read_parameters(run, self.name)
        self._by_place = [
            each.name
            for each in inspect.signature(run).parameters.values()
            if each.kind is each.POSITIONAL_ONLY
        ]
        self.tool = Tool(self.name, about, to_json(_make_schema(self._takes)))

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    def read(self, call: ToolCall) -> dict[str, Any]:
        """The arguments of a call, checked. What is wrong is an error that the model can read."""
        given = read_arguments(call, self._takes)
        return {field: getattr(given, field) for field in given.__struct_fields__}

    def name_targets(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """What the rules of a project look at: by default all arguments, as JSON."""
        if self.target is None:
            return (to_json(dict(arguments)),)
        named = self.target(arguments)
        return (named,) if isinstance(named, str) else tuple(named)

    async def answer(self, arguments: Mapping[str, Any], seconds: float) -> ResultParts:
        """Run the function, at most for so long. A function that is not asynchronous runs in a
        thread of its own: one that hangs is left behind, and ends with the process.
        """
        try:
            async with asyncio.timeout(seconds) as clock:
                return to_parts(await self._await_value(arguments))
        except TimeoutError:
            if not clock.expired():
                raise  # its own
            raise ChoiceError(
                f"{self.name} did not end within {seconds:g} seconds; it may still be at work"
            ) from None

    async def _await_value(self, arguments: Mapping[str, Any]) -> Any:
        """What the function returns. Whatever it raises is an `Exception` then, unless the run
        itself is cancelled.
        """
        named = dict(arguments)
        work = partial(self.run, *[named.pop(name) for name in self._by_place], **named)
        try:
            if inspect.iscoroutinefunction(self.run):
                value = work()
            else:
                value = await _run_in_thread(work)
            if inspect.isawaitable(value):
                value = await value
            if inspect.isasyncgen(value):
                value = _join([each async for each in value])
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _as_exception(error) from None
        except Exception:
            raise
        except BaseException as error:  # it would end the whole program
            raise _as_exception(error) from None
        return value


def as_function(given: "Function | Callable[..., Any]") -> Function:
    """A tool as a caller gives it."""
    if isinstance(given, Function):
        return given
    return Function(given)


def _read_parameters(run: Callable[..., Any], name: str) -> type[Struct]:
    """What a function takes, as a type that checks it."""
    try:
        parameters = inspect.signature(run).parameters.values()
        hints = _read_hints(run)
    except (TypeError, ValueError, NameError) as error:
        raise ChoiceError(f"the signature of tool {name} cannot be read: {error}") from None
    fields: list[Any] = []
    for each in parameters:
        if each.kind in _NOT_NAMED:
            raise ChoiceError(
                f"tool {name} takes {each}: a model names each argument; give it parameters with "
                "names"
            )
        kind = hints.get(each.name, Any)
        if each.default is each.empty:
            fields.append((each.name, kind))
        else:
            fields.append((each.name, kind, msgspec.field(default=each.default)))
    try:
        return msgspec.defstruct(
            f"{name}_arguments", fields, kw_only=True, frozen=True, forbid_unknown_fields=True
        )
    except (TypeError, ValueError) as error:
        raise ChoiceError(f"tool {name} cannot be described to a model: {error}") from None


def _read_hints(run: Callable[..., Any]) -> dict[str, Any]:
    plain = _unwrap(run)
    if not inspect.isroutine(plain) and not inspect.isclass(plain):
        plain = type(plain).__call__  # an object that can be called
    return get_type_hints(plain, include_extras=True)


def _make_schema(takes: type[Struct]) -> dict[str, Any]:
    """The JSON schema of what a function takes."""
    try:
        [found], parts = msgspec.json.schema_components([takes], ref_template="#/$defs/{name}")
    except TypeError:
        raise ChoiceError(
            f"{takes.__name__}: JSON has no form for the type of {_find_undescribed(takes)}; use "
            "types such as str, int, list or a TypedDict"
        ) from None
    own = parts.pop(found["$ref"].rpartition("/")[2])
    schema = {
        "type": "object",
        "properties": own["properties"],
        "required": own.get("required", []),
        "additionalProperties": False,
    }
    if parts:
        schema["$defs"] = parts
    return schema


def _find_undescribed(takes: type[Struct]) -> str:
    """The parameters with a type that JSON has no form for."""
    names = []
    for field in msgspec.structs.fields(takes):
        try:
            msgspec.json.schema(field.type)
        except TypeError:
            names.append(field.name)
    return ", ".join(names)


async def _run_in_thread(run: Callable[[], Any]) -> Any:
    """What a function returns that runs in a thread of its own. The thread ends with the process,
    so that one that hangs holds up nobody.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def work() -> None:
        value, failure = None, None
        try:
            value = context.run(run)
            if inspect.isgenerator(value):
                # If nobody waits for it any more, it would go on and fill the memory.
                value = _join(list(takewhile(lambda _: not future.done(), value)))
        except StopIteration as error:  # a future does not hold one
            failure = _as_exception(error)
        except Exception as error:
            failure = error
        except BaseException as error:  # one that would end this thread only
            failure = _as_exception(error)
        try:
            loop.call_soon_threadsafe(tell, value, failure)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    threading.Thread(target=work, name="loom-tool", daemon=True).start()
    return await future


def _as_exception(error: BaseException) -> Exception:
    return RuntimeError(describe_error(error))


def describe_error(error: BaseException) -> str:
    """The type and the words of an error, if it has any that can be read."""
    try:
        words = str(error)
    except Exception:
        words = "(its words cannot be read)"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _join(pieces: list[Any]) -> Any:
    """What a generator gave: one text, if it gave texts."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    return pieces


def _unwrap(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function in a partial one."""
    while isinstance(run, partial):
        run = run.func
    return run


def to_parts(value: Any) -> ResultParts:
    """What a function returned, as parts of a result. What is too large is cut out of the middle,
    and the result says so.
    """
    if isinstance(value, Text | Media):
        value = (value,)
    if _are_parts(value):
        return tuple(Text(_cut(part.text)) if isinstance(part, Text) else part for part in value)
    if value is None:
        return (Text("Done."),)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if not isinstance(value, str):
        try:
            value = to_json(value)
        except (TypeError, ValueError):
            value = str(value)
    return (Text(_cut(value) or "(nothing)"),)


def _are_parts(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(part, Text | Media) for part in value)
    )


def _cut(text: str) -> str:
    text = text.encode(errors="replace").decode() if not text.isascii() else text
    if len(text) <= MAX_RESULT_CHARS:
        return text
    half = MAX_RESULT_CHARS // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out:,} characters left out here]\n{text[-half:]}"


def make_error(call: ToolCall, error: BaseException | str) -> ToolResult:
    """The result of a call that failed, as the model reads it."""
    if isinstance(error, ChoiceError | str):
        said = str(error)
    else:
        said = describe_error(error)
    return ToolResult(call.id, (Text(shorten(said, 4000)),), error=True, kind=call.kind)


def show_arguments(call: ToolCall) -> Mapping[str, Any]:
    """The arguments of a call for people; {} if they cannot be read."""
    try:
        found = from_json(call.arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
