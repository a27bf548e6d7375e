"""`loom knowledge`: the documents of a project, added, listed, searched and removed."""

import sys
from typing import Any

import click
from msgspec import to_builtins

from loom.cli.groups import Group
from loom.cli.progress import ShareProgress
from loom.cli.store.where import READS_AS_AGENT, in_store
from loom.cli.table import print_table
from loom.cli.terminal import age, amount, clean, dim, plural, reading, say, style
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.errors import ChoiceError, EmbedderError
from loom.providers.embedders import choose_embedder
from loom.providers.knowledge import AddedDocuments
from loom.providers.knowledge.documents.reading import MAX_TEXT_BYTES, check_size, decode_text
from loom.stores import DocumentRow

STANDARD_INPUT = "-"
DEFAULT_FOUND = 5  # items that a search shows
MAX_NAMED = 10  # files that a person is told of; all are counted
EMBEDDER_VARIABLE = "LOOM_EMBEDDER"
_EMBEDDER = click.option(
    "--embedder",
    metavar="NAME",
    envvar=EMBEDDER_VARIABLE,
    default="static",
    help="What finds documents by meaning: `static` (the default), `minilm`, an address "
    f"https://HOST/v1#MODEL, or `none` (default: ${EMBEDDER_VARIABLE}).",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(cls=Group)
def knowledge() -> None:
    """Add, list, search or remove the documents of a project.

    Requests with `knowledge=True` look up what they need in these documents.
    """


@knowledge.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--source", metavar="NAME", help="What the text on standard input is cited by (with -)."
)
@_EMBEDDER
@_JSON
@in_store(make=True, agent=READS_AS_AGENT)
def add(
    loom: Loom, paths: tuple[str, ...], source: str | None, embedder: str, as_json: bool
) -> None:
    """Add files and folders; a PATH of - is a text on standard input.

    Markdown, reStructuredText, HTML, code, text and PDF are read. A PATH that was added before is
    updated: changed files are replaced, and deleted files are removed.
    The exit status is 1 if nothing could be read.
    """
    if source is not None and STANDARD_INPUT not in paths:
        raise ChoiceError("--source names the text on standard input; give - as PATH")
    made: list[AddedDocuments] = []
    for path in paths:
        if path == STANDARD_INPUT:
            made.append(_add_input(loom, source or "standard input"))
        else:
            made.append(loom.knowledge.add_path(path, reading()))
    _embed_missing(loom, embedder)
    if as_json:
        say(to_json(_count_added(made) | {"failed": _list_failed(made), "notes": _notes(made)}))
    else:
        _print_added(made)
    if _list_failed(made) and not any(
        each.added or each.changed or each.unchanged for each in made
    ):
        raise SystemExit(1)


def _add_input(loom: Loom, source: str) -> AddedDocuments:
    data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    check_size(len(data))
    text, notes = decode_text(data)
    told = tuple(f"{source}: {note}" for note in notes)
    return AddedDocuments(added=(loom.knowledge.add(text, source),), notes=told)


def _set_embedder(loom: Loom, name: str) -> None:
    """Find documents by meaning too; by words alone if the embedder cannot be loaded."""
    try:
        loom.knowledge.embedder = choose_embedder(name)
    except EmbedderError as error:
        say(dim(f"searching by words alone: {error}"), err=True)


def _embed_missing(loom: Loom, name: str) -> None:
    """Make the vectors of what was added, and those that another embedder did not make."""
    _set_embedder(loom, name)
    try:
        with ShareProgress("embedding") as progress:
            loom.knowledge.embed_missing(progress.tell)
    except EmbedderError as error:
        say(dim(f"no vectors were made: {error}"), err=True)


def _count_added(made: list[AddedDocuments]) -> dict[str, Any]:
    return {
        "added": [row.source for each in made for row in each.added],
        "changed": [row.source for each in made for row in each.changed],
        "unchanged": sum(each.unchanged for each in made),
        "removed": [source for each in made for source in each.removed],
        "chunks": sum(row.chunks for each in made for row in (*each.added, *each.changed)),
    }


def _list_failed(made: list[AddedDocuments]) -> list[dict[str, str]]:
    return [to_builtins(failed) for each in made for failed in each.failed]


def _notes(made: list[AddedDocuments]) -> list[str]:
    rows = (row for each in made for row in (*each.added, *each.changed))
    said = [f"{row.source}: {note}" for row in rows for note in row.notes]
    return said + [note for each in made for note in each.notes]


def _print_added(made: list[AddedDocuments]) -> None:
    told = _count_added(made)
    counts = [f"{len(told[name])} {name}" for name in ("added", "changed", "removed") if told[name]]
    if told["unchanged"]:
        counts.append(f"{told['unchanged']} unchanged")
    documents = ", ".join(counts) or "no documents"
    say(f"{style('✓', fg='green')} {documents} {dim(plural(told['chunks'], 'new chunk'))}")
    failed = _list_failed(made)
    for each in failed[:MAX_NAMED]:
        say(f"{style('✗', fg='red')} {clean(each['path'])}: {clean(each['reason'])}")
    for note in _notes(made)[:MAX_NAMED]:
        say(f"{style('!', fg='yellow')} {clean(note)}")
    if len(failed) > MAX_NAMED:
        say(dim(f"  and {len(failed) - MAX_NAMED:,} more that cannot be read (with --json)"))


@knowledge.command("list")
@_JSON
@in_store(agent=READS_AS_AGENT)
def list_documents(loom: Loom, as_json: bool) -> None:
    """List the documents of the project."""
    rows = loom.knowledge.list_all()
    if as_json:
        say(to_json([_describe(row) for row in rows]))
        return
    if not rows:
        say(f"no documents in project {clean(loom.scope.project)}; loom knowledge add adds some")
        return
    now = loom.now()
    print_table(
        ("source", "kind", "chunks", "bytes", "updated"),
        [
            (row.source, row.kind, f"{row.chunks:,}", amount(row.size), age(row.updated, now))
            for row in rows
        ],
        cut=0,
        right=(2, 3),
    )


def _describe(row: DocumentRow) -> dict[str, Any]:
    made: dict[str, Any] = to_builtins(row)
    del made["key"]
    return made


@knowledge.command()
@click.argument("text")
@click.option(
    "--limit", type=click.IntRange(min=1), default=DEFAULT_FOUND, help="Most items to show."
)
@_EMBEDDER
@_JSON
@in_store(agent=READS_AS_AGENT)
def search(loom: Loom, text: str, limit: int, embedder: str, as_json: bool) -> None:
    """Search the documents of the project. A "quoted phrase" must match exactly.

    The exit status is 1 if nothing is found.
    """
    _set_embedder(loom, embedder)
    items = loom.knowledge.query(text, limit, exact=True)
    if as_json:
        say(to_json([to_builtins(item) for item in items]))
    for number, item in enumerate(items if not as_json else ()):
        if number:
            say()
        say(f"{style(item.source, fg='blue')} {dim(f'{item.score:.2f}')}")
        if item.title:
            say(style(item.title, bold=True))
        for line in item.content.splitlines():
            say(f"  {clean(line)}")
    if not items:
        if not as_json:
            say(f"nothing found in the documents of project {clean(loom.scope.project)}")
        raise SystemExit(1)


@knowledge.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--purge",
    is_flag=True,
    help="Also remove the words from the files of the store. This takes longer.",
)
@_JSON
@in_store(agent=READS_AS_AGENT)
def remove(loom: Loom, names: tuple[str, ...], purge: bool, as_json: bool) -> None:
    """Remove documents by source, file or folder."""
    removed = sum(loom.knowledge.remove(name) for name in names)
    if purge:
        loom.knowledge.purge()
    if as_json:
        say(to_json({"removed": removed}))
    else:
        say(f"{style('✓', fg='green')} {plural(removed, 'document')} removed")
