"""`loom message`: direct messages between the agents of a project."""

from math import isfinite
from typing import Any

import click

from loom.cli.groups import Group
from loom.cli.store.events import SESSION, read_object
from loom.cli.store.where import in_store
from loom.cli.terminal import age, clean, dim, plural, say, style, width, wrap_lines
from loom.cli.text_input import read_text
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.errors import ChoiceError
from loom.runtime import Task
from loom.runtime.checks import to_milliseconds

SENDS_AS_AGENT = "Act as this agent: it is the sender."
READS_AS_AGENT = "Act as this agent: its messages are shown."


@click.group(cls=Group)
def message() -> None:
    """Send direct messages to agents, and read them."""


@message.command()
@click.argument("to", metavar="AGENT")
@click.argument("text", required=False)
@click.option("--from", "source", metavar="NAME", help="Sender (default: --agent).")
@click.option(
    "--priority",
    type=click.FloatRange(0, 1),
    metavar="N",
    help="From 0 to 1 (default: 0.5). A message from 0.9 on is urgent.",
)
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long the message can be seen (default: until it is acknowledged).",
)
@click.option("--node", metavar="ID", help="Node that it is for, if that is not the agent.")
@click.option("--parent", metavar="ID", help="Task that it belongs to.")
@click.option("--metadata", metavar="JSON", help="Anything else, as a JSON object.")
@click.option("--id", "task_id", metavar="ID", help="Its id. A message is sent once for each id.")
@SESSION
@click.option("--json", "as_json", is_flag=True, help="Print the message as JSON.")
@in_store(make=True, agent=SENDS_AS_AGENT)
def send(loom: Loom, to: str, text: str | None, as_json: bool, **fields: Any) -> None:
    """Send a message to an agent.

    Without TEXT, or with -, it is read from standard input. With --session, the agent sees it in
    that session only; else in all of its sessions.
    """
    source = fields["source"] or loom.scope.agent
    if not source:
        raise ChoiceError("a message names its sender; give --from NAME or --agent NAME")
    for option in ("priority", "ttl"):
        if fields[option] is not None and not isfinite(fields[option]):
            raise ChoiceError(f"--{option} must be a number, found {fields[option]}")
    parameters = {
        "content": read_text(text, "send"),
        "priority": fields["priority"],
        "ttl_seconds": fields["ttl"],
        "target_node_id": fields["node"],
        "parent_task_id": fields["parent"],
        "metadata": read_object(fields["metadata"], "--metadata") or None,
    }
    made: dict[str, Any] = {
        "action": "node.message",
        "source_agent": source,
        "target_agent": to,
        "session_id": fields["label"],
        "parameters": {name: each for name, each in parameters.items() if each is not None},
    }
    if fields["task_id"] is not None:
        made["task_id"] = fields["task_id"]
    task = Task.of(made)
    is_new = loom.bus.publish(task)
    if as_json:
        say(to_json({"sent": is_new, "message": task.to_dict()}))
    elif is_new:
        say(f"{style('✓', fg='green')} sent to {clean(to)} {dim(clean(task.task_id))}")
    else:
        say(f"{style('!', fg='yellow')} {clean(task.task_id)} was sent before")


@message.command()
@click.argument("name", metavar="AGENT", required=False)
@SESSION
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most messages."
)
@click.option(
    "--acknowledge",
    "ids",
    metavar="ID",
    multiple=True,
    help="Acknowledge a message, and show the others (repeatable).",
)
@click.option("--acknowledge-shown", is_flag=True, help="Acknowledge all messages that are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print the messages as a JSON list.")
@in_store(agent=READS_AS_AGENT)
def inbox(
    loom: Loom,
    name: str | None,
    label: str | None,
    limit: int,
    ids: tuple[str, ...],
    acknowledge_shown: bool,
    as_json: bool,
) -> None:
    """Show the open messages for an agent.

    A message is open until it is acknowledged. The oldest comes first. With --session, messages
    with this label and messages without a label are shown; else those of all sessions. The exit
    status is 1 if --acknowledge names no open message.
    """
    reader = name or loom.scope.agent
    if not reader:
        raise ChoiceError("whose messages? Give AGENT or --agent NAME")
    done = loom.bus.acknowledge_all(list(ids))
    found = loom.bus.inbox(reader, session_id=label, every_session=label is None, limit=limit)
    if acknowledge_shown:
        loom.bus.acknowledge_all([task.task_id for task in found])
    if as_json:
        say(to_json([task.to_dict() for task in found]))
    else:
        _print(found, reader, len(done), loom.now())
    left = [each for each in dict.fromkeys(ids) if each not in done]
    for each in left:
        say(f"{style('!', fg='yellow')} {clean(each)} is not an open message", err=True)
    if left:
        raise SystemExit(1)


def _print(found: list[Task], reader: str, done: int, now: int) -> None:
    if done:
        say(f"{style('✓', fg='green')} {plural(done, 'message')} acknowledged")
    if not found:
        say(f"no messages for {clean(reader)}")
    for task in found:
        label = f" [{clean(task.session_id)}]" if task.session_id else ""
        when = age(to_milliseconds(task.created_at), now)
        about = dim(f"priority {task.priority:g} {when} {clean(task.task_id)}")
        say(f"{style(clean(task.source_agent), fg='blue')}{label} {about}")
        for line in wrap_lines(clean(task.content), width() - 2):
            say(f"  {line}")
