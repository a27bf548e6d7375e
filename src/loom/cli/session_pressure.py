"""`loom session summary` and `loom session undo`: what tells of a long session in a few words, and the way back from an epoch."""

import click

from loom.cli.given import given_text
from loom.cli.store import in_store
from loom.cli.terminal import clean, dim, say
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.errors import ChoiceError


@click.command("summary")
@click.argument("name", metavar="ID")
@click.option("--set", "text", metavar="TEXT", help="Let these words stand for all but the last messages; - is standard input.")
@click.option("--clear", is_flag=True, help="Let no summary stand any more.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@in_store()
def summary(loom: Loom, name: str, text: str | None, clear: bool, as_json: bool) -> None:
    """Show what summaries tell of a session, or write one.

    A summary stands in the requests of a session once there is no room for all of it. What it tells of stays in the store.
    """
    if clear and text is not None:
        raise ChoiceError("--clear lets no summary stand, and --set writes one; give one of them")
    session = loom.session(name)
    if clear or text is not None:
        session.set_summary("" if clear else given_text(text, "sum up"))
    told = session.summary
    if as_json:
        say(to_json({"session": session.id, "summary": told}))
        return
    say(clean(told) if told else dim("no summary; --set TEXT writes one, and Loom.open(model=…) lets a model do it"))


@click.command("undo")
@click.argument("name", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@in_store()
def undo(loom: Loom, name: str, as_json: bool) -> None:
    """Take the last epoch of a session back.

    The one before it goes on with the next request, where that still fits, and summaries that were made since do not stand.
    """
    session = loom.session(name)
    number = session.undo()
    say(to_json({"session": session.id, "epoch": number}) if as_json else f"epoch {number} is the one before the last again")
