"""`loom session working`: what an agent decides by beside the conversation, looked at and set from
outside.
"""

import click
from msgspec import to_builtins

from loom.cli.store import in_store
from loom.cli.terminal import dim, say, style
from loom.context import working as verbs
from loom.context.working import EMPTY, Incident, Working
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom


@click.command("working")
@click.argument("name", metavar="ID")
@click.option("--progress", metavar="TEXT", help="Progress towards the goal, in one line.")
@click.option(
    "--plan",
    "plan",
    metavar="STEP",
    multiple=True,
    help="Step of the plan (repeatable). The steps replace the old plan.",
)
@click.option(
    "--scratchpad", metavar="TEXT", help="Current thoughts of the agent. They replace the old ones."
)
@click.option(
    "--event",
    metavar="ID:TEXT",
    help="Report an event. A second event with the same ID is ignored.",
)
@click.option(
    "--urgency",
    type=click.Choice(["low", "normal", "high", "critical"]),
    default="normal",
    show_default=True,
    help="Urgency of --event.",
)
@click.option(
    "--acknowledge", metavar="ID:TEXT", help="Mark an event as handled; TEXT is the decision."
)
@click.option(
    "--interrupt/--no-interrupt",
    "interrupted",
    default=None,
    help="Ask the agent to stop, or withdraw that.",
)
@click.option("--heartbeat", is_flag=True, help="Record that the agent is alive now.")
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    metavar="N",
    help="Nesting depth of this session as a sub-agent.",
)
@click.option("--clear", is_flag=True, help="Clear the working state before the other changes.")
@click.option("--json", "as_json", is_flag=True, help="Print the working state as a JSON object.")
@in_store()
def working(
    loom: Loom,
    name: str,
    progress: str | None,
    plan: tuple[str, ...],
    scratchpad: str | None,
    event: str | None,
    urgency: verbs.Urgency,
    acknowledge: str | None,
    interrupted: bool | None,
    heartbeat: bool,
    depth: int | None,
    clear: bool,
    as_json: bool,
) -> None:
    """Show or change the working state of a session.

    The working state is placed at the end of every request, and is never shortened.
    """
    session = loom.session(name)
    before = session.working
    made = EMPTY if clear else before
    made = verbs.assess(made, progress=progress, plan=plan or None, scratchpad=scratchpad)
    if event is not None:
        identity, _, told = event.partition(":")
        made = verbs.happen(
            made, Incident(event_id=identity, summary=told or identity, urgency=urgency)
        )
    if acknowledge is not None:
        identity, _, decided = acknowledge.partition(":")
        made = verbs.acknowledge(made, identity, decided or "done")
    if interrupted is not None:
        made = verbs.interrupt(made, interrupted)
    if heartbeat:
        made = verbs.beat(made, loom.now())
    if depth is not None:
        made = verbs.deepen(made, depth)
    if made != before:
        session.keep_working(made)
    _print(made, as_json)


def _print(state: Working, as_json: bool) -> None:
    if as_json:
        say(to_json(to_builtins(state)))
        return
    text = verbs.render(state)
    if not text:
        say(dim("no working state yet; --progress, --plan or --scratchpad creates one"))
    for line in text.splitlines():
        say(style(line, bold=True) if line.startswith("## ") else line)
