"""`loom skills`: the skills of a project, and which of them a request would get."""

from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from loom.budget.counting import gate_counter
from loom.cli.groups import Group
from loom.cli.terminal import clean, dim, note, plural, say, style, width, wrap_lines
from loom.conversation.canonical import to_json
from loom.errors import ChoiceError, shorten
from loom.project.skills.choosing import (
    MAX_ACTIVE,
    ActiveSkill,
    SkillRequest,
    rank_skills,
    write_skill,
)
from loom.project.skills.folders import PROJECT_PLACES, Skill, Skills, find_skills

NO_MATCH = "no: too few words in common"


@click.group(cls=Group)
def skills() -> None:
    """List or show skills: folders with a SKILL.md."""


def _add_places(command: Any) -> Any:
    """Add the options that say where skills are."""
    for option in (
        click.option(
            "--folder",
            "folders",
            multiple=True,
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="One more folder of skills (repeatable).",
        ),
        click.option(
            "--project",
            metavar="PATH",
            default=".",
            type=click.Path(path_type=Path),
            help="Folder of the project (default: the current folder).",
        ),
    ):
        command = option(command)
    return command


@skills.command("list")
@_add_places
@click.option(
    "--for", "request", metavar="TEXT", help="Show which skills a request with this text gets."
)
@click.option("--json", "as_json", is_flag=True, help="Print the skills as one JSON object.")
def list_skills(
    project: Path, folders: tuple[Path, ...], request: str | None, as_json: bool
) -> None:
    """List skills, and what is wrong in their files.

    These are the skills of a project, your own, and those of --folder.
    """
    found = _find(project, folders)
    ranked = rank_skills(SkillRequest(skills=found, question=request or ""))
    reasons = _explain(found, ranked)
    rows = [_describe(skill, reasons[skill.name] if request else None) for skill in found.found]
    if as_json:
        say(to_json({"skills": rows, "problems": found.notes}))
        return
    for row in rows:
        _print_skill(row)
    if not rows:
        places = ", ".join(PROJECT_PLACES)
        say(dim(f"no skills; put a folder with a SKILL.md into one of {places}"))
    for text in found.notes:
        note(text)


def _find(project: Path, folders: tuple[Path, ...]) -> Skills:
    if not project.is_dir():
        raise ChoiceError(f"{shorten(str(project), 200)} is not a folder")
    return find_skills(project, folders)


def _explain(found: Skills, ranked: list[ActiveSkill]) -> dict[str, str]:
    """For each skill, whether a request gets it, and why."""
    reasons = {skill.name: NO_MATCH for skill in found.found}
    for n, each in enumerate(ranked):
        if n < MAX_ACTIVE or each.is_in_use:
            reasons[each.skill.name] = f"yes: {each.why}"
        else:
            reasons[each.skill.name] = f"no: {each.why}, but {MAX_ACTIVE} others come first"
    return reasons


def _describe(skill: Skill, match: str | None) -> dict[str, Any]:
    count = gate_counter(None).count_text
    row = {
        "name": skill.name,
        "description": skill.description,
        "when_to_use": skill.when_to_use,
        "file": skill.file,
        "tokens": count(write_skill(skill, None, count)),
        "only_by_name": skill.is_manual,
    }
    if match is not None:
        row["match"] = match
    return row


def _print_skill(row: dict[str, Any]) -> None:
    by_name = ", only by its name" if row["only_by_name"] else ""
    about = f"{plural(row['tokens'], 'token')}{by_name}, {row['file']}"
    say(f"{style(clean(row['name']), bold=True)} {dim(clean(about))}")
    for line in wrap_lines(clean(row["description"]), width() - 2):
        say(f"  {line}")
    if row["when_to_use"]:
        for line in wrap_lines(f"When: {clean(row['when_to_use'])}", width() - 2):
            say(f"  {line}")
    if "match" in row:
        colour = "green" if row["match"].startswith("yes") else None
        say(f"  {style(clean(row['match']), fg=colour)}")


@skills.command("show")
@click.argument("name")
@_add_places
@click.option("--json", "as_json", is_flag=True, help="Print every field as JSON.")
def show_skill(name: str, project: Path, folders: tuple[Path, ...], as_json: bool) -> None:
    """Show a skill as a model reads it."""
    skill = _find(project, folders).get(name)
    if as_json:
        say(to_json(to_builtins(skill)))
        return
    say(clean(write_skill(skill, None, gate_counter(None).count_text)))
    for text in skill.problems:
        note(text)
