"""The map of a project in the requests of a session: a snapshot for each epoch, and what a request
needs beyond it.
"""

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context import Options, Report, Section, budget_for
from loom.conversation.message import Conversation
from loom.engine.sources.asking import Asking, SourceSections
from loom.engine.sources.decisions import count_given
from loom.engine.views import EpochMap
from loom.stores import Path

if TYPE_CHECKING:
    from loom.project.maps import RankedProject

MAX_NEWS_TOKENS = 512  # of what is in the tail


# The room `project` is loaded where a map is asked for: grammars and numpy take long, and most
# requests have none.


def read_project(
    project: "str | PathLike[str]", progress: Callable[[int, int], None] | None
) -> tuple[str, ...]:
    """Read what changed in a project, for one who wants to see how far that is; what is to be known
    of how it was read.
    """
    from loom.project.maps import notes, read_anew

    read_anew(project, progress)
    return notes(project)


def check_project(project: "str | PathLike[str]") -> None:
    """Refuse what is not a folder before anything is written."""
    from loom.project.maps import find_root

    find_root(project)


def rank_project(path: Path, project: "str | PathLike[str]") -> "RankedProject":
    """A project, and what of it matters for a path: for its goal, its request, and what its last
    messages were about.
    """
    from loom.project.maps import look_at
    from loom.project.touched import RECENT_MESSAGES, asked_by

    recent = [node.message for node in path[-RECENT_MESSAGES:] if node.message]
    if path.end:
        goal, request = (_text_at(path, place) for place in (path.end.goal, path.end.request))
    else:
        goal, request = "", ""
    return look_at(project, asked_by(goal, request or (recent[-1].text if recent else ""), recent))


def _text_at(path: Path, place: int | None) -> str:
    nodes = path.nodes([place]) if place is not None else ()
    return next((node.message.text for node in nodes if node.message), "")


class MapRoom(Struct, frozen=True):
    """How large a map may be: its zone, and what decisions leave of theirs."""

    zone: int
    spare: int

    @classmethod
    def find(cls, options: Options, head: Conversation, decisions: int) -> "MapRoom":
        """The room next to decisions that take so many tokens."""
        budget = budget_for(options, head)
        return cls(budget["repo_map"], max(budget["decision_context"] - decisions, 0))

    def widen(self, options: Options, head: Conversation, made: EpochMap | None) -> Options:
        """The options for a request with a map that was drawn for this room. A larger map keeps its
        size for the epoch, also if decisions are logged meanwhile: history pays for these.
        """
        if made is None or not self.spare:
            return options
        needed = _counter(options, head)(made.text) + Section.FRAME_TOKENS
        if needed <= self.zone:
            return options
        note = (
            f"the map takes {needed:,} tokens, and its zone has {self.zone:,}: decisions leave "
            f"{self.spare:,} of theirs"
        )
        return replace(
            options,
            widened={**options.widened, "repo_map": needed},
            notes=(*options.notes, note),
        )


def draw_epoch_map(
    options: Options, head: Conversation, project: "RankedProject | None", room: MapRoom
) -> EpochMap | None:
    """The map for an epoch that begins, as large as its room."""
    if project is None:
        return None
    tokens = room.zone + room.spare - Section.FRAME_TOKENS
    if options.policy.map == "seed":
        draw = project.draw_seed_map
    else:
        draw = project.draw_map
    made = draw(tokens, _counter(options, head))
    return EpochMap(project.root, made.text, project.digest_map(made))


def add_single_map(
    options: Options, given: Conversation, project: "str | PathLike[str]", is_sized: bool
) -> Options:
    """The options with the map for a request that is on its own. If the caller sized its zone, it
    gets nothing of what decisions leave.
    """
    from loom.project.maps import look_at
    from loom.project.touched import asked_in

    room = MapRoom.find(options, given, count_given(options, given))
    if is_sized:
        room = replace(room, spare=0)
    ranked = look_at(project, asked_in(given.messages))
    made = draw_epoch_map(options, given, ranked, room)
    if made is None:
        return options
    options = room.widen(options, given, made)
    return replace(
        options,
        sections=(*options.sections, _section(made)),
        notes=(*options.notes, *_note_no_map(made, ranked, room.zone)),
    )


def keep_shown_map(made: EpochMap | None, report: Report) -> EpochMap | None:
    """A map with the symbols that a request shows of it: none if there was no room for it."""
    stands = next(
        (item.action == "kept" for item in reversed(report.lines) if item.zone == "repo_map"), False
    )
    if made is None or stands:
        return made
    return replace(made, files={})


def gather(asking: Asking) -> SourceSections:
    """The map that is in the system text, and in the tail what a request needs beyond it.

    If an epoch begins the map is new, and room is left for the tail of later requests: else the
    next one would not fit.
    """
    sections = (_section(asking.map),) if asking.map else ()
    if asking.project is None:
        return SourceSections(sections=sections)
    # No zone of its own: one more would make all others smaller, and so the text that a provider
    # has cached another.
    budget = budget_for(asking.options, asking.head)
    tokens = min(MAX_NEWS_TOKENS, budget.usable // 8, budget["repo_map"])
    news: tuple[Section, ...] = ()
    if not asking.begins:
        news = _news(asking, asking.project, tokens - Section.FRAME_TOKENS)
    return SourceSections(
        sections=(*sections, *news),
        ahead=tokens if asking.begins else 0,
        notes=() if news else _note_no_map(asking.map, asking.project, budget["repo_map"]),
    )


def _note_no_map(made: EpochMap | None, project: "RankedProject", zone: int) -> tuple[str, ...]:
    """Why a map that was asked for has nothing in it; nothing if it has, or if none was drawn."""
    if made is None or made.text:
        return ()
    if not project.columns.paths:
        return ("no map: the project has no files that Loom reads",)
    if not zone:
        return ("no map: its zone has 0 tokens",)
    fits = f"no file of the project fits in its zone of {zone:,} tokens"
    return (f"no map: {fits}; enlarge the zone or the window",)


def _news(asking: Asking, project: "RankedProject", tokens: int) -> tuple[Section, ...]:
    """What a request needs beyond the map in its system text, within the zone of that."""
    if tokens <= 0:
        return ()
    count = _counter(asking.options, asking.head)
    shown = asking.map.files if asking.map else {}
    if shown:
        text = project.draw_news(shown, tokens, count)
    else:
        text = project.draw_map(tokens, count).text
    if text:
        return (Section("map_update", text, Section.PROJECT_ORIGIN),)
    return ()


def _section(made: EpochMap) -> Section:
    # What joins sections brings its own blank line.
    return Section("repo_map", made.text.rstrip("\n"), Section.PROJECT_ORIGIN)


def _counter(options: Options, head: Conversation) -> Callable[[str], int]:
    return gate_counter(options.model or head.model or None, options.ratio).count_text
