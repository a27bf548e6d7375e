"""`loom session resume`: what an agent or a person needs to continue with a session after a crash
or a pause.
"""

import shlex

import click
from msgspec import to_builtins

from loom.cli import terminal
from loom.cli.store.where import Where, add_scope_options
from loom.cli.terminal import clean, dim, note, one_line, plural, say, style
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.engine.sessions import ResumePoint, Session
from loom.errors import ChoiceError


@click.command("resume")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@add_scope_options
def resume(where: Where, name: str | None, as_json: bool) -> None:
    """Show what you need to continue a session.

    It shows the goal, the handoff document, the working state, unanswered tool calls and the next
    command.
    Without ID, it shows the session that was used last.
    """
    with where.open() as loom:
        found = loom.session(_find_session_id(loom, where, name))
        found.row.check_alive()
        resumed = found.resume()
        view = loom.store.views.read_newest(found.row, found.path)
        epoch = view.epoch.number if view else None
        going_on = _next(found, resumed, where)
        if as_json:
            told = {
                "session": found.id,
                "title": found.row.title,
                "status": found.row.status,
                "goal": resumed.handoff.goal,
                "handoff": to_builtins(resumed.handoff),
                "document": resumed.handoff.to_system_prompt(),
                "working": to_builtins(resumed.working),
                "restored": resumed.restored,
                "pending": [
                    {"id": call.id, "name": call.name, "arguments": call.arguments}
                    for call in resumed.pending
                ],
                "epoch": epoch,
                "next": going_on,
            }
            say(to_json(told))
            return
        _print(found, resumed, epoch, going_on)


def _find_session_id(loom: Loom, where: Where, name: str | None) -> str:
    if name is not None:
        return name
    rows = loom.sessions(limit=1)
    if not rows:
        whose = f" of agent {where.agent}" if where.agent else ""
        raise ChoiceError(
            f"there is no session{whose} in project {where.project} to resume; loom session new "
            "TITLE creates one"
        )
    return rows[0].id


def _next(found: Session, resumed: ResumePoint, where: Where) -> str:
    """The command that continues: where the user is to speak it appends, else it makes the request
    to send now.
    """
    end = found.cursor
    if found.row.status == "archived":
        command = ["loom", "session", "archive", found.id, "--undo"]
    elif end is None or (end.role == "assistant" and not resumed.pending):
        command = ["loom", "session", "append", found.id, "TEXT"]
    else:
        command = ["loom", "weave", "--session", found.id]
    if where.store is not None:
        # An address may hold a password, which belongs into no output.
        command += [
            "--store",
            where.store if "://" not in where.store or "@" not in where.store else "URL",
        ]
    for option, value in (("--project", where.project), ("--tenant", where.tenant)):
        if value != "default":
            command += [option, value]
    if where.agent:
        command += ["--agent", where.agent]
    return shlex.join(command)


def _print(found: Session, resumed: ResumePoint, epoch: int | None, going_on: str) -> None:
    say(f"{style(found.row.title or '(no title)', bold=True)}  {style(found.id, fg='blue')}")
    window = "begins with the next request"
    if epoch is not None:
        window = f"epoch {epoch} continues while it fits"
    state = "from the store"
    if resumed.restored:
        state = "restored from its files, because the store had none"
    if resumed.working.is_empty:
        state = "none yet; loom session working creates one"
    for what, value in (
        ("goal", resumed.handoff.goal or "(not stated)"),
        ("window", window),
        ("state", state),
    ):
        say(f"  {dim(f'{what:<10}')} {one_line(value, terminal.width() - 13)}")
    for text in (resumed.handoff.to_system_prompt(), resumed.working.render()):
        if text:
            say()
            _print_text(text)
    if resumed.pending:
        say()
        were = (
            f"{plural(len(resumed.pending), 'call')} "
            f"{'was' if len(resumed.pending) == 1 else 'were'}"
        )
        note(
            f"{were} never answered: append the results, or the next request says that there are "
            "none"
        )
        for call in resumed.pending:
            say(
                f"    {style('→', fg='cyan')} "
                f"{one_line(f'{call.name} {call.arguments}', terminal.width() - 6)}"
            )
    say(f"\n{dim('next:')} {style(going_on, bold=True)}")


def _print_text(text: str) -> None:
    for line in text.splitlines():
        say(style(line, bold=True) if line.startswith(("# ", "## ")) else clean(line))
