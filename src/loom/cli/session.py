"""`loom session`: sessions that are kept.

Make, find, read, go on with, branch, put away and take away for good.
"""

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from loom.cli import terminal
from loom.cli.groups import Group
from loom.cli.session_exchange import export_command, import_command
from loom.cli.session_pressure import summary, undo
from loom.cli.session_resume import resume
from loom.cli.session_working import working
from loom.cli.show import look
from loom.cli.store import Where, add_scope_options, in_store
from loom.cli.terminal import (
    COLOURS,
    age,
    amount,
    clean,
    columns_of,
    dim,
    fit_columns,
    one_line,
    plural,
    say,
    style,
)
from loom.cli.text_input import read_text
from loom.conversation.canonical import to_json
from loom.conversation.identity import SHORTEST
from loom.conversation.message import Message
from loom.engine.inputs import Given
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError
from loom.stores.path import Node
from loom.stores.sessions import SessionRow
from loom.transcripts import files
from loom.transcripts.formats import read_runs

SHORT = 8  # letters of an id that a list shows, if they are enough
ASKED = 4  # letters of an id that a purge asks for
LAST, SYSTEM = 20, 3  # messages shown, system messages shown
STATUS_COLOURS = {"active": "green", "importing": "yellow", "purged": "red"}


@click.group(cls=Group)
def session() -> None:
    """Store sessions, find them and continue them.

    ID is the id of a session, or its first characters: at least 4, and enough to be unique.
    NODE is the id of a message, as `loom session show` prints it.
    """


# Finding


@session.command("list")
@click.option(
    "--archived", is_flag=True, help="List the archived sessions instead of the active ones."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="List at most N sessions (default: all).",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@add_scope_options
def list_sessions(where: Where, archived: bool, limit: int | None, as_json: bool) -> None:
    """List the sessions of a project, the most recently used first."""
    if where.absent():
        _print_list([], {}, 0, where, archived, as_json)
        return
    with where.open() as loom:
        rows = loom.sessions(archived=archived, limit=limit or 0)
        _print_list(rows, loom.store.sessions.sizes(rows), loom.now(), where, archived, as_json)


def _print_list(
    rows: list[SessionRow],
    sizes: dict[int, tuple[int, int]],
    now: int,
    where: Where,
    archived: bool,
    as_json: bool,
) -> None:
    if as_json:
        say(to_json([to_report(row, *sizes.get(row.key, (0, 0))) for row in rows]))
        return
    if not rows:
        whose = f" of agent {clean(where.agent)}" if where.agent else ""
        put_away = " that are archived" if archived else ""
        say(
            f"no sessions{put_away}{whose} in project {clean(where.project)}"
            + dim("; loom session new TITLE creates one")
        )
        return
    letters = _enough([row.id for row in rows])
    shown = [
        (
            row.id[:letters],
            row.title or "(no title)",
            f"{sizes.get(row.key, (0, 0))[0]:,}",
            amount(row.usage.prompt + row.usage.completion) if row.usage.prompt else "–",
            one_line(row.model or "–", max(14, terminal.width() // 5)),
            age(row.updated, now),
            row.status,
        )
        for row in rows
    ]
    names = ("id", "title", "messages", "used", "model", "last used", "status")
    wide = [max(map(columns_of, cells)) for cells in zip(names, *shown, strict=True)]
    wide[1] = min(wide[1], max(12, terminal.width() - sum(wide) + wide[1] - 2 * (len(names) - 1)))

    def line(cells: tuple[str, ...]) -> list[str]:
        return [
            f"{c:>{w}}" if n in (2, 3, 5) else fit_columns(c, w)
            for n, (c, w) in enumerate(zip(cells, wide, strict=True))
        ]

    say(dim("  ".join(line(names)).rstrip()))
    for cells in shown:
        identity, title, messages, used, model, last, status = line(cells)
        looks = style(
            status.rstrip(), fg=STATUS_COLOURS.get(cells[-1]), dim=cells[-1] == "archived"
        )
        say(
            "  ".join(
                (style(identity, fg="blue"), clean(title), messages, used, dim(model), last, looks)
            )
        )


def _enough(ids: list[str]) -> int:
    """How many letters tell these ids apart."""
    letters = SHORT
    while len({identity[:letters] for identity in ids}) < len(ids):
        letters += 1
    return letters


def to_report(row: SessionRow, messages: int, tokens: int) -> dict[str, Any]:
    """A session as JSON has it.

    `tokens` are those of what was said, `usage` is what providers reported.
    """
    return {
        "id": row.id,
        "title": row.title,
        "status": row.status,
        "messages": messages,
        "tokens": tokens,
        "usage": asdict(row.usage),
        "model": row.model,
        "tenant": row.tree.tenant,
        "project": row.tree.project,
        "agent": row.agent,
        "tree": row.tree.id,
        "origin": row.origin,
        "created": row.created,
        "updated": row.updated,
    }


@session.command("show")
@click.argument("name", metavar="ID")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=LAST,
    show_default=True,
    metavar="N",
    help="Show the newest N messages.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the session and its last messages as one JSON object.",
)
@in_store()
def show_session(loom: Loom, name: str, last: int, as_json: bool) -> None:
    """Show a session and its last messages, with their ids."""
    found = loom.session(name)
    row, path = found.row, found.path
    system = (
        *row.head.system,
        *(aside.message for aside in loom.store.sessions.on_path(row, path)),
    )
    nodes = path[max(len(path) - last, 0) :]
    if as_json:
        said = {
            "cursor": found.cursor.short_id if found.cursor else None,
            "system": [m.text for m in system],
        }
        tools = {
            "tools": [tool.name for tool in row.head.tools],
            "last": [_node_report(node) for node in nodes],
        }
        say(to_json(to_report(row, len(path), path.end.total if path.end else 0) | said | tools))
        return
    _print_about(loom, found)
    told, now, letters = (
        "",
        loom.now(),
        2 + max((len(node.short_id) for node in nodes), default=SHORTEST),
    )
    for message in system[:SYSTEM]:
        _print_line("", message, "", letters)
    if len(system) > SYSTEM:
        say(dim(f"{'':>{letters + 21}}and {len(system) - SYSTEM:,} more system messages"))
    if len(path) > len(nodes):
        earlier = plural(len(path) - len(nodes), "earlier message")
        say(dim(f"{'':>{letters + 21}}{earlier}; --last {len(path)} shows all"))
    for node in nodes:
        when = age(node.created, now)
        _print_line(node.short_id, node.message or node.role, when if when != told else "", letters)
        told = when


def _node_report(node: Node) -> dict[str, Any]:
    said = to_builtins(node.message) if node.message else None
    return {
        "id": node.id,
        "local": node.short_id,
        "role": node.role,
        "tokens": node.tokens,
        "created": node.created,
        "message": said,
    }


def _print_about(loom: Loom, found: Session) -> None:
    row, path, now = found.row, found.path, loom.now()
    say(f"{style(row.title or '(no title)', bold=True)}  {style(row.id, fg='blue')}")
    usage, cached = (
        row.usage,
        f" ({row.usage.cached / row.usage.prompt:.0%} from a cache)" if row.usage.cached else "",
    )
    used = (
        f"{usage.prompt:,} tokens read{cached}, {usage.completion:,} written, ${usage.cost:,.4f}"
        if usage.prompt
        else ""
    )
    whose = f"{row.tree.project}{f', agent {row.agent}' if row.agent else ''}"
    whose += f", tenant {row.tree.tenant}" if row.tree.tenant != "default" else ""
    said = (
        f"{plural(len(path), 'message')}, {path.end.total:,} tokens"
        if path.end
        else "no messages yet"
    )
    for what, value in (
        ("status", style(row.status, fg=STATUS_COLOURS.get(row.status))),
        ("project", clean(whose)),
        ("tree", clean(row.tree.id)),
        ("from", clean(row.origin)),
        ("model", clean(row.model)),
        (
            "tools",
            clean(", ".join(tool.name for tool in row.head.tools[:8]))
            + (" …" if len(row.head.tools) > 8 else ""),
        ),
        ("holds", said),
        ("used", used),
        ("last used", f"{age(row.updated, now)}{dim(f', made {age(row.created, now)}')}"),
    ):
        if value:
            say(f"  {dim(f'{what:<10}')} {value}")
    say()


def _print_line(short_id: str, said: Message | str, when: str, letters: int) -> None:
    """A message: its id, who spoke and when, and how each part begins.

    Of a purged one only the role is known.
    """
    role = said if isinstance(said, str) else said.role
    lead = (
        f"{style(f'{short_id:<{letters}}', fg='blue')}{style(f'{role:>9}', fg=COLOURS.get(role))} "
        f" {dim(f'{when:>8}')}  "
    )
    if isinstance(said, str) or not said.parts:
        say(lead + dim("(purged)" if isinstance(said, str) else "(empty)"))
        return
    for n, part in enumerate(said.parts):
        mark, text = look(part)
        room = terminal.width() - letters - 21 - len(click.unstyle(mark))
        say((lead if n == 0 else " " * (letters + 21)) + mark + one_line(text, room))


# Making, and going on


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
    return given["tools"] if isinstance(given, dict) and "tools" in given else given


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
    said = (
        _messages(file)
        if file is not None
        else [{"role": role or "user", "content": read_text(text, "append")}]
    )
    found = loom.session(name)
    nodes = found.append(*said, after=after)
    if as_json:
        told = [{"id": node.id, "local": node.short_id, "role": node.role} for node in nodes]
        say(to_json({"session": found.id, "nodes": told}))
        return
    for node in nodes:
        say(node.short_id)


def _messages(file: str) -> list[Given]:
    runs = list(islice(read_runs(file), 2))
    if len(runs) > 1:
        raise ChoiceError(
            f"{file} has several runs; choose one as {file}#N, or import all with loom session "
            "import"
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
    stay = (
        f", {plural(kept, 'stays', 'stay')} because other sessions hold "
        f"{'it' if kept == 1 else 'them'}"
        if kept
        else ""
    )
    say(
        f"{style(found.id, fg='blue')} was purged: {plural(gone, 'message')} deleted for good{stay}"
    )
    for folder in named:
        say(
            f"{one_line(folder, 200)} was not changed: this store cannot prove that it wrote "
            "snapshots there",
            err=True,
        )


def _ask(found: Session) -> None:
    """What cannot be undone is asked for by name: who types it has looked at it."""
    letters = found.id[:ASKED]
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


session.add_command(working)
session.add_command(resume)
session.add_command(summary)
session.add_command(undo)
session.add_command(export_command)
session.add_command(import_command)
