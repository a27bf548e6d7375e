"""The lines that a person types in a talk, with history and completion in a terminal."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

from loom.cli.terminal import dim, make_printable, say
from loom.conversation.canonical import from_json, to_json
from loom.project.index.index_file import cache_folder

HISTORY_LINES = 1000
MAX_HISTORY_CHARS = 10_000  # of a line that is remembered
PROMPT = "\n> "
Complete = Callable[[str], Iterable[str]]


class LineReader:
    """Reads what a person types. `complete` gets the line so far, and gives what its last word may
    become.
    """

    def __init__(self, complete: Complete) -> None:
        self._readline = _find_readline()
        self._file = cache_folder() / "loom" / "chat_history"
        self._last = ""
        if self._readline is None:
            return
        for line in self._load():
            self._readline.add_history(line)
        self._readline.set_auto_history(False)  # lines of several lines, and no empty ones
        self._readline.set_completer_delims(" ")
        self._readline.set_completer(_make_completer(self._readline, complete))
        if "libedit" in (self._readline.__doc__ or ""):
            self._readline.parse_and_bind("bind ^I rl_complete")
            return
        self._readline.parse_and_bind("tab: complete")
        # What is pasted is one line, however many lines it has, until the enter key is pressed.
        self._readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self, typed: str = "") -> str | None:
        """The next line; None at the end of the input. `typed` stands in it already."""
        is_terminal = sys.stdin.isatty()
        if self._readline is not None and typed:
            self._readline.set_startup_hook(lambda: self._readline.insert_text(typed))
        try:
            line = input(PROMPT if is_terminal else "")
        except EOFError:
            if is_terminal:
                say()
            return None
        except KeyboardInterrupt:
            if not is_terminal:
                return None
            say()
            say(dim("/quit or Ctrl-D ends the talk"))
            return ""
        finally:
            if self._readline is not None:
                self._readline.set_startup_hook(None)
        # Bytes that are not text would not be stored.
        line = line.encode(errors="surrogateescape").decode(errors="replace")
        self.remember(line)
        return make_printable(line)

    def remember(self, line: str) -> None:
        """Keep a line for the arrow keys, in this talk and in later ones."""
        if self._readline is None or not line.strip() or line == self._last:
            return
        self._last = line
        self._readline.add_history(line)
        if len(line) > MAX_HISTORY_CHARS:
            return
        with contextlib.suppress(OSError):
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(file, "a", encoding="utf-8") as held:
                held.write(f"{to_json(line)}\n")

    def _load(self) -> list[str]:
        """The lines of earlier talks. The file is shortened when it has grown."""
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            kept = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
            if len(kept) > 2 * HISTORY_LINES:
                text = "".join(f"{line}\n" for line in kept[-HISTORY_LINES:])
                self._file.write_text(text, encoding="utf-8")
            return [_read_kept(line) for line in kept[-HISTORY_LINES:]]
        return []


def _read_kept(kept: str) -> str:
    with contextlib.suppress(ValueError):
        line = from_json(kept)
        if isinstance(line, str):
            return line
    return kept


def _find_readline() -> ModuleType | None:
    """What edits lines, in a terminal of a system that has it."""
    if not sys.stdin.isatty():
        return None
    try:
        import readline
    except ImportError:
        return None
    return readline


def _make_completer(readline: ModuleType, complete: Complete) -> Callable[[str, int], str | None]:
    def find(word: str, state: int) -> str | None:
        line = readline.get_line_buffer()[: readline.get_endidx()]
        found = sorted(name for name in complete(line) if name.startswith(word))
        return found[state] if state < len(found) else None

    return find
