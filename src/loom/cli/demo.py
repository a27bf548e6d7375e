"""`loom demo`: a broken transcript, what is wrong with it, and the mended one. No key, no network."""

from importlib import resources

import click

from loom.cli import terminal
from loom.cli.check import Checked, check_run, print_checked
from loom.cli.convert import tell_change
from loom.cli.show import print_message
from loom.cli.terminal import dim, plural, say, style
from loom.conversation.canonical import from_json
from loom.dialects import WIRES
from loom.dialects.repair import repair
from loom.transcripts.chat import parse_request
from loom.transcripts.runs import whole


@click.command()
def demo() -> None:
    """Show Loom at work on a broken transcript."""
    wire, conversation = parse_request(from_json(resources.files("loom.cli").joinpath("data/broken.json").read_bytes()))
    run = whole(0, "OpenAI chat JSON", wire, conversation)
    columns = terminal.width()

    _step(1, "A transcript, as a crashed agent left it", "loom show broken.json")
    for message in (*conversation.system, *conversation.messages):
        print_message(message, columns, full=False)

    _step(2, "What is wrong with it", "loom check broken.json")
    print_checked(check_run(run, WIRES[0]))

    _step(3, "Mended, each change told", "loom convert broken.json --to anthropic --repair")
    mended = repair(conversation)
    for change in mended.changes:
        tell_change(change, len(conversation.system))
    say()
    for message in (*mended.conversation.system, *mended.conversation.messages):
        print_message(message, columns, full=False)

    _step(4, "Every provider accepts it now", "loom check mended.json")
    failed = 0
    for target in WIRES:
        checked: Checked = check_run(whole(0, "mended", target.name, mended.conversation), target)
        failed += checked.errors
        verdict = style("✗ " + plural(checked.errors, "error"), fg="red") if checked.errors else style("✓ no errors", fg="green")
        say(f"  {target.title:<26} {verdict}")
    say(dim("\nNo word of the user or the model was changed, and nothing was sent anywhere."))
    if failed:
        raise SystemExit(1)


def _step(number: int, title: str, command: str) -> None:
    say(f"\n{style(f' {number} ', bg='blue', fg='white', bold=True)} {style(title, bold=True)}  {dim('$ ' + command)}\n")
