"""The map of a project in the requests of a session: a snapshot for each epoch, and what a request needs beyond it."""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context.options import Options
from loom.context.report import Report
from loom.context.sections import FRAME, MAP_ORIGIN, Section
from loom.context.weave import budget_for
from loom.conversation.message import Conversation
from loom.engine.views import Mapped
from loom.stores.path import Path

if TYPE_CHECKING:
    from loom.project.maps import RankedProject

UPDATE = 512  # tokens of what stands in the tail


# The room `project` is loaded where a map is asked for: grammars and numpy take long, and most requests have none.


def read_project(project: "str | PathLike[str]", progress: Callable[[int, int], None] | None) -> tuple[str, ...]:
    """Read what changed in a project, for one who wants to see how far that is; what is to be known of how it was read."""
    from loom.project.maps import notes, read_anew

    read_anew(project, progress)
    return notes(project)


def check_project(project: "str | PathLike[str]") -> None:
    """Refuse what is no folder before anything is written."""
    from loom.project.maps import find_root

    find_root(project)


def look_along(path: Path, project: "str | PathLike[str]") -> "RankedProject":
    """A project, and what of it matters for a path: for its goal, its request, and what its last messages were about."""
    from loom.project.maps import look_at
    from loom.project.touched import RECENT, asked_by

    recent = [node.message for node in path[-RECENT:] if node.message]
    goal, request = (_said(path, place) for place in (path.end.goal, path.end.request)) if path.end else ("", "")
    return look_at(project, asked_by(goal, request or (recent[-1].text if recent else ""), recent))


def _said(path: Path, place: int | None) -> str:
    nodes = path.nodes([place]) if place is not None else ()
    return next((node.message.text for node in nodes if node.message), "")


def drawn(wish: Options, given: Conversation, sight: "RankedProject | None") -> Mapped | None:
    """The map for an epoch that begins, as large as its zone."""
    if sight is None:
        return None
    tokens = budget_for(wish, given)["repo_map"] - FRAME
    count = gate_counter(wish.model or given.model or None, wish.ratio).count_text
    made = (sight.draw_seed_map if wish.policy.map == "seed" else sight.draw_map)(tokens, count)
    return Mapped(sight.root, made.text, sight.digest_map(made))


def one_map(wish: Options, given: Conversation, project: "str | PathLike[str]") -> list[Section]:
    """The map for a request that is on its own."""
    from loom.project.maps import look_at
    from loom.project.touched import asked_in

    made = drawn(wish, given, look_at(project, asked_in(given.messages)))
    return [Section("repo_map", made.text, MAP_ORIGIN)] if made else []


def as_shown(made: Mapped | None, report: Report) -> Mapped | None:
    """A map with the symbols that a request shows of it: none where there was no room for it."""
    stands = next((item.action == "kept" for item in reversed(report.lines) if item.zone == "repo_map"), False)
    return made if made is None or stands else replace(made, files={})


def with_map(
    wish: Options, given: Conversation, stands: Mapped | None, sight: "RankedProject | None", begins: bool = False
) -> Options:
    """What is asked for with the map that stands in the system text, and in the tail what a request needs beyond it.

    Where an epoch begins the map is new, and room is left for the tail of later requests: else the next one would not fit.
    """
    sections = [Section("repo_map", stands.text, MAP_ORIGIN)] if stands else []
    ahead = 0
    if sight:
        # No zone of its own: one more would make all others smaller, and so the text that a provider has cached another.
        ahead = min(UPDATE, budget_for(wish, given).usable // 8)
        count = gate_counter(wish.model or given.model or None, wish.ratio).count_text
        if not begins:
            shown = stands.files if stands else {}
            news = sight.draw_news(shown, ahead - FRAME, count) if shown else sight.draw_map(ahead - FRAME, count).text
            sections += [Section("map_update", news, "project")] if news else []
    return replace(wish, sections=(*wish.sections, *sections), ahead=ahead if begins else 0)
