"""Where the sections of a request come from. A source is a file with a function `gather(asking)`,
and a line in a list here.

All are asked at every request: SESSION_SOURCES and WINDOW_SOURCES before messages are read,
EPOCH_SOURCES after that. SESSION_SOURCES add what is in the tail, WINDOW_SOURCES what the window
began with. EPOCH_SOURCES get what the epoch began with: its view stores it.

A source that is in BEGINNINGS has a function `begin(asking)` too. It makes the text for an epoch
that begins. The view stores that text, and `gather` finds it in `asking.texts`.

TAIL_SOURCES are asked when the request is made, for they depend on what it shows. They add to its
tail, if there is room.

Other words in the system text end the epoch. So a new source uses a zone of the tail, or its text
is stored in the view.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from msgspec.structs import replace

from loom.context import Context, Options
from loom.conversation.message import Conversation, Message
from loom.engine.sources import (
    agent_blocks,
    decisions,
    handoff,
    knowledge,
    memory,
    project_map,
    recalled,
    rules,
    skills,
    summaries,
    system_messages,
    working_state,
)
from loom.engine.sources.asking import Asking, Begin, Gather, drop_repeated_notes
from loom.engine.sources.decisions import (
    DecisionQuestion,
    add_single_decisions,
    count_decisions,
)
from loom.engine.sources.memory import choose_lasting_notes, keep_own_notes
from loom.engine.sources.project_map import (
    MapRoom,
    add_single_map,
    check_project,
    draw_epoch_map,
    keep_shown_map,
    rank_project,
    read_project,
)
from loom.engine.sources.rules import (
    RulesPreview,
    gather_single_rules,
    loses_rules,
    loses_single_rules,
    preview_rules,
)
from loom.engine.sources.skills import SingleSkills, choose_single_skills
from loom.engine.sources.working_state import is_in_requests
from loom.engine.views import EpochText

SESSION_SOURCES: tuple[Gather, ...] = (agent_blocks.gather, working_state.gather)
WINDOW_SOURCES: tuple[Gather, ...] = (handoff.gather, system_messages.gather)
EPOCH_SOURCES: tuple[Gather, ...] = (
    summaries.gather,
    rules.gather,
    skills.gather,
    memory.gather,
    project_map.gather,
    knowledge.gather,
    decisions.gather,
)
BEGINNINGS: Mapping[str, Begin] = {
    rules.SOURCE: rules.begin,
    rules.MEMORY_SOURCE: rules.begin_memory,
    decisions.NAME: decisions.begin,
    "skills": skills.begin,
    "active_skills": skills.begin_active,
}
TAIL_SOURCES: tuple[Gather, ...] = (recalled.gather,)


def gather(asking: Asking, sources: Iterable[Gather]) -> Options:
    """What is asked for, with what these sources add. What the caller says of a zone counts before
    what a source says.
    """
    options = asking.options
    for source in sources:
        found = source(replace(asking, options=options))
        options = replace(
            options,
            sections=(*options.sections, *found.sections),
            zones={**found.rooms, **options.zones},
            ahead=options.ahead + found.ahead,
            notes=(*options.notes, *found.notes),
        )
    return options


def begin_texts(asking: Asking) -> dict[str, EpochText]:
    """The texts of all sources that have one for an epoch that begins."""
    texts = {}
    for source, begin in BEGINNINGS.items():
        made = begin(asking)
        if made is not None:
            texts[source] = made
    return texts


def add_notes(context: Context, notes: Iterable[str]) -> Context:
    """The context with notes of sources in its report."""
    report = context.report
    merged = drop_repeated_notes((*report.notes, *notes))
    return replace(context, report=replace(report, notes=merged))


def add_single_project(
    options: Options,
    given: Conversation,
    project: "str | PathLike[str]",
    is_map_sized: bool = False,
    messages: Sequence[Message] = (),
) -> Options:
    """The options with the map and the rules of a project for a request that is on its own. Rules
    that `messages` carry are not repeated.
    """
    options = add_single_map(options, given, project, is_map_sized)
    sections, notes = gather_single_rules(options, given, project, messages)
    return replace(
        options,
        sections=(*options.sections, *sections),
        notes=(*options.notes, *notes),
    )


__all__ = [
    "EPOCH_SOURCES",
    "SESSION_SOURCES",
    "TAIL_SOURCES",
    "WINDOW_SOURCES",
    "Asking",
    "DecisionQuestion",
    "MapRoom",
    "RulesPreview",
    "SingleSkills",
    "add_notes",
    "add_single_decisions",
    "add_single_project",
    "begin_texts",
    "check_project",
    "choose_lasting_notes",
    "choose_single_skills",
    "count_decisions",
    "draw_epoch_map",
    "drop_repeated_notes",
    "gather",
    "is_in_requests",
    "keep_own_notes",
    "keep_shown_map",
    "loses_rules",
    "loses_single_rules",
    "preview_rules",
    "rank_project",
    "read_project",
]
