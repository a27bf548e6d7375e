"""`loom recall`: what was left out of a request, as it was."""

import sys

import click

from loom.cli.store import in_store
from loom.engine.loom import Loom


@click.command()
@click.argument("handle")
@click.option("--session", "name", metavar="ID", help="Look in this session only.")
@in_store()
def recall(loom: Loom, handle: str, name: str | None) -> None:
    """Write what a HANDLE stands for, and nothing else.

    Of a span of messages it is one message a line, as canonical JSON. The ~ may be left out: some shells take it for a folder.
    """
    handle = handle if handle.startswith("~") else f"~{handle}"
    text = loom.session(name).recall(handle) if name is not None else loom.recall(handle)
    # Bytes: no line end is translated, and half a character that a program left is written as it was.
    sys.stdout.buffer.write(text.encode(errors="surrogatepass"))
