"""`loom session options`: what a session remembers for its requests."""

from pathlib import Path
from typing import Any, cast

import click
from msgspec import to_builtins

from loom.cli.store.where import in_store
from loom.cli.terminal import clean, dim, say
from loom.config.settings import load_policy
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.engine.remembered import SetOptions
from loom.engine.sessions import Session
from loom.errors import ChoiceError

NAMES = ("policy", "model", "window", "reserve", "zones", "folder")
_FIELDS = {"reserve": "reserve_output", "folder": "project"}  # where the library has another name


@click.command("options")
@click.argument("name", metavar="ID")
@click.option("--policy", metavar="NAME", help="Policy name or TOML file (see `loom policy list`).")
@click.option("--model", metavar="NAME", help="Model that gets the requests.")
@click.option("--window", type=int, metavar="TOKENS", help="Size of the whole window.")
@click.option(
    "--reserve", type=int, metavar="TOKENS", help="Part of the window reserved for the answer."
)
@click.option(
    "--zone",
    "zones",
    metavar="NAME=TOKENS",
    multiple=True,
    help="Size of a zone (repeatable). Together they replace those that the session remembers.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Folder of code: a map of it goes into the requests.",
)
@click.option(
    "--forget",
    type=click.Choice(["all", *NAMES]),
    multiple=True,
    help="Forget this option (repeatable).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the options as a JSON object.")
@in_store()
def options(
    loom: Loom,
    name: str,
    zones: tuple[str, ...],
    forget: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Show or change what a session remembers for its requests.

    A request that names a value is made with that value, and the session remembers it. A request
    that does not name it is made with what the session remembers, then with what is configured.
    """
    found = loom.session(name)
    named = {option: value for option, value in given.items() if value is not None}
    if zones:
        named["zones"] = dict(_parse_zone(each) for each in zones)
    if "policy" in named:
        named["policy"] = load_policy(named["policy"], Path.cwd())
    dropped = NAMES if "all" in forget else forget
    both = [option for option in dropped if option in named]
    if both and "all" not in forget:
        raise ChoiceError(f"--forget {both[0]} and --{both[0]} contradict each other; give one")
    changes = {**dict.fromkeys(dropped), **named}
    if changes:
        fields = {_FIELDS.get(option, option): value for option, value in changes.items()}
        found.set_options(**cast("SetOptions", fields))
    report = list_options(found)
    if as_json:
        say(to_json({"session": found.id, **report}))
        return
    for option, value in report.items():
        say(f"{dim(f'{option:<8}')} {format_option(value)}")


def _parse_zone(given: str) -> tuple[str, int]:
    name, mark, tokens = given.partition("=")
    if not mark or not tokens.strip().isdecimal():
        raise ChoiceError(f"--zone {given}: give NAME=TOKENS, such as --zone rules=1000")
    return name.strip(), int(tokens[:20])


def list_options(found: Session) -> dict[str, Any]:
    """What a session remembers, by the names of the options of commands."""
    remembered = found.remembered_options
    try:
        policy = found.policy.name
    except ChoiceError:  # it was stored by another version
        policy = "(cannot be used)"
    return {
        "policy": policy,
        "model": remembered.model,
        "window": remembered.window,
        "reserve": remembered.reserve_output,
        "zones": to_builtins(remembered.zones),
        "folder": remembered.project,
    }


def format_option(value: Any) -> str:
    """A value of an option as people read it."""
    if value is None:
        return dim("not set")
    if isinstance(value, dict):
        return clean(", ".join(f"{zone} {tokens:,}" for zone, tokens in value.items())) or "none"
    return clean(f"{value:,}" if isinstance(value, int) else value)
