"""A Python function is a tool: its schema comes from its signature, and whatever it does becomes a
result.
"""

import asyncio
import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from loom import ChoiceError, Media, Text, ToolCall
from loom.loop import Function
from loom.loop.functions import MAX_RESULT_CHARS, make_error, to_parts


class Place(TypedDict):
    street: str
    number: int


def send(
    to: Annotated[str, Meta(description="Who gets it.")],
    place: Place,
    how: Literal["post", "hand"] = "post",
    copies: int = 1,
) -> str:
    """Send a letter."""
    return f"{to}, {place['street']} {place['number']}, by {how}, {copies}"


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("c1", name, json.dumps(arguments))


def run(function: Function, **arguments: Any) -> str:
    read = function.read(call(function.name, **arguments))
    [part] = asyncio.run(function.answer(read, 5))
    assert isinstance(part, Text)
    return part.text


def test_the_schema_is_that_of_the_signature() -> None:
    tool = Function(send).tool
    schema = json.loads(tool.schema)
    assert (tool.name, tool.description) == ("send", "Send a letter.")
    assert schema["required"] == ["to", "place"]
    assert schema["properties"]["to"] == {"type": "string", "description": "Who gets it."}
    assert schema["properties"]["how"]["enum"] == ["hand", "post"]
    assert schema["properties"]["copies"] == {"type": "integer", "default": 1}
    assert schema["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert set(schema["$defs"]["Place"]["properties"]) == {"street", "number"}


def test_arguments_are_checked_and_defaults_are_those_of_the_function() -> None:
    function = Function(send)
    assert run(function, to="Ada", place={"street": "Low", "number": 3}) == (
        "Ada, Low 3, by post, 1"
    )
    with pytest.raises(ChoiceError, match="missing required field `place`"):
        function.read(call("send", to="Ada"))
    with pytest.raises(ChoiceError, match="unknown field `when`"):
        function.read(call("send", to="Ada", place={"street": "", "number": 1}, when=3))


def test_a_function_that_cannot_be_described_is_named() -> None:
    def open_ended(*words: str) -> None: ...

    class Odd: ...

    def odd(thing: Odd) -> None: ...

    with pytest.raises(ChoiceError, match=r"open_ended takes \*words"):
        Function(open_ended)
    with pytest.raises(ChoiceError, match="odd"):
        Function(odd)
    with pytest.raises(ChoiceError, match="must be a function"):
        Function("no function")  # type: ignore[arg-type]


def test_an_asynchronous_function_and_a_plain_one_both_run() -> None:
    async def later(seconds: float = 0) -> str:
        await asyncio.sleep(seconds)
        return "later"

    def now() -> dict[str, int]:
        return {"answer": 42}

    assert run(Function(later)) == "later"
    assert run(Function(now)) == '{"answer":42}'


def test_a_function_that_hangs_is_left_behind() -> None:
    def hang() -> None:
        time.sleep(30)

    async def wait() -> None:
        await asyncio.sleep(30)

    for each in (hang, wait):
        began = time.monotonic()
        with pytest.raises(ChoiceError, match="did not end within"):
            asyncio.run(Function(each).answer({}, 0.1))
        assert time.monotonic() - began < 5


def test_a_generator_without_end_ends_when_nobody_waits_for_it() -> None:
    pieces, ended = [0], threading.Event()

    def count() -> Iterator[str]:
        try:
            while True:
                pieces[0] += 1
                time.sleep(0.001)
                yield "x"
        finally:
            ended.set()

    with pytest.raises(ChoiceError, match="did not end within"):
        asyncio.run(Function(count).answer({}, 0.1))
    assert ended.wait(5)
    assert pieces[0] > 1


def test_a_function_that_ends_its_thread_is_an_error() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        asyncio.run(Function(leave).answer({}, 5))


def test_a_hundred_megabytes_are_cut_in_the_middle() -> None:
    [part] = to_parts("begin" + "x" * 100_000_000 + "end")
    assert isinstance(part, Text)
    assert len(part.text) < MAX_RESULT_CHARS + 100
    assert part.text.startswith("begin")
    assert part.text.endswith("end")
    assert "characters left out here" in part.text


def test_media_stay_media() -> None:
    picture = Media("image", "data", "YWJj", "image/png")
    assert to_parts([Text("see"), picture]) == (Text("see"), picture)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.sets(st.text()),
    )
)
def test_whatever_a_function_returns_is_a_text(value: Any) -> None:
    [part] = to_parts(value)
    assert isinstance(part, Text)
    assert part.text


async def exits() -> None:
    raise SystemExit(2)


async def is_interrupted() -> None:
    raise KeyboardInterrupt


async def awaits_what_was_cancelled() -> None:
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()
    await task


def finds_nothing() -> object:
    return next(iter([]))


def times_out() -> None:
    raise TimeoutError("the socket was silent")


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raises_without_words() -> None:
    raise Wordless


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (exits, "RuntimeError: SystemExit: 2"),
        (is_interrupted, "RuntimeError: KeyboardInterrupt"),
        (awaits_what_was_cancelled, "RuntimeError: CancelledError"),
        (finds_nothing, "RuntimeError: StopIteration"),
        (times_out, "TimeoutError: the socket was silent"),
        (raises_without_words, "Wordless: (its words cannot be read)"),
    ],
)
def test_whatever_a_function_raises_is_a_result_at_once(
    run: Callable[..., Any], words: str
) -> None:
    async def answer() -> str:
        try:
            await Function(run).answer({}, 20)
        except Exception as error:
            return make_error(ToolCall("c", "f", "{}"), error).parts[0].text  # type: ignore[union-attr]
        raise AssertionError

    begun = time.monotonic()
    assert asyncio.run(answer()) == words
    assert time.monotonic() - begun < 5


async def waits(a: int) -> int:
    """Wait."""
    await asyncio.sleep(0)
    return a + 1


@functools.wraps(waits)
def decorated(*given: Any, **named: Any) -> Any:
    return waits(*given, **named)


def by_place(a: int, /) -> int:
    return a + 1


def numbers(a: int) -> Any:
    yield from ("1", str(a))


async def later_numbers(a: int) -> Any:
    yield "1"
    yield str(a)


class Adder:
    """Adds one."""

    def __call__(self, a: int) -> int:
        return a + 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Function(decorated), "2"),
        (Function(lambda a: waits(a), name="later"), "2"),
        (Function(by_place), "2"),
        (Function(functools.partial(waits)), "2"),
        (Function(Adder(), name="adder"), "2"),
        (Function(numbers), "11"),
        (Function(later_numbers), "11"),
    ],
)
def test_functions_of_every_make_run(function: Function, expected: str) -> None:
    arguments = function.read(ToolCall("c", function.name, '{"a": 1}'))
    [part] = asyncio.run(function.answer(arguments, 5))
    assert part == Text(expected)


def test_what_no_provider_takes_is_refused_at_once() -> None:
    with pytest.raises(ChoiceError, match="give it a name"):
        Function(lambda: 1)

    def opens(path: Path, size: int) -> None: ...

    with pytest.raises(ChoiceError, match="no form for the type of path;"):
        Function(opens)
