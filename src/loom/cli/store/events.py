"""`loom events`: what agents of a project publish, looked at and published from outside."""

import sys
import time
from collections.abc import Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import click

from loom.cli.groups import Group
from loom.cli.store.where import in_store
from loom.cli.terminal import age, clean, dim, one_line, say, style, width
from loom.conversation.canonical import from_json, to_json
from loom.engine.loom import Loom
from loom.errors import ChoiceError
from loom.runtime import Task
from loom.runtime.checks import to_milliseconds

AS_AGENT = "Act as this agent: what it publishes names it as the source."
DEFAULT_EVENTS = 20
MAX_EVENTS_READ = 1_000_000  # more than a history has
SESSION = click.option("--session", "label", metavar="LABEL", help="Label of the session.")


@click.group(cls=Group)
def events() -> None:
    """Show or publish events of the agents of a project."""


@events.command()
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), metavar="N", help="With --follow: stop after N s."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=DEFAULT_EVENTS,
    show_default=True,
    help="Most events to begin with.",
)
@click.option(
    "--action", "actions", metavar="NAME", multiple=True, help="Only this action (repeatable)."
)
@click.option("--target", metavar="NAME", default="", help="Only events for this agent or node.")
@click.option("--task", metavar="ID", default="", help="Only a task and those that belong to it.")
@click.option("--node", metavar="ID", default="", help="Only events from this agent or node.")
@SESSION
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
@in_store(agent="Act as this agent.")
def tail(loom: Loom, follow: bool, seconds: float | None, as_json: bool, **wanted: Any) -> None:
    """Show the newest events, the newest last.

    With --session, events with this label and events without a label are shown; else those of all
    sessions. Expired messages are never shown.
    """
    coming: SimpleQueue[Task] = SimpleQueue()
    shown = set[str]()
    where = {"session_id": wanted["label"], "every_session": wanted["label"] is None}
    with loom.bus.subscribe(coming.put, action=wanted["actions"], **where):
        for task in reversed(_find(loom, wanted, where)):
            shown.add(task.task_id)
            _print(task, loom.now(), as_json)
        for task in _wait_for(coming, seconds) if follow else ():
            if task.task_id not in shown and _is_wanted(task, wanted):
                _print(task, loom.now(), as_json)
    if not shown and not follow and not as_json:
        say(dim(f"no events in project {clean(loom.scope.project)}; loom events publish adds one"))


def _find(loom: Loom, wanted: Mapping[str, Any], where: Mapping[str, Any]) -> list[Task]:
    """The events to begin with, the newest first."""
    found = loom.bus.recent(action=wanted["actions"], limit=MAX_EVENTS_READ, **where)
    return [task for task in found if _is_wanted(task, wanted)][: wanted["limit"]]


def _is_wanted(task: Task, wanted: Mapping[str, Any]) -> bool:
    target, name, node = wanted["target"], wanted["task"], wanted["node"]
    return (
        (not target or target in (task.target_agent, task.target_node_id))
        and (not name or name in (task.task_id, task.parent))
        and (not node or node == task.node_id)
    )


def _wait_for(coming: "SimpleQueue[Task]", seconds: float | None) -> Iterator[Task]:
    """What comes, until the time is over or the user interrupts."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        try:
            yield coming.get(timeout=0.2)
        except Empty:
            continue
        except KeyboardInterrupt:
            return


def _print(task: Task, now: int, as_json: bool) -> None:
    if as_json:
        say(task.to_json())
        sys.stdout.flush()
        return
    target = f" → {clean(task.target_agent)}" if task.target_agent else ""
    label = f" [{clean(task.session_id)}]" if task.session_id else ""
    when = age(to_milliseconds(task.created_at), now)
    who = f"{clean(task.source_agent) or '-'}{target}{label}"
    say(f"{style(clean(task.action), fg='blue')} {who} {dim(f'{when} {clean(task.task_id)}')}")
    words = task.content or (to_json(task.parameters) if task.parameters else "")
    if words:
        say(f"  {one_line(words, width() - 2)}")


@events.command()
@click.argument("given", metavar="[-]", required=False)
@click.option("--action", metavar="NAME", help="What kind of event, such as node.thinking.")
@click.option("--content", metavar="TEXT", help="What it says.")
@click.option("--source", metavar="NAME", help="Agent that it comes from (default: --agent).")
@click.option("--target", metavar="NAME", default="", help="Agent that it is for.")
@click.option("--parent", metavar="ID", help="Task that it belongs to.")
@click.option("--id", "task_id", metavar="ID", help="Its id. One that is known is not published.")
@click.option("--parameters", metavar="JSON", help="More parameters, as a JSON object.")
@SESSION
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@in_store(make=True, agent=AS_AGENT)
def publish(loom: Loom, given: str | None, as_json: bool, **fields: Any) -> None:
    """Publish an event.

    With -, tasks are read from standard input, each as a line of JSON. An event whose id was
    published before is left out.
    """
    if given is not None and given != "-":
        raise ChoiceError("publish takes --action for one event, or - for lines on standard input")
    tasks = _read_lines() if given == "-" else [_make_task(loom, fields)]
    new = loom.bus.publish_all(tasks)
    if as_json:
        say(to_json({"published": new, "ids": [task.task_id for task in tasks]}))
    else:
        known = f", {len(tasks) - new} known already" if new < len(tasks) else ""
        say(f"{style('✓', fg='green')} {new} published{known}")


def _make_task(loom: Loom, fields: Mapping[str, Any]) -> Task:
    if not fields["action"]:
        raise ChoiceError("give --action NAME, or - to read tasks from standard input")
    parameters = read_object(fields["parameters"], "--parameters")
    if fields["content"] is not None:
        parameters["content"] = fields["content"]
    made = {
        "action": fields["action"],
        "parameters": parameters,
        "source_agent": fields["source"] or loom.scope.agent,
        "target_agent": fields["target"],
        "session_id": fields["label"],
        "parent_task_id": fields["parent"],
    }
    if fields["task_id"] is not None:
        made["task_id"] = fields["task_id"]
    return Task.of(made)


def read_object(text: str | None, option: str) -> dict[str, Any]:
    """A JSON object that an option holds; an empty one if it is not given."""
    if text is None:
        return {}
    try:
        found = from_json(text)
    except ValueError as error:
        raise ChoiceError(f"{option} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ChoiceError(f"{option} must be a JSON object")
    return found


def _read_lines() -> list[Task]:
    made = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        if line.strip():
            try:
                made.append(Task.from_json(line))
            except ChoiceError as error:
                raise ChoiceError(f"line {number}: {error}") from None
    return made
