"""The question whether a tool may run: all that it would do, and what the person answers."""

import asyncio
import difflib
import os
import sys
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from loom.cli.terminal import clean, say, split_columns, style, width
from loom.conversation.message import ToolCall
from loom.errors import ChoiceError
from loom.loop.functions import show_arguments
from loom.loop.project_tools import ProjectTools

try:
    import termios
except ImportError:  # a system without it
    termios = None  # type: ignore[assignment]

MAX_QUESTION_LINES = 40  # of what a tool would do, before somebody asks for all of it
MAX_COMPARED_LINES = 2_000  # of a file whose changes are shown
_TABS = 4
_LOCAL_MODES, _CHARACTERS = 3, 6  # where tcgetattr has the flags and the special characters
_COLOURS = {"+": "green", "-": "red"}

Word: TypeAlias = Literal["yes", "no", "always", "all", ""]
_WORDS: dict[str, Word] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
    "all": "all",
}


class Consent(Struct, frozen=True):
    """What a person answered: one of the words, or "" and a reason why not."""

    word: Word
    reason: str = ""


async def ask_about(call: ToolCall, tools: ProjectTools) -> Consent:
    """Show what a call would do, and ask until there is an answer. The end of the input is no."""
    lines = list(draw_call(call, tools))
    _say_lines(lines[:MAX_QUESTION_LINES])
    hidden = lines[MAX_QUESTION_LINES:]
    while True:
        more = f", all ({len(hidden):,} more lines)" if hidden else ""
        said = await read_answer(f"  {call.name}? yes, no, always{more}, or why not: ")
        if said is None:
            say(err=True)
            return Consent("no")
        consent = read_consent(said)
        if consent.word == "all":
            _say_lines(hidden)
            hidden = []
        elif consent.word or consent.reason:
            return consent


def read_consent(said: str) -> Consent:
    """The answer in a line. Only a whole word allows anything; all else is a reason why not."""
    said = clean(said.strip())
    word = _WORDS.get(said.lower(), "")
    return Consent(word, "" if word else said)


def draw_call(call: ToolCall, tools: ProjectTools) -> Iterator[str]:
    """What a call would do, in lines that fit the terminal. Nothing is cut off from them."""
    arguments = dict(show_arguments(call))
    drawn = list[str]()
    if call.name == "edit_file":
        old, new = str(arguments.pop("old", "")), str(arguments.pop("new", ""))
        drawn = [f"-{line}" for line in old.splitlines()]
        drawn += [f"+{line}" for line in new.splitlines()]
    elif call.name == "write_file":
        text = str(arguments.pop("text", ""))
        drawn = _compare(tools, str(arguments.get("path", "")), text)
    for name, value in arguments.items():
        first, *rest = str(value).split("\n")
        yield from _fold(f"{name}: {first}")
        for line in rest:
            yield from _fold(f"    {line}")
    if call.name == "run_command" and not tools.is_confined:
        yield from _fold("(it can change files outside of the folder, too)")
    for line in drawn:
        yield from _fold(line, _COLOURS.get(line[:1]))


def _compare(tools: ProjectTools, path: str, text: str) -> list[str]:
    """What a file would become: its changes, or all of a new one."""
    new = text.splitlines()
    try:
        old = tools.read_text(path).splitlines()
    except (ChoiceError, OSError):
        old = []
    if not old or max(len(old), len(new)) > MAX_COMPARED_LINES:
        return [f"+{line}" for line in new]
    changes = list(difflib.unified_diff(old, new, lineterm=""))[2:]
    return changes or ["(no line changes)"]


def _fold(line: str, colour: str | None = None) -> Iterator[str]:
    for row in split_columns(clean(line.expandtabs(_TABS)), width() - 3):
        yield "  " + (style(row, fg=colour) if colour else row)


def _say_lines(lines: list[str]) -> None:
    for line in lines:
        say(line, err=True)


async def read_answer(prompt: str) -> str | None:
    """A line that a person types after the prompt; None at the end of the input. Other work goes on
    meanwhile, and Ctrl-C ends the waiting.
    """
    sys.stderr.write(prompt)
    sys.stderr.flush()
    if termios is None:
        return sys.stdin.readline() or None
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()
    file = sys.stdin.fileno()

    def take() -> None:
        if not typed.done():
            typed.set_result(os.read(file, 4096))

    loop.add_reader(file, take)
    try:
        line = await typed
    except asyncio.CancelledError:
        say(err=True)
        raise
    finally:
        loop.remove_reader(file)
    return line.decode(errors="replace") if line else None


def take_typed() -> str:
    """What was typed before anybody asked. It answers no question that came later."""
    if termios is None:
        return ""
    file = sys.stdin.fileno()
    modes = termios.tcgetattr(file)
    at_once = list(modes)
    at_once[_LOCAL_MODES] &= ~termios.ICANON
    at_once[_CHARACTERS] = list(modes[_CHARACTERS])
    at_once[_CHARACTERS][termios.VMIN] = at_once[_CHARACTERS][termios.VTIME] = 0
    typed = b""
    termios.tcsetattr(file, termios.TCSANOW, at_once)
    try:
        while chunk := os.read(file, 4096):
            typed += chunk
    finally:
        termios.tcsetattr(file, termios.TCSANOW, modes)
    return typed.decode(errors="replace").replace("\x04", "")
