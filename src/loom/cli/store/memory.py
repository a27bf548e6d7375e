"""`loom memory`: what a project or a session remembers: add, list, search, show and forget."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import click
from msgspec import to_builtins

from loom.cli.groups import Group
from loom.cli.store.where import READS_AS_AGENT, in_store
from loom.cli.table import print_table, short_ids
from loom.cli.terminal import age, clean, dim, plural, say, style
from loom.conversation.canonical import to_json
from loom.engine.layers import MemoryItem
from loom.engine.loom import Loom
from loom.engine.memory import ProjectMemory, RememberOptions, SessionMemory, to_moment
from loom.errors import ChoiceError
from loom.stores import Note, NoteKind

DEFAULT_FOUND = 10
_LAYERS = ("recent", "important", "summaries")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_SESSION = click.option(
    "--session",
    "session",
    metavar="ID",
    help="Use the memory of this session, which has its own notes and those of the project "
    "(default: that of the project).",
)
_ALL = click.option(
    "--all", "everyone", is_flag=True, help="Also the notes of all sessions of the project."
)
_KIND = click.option("--kind", type=click.Choice(get_args(NoteKind)), help="Only notes or facts.")
_LIMIT = click.option("--limit", type=click.IntRange(min=1), help="Most entries to show.")


@click.group(cls=Group)
def memory() -> None:
    """Keep the notes and facts of a project or a session.

    Requests contain the notes that matter to them, and those for every request.
    """


def _memory_of(loom: Loom, session: str | None) -> ProjectMemory:
    if session is None:
        return loom.memory
    return loom.session(session).memory


@memory.command()
@click.argument("text")
@_SESSION
@click.option("--fact", is_flag=True, help="It is a fact: a statement that holds.")
@click.option("--about", metavar="TOPIC", default="", help="What it is about.")
@click.option("--supersedes", metavar="ID", default="", help="The note that it replaces.")
@click.option("--from", "start", metavar="TIME", help="When it begins to hold (ISO, UTC).")
@click.option("--until", "stop", metavar="TIME", help="When it ends to hold (ISO, UTC).")
@click.option("--source", "sources", metavar="HANDLE", multiple=True, help="Where it comes from.")
@click.option("--always", is_flag=True, help="Show it in every request.")
@click.option(
    "--for",
    "scope",
    type=click.Choice(["session", "agent", "project"]),
    help="Who sees it (default: the session, or the project without --session).",
)
@_JSON
@in_store(make=True)
def add(loom: Loom, text: str, session: str | None, as_json: bool, **given: Any) -> None:
    """Remember TEXT. The same text is remembered once."""
    options: RememberOptions = {
        "kind": "fact" if given["fact"] else "note",
        "about": given["about"],
        "supersedes": given["supersedes"],
        "valid_from": to_moment("--from", given["start"]),
        "valid_until": to_moment("--until", given["stop"]),
        "sources": given["sources"],
        "always": given["always"],
    }
    if given["scope"] == "agent" and not loom.scope.agent:
        raise ChoiceError("--for agent needs --agent NAME")
    if given["scope"]:
        options["scope"] = given["scope"]
    note = _memory_of(loom, session).remember(text, **options)
    if as_json:
        say(to_json(_describe(note)))
    else:
        done = "remembered again" if note.uses else "remembered"
        say(f"{style('✓', fg='green')} {done} {style(note.id, fg='blue')}")


@memory.command("list")
@_SESSION
@click.option(
    "--layer",
    type=click.Choice(_LAYERS),
    help="List messages or summaries of the session instead of notes.",
)
@_ALL
@_KIND
@click.option("--about", metavar="TOPIC", help="Only notes about this topic.")
@click.option(
    "--history", is_flag=True, help="Also what was forgotten, superseded, or does not hold now."
)
@_LIMIT
@_JSON
@in_store(agent=READS_AS_AGENT)
def list_notes(
    loom: Loom,
    session: str | None,
    layer: str | None,
    limit: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """List notes, the newest first; or a layer of a session.

    The layers are `recent` (the newest messages), `important` (the most important messages) and
    `summaries`.
    """
    found = _memory_of(loom, session)
    if layer is not None:
        _list_layer(found, layer, limit or DEFAULT_FOUND, as_json)
        return
    notes = found.notes(limit=limit, **given)
    if as_json:
        say(to_json([_describe(note) for note in notes]))
    elif notes:
        _print_notes(notes, loom.now())
    elif given["kind"] or given["about"] is not None:
        say(f"no such note {_name(loom, session)}")
    else:
        say(f"nothing is remembered {_name(loom, session)}; loom memory add adds a note")


def _list_layer(found: ProjectMemory, layer: str, limit: int, as_json: bool) -> None:
    if not isinstance(found, SessionMemory):
        raise ChoiceError(f"--layer {layer} needs --session ID")
    layers: dict[str, Callable[[int], list[MemoryItem]]] = {
        "recent": found.recent,
        "important": found.important,
        "summaries": found.summaries,
    }
    items = layers[layer](limit)
    if as_json:
        say(to_json([to_builtins(item) for item in items]))
        return
    for item in items:
        worth = dim(f"{item.importance:.2f}")
        say(f"{style(item.handle, fg='blue')} {item.role} {worth} {clean(_one_line(item.text))}")
    if not items:
        say(dim("this layer is empty"))


@memory.command()
@click.argument("text")
@_SESSION
@_ALL
@_KIND
@_LIMIT
@click.option("--history", is_flag=True, help="Also what is not shown in requests any more.")
@_JSON
@in_store(agent=READS_AS_AGENT)
def search(
    loom: Loom, text: str, session: str | None, limit: int | None, as_json: bool, **given: Any
) -> None:
    """Search notes, the best first. `loom search` searches messages.

    The exit status is 1 if nothing is found.
    """
    found = _memory_of(loom, session).notes(text, limit or DEFAULT_FOUND, **given)
    if as_json:
        say(to_json([_describe(note) for note in found]))
    elif found:
        _print_notes(found, loom.now())
    else:
        say(f"no note {_name(loom, session)} says anything of this")
    if not found:
        raise SystemExit(1)


@memory.command()
@click.argument("name", metavar="ID")
@_SESSION
@_JSON
@in_store(agent=READS_AS_AGENT)
def show(loom: Loom, name: str, session: str | None, as_json: bool) -> None:
    """Show a note, with its source, its time and its history."""
    found = _memory_of(loom, session)
    note = found.note(name)
    older = _older(found, note)
    if as_json:
        say(to_json({**_describe(note), "history": [_describe(each) for each in older]}))
        return
    said = clean(f"{note.kind} by {_speaker(note)}, {note.state}")
    say(f"{style(note.id, fg='blue')} {dim(said)}")
    for line in note.text.splitlines():
        say(f"  {clean(line)}")
    for what, value in _details(note):
        say(dim(f"  {what}: {clean(value)}"))
    for each in older:
        say(dim(f"  before: {clean(_one_line(each.text))} ({each.id}, {each.state})"))


@memory.command()
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@_SESSION
@click.option("--purge", is_flag=True, help="Delete the words of the notes for good.")
@_JSON
@in_store(agent=READS_AS_AGENT)
def forget(
    loom: Loom, names: tuple[str, ...], session: str | None, purge: bool, as_json: bool
) -> None:
    """Show notes no longer. They stay stored, unless --purge is given.

    With --session, an ID may also be the handle or the node of a message: it is then not among the
    important ones.
    """
    found = _memory_of(loom, session)
    names = tuple(dict.fromkeys(names))
    for name in names:
        if purge:
            found.purge(name)
        else:
            found.forget(name)
    if as_json:
        say(to_json({"forgotten": len(names), "purged": purge}))
    else:
        done = "purged" if purge else "forgotten"
        say(f"{style('✓', fg='green')} {plural(len(names), 'note')} {done}")


def _older(found: ProjectMemory, note: Note) -> list[Note]:
    """The notes that a note superseded, the newest first."""
    by_id = {each.id: each for each in found.notes(history=True, everyone=True)}
    older: list[Note] = []
    while note.supersedes in by_id and by_id[note.supersedes] not in older:
        note = by_id[note.supersedes]
        older.append(note)
    return older


def _details(note: Note) -> list[tuple[str, str]]:
    seen_by = f"session {note.session}" if note.session else "the project"
    if note.agent:
        seen_by = f"agent {note.agent}"
    told = [
        ("about", note.about),
        ("seen by", seen_by),
        ("in every request", "yes" if note.always else ""),
        ("remembered", _write_time(note.created)),
        ("in session", note.origin),
        ("from", ", ".join(note.sources)),
        ("holds from", _write_time(note.valid_from) if note.valid_from else ""),
        ("holds until", _write_time(note.valid_until) if note.valid_until else ""),
        ("supersedes", note.supersedes),
    ]
    return [(what, value) for what, value in told if value]


def _write_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "minutes")


def _describe(note: Note) -> dict[str, Any]:
    made: dict[str, Any] = to_builtins(note)
    del made["key"]
    return made


def _speaker(note: Note) -> str:
    if note.by == "user":
        return "the user"
    return f"the model {note.author}".rstrip()


def _name(loom: Loom, session: str | None) -> str:
    if session is None:
        return f"in project {clean(loom.scope.project)}"
    return f"in session {clean(session)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def _print_notes(notes: list[Note], now: int) -> None:
    rows = [
        (name, note.kind, note.by, note.state, age(note.updated, now), _one_line(note.text))
        for name, note in zip(short_ids([note.id for note in notes]), notes, strict=True)
    ]
    print_table(("id", "kind", "by", "state", "updated", "text"), rows, cut=5)
