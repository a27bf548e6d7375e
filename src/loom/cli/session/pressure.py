"""`loom session summary` and `loom session undo`: what tells of a long session in a few words, and
the way back from an epoch.
"""

import click

from loom.cli.store.where import in_store
from loom.cli.terminal import clean, dim, say
from loom.cli.text_input import read_text
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.errors import ChoiceError


@click.command("summary")
@click.argument("name", metavar="ID")
@click.option(
    "--set",
    "text",
    metavar="TEXT",
    help="Use this text as the summary of all messages except the last ones; - is standard input.",
)
@click.option("--clear", is_flag=True, help="Stop using summaries of this session.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@in_store()
def summary(loom: Loom, name: str, text: str | None, clear: bool, as_json: bool) -> None:
    """Show or write the summary of a session.

    Requests use the summary when not all messages fit. The messages stay in the store.
    """
    if clear and text is not None:
        raise ChoiceError(
            "--clear removes the summary, and --set writes one; give only one of them"
        )
    session = loom.session(name)
    if clear or text is not None:
        session.set_summary("" if clear else read_text(text, "summarize"))
    told = session.summary
    if as_json:
        say(to_json({"session": session.id, "summary": told}))
        return
    say(
        clean(told)
        if told
        else dim("no summary; --set TEXT writes one, and with Loom.open(model=…) a model writes it")
    )


@click.command("undo")
@click.argument("name", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@in_store()
def undo(loom: Loom, name: str, as_json: bool) -> None:
    """Undo the last epoch of a session.

    An epoch is a series of requests that only grow at their end.
    The next request continues the epoch before the last, if it still fits. Summaries made since
    then are not used.
    """
    session = loom.session(name)
    number = session.undo()
    say(
        to_json({"session": session.id, "epoch": number})
        if as_json
        else f"the next request continues epoch {number}, if it still fits"
    )
