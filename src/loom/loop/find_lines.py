"""Search the lines of files in a process of its own: a pattern can take forever, and nothing can
interrupt it inside of Python.

This file is run by itself, and imports nothing of Loom: `python find_lines.py SECONDS`, with the
arguments of `find_lines` as JSON on standard input, and what was found as JSON on standard output.
"""

import json
import re
import signal
import sys

MAX_SEARCHED_BYTES = 50_000_000  # of a file that is searched
MAX_LINE_CHARS = 200  # of a line that was found
HEAD_BYTES = 8_000  # a file with a zero byte in them is not a text


def read_whole(file: str) -> bytes:
    """The bytes of a text file; none if it is something else, or too large."""
    with open(file, "rb") as opened:
        data = opened.read(MAX_SEARCHED_BYTES + 1)
    if len(data) > MAX_SEARCHED_BYTES or b"\0" in data[:HEAD_BYTES]:
        return b""
    return data


def find_lines(pattern: str, files: list[str], root: str, most: int) -> list[str]:
    """Lines that match a regular expression, or contain a text that is not one: one more than
    `most`, where there are more.
    """
    try:
        wanted = re.compile(pattern)
    except re.error:
        wanted = re.compile(re.escape(pattern))
    found: list[str] = []
    for file in files:
        try:
            data = read_whole(file)
        except OSError:
            continue
        name = file.removeprefix(root).lstrip("/")
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if wanted.search(line):
                found.append(f"{name}:{number}: {_shorten(line.strip())}")
                if len(found) > most:
                    return found
    return found


def _shorten(line: str) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[: MAX_LINE_CHARS - 1]}…"


if __name__ == "__main__":
    signal.alarm(int(sys.argv[1]))  # ends it also in the middle of a match, and if nobody waits
    json.dump(find_lines(**json.load(sys.stdin)), sys.stdout)
