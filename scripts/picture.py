"""Make a picture of a terminal, as docs/chat.svg is one.

In tmux, while the terminal shows what the picture is to show:
    tmux capture-pane -e -p | python scripts/picture.py "loom chat" docs/chat.svg
"""

import re
import sys
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text


def draw(screen: str, title: str) -> str:
    """The screen of a terminal as SVG."""
    text = Text.from_ansi(screen.rstrip("\n"))
    columns = max(line.cell_len for line in text.split("\n")) + 2
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(text)
    form = re.sub(r"@font-face \{\{.*?\}\}|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=title, unique_id="terminal", code_format=form)


if __name__ == "__main__":
    title, file = sys.argv[1:]
    Path(file).write_text(draw(sys.stdin.read(), title), encoding="utf-8")
