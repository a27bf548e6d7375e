"""`loom rules`: what the files of a project tell a model, and which operations they allow."""

import sys
from pathlib import Path
from typing import Any

import click

from loom.cli.groups import Group
from loom.cli.table import print_table
from loom.cli.terminal import clean, dim, note, say, say_dim, style
from loom.context import check_options
from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation
from loom.engine.sources import RulesPreview, preview_rules

PLACES = ".loom.toml, LOOM.md, AGENTS.md, CLAUDE.md, COPILOT.md, CURSOR.md, CONTRIBUTING.md"


@click.group(cls=Group)
def rules() -> None:
    """Show the rules that the files of a project have for a model."""


def _add_project(command: Any) -> Any:
    return click.option(
        "--project",
        type=click.Path(path_type=Path),
        default=".",
        metavar="PATH",
        help="Folder of the project (default: the current folder).",
    )(command)


@rules.command("show")
@_add_project
@click.option(
    "--for",
    "touched",
    multiple=True,
    metavar="PATH",
    help="File or folder of the project to work on: show the rules of its folders too "
    "(repeatable).",
)
@click.option("--model", metavar="NAME", help="Model to count tokens for.")
@click.option("--window", type=int, metavar="TOKENS", help="Size of the whole window.")
@click.option("--policy", default="default", metavar="NAME", help="Policy with the zones.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
def show_rules(
    project: Path,
    touched: tuple[str, ...],
    model: str | None,
    window: int | None,
    policy: str,
    as_json: bool,
) -> None:
    """Show the rules that a request would get.

    It names the file of each rule, and says what is left out and why.
    """
    options = check_options(model=model, window=window, policy=policy)
    found = preview_rules(options, Conversation(messages=()), project, touched)
    if as_json:
        say(to_json(_to_json(found)))
        return
    if not found.rules.sources and not found.notes:
        say(f"{clean(found.rules.folder)} has no rules")
        say_dim(f"looked for {PLACES}")
        return
    _print_pieces(found)
    _print_operations(found)
    for zone in found.zones:
        if zone.written.text:
            say()
            say(dim(f"zone {zone.name}, as the model reads it:"))
            for line in zone.written.text.split("\n"):
                say(clean(line.replace("\t", "    ")))
    if found.notes:
        say()
    for text in found.notes:
        note(text)


def _print_pieces(found: RulesPreview) -> None:
    """A line for each piece: its heading, its file, its zone and its tokens."""
    rows = [
        [
            each.piece.heading.lstrip("# "),
            each.piece.path,
            zone.name,
            f"{each.tokens:,}",
            f"{each.full_tokens:,}",
        ]
        for zone in found.zones
        for each in zone.written.pieces
    ]
    if rows:
        print_table(["rules", "file", "zone", "tokens", "of"], rows, cut=1, right=(3, 4))
    for zone in found.zones:
        used = f"{zone.written.tokens:,} of {zone.tokens:,} tokens"
        say_dim(f"{zone.name}: {used}", indent=0)


def _print_operations(found: RulesPreview) -> None:
    for rules in (*found.rules.above, found.rules):
        for title, colour, patterns in (
            ("allowed", "green", rules.allowed),
            ("denied", "red", rules.denied),
        ):
            for category, names in patterns.items():
                say(f"{style(title, fg=colour)} {clean(category)}: {clean(', '.join(names))}")


def _to_json(found: RulesPreview) -> dict[str, Any]:
    rules = found.rules
    return {
        "folder": rules.folder,
        "zones": {
            zone.name: {
                "room": zone.tokens,
                "tokens": zone.written.tokens,
                "text": zone.written.text,
                "pieces": [
                    {
                        "heading": each.piece.heading,
                        "file": each.piece.path,
                        "tokens": each.tokens,
                        "of": each.full_tokens,
                        "left_out": each.left_out,
                    }
                    for each in zone.written.pieces
                ],
            }
            for zone in found.zones
        },
        "files": [
            {"path": source.file.path, "bytes": source.file.size, "problem": source.file.problem}
            for source in rules.sources
        ],
        "allowed": rules.allowed,
        "denied": rules.denied,
        "above": [
            {"folder": each.folder, "allowed": each.allowed, "denied": each.denied}
            for each in rules.above
        ],
        "notes": found.notes,
    }


@rules.command("check")
@_add_project
@click.argument("category")
@click.argument("operation")
def check_operation(project: Path, category: str, operation: str) -> None:
    """Say whether LOOM.md allows an operation.

    CATEGORY is one of LOOM.md, such as shell. OPERATION is a command, a path or anything else that
    its patterns name. The exit status is 1 if it is not allowed.
    """
    from loom.project.rules.project_rules import ProjectRules

    verdict = ProjectRules.load(project).judge(category, operation)
    if verdict.is_allowed:
        say(f"{style('allowed', fg='green', bold=True)}: {clean(verdict.why)}")
        return
    say(f"{style('denied', fg='red', bold=True)}: {clean(verdict.why)}")
    sys.exit(1)
