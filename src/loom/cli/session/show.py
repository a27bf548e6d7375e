"""`loom session list` and `loom session show`: which sessions there are, and what is in one."""

from collections.abc import Sequence
from typing import Any

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from loom.cli import terminal
from loom.cli.session.options import format_option, list_options
from loom.cli.store.where import Where, add_scope_options, in_store
from loom.cli.table import short_ids
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
from loom.cli.transcript.show import look
from loom.conversation.canonical import to_json
from loom.conversation.identity import MIN_ID_CHARS
from loom.conversation.message import Message
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.stores import Node, SessionRow

LAST_MESSAGES, MAX_SYSTEM_MESSAGES = 20, 3  # messages shown, system messages shown
STATUS_COLOURS = {"active": "green", "importing": "yellow", "purged": "red"}


@click.command("list")
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
        whose = ""
        if where.agent:
            whose = f" of agent {clean(where.agent)}"
        put_away = " that are archived" if archived else ""
        say(
            f"no sessions{put_away}{whose} in project {clean(where.project)}"
            + dim("; loom session new TITLE creates one")
        )
        return
    _print_table([_cells(row, sizes, now) for row in rows], [row.id for row in rows])


def _cells(row: SessionRow, sizes: dict[int, tuple[int, int]], now: int) -> tuple[str, ...]:
    """What a list shows of a session; its id comes first, by itself."""
    used = row.usage.prompt + row.usage.completion
    return (
        row.title or "(no title)",
        f"{sizes.get(row.key, (0, 0))[0]:,}",
        amount(used) if row.usage.prompt else "–",
        one_line(row.model or "–", max(14, terminal.width() // 5)),
        age(row.updated, now),
        row.status,
    )


def _print_table(rows: list[tuple[str, ...]], ids: list[str]) -> None:
    shown = [(short, *cells) for short, cells in zip(short_ids(ids), rows, strict=True)]
    names = ("id", "title", "messages", "used", "model", "last used", "status")
    wide = [max(map(columns_of, cells)) for cells in zip(names, *shown, strict=True)]
    others = sum(wide) - wide[1] + 2 * (len(names) - 1)
    wide[1] = min(wide[1], max(12, terminal.width() - others))

    def line(cells: tuple[str, ...]) -> list[str]:
        return [
            f"{c:>{w}}" if n in (2, 3, 5) else fit_columns(c, w)
            for n, (c, w) in enumerate(zip(cells, wide, strict=True))
        ]

    say(dim("  ".join(line(names)).rstrip()))
    for cells in shown:
        identity, title, messages, used, model, last, _ = line(cells)
        status = cells[-1]
        looks = style(status, fg=STATUS_COLOURS.get(status), dim=status == "archived")
        parts = (style(identity, fg="blue"), clean(title), messages, used, dim(model), last, looks)
        say("  ".join(parts))


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


@click.command("show")
@click.argument("name", metavar="ID")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=LAST_MESSAGES,
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
    system = [*row.head.system]
    system += [aside.message for aside in loom.store.sessions.on_path(row, path)]
    nodes = path[max(len(path) - last, 0) :]
    if as_json:
        report = to_report(row, len(path), path.end.total if path.end else 0)
        report |= {
            "cursor": found.cursor.short_id if found.cursor else None,
            "options": list_options(found),
            "system": [message.text for message in system],
            "tools": [tool.name for tool in row.head.tools],
            "last": [_node_report(node) for node in nodes],
        }
        say(to_json(report))
        return
    _print_about(loom, found)
    _print_messages(system, nodes, len(path), loom.now())


def _print_messages(system: Sequence[Message], nodes: Sequence[Node], count: int, now: int) -> None:
    """The system messages and the last messages of a session that has `count` of them."""
    letters = 2 + max((len(node.short_id) for node in nodes), default=MIN_ID_CHARS)
    indent = " " * (letters + 21)
    for message in system[:MAX_SYSTEM_MESSAGES]:
        _print_line("", message, "", letters)
    if len(system) > MAX_SYSTEM_MESSAGES:
        say(dim(f"{indent}and {len(system) - MAX_SYSTEM_MESSAGES:,} more system messages"))
    if count > len(nodes):
        earlier = plural(count - len(nodes), "earlier message")
        say(dim(f"{indent}{earlier}; --last {count} shows all"))
    last_age = ""
    for node in nodes:
        when = age(node.created, now)
        shown = when if when != last_age else ""
        _print_line(node.short_id, node.message or node.role, shown, letters)
        last_age = when


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
    usage, cached, used = row.usage, "", ""
    if usage.cached:
        cached = f" ({usage.cached / usage.prompt:.0%} from a cache)"
    if usage.prompt:
        used = f"{usage.prompt:,} tokens read{cached}, {usage.completion:,} written"
        used += f", ${usage.cost:,.4f}"
    whose = f"{row.tree.project}{f', agent {row.agent}' if row.agent else ''}"
    whose += f", tenant {row.tree.tenant}" if row.tree.tenant != "default" else ""
    said = "no messages yet"
    if path.end:
        said = f"{plural(len(path), 'message')}, {path.end.total:,} tokens"
    for what, value in (
        ("status", style(row.status, fg=STATUS_COLOURS.get(row.status))),
        ("project", clean(whose)),
        ("tree", clean(row.tree.id)),
        ("from", clean(row.origin)),
        ("model", clean(row.model)),
        ("options", _show_options(found)),
        (
            "tools",
            clean(", ".join(tool.name for tool in row.head.tools[:8]))
            + (" …" if len(row.head.tools) > 8 else ""),
        ),
        ("contains", said),
        ("used", used),
        ("last used", f"{age(row.updated, now)}{dim(f', created {age(row.created, now)}')}"),
    ):
        if value:
            say(f"  {dim(f'{what:<10}')} {value}")
    say()


def _show_options(found: Session) -> str:
    """What the session remembers for its requests, on one line."""
    remembered = list_options(found)
    if remembered["policy"] == "default":
        del remembered["policy"]
    return ", ".join(
        f"{name} {format_option(value)}" for name, value in remembered.items() if value is not None
    )


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
