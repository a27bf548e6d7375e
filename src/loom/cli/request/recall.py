"""`loom recall`: what was left out of a request, as it was, by its handle or by what it says."""

import sys
from functools import partial

import click

from loom.cli.request.hits import print_hits
from loom.cli.store.where import READS_AS_AGENT, Where, add_scope_options
from loom.cli.terminal import dim, one_line, say
from loom.conversation.canonical import to_json
from loom.conversation.handles import to_lines
from loom.dialects.document import to_plain_text
from loom.engine.file_search.library import TranscriptLibrary
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError, StoreError, shorten
from loom.recall.search import DEFAULT_HITS


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
@partial(add_scope_options, agent=READS_AS_AGENT)
def recall(
    where: Where,
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

    A HANDLE from `loom search` works, too, also of a message in a file.

    With --session and --search, search the messages that were left out of the last request.
    `loom search` searches all messages, of one session or of many.
    """
    if handle is not None and query is not None:
        raise ChoiceError("give a HANDLE or --search TEXT, not both")
    if query is not None:
        _search(where, name, query, limit, as_json)
    elif handle is None:
        raise ChoiceError("give a HANDLE or --search TEXT")
    elif limit is not None:
        raise ChoiceError("--limit works only with --search; omit it to recall a HANDLE")
    else:
        text = _recall(where, f"~{handle.removeprefix('~')}", name, as_json)
        # In bytes: no line end is translated, and half a character that a program left is written
        # as it was.
        sys.stdout.buffer.write(text.encode(errors="surrogatepass"))


def _search(
    where: Where, session: str | None, query: str, limit: int | None, as_json: bool
) -> None:
    if session is None:
        raise ChoiceError("--search needs a session; add --session ID, or use loom search")
    with where.open() as loom:
        hits = loom.session(session).search(query, limit=limit or DEFAULT_HITS)
        if as_json:
            say(to_json(hits))
        elif not hits:
            say(dim(f"no message that was left out matches {shorten(query)!r}"))
        else:
            print_hits(hits, query, one_line)


def _recall(where: Where, handle: str, session: str | None, as_json: bool) -> str:
    """What a handle stands for in the store, or else in the files that were searched."""
    try:
        with where.open() as loom:
            owner = loom if session is None else loom.session(session)
            return _recall_stored(owner, handle, as_json)
    except (ChoiceError, StoreError) as error:
        found = None
        if session is None and where.transcript_index().exists():
            with TranscriptLibrary(where.transcript_index()) as library:
                found = library.recall(handle)
        if found is None:
            raise error from None
    return to_lines([found]) if as_json else to_plain_text([found])


def _recall_stored(owner: Loom | Session, handle: str, as_json: bool) -> str:
    """What a handle stands for, to read or exactly."""
    plain = owner.recall(handle, plain=True)
    if not as_json:
        return plain
    exact = owner.recall(handle)
    if exact == plain:  # a text, which has one form
        return f"{to_json(exact)}\n"
    return exact
