"""`loom recall`: what was left out of a request, as it was, by its handle or by what it says."""

import sys

import click

from loom.cli.store.where import READS_AS_AGENT, in_store
from loom.cli.terminal import COLOURS, clean, dim, say, style
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.engine.search import DEFAULT_HITS, matches
from loom.engine.sessions import Session
from loom.errors import ChoiceError, shorten
from loom.recall.hits import Hit


@click.command()
@click.argument("handle", required=False)
@click.option("--session", "name", metavar="ID", help="Look only in this session.")
@click.option(
    "--search",
    "query",
    metavar="TEXT",
    help='Search the messages that were left out of requests. Quote "a phrase" to match it '
    "exactly.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"With --search, show at most N messages (default: {DEFAULT_HITS}).",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the exact form: messages as JSON lines, a text as a JSON string. With --search, "
    "print a JSON list.",
)
@in_store(agent=READS_AS_AGENT)
def recall(
    loom: Loom,
    handle: str | None,
    name: str | None,
    query: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print what a request left out, by its HANDLE.

    A HANDLE is the name in a marker, such as ~q7zx3wk5vj2p. You may omit the ~, because some shells
    expand it.
    A shortened text is printed as it was. Messages are printed as text: the role of each, then its
    words as they were.

    With --session and --search, find handles by the text of the messages.
    Each result shows the handle, the position in the session, the role and a passage.
    """
    if handle is not None and query is not None:
        raise ChoiceError("give a HANDLE or --search TEXT, not both")
    if query is not None:
        if name is None:
            raise ChoiceError("--search needs a session; add --session ID")
        _print(loom.session(name).search(query, limit or DEFAULT_HITS), query, as_json)
    elif handle is None:
        raise ChoiceError("give a HANDLE or --search TEXT")
    elif limit is not None:
        raise ChoiceError("--limit works only with --search; omit it to recall a HANDLE")
    else:
        owner = loom if name is None else loom.session(name)
        text = _recall(owner, f"~{handle.removeprefix('~')}", as_json)
        # In bytes: no line end is translated, and half a character that a program left is written
        # as it was.
        sys.stdout.buffer.write(text.encode(errors="surrogatepass"))


def _recall(owner: Loom | Session, handle: str, as_json: bool) -> str:
    """What a handle stands for, to read or exactly."""
    plain = owner.recall(handle, plain=True)
    if not as_json:
        return plain
    exact = owner.recall(handle)
    if exact == plain:  # a text, which has one form
        return f"{to_json(exact)}\n"
    return exact


def _print(hits: list[Hit], query: str, as_json: bool) -> None:
    if as_json:
        say(to_json(hits))
        return
    if not hits:
        say(dim(f"no message that was left out contains {shorten(query)!r}"))
    places = max((len(str(hit.place)) for hit in hits), default=0)
    roles = max((len(hit.role) for hit in hits), default=0)
    for hit in hits:
        who = style(f"{hit.role:<{roles}}", fg=COLOURS[hit.role])
        say(
            f"{style(hit.handle, fg='blue')}  {hit.place:>{places}}  {who}  "
            f"{_bold(query, hit.text)}"
        )


def _bold(query: str, text: str) -> str:
    """A passage with what was looked for in bold."""
    made, at = "", 0
    for start, stop in matches(query, text):
        made += clean(text[at:start]) + style(text[start:stop], bold=True)
        at = stop
    return made + clean(text[at:])
