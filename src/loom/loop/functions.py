"""Python functions as tools of a model. What a function takes is read from its signature, and its
description from its docstring.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Media, Text, Tool, ToolCall, ToolResult
from loom.engine.tools import read_arguments
from loom.errors import ChoiceError, describe, shorten

MAX_RESULT_CHARS = 400_000  # of what a function returns: more is cut out of its middle
_NOT_NAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
ResultParts = tuple[Text | Media, ...]


class Function:
    """A function that a model may call.

    `operation` is the kind of work that it does, by the words of the project's rules (`read`,
    `write`, `run` …), and `target` makes from its arguments what the rules speak of, such as a
    path. `repeatable`: it may run again if nobody knows whether it finished.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        *,
        name: str = "",
        about: str = "",
        operation: str = "",
        target: Callable[[Mapping[str, Any]], str] | None = None,
        repeatable: bool = False,
    ) -> None:
        if not callable(run):
            raise ChoiceError(f"a tool must be a function, found {describe(run)}")
        self.run, self.operation, self.target = run, operation, target
        self.repeatable = repeatable
        self.name = name or getattr(run, "__name__", type(run).__name__)
        about = about or inspect.cleandoc(inspect.getdoc(run) or "")
        self._takes = _read_parameters(run, self.name)
        self.tool = Tool(self.name, about, to_json(_make_schema(self._takes)))

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    def read(self, call: ToolCall) -> dict[str, Any]:
        """The arguments of a call, checked. What is wrong is an error that the model can read."""
        given = read_arguments(call, self._takes)
        return {field: getattr(given, field) for field in given.__struct_fields__}

    def name_target(self, arguments: Mapping[str, Any]) -> str:
        """What the rules of a project look at: by default all arguments, as JSON."""
        if self.target is not None:
            return self.target(arguments)
        return to_json(dict(arguments))

    async def answer(self, arguments: Mapping[str, Any], seconds: float) -> ResultParts:
        """Run the function, at most for so long. A function that is not asynchronous runs in a
        thread of its own: one that hangs is left behind, and ends with the process.
        """
        if inspect.iscoroutinefunction(self.run):
            work = self.run(**arguments)
        else:
            work = _run_in_thread(self.run, arguments)
        try:
            return to_parts(await asyncio.wait_for(work, seconds))
        except TimeoutError:
            raise ChoiceError(
                f"{self.name} did not end within {seconds:g} seconds; it may still be at work"
            ) from None


def as_function(given: "Function | Callable[..., Any]") -> Function:
    """A tool as a caller gives it."""
    if isinstance(given, Function):
        return given
    return Function(given)


def _read_parameters(run: Callable[..., Any], name: str) -> type[Struct]:
    """What a function takes, as a type that checks it."""
    try:
        parameters = inspect.signature(run).parameters.values()
        hints = get_type_hints(run, include_extras=True)
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


def _make_schema(takes: type[Struct]) -> dict[str, Any]:
    """The JSON schema of what a function takes."""
    try:
        [found], parts = msgspec.json.schema_components([takes], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise ChoiceError(
            f"{takes.__name__} cannot be described in JSON: {error}; use types such as str, int, "
            "list or a TypedDict"
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


async def _run_in_thread(run: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a function returns that runs in a thread of its own. The thread ends with the process,
    so that one that hangs holds up nobody.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

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
            value = run(**arguments)
        except Exception as error:
            failure = error
        except BaseException as error:  # one that would end this thread only
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            loop.call_soon_threadsafe(tell, value, failure)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    threading.Thread(target=work, name="loom-tool", daemon=True).start()
    return await future


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
        said = f"{type(error).__name__}: {error}"
    return ToolResult(call.id, (Text(shorten(said, 4000)),), error=True, kind=call.kind)


def show_arguments(call: ToolCall) -> Mapping[str, Any]:
    """The arguments of a call for people; {} if they cannot be read."""
    try:
        found = from_json(call.arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
