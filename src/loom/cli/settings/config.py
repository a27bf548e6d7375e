"""`loom config show` and `loom init`: what is configured and where, and a file to begin with."""

import os
import re
from pathlib import Path
from typing import Any

import click

from loom.cli.groups import Group
from loom.cli.terminal import clean, dim, say, style
from loom.config.keys import KEYS, RULES, ZONE_KEYS
from loom.config.project_file import PROJECT_FILE, read_project_file
from loom.config.settings import Configuration, Setting, resolve_configuration
from loom.conversation.canonical import to_json
from loom.errors import ChoiceError, shorten

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")
MAX_SHOWN_CHARS = 60  # of a value


@click.group(cls=Group)
def config() -> None:
    """Show what is configured in a folder, and where.

    From the weakest to the strongest: defaults, the project's .loom.toml, your own file,
    environment variables, options of the command.
    """


@config.command()
@click.option(
    "--project",
    metavar="PATH",
    default=".",
    type=click.Path(path_type=Path),
    help="Folder of the project (default: the current folder).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the files and the values as JSON.")
def show(project: Path, as_json: bool) -> None:
    """Show each value and where it comes from, and the values that lost."""
    if not project.is_dir():
        raise ChoiceError(f"{project} is not a folder; give the folder of a project")
    found = resolve_configuration(project)
    if as_json:
        say(to_json(_to_report(found)))
        return
    _print_files(found)
    width = max(len(name) for name in found.values)
    for setting in found.values.values():
        _print_setting(setting, width)
    for name, value in found.project.rules.items():
        where = dim(clean(found.project.place(RULES, name)))
        say(f"{f'{RULES}.{clean(name)}':<{width}}  {_format_value(value)}  {where}")


def _print_files(found: Configuration) -> None:
    path = found.project.file.path if found.project.file else None
    said = clean(str(path)) if path else f"no {PROJECT_FILE} in {clean(str(found.project.root))}"
    say(f"{dim('project')}  {said}")
    there = "" if found.user_file.is_file() else " (not there)"
    say(f"{dim('user   ')}  {clean(str(found.user_file))}{there}")
    say()


def _print_setting(setting: Setting, width: int) -> None:
    name = f"{setting.key.name:<{width}}"
    if not setting.origin:
        say(f"{name}  {dim(f'{setting.key.otherwise} (default)')}")
        return
    value = style(_format_value(setting.value), bold=True)
    say(f"{name}  {value}  {dim(clean(setting.origin))}")
    for lost in setting.lost:
        gap = " " * width
        say(dim(f"{gap}  {_format_value(lost.value)}  {clean(lost.origin)}, not used"))


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)
    return clean(shorten(_hide_password(text), MAX_SHOWN_CHARS))


def _hide_password(value: Any) -> Any:
    return _PASSWORD.sub(r"\1:…", value) if isinstance(value, str) else value


def _to_report(found: Configuration) -> dict[str, Any]:
    return {
        "project": str(found.project.file.path) if found.project.file else None,
        "user": str(found.user_file) if found.user_file.is_file() else None,
        "values": [
            {
                "key": setting.key.name,
                "value": _hide_password(setting.value),
                "origin": setting.origin or "default",
                "default": setting.key.otherwise,
                "variable": setting.key.variable,
                "lost": [
                    {"value": _hide_password(lost.value), "origin": lost.origin}
                    for lost in setting.lost
                ],
            }
            for setting in found.values.values()
        ],
        RULES: {
            name: {"value": value, "origin": found.project.place(RULES, name)}
            for name, value in found.project.rules.items()
        },
    }


@click.command()
@click.argument("path", metavar="[PATH]", default=".", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help=f"Replace a {PROJECT_FILE} that is there.")
@click.option("--json", "as_json", is_flag=True, help='Print {"file": PATH}.')
def init(path: Path, force: bool, as_json: bool) -> None:
    """Write a .loom.toml with a comment for each key.

    PATH is the folder of the project (default: the current folder). Nothing changes until you
    remove the # before a key.
    """
    if not path.is_dir():
        raise ChoiceError(f"{path} is not a folder; give the folder of a project")
    file = path / PROJECT_FILE
    above = read_project_file(path)
    if force:
        _replace_file(file, example_file())
    else:
        _create_file(file, example_file())
    say(to_json({"file": str(file)}) if as_json else clean(str(file)))
    hides = (above.file is not None or above.problem is not None) and (
        above.root != Path(os.path.realpath(path))
    )
    if hides and not as_json:
        hidden = clean(str(above.root / PROJECT_FILE))
        say(dim(f"{hidden} is no longer read in this folder"), err=True)


def _create_file(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ChoiceError(f"{file} is there already; --force replaces it") from None


def _replace_file(file: Path, text: str) -> None:
    """Replace a file at once. A link is replaced, not what it points to."""
    if file.is_dir() and not file.is_symlink():
        raise ChoiceError(f"{file} is a folder; remove it first")
    other = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        _create_file(other, text)
        other.replace(file)
    finally:
        other.unlink(missing_ok=True)


def example_file() -> str:
    """A project's file in which every key is a comment."""
    lines = [
        "# How Loom works in this project. Remove the # before a key to set it.",
        "# `loom config show` says which value holds, and where it comes from.",
        "",
    ]
    for key in KEYS:
        if key.name == KEYS[1].name:
            lines += ["[context]"]
        lines += [f"# {key.about} Default: {key.otherwise}."]
        lines += [f"#{key.name.rpartition('.')[2]} = {key.example}", ""]
    lines += [
        f"[{ZONE_KEYS}]",
        "# Sizes of other zones, in tokens. Default: as the policy says.",
        "#rules = 2048",
        "#knowledge = 2048",
        "#memory = 2048",
        "",
        f"[{RULES}]",
        "# Rules of the project for the model, each under a name of your own.",
        '#style = "Follow the style of the file that you change"',
        '#testing = "Write a test for every public function"',
        "",
    ]
    return "\n".join(lines)
