"""TOML files, read within limits: a value for each key, and the line of each key."""

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.config.key_lines import KeyLines, NestingError, find_key_lines
from loom.errors import ConfigError

MAX_CONFIG_BYTES = 64 * 1024
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_MANY_DIGITS = re.compile(r"[0-9_]{4000,}")


class TomlFile(Struct, frozen=True):
    """A TOML file: its path, its values, the line of each key, and the text itself."""

    path: Path
    table: dict[str, Any]
    lines: KeyLines
    text: str

    def error(self, text: str, *key: str | int) -> ConfigError:
        """An error that names the file and the line of a key."""
        return ConfigError(text, self.path, self.lines.find(*key))

    def place(self, *key: str | int) -> str:
        """File and line of a key."""
        return f"{self.path}:{self.lines.find(*key)}"


def read_toml_file(path: Path, within: Path | None = None) -> TomlFile | None:
    """The values of a file; None if there is no file. What `read_text_file` refuses is refused."""
    text = read_text_file(path, within)
    if text is None:
        return None
    return parse_toml(path, text)


def read_text_file(path: Path, within: Path | None = None) -> str | None:
    """The text of a file; None if there is no file. A file that is a link out of the folder
    `within` is refused, as is one that is too large.
    """
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise ConfigError(
            f"it is a place outside {within}, or a link to one; put the file itself there", path
        )
    if not os.path.lexists(path):
        return None
    try:
        return _decode(path, _read_bytes(path))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path) from None


def parse_toml(path: Path, text: str) -> TomlFile:
    """The values of a TOML text. An error names the file and the line."""
    try:
        lines = find_key_lines(text)
    except NestingError as error:
        raise ConfigError(f"{error}; split it up", path, error.line) from None
    try:
        return TomlFile(path, tomllib.loads(text), lines, text)
    except tomllib.TOMLDecodeError as error:
        what, line = _split_position(str(error), text)
        raise ConfigError(f"not valid TOML: {what}", path, line) from None
    except ValueError:  # Python reads no number of thousands of digits
        found = _MANY_DIGITS.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 0
        raise ConfigError("a number has too many digits", path, line) from None


def _read_bytes(path: Path) -> bytes:
    """The content of a plain file. Whoever waits behind a pipe is not waited for."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise ConfigError("not a plain file; replace it with a TOML file, or remove it", path)
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"larger than {MAX_CONFIG_BYTES // 1024} KiB, the limit of a configuration file; "
            "shorten it",
            path,
        )
    return content


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"not UTF-8 at byte {error.start}; save it as UTF-8", path, line
        ) from None


def _split_position(text: str, document: str) -> tuple[str, int]:
    """What `tomllib` says is wrong, with its column, and the line."""
    found = _POSITION.search(text)
    if found is None:
        return text, 0
    what = text[: found.start()]
    if found[1] is None:
        return f"{what} (at the end of the file)", max(1, len(document.splitlines()))
    return f"{what} (column {found[2]})", int(found[1])
