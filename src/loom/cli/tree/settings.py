"""`loom tree agent` and `loom tree set`: who speaks in trees and may do what, and how trees are
described and cut.
"""

from collections.abc import Mapping
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.cli import terminal
from loom.cli.store.where import in_store
from loom.cli.table import print_table
from loom.cli.terminal import clean, dim, one_line, say, style
from loom.cli.tree.marks import tell
from loom.context import find_policy
from loom.conversation.agents import PERMISSIONS, Agent, Permission
from loom.conversation.canonical import to_json
from loom.conversation.checked import choose, to_snake_case
from loom.conversation.tree import TRUNCATIONS, Preferences, Truncation
from loom.engine.loom import Loom
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError, StoreError, shorten

DEFAULT = "default"  # takes an override back
_GRANTS = click.Choice([*PERMISSIONS, "all"])
_GRANT_NAMES = f"{', '.join(PERMISSIONS)} or all"
_PREFERENCES = Preferences.__struct_fields__
_WIDE = 20

# Agents


@click.command("agent")
@click.argument("name", required=False)
@click.option(
    "--kind", type=click.Choice(["human", "model"]), help="Kind of the agent (default: model)."
)
@click.option(
    "--system",
    "system_prompt",
    metavar="TEXT",
    help="System text of the agent. It comes before the system text of a tree.",
)
@click.option("--model", metavar="NAME", help="Model that answers for the agent.")
@click.option(
    "--window",
    type=click.IntRange(min=0),
    metavar="TOKENS",
    help="Window of the agent; 0 means the window of its model.",
)
@click.option(
    "--allow",
    type=_GRANTS,
    multiple=True,
    metavar="PERMISSION",
    help=f"Grant a permission (repeatable): {_GRANT_NAMES}.",
)
@click.option(
    "--deny",
    type=_GRANTS,
    multiple=True,
    metavar="PERMISSION",
    help="Take a permission away (repeatable).",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the agent, or the list of agents, as JSON."
)
@in_store()
def agent_command(
    loom: Loom,
    name: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    as_json: bool,
    **fields: Any,
) -> None:
    """List agents, show one, or create or change one.

    By default, a human has every permission, and a model may only speak.
    """
    changes = _AgentChanges(_without_none(fields), allow, deny)
    if name is None:
        if changes:
            raise ChoiceError("give the NAME of the agent to create or change")
        _print_agents(loom.agents(), as_json)
    elif not name.strip():
        raise ChoiceError("an agent must have a name; this one is blank")
    elif changes:
        _change_agent(loom, name, changes, as_json)
    else:
        _show_agent(loom, name, as_json)


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {key: value for key, value in given.items() if value is not None}


def _show_agent(loom: Loom, name: str, as_json: bool) -> None:
    found = loom.agent(name)
    if found is None:
        raise ChoiceError(
            f"there is no agent {shorten(name)!r} in project {loom.scope.project!r}; --kind "
            "model creates one"
        )
    _print_agent(found, as_json)


def _change_agent(loom: Loom, name: str, changes: "_AgentChanges", as_json: bool) -> None:
    try:
        before = loom.agent(name)
    except StoreError as error:
        say(f"{error}; it is written again", err=True)
        before = None
    made = changes.apply(before or Agent(name=name))
    loom.keep_agent(made)
    if as_json:
        _print_agent(made, as_json)
    tell(name, f"is {'changed' if before else 'created'}: {_describe_agent(made)}")


class _AgentChanges(Struct, frozen=True):
    """What the options change about an agent: fields, and permissions to grant or remove."""

    fields: dict[str, Any]
    allow: tuple[str, ...]
    deny: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.fields or self.allow or self.deny)

    def apply(self, before: Agent) -> Agent:
        """The agent with all changes at once, in whatever order they were given."""
        if both := sorted(set(self.allow) & set(self.deny)):
            raise ChoiceError(f"{both[0]} is both allowed and denied; give only one of them")
        fields = dict(self.fields)
        if "window" in fields:
            fields["window"] = fields["window"] or None  # 0: the window of the model
        described = replace(before, **fields)
        if not (self.allow or self.deny):
            return described
        granted: set[str] = set() if "all" in self.deny else set(described.granted_permissions)
        granted |= set(PERMISSIONS) if "all" in self.allow else set(self.allow)
        granted -= set(self.deny)
        kept: tuple[Permission, ...] = tuple(each for each in PERMISSIONS if each in granted)
        return replace(described, permissions=kept)


def _describe_agent(agent: Agent) -> str:
    granted = _permissions_of(agent)
    if granted:
        return f"a {agent.kind} with {', '.join(granted)}"
    return f"a {agent.kind} that may only speak"


def _permissions_of(agent: Agent) -> list[str]:
    return [each for each in PERMISSIONS if each in agent.granted_permissions]


def _agent_report(agent: Agent) -> dict[str, Any]:
    return asdict(agent) | {"permissions": _permissions_of(agent)}


def _print_agents(agents: list[Agent], as_json: bool) -> None:
    if as_json:
        say(to_json([_agent_report(agent) for agent in agents]))
        return
    if not agents:
        say("no agents in this project" + dim("; loom tree agent NAME --kind model creates one"))
        return
    rows = [
        (
            a.name,
            a.kind,
            a.model or "–",
            f"{a.window:,}" if a.window else "–",
            " ".join(_permissions_of(a)) or "–",
        )
        for a in agents
    ]
    print_table(("name", "kind", "model", "window", "may use"), rows, cut=4, right=(3,))


def _print_agent(agent: Agent, as_json: bool) -> None:
    if as_json:
        say(to_json(_agent_report(agent)))
        return
    say(f"{style(agent.name, bold=True)}  {agent.kind}")
    window = f"{agent.window:,} tokens" if agent.window else ""
    granted = ", ".join(_permissions_of(agent)) or "nothing"
    for what, value in (
        ("model", agent.model),
        ("window", window),
        ("system", agent.system_prompt),
        ("may use", granted),
    ):
        if value:
            say(
                f"  {dim(f'{what:<{_WIDE}}')} "
                f"{one_line(value, max(terminal.width() - _WIDE - 3, 20))}"
            )


# Trees and preferences


class _PreferenceOptions(Struct, frozen=True):
    """A preference that was given; none if it was not, and `default` where an override is taken
    back.
    """

    strategy: str | None
    recent: str | None
    buffer: str | None

    @property
    def any(self) -> bool:
        return any(value is not None for value in (self.strategy, self.recent, self.buffer))

    def over(self, before: Preferences) -> Preferences:
        return Preferences(
            before.truncation_strategy if self.strategy is None else _strategy(self.strategy),
            before.minimum_recent_nodes
            if self.recent is None
            else _number("--minimum-recent-nodes", self.recent, 1),
            before.token_buffer
            if self.buffer is None
            else _number("--token-buffer", self.buffer, 0),
        )


def _strategy(given: str) -> Truncation | None:
    """A strategy as it is called here, or in camel case as others call it."""
    if given == DEFAULT:
        return None
    return choose(f"--truncation-strategy ({DEFAULT} removes it)", given, TRUNCATIONS)


def _option_name(given: str) -> str:
    """The name of an option, also where it is written in camel case: `--minimumRecentNodes`."""
    return to_snake_case(given).replace("_", "-")


def _number(option: str, given: str, least: int) -> int | None:
    if given == DEFAULT:
        return None
    if not (
        given.isascii() and given.isdecimal() and least <= int(given[:12]) and len(given) <= 12
    ):
        raise ChoiceError(
            f"{option} takes a number of at least {least}, or {DEFAULT}; found {shorten(given)!r}"
        )
    return int(given)


@click.command("set", context_settings={"token_normalize_func": _option_name})
@click.argument("name", metavar="[TREE]", required=False)
@click.option("--title", metavar="TEXT", help="Title of the tree.")
@click.option("--description", metavar="TEXT", help="Description for people. Models do not see it.")
@click.option("--system", metavar="TEXT", help="System text of the tree.")
@click.option(
    "--with-system/--without-system",
    "with_system",
    default=None,
    help="Send the system text of a buffer, or do not.",
)
@click.option("--model", metavar="NAME", help="Model that the tree is for.")
@click.option(
    "--truncation-strategy",
    "strategy",
    metavar="NAME",
    help=f"How a path that is too long is shortened: {', '.join(TRUNCATIONS)}.",
)
@click.option("--minimum-recent-nodes", "recent", metavar="N", help="Always keep the last N nodes.")
@click.option(
    "--token-buffer", "buffer", metavar="N", help="Reserve N tokens of the window for the answer."
)
@click.option("--all-projects", is_flag=True, help="Set preferences for all projects.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the settings, and where each preference comes from, as JSON.",
)
@in_store()
def set_command(
    loom: Loom, name: str | None, all_projects: bool, as_json: bool, **options: Any
) -> None:
    """Describe a tree, or set how a long tree is shortened.

    The three preferences (--truncation-strategy, --minimum-recent-nodes and --token-buffer) apply
    to TREE.
    Without TREE, they apply to all trees of the project; with --all-projects, to all trees of all
    projects.
    The setting of a tree comes first, then the setting of its project, then that of --all-projects.
    The value `default` removes a preference.

    Without options, the command shows the current settings and where each comes from.
    """
    wanted = _PreferenceOptions(*(options.pop(each) for each in ("strategy", "recent", "buffer")))
    given = _without_none(options)
    if name is not None:
        if all_projects:
            raise ChoiceError("--all-projects sets the preferences of all projects; omit TREE")
        _set_tree(loom.tree(name), given, wanted)
    elif given:
        option = next(iter(given)).replace("_", "-")
        raise ChoiceError(f"--{option} describes one tree; give TREE")
    elif wanted.any:
        _prefer(loom, wanted, all_projects)
    if as_json or not (given or wanted.any):
        _print_set(loom, loom.tree(name) if name is not None else None, as_json)


def _set_tree(tree: LoomTree, given: Mapping[str, Any], wanted: _PreferenceOptions) -> None:
    if "with_system" in given and tree.head.mode == "dialogue":
        raise ChoiceError(
            f"tree {tree.id} is a dialogue, which always sends its system text; --with-system "
            "works only with buffers"
        )
    if given or wanted.any:
        tree.change(
            title=given.get("title"),
            description=given.get("description"),
            system_context=given.get("system"),
            buffer_mode_system_context=given.get("with_system"),
            preferences=wanted.over(tree.head.preferences) if wanted.any else None,
            model=given.get("model"),
        )
        tell(tree.id, "is set")


def _prefer(loom: Loom, wanted: _PreferenceOptions, all_projects: bool) -> None:
    if all_projects:
        held = loom.app_preferences
    else:
        held = loom.store.settings.preferences(loom.scope)
    loom.prefer(wanted.over(held), all_projects=all_projects)
    where = "all projects"
    if not all_projects:
        where = f"project {clean(loom.scope.project)}"
    say(f"set for all trees of {where} that have no setting of their own", err=True)


def _print_set(loom: Loom, tree: LoomTree | None, as_json: bool) -> None:
    held = {
        name: {"value": value, "from": whose}
        for name, (value, whose) in _preferences(loom, tree).items()
    }
    if as_json:
        say(to_json((_describe_tree(tree) if tree else {}) | {"preferences": held}))
        return
    if tree is not None:
        _print_description(tree)
    for what, each in held.items():
        _print_line(what.replace("_", " "), str(each["value"]), str(each["from"]))


def _describe_tree(tree: LoomTree) -> dict[str, Any]:
    head = tree.head
    return {
        "tree": tree.id,
        "title": tree.title,
        "mode": head.mode,
        "description": head.description,
        "system": head.system_context,
        "with_system": head.mode == "dialogue" or head.buffer_mode_system_context,
        "model": head.model,
    }


def _print_description(tree: LoomTree) -> None:
    room = max(terminal.width() - _WIDE - 5, 20)
    title = one_line(tree.title or "(no title)", room)
    say(f"{style(title, bold=True)}  {style(tree.id, fg='blue')}")
    head = tree.head
    _print_line("mode", head.mode)
    if head.description:
        _print_line("description", one_line(head.description, room))
    if head.system_context:
        _print_line("system", one_line(head.system_context, room))
    if head.mode == "buffer":
        _print_line("with system", "yes" if head.buffer_mode_system_context else "no")
    if head.model:
        _print_line("model", one_line(head.model, room))


def _print_line(what: str, value: str, whose: str = "") -> None:
    say(f"  {dim(f'{what:<{_WIDE}}')}  {clean(value)}{dim(f'  ({whose})') if whose else ''}")


def _preferences(loom: Loom, tree: LoomTree | None) -> dict[str, tuple[str | int, str]]:
    """What holds of each preference, and who says so."""
    usual = find_policy("tree")
    defaults = (usual.strategy, usual.minimum_recent_nodes, usual.reserve)
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (DEFAULT, dict(zip(_PREFERENCES, defaults, strict=True))),
        ("all projects", asdict(loom.app_preferences)),
        ("project", asdict(loom.store.settings.preferences(loom.scope))),
    ]
    if tree:
        layers.append(("tree", asdict(tree.head.preferences)))
    return {
        name: (value, whose)
        for whose, layer in layers
        for name, value in layer.items()
        if value is not None
    }
