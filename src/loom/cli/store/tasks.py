"""`loom task`: tasks of agents, added to a store, and the request for one."""

import asyncio
from typing import Any

import click

from loom.cli.groups import Group
from loom.cli.store.where import CREATES_AS_AGENT, READS_AS_AGENT, in_store
from loom.cli.terminal import clean, dim, plural, say, say_dim, style, width, wrap_lines
from loom.cli.text_input import read_text
from loom.context import Context
from loom.conversation.canonical import from_json, to_json
from loom.dialects import WIRES
from loom.engine.loom import Loom
from loom.errors import ChoiceError, shorten
from loom.memory import LoomMemory
from loom.memory.task_context import (
    DEFAULT_MAX_TOKENS,
    EventBusContextSource,
    MemoryContextSource,
    TaskContextManager,
    list_messages,
)
from loom.memory.tokenizer import TokenCounter
from loom.runtime import Task
from loom.runtime.task import STATUSES

_LABEL = click.option(
    "--session", "label", metavar="LABEL", help="Label of the session (default: the unnamed one)."
)
_NAMES = [wire.name for wire in WIRES]


@click.group(cls=Group)
def task() -> None:
    """Add tasks of agents, and build the request for a task."""


@task.command()
@click.argument("text", required=False)
@click.option("--action", metavar="NAME", default="execute", show_default=True, help="What it is.")
@click.option("--parameters", metavar="JSON", help="Its other parameters, as a JSON object.")
@click.option("--status", type=click.Choice(STATUSES), help="Its status (default: pending).")
@click.option("--result", metavar="TEXT", help="What came of it.")
@click.option("--error", metavar="TEXT", help="Why it failed.")
@click.option("--from", "source_agent", metavar="NAME", help="Agent that it comes from.")
@click.option("--to", "target_agent", metavar="NAME", help="Agent that it is for.")
@click.option("--parent", "parent_task_id", metavar="ID", help="Task that it belongs to.")
@click.option("--id", "task_id", metavar="ID", help="Its id. A task is added once for each id.")
@_LABEL
@click.option("--json", "as_json", is_flag=True, help="Print the task as JSON.")
@in_store(make=True, agent=CREATES_AS_AGENT)
def add(
    loom: Loom,
    text: str | None,
    parameters: str | None,
    label: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Add a task to a session.

    Its content is TEXT, or standard input with -. A task whose id is there already is not added
    again. Its status, result and error are written if they are newer.
    """
    given = _read_parameters(parameters)
    if text is not None:
        if "content" in given:
            raise ChoiceError("give TEXT, or content in --parameters, not both")
        given["content"] = read_text(text, "add")
    if not given and fields["action"] == "execute":
        raise ChoiceError("the task says nothing; give TEXT, or - for standard input")
    named = {name: value for name, value in fields.items() if value is not None}
    task_id = fields["task_id"]
    known = None if task_id is None else loom.task(task_id, session_id=label or "")
    entry = loom.add_task(Task.of({**named, "session_id": label, "parameters": given}))
    if as_json:
        say(to_json(entry.task.to_dict()))
        return
    if known is not None and (known.session, known.node) == (entry.session, entry.node):
        say(f"{style('✓', fg='green')} {_describe_known(known.task, entry.task)} {dim(task_id)}")
        return
    where = f" to {label}" if label else ""
    say(f"{style('✓', fg='green')} added{clean(where)} {dim(entry.task.task_id)}")


def _describe_known(before: Task, now: Task) -> str:
    """What became of a task that was there before it was added."""
    if before == now:
        return "was there already, nothing changed"
    return f"was there already, its status is {now.status}"


@task.command()
@click.argument("text", required=False)
@click.option("--id", "task_id", metavar="ID", help="Build the request of this stored task.")
@_LABEL
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_TOKENS,
    show_default=True,
    metavar="N",
    help="Most tokens of all messages.",
)
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--node", metavar="NAME", help="Agent whose direct messages are shown.")
@click.option("--knowledge", is_flag=True, help="Ask the documents of the project.")
@click.option("--model", metavar="NAME", help="Model that counts the tokens.")
@click.option("--to", "wire", type=click.Choice(_NAMES), help="Print the request of this API.")
@click.option("--json", "as_json", is_flag=True, help="Print the messages and the report as JSON.")
@in_store(agent=READS_AS_AGENT)
def context(loom: Loom, **asked: Any) -> None:
    """Show the request for a new task, or for a stored one.

    The task is TEXT, standard input with -, or the stored task of --id.
    The request has what was said in the session, knowledge, what other agents do, direct messages,
    and the task. Nothing is stored.
    """
    made = asyncio.run(_prepare(loom, asked))
    if asked["wire"]:
        say(to_json(made.render(asked["wire"])))
    elif asked["as_json"]:
        say(to_json({"messages": list_messages(made), "report": made.report.as_dict()}))
    else:
        _show(made)


async def _prepare(loom: Loom, asked: dict[str, Any]) -> Context:
    configured_model = loom.configuration.model if loom.configuration else None
    manager = TaskContextManager(
        token_counter=TokenCounter(asked["model"] or configured_model),
        sources=[
            MemoryContextSource(memory=LoomMemory(loom)),
            EventBusContextSource(event_bus=loom.bus, node_id=asked["node"] or loom.scope.agent),
        ],
        max_tokens=asked["max_tokens"],
        system_prompt=asked["system"],
        knowledge_base=loom.knowledge if asked["knowledge"] else None,
    )
    return await manager.prepare(_find_task(loom, asked))


def _find_task(loom: Loom, asked: dict[str, Any]) -> Task:
    text, task_id = asked["text"], asked["task_id"]
    if task_id is None:
        said = read_text(text, "ask for")
        return Task(action="execute", parameters={"content": said}, session_id=asked["label"])
    if text is not None:
        raise ChoiceError("give TEXT or --id, not both")
    entry = loom.task(task_id)
    if entry is None:
        raise ChoiceError(f"there is no task {shorten(task_id)!r}; loom task add adds one")
    return entry.task


def _read_parameters(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        found = from_json(given)
    except ValueError as error:
        raise ChoiceError(f"--parameters is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ChoiceError("--parameters must be a JSON object")
    return found


def _show(made: Context) -> None:
    """The messages for a person, and what they take."""
    for message in list_messages(made):
        say(style(message["role"], bold=True))
        words = message["content"]
        if not words:
            words = ", ".join(call["function"]["name"] for call in message.get("tool_calls", ()))
        for line in words.splitlines():
            for part in wrap_lines(clean(line), width() - 2):
                say(f"  {part}")
    report = made.report
    left_out = f", {plural(report.dropped, 'message')} left out" if report.dropped else ""
    say_dim(f"{plural(report.input_tokens, 'token')} of {report.window:,}{left_out}", indent=0)
    for note in report.notes:
        say_dim(note, indent=0)
