"""`loom session`: sessions that are kept.

Create, find, read, continue, branch, archive and purge sessions.
"""

import sys
from pathlib import Path
from typing import Any

import click

from loom.cli import terminal
from loom.cli.groups import Group
from loom.cli.session.exchange import export_command
from loom.cli.session.importing import import_command
from loom.cli.session.options import options
from loom.cli.session.pressure import summary, undo
from loom.cli.session.resume import resume
from loom.cli.session.show import list_sessions, show_session
from loom.cli.session.working import working
from loom.cli.store.where import in_store
from loom.cli.terminal import (
    clean,
    one_line,
    plural,
    say,
    style,
)
from loom.cli.text_input import read_text
from loom.conversation.canonical import to_json
from loom.engine.inputs import Given
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError
from loom.transcripts import files
from loom.transcripts.formats import list_names, read_runs

PURGE_ID_CHARS = 4  # characters of an id that a purge asks for


@click.group(cls=Group)
def session() -> None:
    """Store sessions, find them and continue them.

    ID is the id of a session, or its first characters: at least 4, and enough to be unique.
    NODE is the id of a message, as `loom session show` prints it.
    """


# Making, and continuing


@session.command("new")
@click.argument("title", default="")
@click.option("--model", default="", metavar="NAME", help="Model that the session is for.")
@click.option("--system", metavar="TEXT", help="System text.")
@click.option(
    "--system-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the system text.",
)
@click.option(
    "--tools",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file with a list of tools, in the format of any API.",
)
@click.option("--json", "as_json", is_flag=True, help='Print {"session": ID}.')
@in_store(make=True)
def new_session(
    loom: Loom,
    title: str,
    model: str,
    system: str | None,
    system_file: Path | None,
    tools: Path | None,
    as_json: bool,
) -> None:
    """Create a session, and print its id.

    Without TITLE, the first request becomes the title.
    """
    if system is not None and system_file is not None:
        raise ChoiceError("give the system text with --system or with --system-file, not both")
    if system_file is not None:
        files.inspect(system_file)
        system = system_file.read_text(encoding="utf-8-sig")
    made = loom.new(title, model=model, system=system, tools=_tools(tools) if tools else None)
    say(to_json({"session": made.id}) if as_json else made.id)


def _tools(path: Path) -> Any:
    """A list of tools, or the tools of a request."""
    files.inspect(path)
    given = files.document(path)
    if isinstance(given, dict) and "tools" in given:
        return given["tools"]
    return given


@session.command("append")
@click.argument("name", metavar="ID")
@click.argument("text", required=False)
@click.option(
    "--role",
    type=click.Choice(["user", "assistant", "system"]),
    help="Role of the message (default: user).",
)
@click.option(
    "--file",
    metavar="FILE",
    help="Append the messages of a transcript, in any format that Loom knows.",
)
@click.option(
    "--after",
    metavar="NODE",
    help="Append only if the session is at this node; '' is its beginning.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the ids of the session and the messages as JSON."
)
@in_store()
def append(
    loom: Loom,
    name: str,
    text: str | None,
    role: str | None,
    file: str | None,
    after: str | None,
    as_json: bool,
) -> None:
    """Append a message to a session, and print its id.

    Without TEXT, or with -, the text is read from standard input.
    A retry is safe: the same text --after the same node is stored once, and has the same id.
    """
    if file is not None and (text is not None or role is not None):
        raise ChoiceError("give TEXT (with --role) or --file, not both; a file contains the roles")
    if file is not None:
        said = _messages(file)
    else:
        said = [{"role": role or "user", "content": read_text(text, "append")}]
    found = loom.session(name)
    nodes = found.append(*said, after=after)
    if as_json:
        told = [{"id": node.id, "local": node.short_id, "role": node.role} for node in nodes]
        say(to_json({"session": found.id, "nodes": told}))
        return
    for node in nodes:
        say(node.short_id)


def _messages(file: str) -> list[Given]:
    runs = list(read_runs(file))
    if len(runs) > 1:
        names = list_names((run.number, run.name) for run in runs)
        raise ChoiceError(
            f"{file} has several runs; choose one as {file}#N ({names}), or import all with loom "
            "session import"
        )
    return [*runs[0].head.system, *runs[0].messages()]


# Branching, and putting away


@session.command()
@click.argument("name", metavar="ID")
@click.option(
    "--at", metavar="NODE", help="Last message that both sessions share (default: the newest)."
)
@click.option(
    "--title",
    default="",
    metavar="TEXT",
    help="Title of the new session (default: the same title).",
)
@in_store()
def fork(loom: Loom, name: str, at: str | None, title: str) -> None:
    """Create a second session that shares the messages so far.

    Prints the id of the new session. No message is copied.
    """
    say(loom.session(name).fork(at, title).id)


@session.command()
@click.argument("name", metavar="ID")
@click.argument("node")
@in_store()
def switch(loom: Loom, name: str, node: str) -> None:
    """Move a session to another message of its tree.

    This can be an earlier message or one on another branch. Nothing is deleted.
    """
    found = loom.session(name).switch(node)
    _tell(
        found,
        f"is at {found.cursor.short_id if found.cursor else 'its beginning'}, "
        f"{plural(len(found.path), 'message')}",
    )


@session.command()
@click.argument("name", metavar="ID")
@click.option("--undo", is_flag=True, help="Make the session active again.")
@in_store()
def archive(loom: Loom, name: str, undo: bool) -> None:
    """Archive a session. Nothing is deleted."""
    _tell(
        loom.session(name).change(archived=not undo),
        "is active again" if undo else "is archived; --undo makes it active again",
    )


@session.command()
@click.argument("name", metavar="ID")
@click.argument("title")
@in_store()
def rename(loom: Loom, name: str, title: str) -> None:
    """Change the title of a session."""
    found = loom.session(name).change(title=title)
    _tell(found, f"has the title {found.row.title or '(no title)'}")


@session.command("continue")
@click.argument("name", metavar="ID")
@in_store()
def continue_session(loom: Loom, name: str) -> None:
    """Archive a session, and continue in a new one.

    Prints the id of the new session. Its title is "Continue: TITLE". The system text, tools and
    model are the same.
    """
    say(loom.session(name).carry_on().id)


@session.command()
@click.argument("name", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@in_store()
def purge(loom: Loom, name: str, yes: bool) -> None:
    """Delete a session for good.

    Messages that other sessions share are not deleted.
    """
    found = loom.session(name)
    if not yes:
        _ask(found)
    named = loom.store.snapshots.unproven(found.row)
    gone, kept = found.purge()
    say(f"{style(found.id, fg='blue')} was purged: {_describe_purge(gone, kept)}")
    for folder in named:
        say(
            f"{one_line(folder, 200)} was not changed: this store cannot prove that it wrote "
            "snapshots there",
            err=True,
        )


def _describe_purge(gone: int, kept: int) -> str:
    text = f"{plural(gone, 'message')} deleted for good"
    if kept == 1:
        text += ", 1 stays because other sessions hold it"
    elif kept:
        text += f", {kept:,} stay because other sessions hold them"
    return text


def _ask(found: Session) -> None:
    """What cannot be undone is asked for by name: who types it has looked at it."""
    letters = found.id[:PURGE_ID_CHARS]
    if not sys.stdin.isatty():
        raise ChoiceError(
            "a purge cannot be undone, and there is no terminal to ask; repeat with --yes to "
            f"purge {found.id}"
        )
    title = one_line(found.row.title or "(no title)", terminal.width() - 20)
    say(
        f"{style(title, bold=True)}  {style(found.id, fg='blue')}  "
        f"{plural(len(found.path), 'message')}",
        err=True,
    )
    say("This deletes for good all messages that no other session shares.", err=True)
    if (
        click.prompt(
            f"Type {letters} to continue", default="", show_default=False, err=True
        ).strip()
        != letters
    ):
        raise ChoiceError(f"nothing was purged: the answer was not {letters}")


def _tell(found: Session, what: str) -> None:
    """What was done, beside standard output: that belongs to what was asked for."""
    say(f"{style(found.id, fg='blue')} {clean(what)}", err=True)


session.add_command(list_sessions)
session.add_command(show_session)
session.add_command(options)
session.add_command(working)
session.add_command(resume)
session.add_command(summary)
session.add_command(undo)
session.add_command(export_command)
session.add_command(import_command)
