"""`loom demo`: a broken transcript repaired, a long session in a shrinking window, one kept, one
that branches, a map, and an agent at work.
"""

import asyncio
import sys
import time
from collections import Counter
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from loom.cli import terminal
from loom.cli.demo.agent import work
from loom.cli.demo.long_session import GOAL, long_session
from loom.cli.demo.tree import branch, wander
from loom.cli.request.map import print_map
from loom.cli.request.weave import find_stretches
from loom.cli.terminal import bar, dim, plural, say, style
from loom.cli.transcript.check import RunCheck, check_run, print_checked
from loom.cli.transcript.convert import tell_change
from loom.cli.transcript.show import print_message
from loom.context import Context, weave
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Message
from loom.dialects import WIRES, dialect
from loom.dialects.repair import repair
from loom.engine.loom import Loom
from loom.transcripts.chat import parse_request
from loom.transcripts.runs import make_run

WINDOWS = (128_000, 32_000, 8_000, 2_000)
SESSION_WINDOW = 8_000  # the window of the session that is kept
# On a terminal the window shrinks before the eyes of the reader: so many weavings between two
# steps, two seconds in all.
FRAMES, PAUSE_SECONDS = 10, 0.05
MAP_TOKENS, REQUEST = 160, "the marker for a gap names the wrong window"
TORN = ("unanswered-call", "orphan-result", "duplicate-result")


@click.command()
def demo() -> None:
    """Show what Loom does, on built-in examples.

    The demo repairs a broken transcript, shortens a long one, stores a session, branches a
    conversation, maps Loom's own code, and lets an agent work in a small window.
    """
    failed = _mend() + _shrink() + _keep() + _branch() + _map() + _work()
    say()
    say(dim("Nothing was sent anywhere. Try it on a session of yours: loom session import FILE"))
    if failed:
        raise SystemExit(1)


def _mend() -> int:
    """The first act; returns how many errors are left, which is none."""
    wire, conversation = parse_request(
        from_json(resources.files("loom.cli.demo").joinpath("data/broken.json").read_bytes())
    )
    run = make_run(0, "OpenAI chat JSON", wire, conversation)
    columns = terminal.width()

    _step(1, "A transcript, as a crashed agent left it", "loom show broken.json")
    for message in (*conversation.system, *conversation.messages):
        print_message(message, columns, full=False)

    _step(2, "The errors in it", "loom check broken.json")
    print_checked(check_run(run, WIRES[0]))

    _step(
        3, "Repaired, and each change reported", "loom convert broken.json --to anthropic --repair"
    )
    mended = repair(conversation)
    for change in mended.changes:
        tell_change(change, len(conversation.system))
    say()
    for message in (*mended.conversation.system, *mended.conversation.messages):
        print_message(message, columns, full=False)

    _step(4, "Every provider accepts it now", "loom check mended.json")
    failed = 0
    for target in WIRES:
        checked: RunCheck = check_run(
            make_run(0, "mended", target.name, mended.conversation), target
        )
        failed += checked.errors
        if checked.errors:
            verdict = style("✗ " + plural(checked.errors, "error"), fg="red")
        else:
            verdict = style("✓ no errors", fg="green")
        say(f"  {target.title:<26} {verdict}")
    say()
    say(dim("No word of the user or the model was changed."))
    return failed


def _shrink() -> int:
    """The second act; returns how many promises were broken, which is none."""
    session = long_session()
    whole_tokens = weave(session, window=WINDOWS[0]).report.input_tokens
    columns = max(4, min(terminal.width() - 63, 40))
    live = sys.stdout.isatty() and terminal.width() >= 67  # a line that wraps cannot be drawn over
    size = f"{plural(len(session.messages), 'message')}, {whole_tokens:,} tokens"
    _step(5, "A long session, and a window that shrinks", "loom weave session.json --window N")
    say(f"  {size}: {dim(terminal.one_line(GOAL, terminal.width() - len(size) - 4))}\n")
    say(
        dim(
            f"  {'window':>8} {'tokens':>8}  {'':<{columns}}  {'kept':>5} {'shrunk':>6} "
            f"{'left out':>8}  "
            "torn pairs  goal"
        )
    )
    failed = 0
    context = weave(session, window=WINDOWS[0])
    for before, window in zip((WINDOWS[0], *WINDOWS), WINDOWS, strict=False):
        for frame in range(FRAMES if live else 0):
            between = round(before * (window / before) ** (frame / FRAMES))
            click.echo(
                "\r" + _line(weave(session, window=between), whole_tokens, columns)[0],
                nl=False,
                color=terminal.wants_colour(),
            )
            time.sleep(PAUSE_SECONDS)
        context = weave(session, window=window)
        line, broken = _line(context, whole_tokens, columns)
        failed += broken
        say(("\r" if live else "") + line)

    gap = next(item for item in context.report.items if item.is_left_out)
    [handle] = gap.handles
    _step(
        6,
        "Nothing is gone: what was left out comes back by its handle",
        f"context.recall('{handle}')",
    )
    recalled = [
        msgspec.json.decode(line, type=Message) for line in context.recall(handle).splitlines()
    ]
    for message in recalled[:4]:
        print_message(message, terminal.width(), full=False)
    start = session.messages.index(recalled[0])
    same = tuple(recalled) == session.messages[start : start + len(recalled)]
    if same:
        verdict = style("✓ the same as the original", fg="green")
    else:
        verdict = style("✗ not the original", fg="red")
    say(
        f"{'':>11}{dim(f'and {len(recalled) - 4:,} more messages, {gap.before:,} tokens:')} "
        f"{verdict}"
    )
    return failed + (not same)


def _keep() -> int:
    """The third act; returns how many promises were broken, which is none."""
    conversation = long_session()
    failed = 0

    def tell(what: str, so: bool, promise: str) -> None:
        nonlocal failed
        failed += not so
        say(
            f"  {what:<31} "
            f"{style(f'✓ {promise}', fg='green') if so else style(f'✗ not {promise}', fg='red')}"
        )

    with TemporaryDirectory(prefix="loom-demo-") as folder:
        address = str(Path(folder) / "loom.db")
        with Loom.open(address, fresh_id=lambda: "payments") as loom:
            session = loom.new(
                "Charged twice",
                model=conversation.model,
                system=conversation.system[0].text,
                tools=conversation.tools,
            )
            session.append(*conversation.messages)
            before = asyncio.run(session.prepare(window=SESSION_WINDOW))
            kept = loom.store.database.size()
        _step(7, "Stored in a file, closed and opened again", "loom weave --session payments")
        size = f"{plural(len(conversation.messages), 'message')} in {terminal.amount(kept)}B"
        sent = f"{before.report.input_tokens:,} tokens are sent"
        say(f"  {size}; {sent} with a window of {SESSION_WINDOW:,}\n")
        with Loom.open(address) as loom:
            session = loom.session("payments")
            after = asyncio.run(session.prepare(window=SESSION_WINDOW))
            tell(
                "the request after the restart",
                to_json(after.openai()) == to_json(before.openai()),
                "the same, byte for byte",
            )
            [handle] = next(item.handles for item in before.report.items if item.is_left_out)
            recalled = tuple(
                msgspec.json.decode(line, type=Message) for line in loom.recall(handle).splitlines()
            )
            same = recalled == conversation.messages[1 : 1 + len(recalled)]
            tell(
                f"loom recall {handle}",
                same,
                f"{plural(len(recalled), 'message')}, the same as the original",
            )
            grow_tree = asyncio.run(
                session.prepare("Thank you. Write a line for the changelog.", window=SESSION_WINDOW)
            ).openai()["messages"]
            tell(
                "the next request",
                grow_tree[:-1] == after.openai()["messages"],
                "the last one plus what is new",
            )
            branch = session.fork(at=session.path[0].id)
            shared = [node.message for node in branch.path] == [conversation.messages[0]]
            tell("loom session fork payments", shared, "the same beginning, and nothing copied")
    return failed


def _branch() -> int:
    """The fourth act; returns how many promises were broken, which is none."""
    with Loom.open(":memory:") as loom:
        _step(8, "A conversation that branches", "loom tree show retries")
        branch(loom)
        _step(9, "An agent works in it", "loom tree do retries '→ …' --agent reviewer")
        return wander(loom)


def _map() -> int:
    """The fifth act; returns how many promises were broken, which is none."""
    from loom.project.maps import project_map  # here, because grammars and numpy take long to load

    _step(
        10,
        "A map of the code that a request will touch",
        f"loom map src/loom --tokens {MAP_TOKENS} --query '{REQUEST}'",
    )
    with (
        TemporaryDirectory(prefix="loom-demo-") as folder,
        resources.as_file(resources.files("loom")) as code,
    ):
        made = project_map(
            code, REQUEST, tokens=MAP_TOKENS, cache=Path(folder), progress=terminal.reading()
        )
    print_map(made)
    return made.tokens > MAP_TOKENS


def _line(context: Context, whole_tokens: int, columns: int) -> tuple[str, int]:
    """One weaving on one line, and how many promises it broke, judged by the rules of the wire."""
    report = context.report
    done: Counter[str] = Counter()
    for stretch in find_stretches(report):
        done[stretch.action] += stretch.messages
    torn = sum(finding.rule in TORN for finding in dialect("openai").check(context.openai()))
    goal = any(GOAL in message.text for message in context.conversation.messages)
    drawn = bar(report.input_tokens / whole_tokens, columns)
    line = (
        f"  {report.window:>8,} {report.input_tokens:>8,}  "
        f"{style(f'{drawn:<{columns}}', fg='blue')}  "
        f"{done['kept']:>5,} {done['shrunk']:>6,} {done['dropped'] + done['covered']:>8,}  "
        f"{torn:>10}  "
        f"{style('kept', fg='green') if goal else style('lost', fg='red')}"
    )
    return line, torn + (not goal)


def _work() -> int:
    """The sixth act; returns how many promises were broken, which is none."""
    with Loom.open(":memory:") as loom:
        _step(11, "An agent that reads more than its window holds", "loom run TASK")
        return work(loom)


def _step(number: int, title: str, command: str) -> None:
    say(
        f"\n{style(f' {number} ', bg='blue', fg='white', bold=True)} {style(title, bold=True)}  "
        f"{dim('$ ' + command)}\n"
    )
