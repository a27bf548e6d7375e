"""`loom session working`: what an agent decides by besides the conversation, looked at and set from
outside.
"""

from collections.abc import Mapping
from typing import Any

import click
from msgspec import to_builtins

from loom.cli.store.where import in_store
from loom.cli.terminal import dim, say, style
from loom.context import Incident, Working
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
def working(loom: Loom, name: str, clear: bool, as_json: bool, **changes: Any) -> None:
    """Show or change the working state of a session.

    The working state is placed at the end of every request, and is never shortened.
    """
    session = loom.session(name)
    before = session.working
    made = _change(Working() if clear else before, changes)
    if changes["heartbeat"]:
        made = made.beat(loom.now())
    if made != before:
        session.keep_working(made)
    _print(made, as_json)


def _change(state: Working, changes: Mapping[str, Any]) -> Working:
    """The working state with everything that the options change about it."""
    made = state.assess(
        progress=changes["progress"],
        plan=changes["plan"] or None,
        scratchpad=changes["scratchpad"],
    )
    if changes["event"] is not None:
        identity, text = _split_id(changes["event"])
        event = Incident(event_id=identity, summary=text or identity, urgency=changes["urgency"])
        made = made.happen(event)
    if changes["acknowledge"] is not None:
        identity, decision = _split_id(changes["acknowledge"])
        made = made.acknowledge(identity, decision or "done")
    if changes["interrupted"] is not None:
        made = made.interrupt(changes["interrupted"])
    if changes["depth"] is not None:
        made = made.deepen(changes["depth"])
    return made


def _split_id(given: str) -> tuple[str, str]:
    """ID:TEXT in its two parts."""
    identity, _, text = given.partition(":")
    return identity, text


def _print(state: Working, as_json: bool) -> None:
    if as_json:
        say(to_json(to_builtins(state)))
        return
    text = state.render()
    if not text:
        say(dim("no working state yet; --progress, --plan or --scratchpad creates one"))
    for line in text.splitlines():
        say(style(line, bold=True) if line.startswith("## ") else line)
