"""`loom decisions`: what was decided in a project, why, and what came of it."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from loom.cli.groups import Group
from loom.cli.output import open_output
from loom.cli.store.where import READS_AS_AGENT, in_store
from loom.cli.table import print_table, short_ids
from loom.cli.terminal import (
    age,
    clean,
    dim,
    one_line,
    plural,
    say,
    say_dim,
    style,
    width,
    wrap_lines,
)
from loom.conversation.canonical import to_json
from loom.decisions.lines import list_troubles
from loom.decisions.pulse import Pulse
from loom.decisions.values import EDGE_KINDS, KINDS, STATUSES, Decision, DecisionEdge
from loom.engine.decisions import MAX_DRAWN, MAX_GRAPH, LogOptions, ProjectDecisions
from loom.engine.loom import Loom
from loom.errors import ChoiceError, shorten
from loom.project.index.git import git

DEFAULT_LISTED = 20
MAX_EXPORTED = 100_000  # decisions of an export as JSON
_GIT_SECONDS = 5.0
_CREATOR = "loom decisions log"
_EDGES = f"one of {', '.join(EDGE_KINDS)}"
_SHOWN_TROUBLES = 5  # decisions of each list of a pulse
_HEALTH_COLOURS = ((80, "green"), (50, "yellow"), (0, "red"))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_SESSION = click.option(
    "--session",
    metavar="ID",
    help="Act in this session, and in the folder that it works in (default: in no session).",
)
_FOLDER = click.option(
    "--folder",
    metavar="PATH",
    help="Decisions of this folder of the project (default: those that belong to no folder).",
)
_OF_SESSION = click.option("--session", metavar="ID", help="Only decisions of this session.")
_WHY = click.option("--why", metavar="TEXT", default="", help="The reason.")
_CONFIDENCE = click.option(
    "--confidence", type=click.IntRange(0, 100), help="How sure one is, from 0 to 100."
)
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write (default: standard output).",
)


@click.group(cls=Group)
def decisions() -> None:
    """Log and look up what was decided, why, and what came of it.

    Each folder of a project has its own decisions. Requests show those that matter to them.
    """


def _decisions_of(loom: Loom, session: str | None, folder: str | None) -> ProjectDecisions:
    found = loom.decisions if session is None else loom.session(session).decisions
    return found if folder is None else found.of_folder(folder)


# Writing


@decisions.command()
@click.argument("title")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    metavar="KIND",
    default="decision",
    show_default=True,
    help=f"What it is: one of {', '.join(KINDS)}.",
)
@click.option("--description", metavar="TEXT", default="", help="More about it.")
@_CONFIDENCE
@click.option("--parent", metavar="ID", help="The decision that it comes from.")
@click.option(
    "--edge",
    type=click.Choice(EDGE_KINDS),
    metavar="EDGE",
    default="leads_to",
    show_default=True,
    help=f"How it follows from its parent: {_EDGES}.",
)
@_WHY
@click.option(
    "--commit",
    "commits",
    metavar="HASH",
    multiple=True,
    help="A commit that carries it out; a name such as HEAD is looked up with git.",
)
@click.option("--node", "nodes", metavar="NODE", multiple=True, help="A message: TREE/ID.")
@_SESSION
@_FOLDER
@_JSON
@in_store(make=True)
def log(
    loom: Loom, title: str, session: str | None, folder: str | None, as_json: bool, **given: Any
) -> None:
    """Log a decision, or a goal, an option, an action and so on.

    What is active and says the same is found, and not logged again.
    """
    options: LogOptions = {
        "kind": given["kind"],
        "description": given["description"],
        "confidence": given["confidence"],
        "parent": given["parent"],
        "edge": given["edge"],
        "rationale": given["why"],
        "commits": [_find_commit(each, folder) for each in given["commits"]],
        "nodes": given["nodes"],
    }
    found = _decisions_of(loom, session, folder)
    if given["why"] and not given["parent"]:
        raise ChoiceError("--why says why it follows from its parent; it needs --parent ID")
    made = found.log(title, **options)
    _print_done("logged", made, as_json)
    if not as_json and not made.folder and session is None:
        say_dim(
            "It belongs to no folder. Requests for a project show only decisions of its folder: "
            "log those with --folder PATH."
        )


@decisions.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--kind",
    type=click.Choice(EDGE_KINDS),
    metavar="EDGE",
    default="leads_to",
    show_default=True,
    help=f"What the edge says: {_EDGES}.",
)
@click.option("--weight", type=float, default=1.0, show_default=True, help="How much it matters.")
@_WHY
@_SESSION
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR)
def link(
    loom: Loom,
    source: str,
    target: str,
    session: str | None,
    folder: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make an edge from SOURCE to TARGET."""
    found = _decisions_of(loom, session, folder)
    edge = found.link(source, target, given["kind"], weight=given["weight"], rationale=given["why"])
    _print_edge(edge, as_json)


@decisions.command()
@click.argument("old")
@click.argument("new")
@_WHY
@_SESSION
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR)
def supersede(
    loom: Loom,
    old: str,
    new: str,
    why: str,
    session: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Replace the active decision OLD by the active decision NEW."""
    _print_edge(_decisions_of(loom, session, folder).supersede(old, new, why), as_json)


@decisions.command()
@click.argument("old")
@click.argument("observation")
@click.argument("new_approach")
@_CONFIDENCE
@_SESSION
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR)
def pivot(
    loom: Loom,
    old: str,
    session: str | None,
    folder: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Replace a decision because of something observed.

    Logs the OBSERVATION, a revisit and the NEW_APPROACH as a decision, which supersedes the active
    decision OLD. All of it is written, or nothing.
    """
    found = _decisions_of(loom, session, folder)
    made = found.pivot(old, **given)
    if as_json:
        say(to_json(to_builtins(made)))
        return
    _print_done("logged", made.observation, False)
    _print_done("logged", made.revisit, False)
    _print_done("logged", made.decision, False)
    say(dim(f"  {made.edge.source} is superseded by {made.edge.target}"))


@decisions.command()
@click.argument("name", metavar="ID")
@_WHY
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR)
def abandon(loom: Loom, name: str, why: str, folder: str | None, as_json: bool) -> None:
    """Give a decision up. It stays among the prior attempts."""
    _print_done("abandoned", _decisions_of(loom, None, folder).abandon(name, why), as_json)


@decisions.command()
@click.argument("name", metavar="ID")
@click.argument("percent", type=click.IntRange(0, 100))
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR)
def confidence(loom: Loom, name: str, percent: int, folder: str | None, as_json: bool) -> None:
    """Set how sure one is of a decision, from 0 to 100.

    Below 50, what it requires or blocks is marked as uncertain, and whoever logged that is
    notified.
    """
    made = _decisions_of(loom, None, folder).set_confidence(name, percent)
    if as_json:
        say(to_json(to_builtins(made)))
        return
    _print_done("set", made.decision, False)
    for each in made.uncertain:
        say(dim(f"  {each.id} is uncertain now: {clean(each.title)}"))
    for each in made.certain:
        say(dim(f"  {each.id} is certain again: {clean(each.title)}"))


# Reading


@decisions.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="Only of this kind.")
@click.option("--status", type=click.Choice(STATUSES), help="Only of this status.")
@_OF_SESSION
@click.option("--commit", metavar="HASH", help="Only what this commit carries out.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=DEFAULT_LISTED, help="Most entries to show."
)
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR, may_be_absent=True)
def list_decisions(loom: Loom, folder: str | None, as_json: bool, **given: Any) -> None:
    """List decisions, the newest first."""
    if given["commit"]:
        given["commit"] = _find_commit(given["commit"], folder)
    found = _decisions_of(loom, None, folder)
    listed = found.list_all(**given)
    if as_json:
        say(to_json(listed))
    elif listed:
        _print_decisions(listed, loom.now())
    else:
        _say_nothing(found, loom)


@decisions.command()
@click.argument("text")
@click.option("--status", type=click.Choice(STATUSES), help="Only of this status.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=DEFAULT_LISTED, help="Most entries to show."
)
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR, may_be_absent=True)
def search(
    loom: Loom, text: str, folder: str | None, as_json: bool, limit: int, status: Any
) -> None:
    """Search decisions by their words, the best first.

    The exit status is 1 if nothing is found.
    """
    found = _decisions_of(loom, None, folder).search(text, limit, status=status)
    if as_json:
        say(to_json(found))
    elif found:
        _print_decisions(found, loom.now())
    else:
        say("no decision says anything of this")
    if not found:
        raise SystemExit(1)


@decisions.command()
@click.argument("name", metavar="ID")
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR)
def show(loom: Loom, name: str, folder: str | None, as_json: bool) -> None:
    """Show a decision with its edges and links."""
    found = _decisions_of(loom, None, folder)
    decision = found.decision(name)
    edges = found.edges(decision.id)
    if as_json:
        say(to_json({**to_builtins(decision), "edges": to_builtins(edges)}))
        return
    _print_title(decision)
    for line in wrap_lines(clean(decision.description), width() - 2):
        say(f"  {line}")
    for what, value in _details(decision):
        say(dim(f"  {what}: {clean(value)}"))
    for edge in edges:
        other = found.decision(edge.target if edge.source == decision.id else edge.source)
        arrow = "→" if edge.source == decision.id else "←"
        room = width() - len(edge.kind) - 14
        title = one_line(other.title or "(purged)", room)
        say(f"  {arrow} {edge.kind} {style(other.id[:8], fg='blue')} {title}")
        for line in wrap_lines(clean(edge.rationale), width() - 6):
            say(dim(f"      {line}"))


@decisions.command()
@_FOLDER
@_JSON
@in_store(agent=READS_AS_AGENT, creator=_CREATOR, may_be_absent=True)
def pulse(loom: Loom, folder: str | None, as_json: bool) -> None:
    """Say how healthy the decisions are, and what to look at."""
    found = _decisions_of(loom, None, folder)
    made = found.pulse()
    if as_json:
        say(to_json(to_builtins(made)))
    elif made.total:
        _print_pulse(made)
    else:
        _say_nothing(found, loom)


@decisions.command()
@click.argument("name", metavar="[ID]", required=False)
@_OF_SESSION
@click.option(
    "--limit", type=click.IntRange(min=1), default=MAX_DRAWN, help="Most decisions to draw."
)
@_FOLDER
@_OUTPUT
@in_store(agent=READS_AS_AGENT, creator=_CREATOR, may_be_absent=True)
def graph(loom: Loom, folder: str | None, output: Path | None, **given: Any) -> None:
    """Draw decisions as a Mermaid flowchart.

    Draws the newest decisions, or ID with all that it leads to.
    """
    drawn = _decisions_of(loom, None, folder).mermaid(
        given["name"], session=given["session"], limit=given["limit"]
    )
    with open_output(output) as stream:
        stream.write(drawn)


@decisions.command()
@click.argument("name", metavar="[ID]", required=False)
@_OF_SESSION
@click.option(
    "--format",
    "form",
    type=click.Choice(("markdown", "json")),
    default="markdown",
    show_default=True,
    help="A write-up for people, or all fields as JSON.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Most decisions to write.")
@_FOLDER
@_OUTPUT
@in_store(agent=READS_AS_AGENT, creator=_CREATOR, may_be_absent=True)
def export(
    loom: Loom, folder: str | None, output: Path | None, form: str, limit: int | None, **given: Any
) -> None:
    """Write decisions up for a pull request, or as JSON.

    Writes the newest decisions, or ID with all that it leads to.
    """
    found = _decisions_of(loom, None, folder)
    if form == "json":
        read = found.graph(given["name"], session=given["session"], limit=limit or MAX_EXPORTED)
        text = to_json(to_builtins(read)) + "\n"
    else:
        text = found.write_up(given["name"], session=given["session"], limit=limit or MAX_GRAPH)
    with open_output(output) as stream:
        stream.write(text)


# Printing


def _print_done(verb: str, decision: Decision, as_json: bool) -> None:
    if as_json:
        say(to_json(to_builtins(decision)))
        return
    done = f"{style('✓', fg='green')} {verb} {decision.kind} {style(decision.id, fg='blue')}"
    say(done)


def _print_edge(edge: DecisionEdge, as_json: bool) -> None:
    if as_json:
        say(to_json(to_builtins(edge)))
        return
    source, target = style(edge.source, fg="blue"), style(edge.target, fg="blue")
    say(f"{style('✓', fg='green')} {source} {edge.kind} {target}")


def _print_decisions(found: list[Decision], now: int) -> None:
    rows = [
        (name, each.kind, each.status, _percent(each), age(each.created, now), each.title)
        for name, each in zip(short_ids([each.id for each in found]), found, strict=True)
    ]
    print_table(("id", "kind", "status", "sure", "logged", "title"), rows, cut=5, right=(3,))


def _percent(decision: Decision) -> str:
    if decision.confidence is None:
        return ""
    return f"{decision.confidence}%"


def _print_title(decision: Decision) -> None:
    said = f"{decision.kind}, {decision.status}"
    if decision.confidence is not None:
        said += f", confidence {decision.confidence}%"
    say(f"{style(decision.id, fg='blue')} {dim(said)}")
    for line in wrap_lines(clean(decision.title or "(purged)"), width() - 2):
        say(f"  {style(line, bold=True)}")


def _details(decision: Decision) -> list[tuple[str, str]]:
    told = [
        ("logged", _write_time(decision.created)),
        ("changed", _write_time(decision.updated) if decision.updated != decision.created else ""),
        ("by", decision.agent),
        ("session", decision.session),
        ("folder", decision.folder),
        ("commits", ", ".join(decision.commits)),
        ("messages", ", ".join(decision.nodes)),
        ("metadata", to_json(decision.metadata) if decision.metadata else ""),
    ]
    return [(what, value) for what, value in told if value]


def _print_pulse(pulse: Pulse) -> None:
    colour = next(name for least, name in _HEALTH_COLOURS if pulse.health >= least)
    say(f"health {style(str(pulse.health), fg=colour, bold=True)} of 100")
    kinds = ", ".join(plural(count, kind) for kind, count in pulse.by_kind.items())
    say(dim(f"  {kinds}"))
    for words, found in list_troubles(pulse):
        if not found.count:
            continue
        say(f"  {found.count:,} {words}")
        shown = found.decisions[:_SHOWN_TROUBLES]
        for name, each in zip(short_ids([each.id for each in shown]), shown, strict=True):
            line = one_line(f"{each.kind}: {each.title}", width() - 5 - len(name))
            say(f"    {style(name, fg='blue')} {line}")
        if found.count > len(shown):
            say(dim(f"    and {found.count - len(shown):,} more"))


def _say_nothing(found: ProjectDecisions, loom: Loom) -> None:
    where = f"folder {clean(found.folder)}" if found.folder else "no folder"
    say(f"nothing was decided in project {clean(loom.scope.project)}, {where}")
    others = {name: count for name, count in found.folders().items() if name != found.folder}
    for name, count in list(others.items())[:_SHOWN_TROUBLES]:
        if count:
            option = f"--folder {clean(name)}" if name else "no --folder"
            say(dim(f"  {plural(count, 'decision')} with {option}"))
    if not any(others.values()):
        say(dim("  loom decisions log logs one"))


def _find_commit(given: str, folder: str | None) -> str:
    """The hash of a commit: as it is given, or by its name in the repository of the folder."""
    if all(letter in "0123456789abcdefABCDEF" for letter in given):
        return given
    if not given.startswith("-"):
        asked = ("rev-parse", "--verify", "--quiet", f"{given}^{{commit}}")
        found = git(folder or os.curdir, *asked, seconds=_GIT_SECONDS).decode().strip()
        if found:
            return found
    raise ChoiceError(
        f"{shorten(given)!r} is not a commit that git knows here; give its hash, or --folder with "
        "the folder of its repository"
    )


def _write_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "minutes")
