"""The one shape of all sources: what they look at, and what they add to a request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.budget.counting import gate_counter
from loom.config.project_file import ProjectFile
from loom.context import Context, Handoff, Options, Section, Working
from loom.conversation.message import Conversation, Message
from loom.engine.reading import ReadingStyle
from loom.engine.recalling import RecallLookup, Recollections
from loom.engine.views import EpochMap, EpochMemory, EpochText
from loom.providers.knowledge import Findings
from loom.stores import Aside, Overlay, Path, SessionRow, Store

if TYPE_CHECKING:
    from loom.project.maps import RankedProject
    from loom.project.skills.choosing import SkillRequest

# that a zone has beyond the text it was made for, so that the text stands as it is
SPARE_TOKENS = 64


class Asking(Struct, frozen=True, kw_only=True):
    """What a source may look at: the session and its tree, what is asked for, and what the epoch
    began with.

    The row of a guest has the key 0: it has nothing of its own. `remembers`: notes of the session
    may be shown; a guest has none. `begins` says that an epoch begins with this request.
    `knowledge` is None if no knowledge base was asked. `texts` are those that the epoch began with,
    by the names of their sources. `folder` is that of the project, as an absolute path, and
    `project_file` its configuration; None if it was not read yet.
    `skills` is None if no skills were asked for. `messages` are those that the request may show.

    A source of the tail gets the `context` as it is without it, the path with what bears on it, and
    what `find`s old messages.
    """

    store: Store
    row: SessionRow
    path: Path
    style: ReadingStyle
    head: Conversation
    options: Options
    working: Working = Working()
    handoff: Handoff | None = None
    asides: tuple[Aside, ...] = ()
    summary: str = ""
    map: EpochMap | None = None
    project: "RankedProject | None" = None
    knowledge: Findings | None = None
    memory: EpochMemory | None = None
    texts: Mapping[str, EpochText] = {}
    folder: str = ""
    project_file: ProjectFile | None = None
    skills: "SkillRequest | None" = None
    messages: Sequence[Message] = ()
    remembers: bool = False
    begins: bool = False
    context: Context | None = None
    overlay: Overlay | None = None
    find: Callable[[RecallLookup], Recollections] | None = None


class SourceSections(Struct, frozen=True, kw_only=True):
    """What a source adds: sections, rooms for those that must not be cut, tokens left free for
    later requests of the epoch, and notes of what went wrong. A source of the tail gives the handle
    of each section.
    """

    sections: tuple[Section, ...] = ()
    rooms: Mapping[str, int] = {}
    ahead: int = 0
    handles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def drop_repeated_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes without those that are there twice, or that another one begins with."""
    found = tuple(dict.fromkeys(notes))
    return tuple(
        note for note in found if not any(other.startswith(f"{note}; ") for other in found)
    )


NOTHING = SourceSections()
Gather = Callable[[Asking], SourceSections]
Begin = Callable[[Asking], EpochText | None]


def gather_whole(section: Section) -> SourceSections:
    """A section with a room as large as itself."""
    return SourceSections(sections=(section,), rooms=room_for(section))


def room_for(section: Section) -> dict[str, int]:
    return {section.zone: gate_counter(None).count_text(section.text) + SPARE_TOKENS}
