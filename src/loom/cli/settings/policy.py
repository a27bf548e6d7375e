"""`loom policy`: the policies that ship, as the data they are."""

import click
from msgspec import to_builtins

from loom.cli.groups import Group
from loom.cli.terminal import dim, say, style, width, wrap_lines
from loom.context import find_policy, policies, policy_text
from loom.conversation.canonical import to_json


@click.group(cls=Group)
def policy() -> None:
    """List or show policies: the rules for what goes into a request."""


@policy.command("list")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the name and the description of each policy as JSON.",
)
def list_policies(as_json: bool) -> None:
    """List all policies, with a description of each."""
    if as_json:
        say(
            to_json(
                [
                    {"name": one.name, "about": one.about, "strategy": one.strategy_name}
                    for one in policies().values()
                ]
            )
        )
        return
    for one in policies().values():
        say(f"{style(one.name, bold=True)} {dim(one.strategy_name)}")
        for line in wrap_lines(one.about, width() - 2):
            say(f"  {line}")


@policy.command("show")
@click.argument("name")
@click.option(
    "--json", "as_json", is_flag=True, help="Print every field as JSON, including the defaults."
)
def show_policy(name: str, as_json: bool) -> None:
    """Show a policy as TOML."""
    say(to_json(to_builtins(find_policy(name))) if as_json else policy_text(name).rstrip())
