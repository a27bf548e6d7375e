"""The rules of a project in the requests of a session: those of its files when the epoch began, and
in the tail what changed since.

`AGENTS.md` is in the zone `memory`; all others are in the zone `rules`.
"""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context import Context, Options, Section, budget_for
from loom.conversation.message import Conversation, Message
from loom.engine.sources.asking import NOTHING, Asking, SourceSections
from loom.engine.sources.memory import RULES_SOURCE, can_remember
from loom.engine.views import EpochText

if TYPE_CHECKING:
    from loom.project.rules.pieces import RulesPiece, WrittenRules
    from loom.project.rules.project_rules import ProjectRules

ZONE, MEMORY_ZONE, TAIL_ZONE = "rules", "memory", "rules_update"
SOURCE, MEMORY_SOURCE = "rules", RULES_SOURCE  # the names of the two texts of an epoch
_ZONES = ((ZONE, False), (MEMORY_ZONE, True))  # and whether the zone is that of `AGENTS.md`
ORIGIN = "project files"
MAX_UPDATE_TOKENS = 1024  # of what is in the tail
MAX_UPDATE_SHARE = 16  # of what is usable: the part that it may take
MAX_QUERY_CHARS = 20_000  # of a request that are looked through for paths
MEMORY_SHARE = 0.75  # of the zone `memory`, if the session has notes too
# of a zone that the policy does not name; and the part of what is usable that it may take
_DEFAULT_ZONE_TOKENS = 2048
_MAX_ZONE_SHARE = 8
_MAX_FREE_SHARE = 4  # of what system text and tools leave: the part that rules may take
# begin a name that is a note: on the text, and on files as they were when it was written
_NOTE, _FILE_NOTE = "# ", "! "


# The room `project` is loaded where there is a folder: most requests have none.


def begin(asking: Asking) -> EpochText | None:
    """The rules for an epoch that begins; its names are the files, and notes on them."""
    return _write_for_epoch(asking, is_memory=False)


def begin_memory(asking: Asking) -> EpochText | None:
    """The same of `AGENTS.md`."""
    return _write_for_epoch(asking, is_memory=True)


def gather(asking: Asking) -> SourceSections:
    """The rules that the epoch began with, and in the tail what changed since.

    If an epoch begins, room is left for the tail of later requests.
    """
    if asking.style.document:
        return NOTHING
    rules, agents = asking.texts.get(SOURCE), asking.texts.get(MEMORY_SOURCE)
    sections = _make_sections(rules.text if rules else "", agents.text if agents else "")
    names = (*(rules.names if rules else ()), *(agents.names if agents else ()))
    notes = _find_notes(names, _NOTE)
    if not asking.folder:
        return SourceSections(sections=sections, notes=notes)
    budget = budget_for(asking.options, asking.head)
    room = min(MAX_UPDATE_TOKENS, budget.usable // MAX_UPDATE_SHARE) - Section.FRAME_TOKENS
    if asking.begins:
        notes = (*_find_notes(names, _FILE_NOTE), *notes)
        return SourceSections(sections=sections, notes=notes, ahead=max(room, 0) if sections else 0)
    update, problems = _write_update(asking, names, sections, room)
    if update:
        sections = (*sections, Section(TAIL_ZONE, update, ORIGIN))
    return SourceSections(sections=sections, notes=tuple(dict.fromkeys((*problems, *notes))))


def _find_notes(names: Iterable[str], mark: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(mark) for name in names if name.startswith(mark))


class RulesZone(Struct, frozen=True):
    """A zone with rules: the tokens that it has for them, and the rules as they are written."""

    name: str
    tokens: int
    written: "WrittenRules"


class RulesPreview(Struct, frozen=True):
    """The rules that a request on its own gets, by zone, and notes on what is left out."""

    rules: "ProjectRules"
    zones: tuple[RulesZone, ...]
    notes: tuple[str, ...]


def preview_rules(
    options: Options,
    given: Conversation,
    project: "str | PathLike[str]",
    touched: Sequence[str] = (),
    messages: Sequence[Message] = (),
) -> RulesPreview:
    """The rules for a request that is on its own. `touched` are paths that one works on, `messages`
    those that the request shows.
    """
    from loom.project.rules.carried import CarriedTexts
    from loom.project.rules.project_rules import load_rules, make_pieces

    rules = load_rules(project, touched, options.caches.files)
    rules, closed = _leave_out_closed(rules, options, given)
    said = _find_said_texts(options, given)
    pieces, repeats = make_pieces(rules, said, carried=CarriedTexts(messages))
    zones = tuple(
        RulesZone(
            zone,
            _find_room(options, given, zone),
            _write(options, given, [each for each in pieces if each.is_memory is is_memory], zone),
        )
        for zone, is_memory in _ZONES
    )
    cuts = (note for zone in zones for note in _tell_cuts(zone.written, zone.name))
    return RulesPreview(rules, zones, (*rules.notes, *closed, *repeats, *cuts))


def gather_single_rules(
    options: Options,
    given: Conversation,
    project: "str | PathLike[str]",
    messages: Sequence[Message] = (),
) -> tuple[list[Section], list[str]]:
    """The rules for a request that is on its own, and notes on them. What the conversation is about
    decides which folders are at work; `messages` are those that the request shows.
    """
    found = preview_rules(options, given, project, _find_touched(given), messages)
    texts = [zone.written.text for zone in found.zones]
    return list(_make_sections(*texts)), list(found.notes)


def loses_single_rules(
    options: Options, given: Conversation, project: "str | PathLike[str]", context: Context
) -> bool:
    """Whether a message that carries rules of a project is not in a request, or not complete."""
    from loom.project.rules.project_rules import load_rules

    rules = load_rules(project, _find_touched(given), options.caches.files)
    return _loses(rules, given.messages, context.conversation.messages)


def loses_rules(asking: Asking, context: Context) -> bool:
    """The same for a request with which an epoch begins."""
    if not asking.folder or not asking.messages:
        return False
    return _loses(_load(asking), asking.messages, context.conversation.messages)


def _loses(rules: "ProjectRules", before: Sequence[Message], after: Sequence[Message]) -> bool:
    from loom.project.rules.carried import CarriedTexts

    carried, shown = CarriedTexts(before), None
    for source in rules.sources:
        if not source.file.problem and carried.has(source.file.text):
            shown = shown or CarriedTexts(after)
            if not shown.has(source.file.text):
                return True
    return False


def _find_touched(given: Conversation) -> Sequence[str]:
    """The paths that a conversation is about."""
    from loom.project.touched import asked_in

    asked = asked_in(given.messages)
    return _find_paths(asked.query, asked.touched)


def _make_sections(rules: str, agents: str) -> tuple[Section, ...]:
    found = (
        Section(ZONE, rules, ORIGIN, 1.0),
        Section(MEMORY_ZONE, agents, ORIGIN, 1.0),
    )
    return tuple(section for section in found if section.text)


def _write_for_epoch(asking: Asking, is_memory: bool) -> EpochText | None:
    if not asking.folder or asking.style.document:
        return None
    from loom.project.rules.carried import CarriedTexts
    from loom.project.rules.changes import name_files
    from loom.project.rules.project_rules import make_pieces

    rules, closed = _load_open(asking)
    said = _find_said_texts(asking.options, asking.head)
    pieces, repeats = make_pieces(rules, said, carried=CarriedTexts(asking.messages))
    own = [piece for piece in pieces if piece.is_memory is is_memory]
    options, head = asking.options, asking.head
    if is_memory:
        share = MEMORY_SHARE if can_remember(asking) else 1.0
        written = _write(options, head, own, MEMORY_ZONE, share)
        cuts = tuple(f"{_NOTE}{note}" for note in _tell_cuts(written, MEMORY_ZONE))
        return EpochText(written.text, cuts) if own else None
    written = _write(options, head, own, ZONE)
    if not rules.sources and not rules.notes and not closed:
        return None
    notes = [f"{_FILE_NOTE}{note}" for note in rules.notes]
    notes += [f"{_NOTE}{note}" for note in (*closed, *repeats, *_tell_cuts(written, ZONE))]
    return EpochText(written.text, (*name_files(rules), *notes))


def _write(
    options: Options,
    head: Conversation,
    pieces: "Sequence[RulesPiece]",
    zone: str,
    share: float = 1.0,
) -> "WrittenRules":
    from loom.project.rules.pieces import write_pieces

    return write_pieces(pieces, int(_find_room(options, head, zone) * share), _count(options, head))


def _find_room(options: Options, head: Conversation, zone: str) -> int:
    """The tokens that a zone has for rules: what is said in it already counts, and what system text
    and tools leave of the window is not taken for them alone.
    """
    budget = budget_for(options, head)
    counter = gate_counter(options.model or head.model or None, options.ratio)
    size = budget.get(zone)
    if size is None:
        size = min(_DEFAULT_ZONE_TOKENS, budget.usable // _MAX_ZONE_SHARE)
    fixed = sum(map(counter.count_message, head.system)) + counter.count_tools(head.tools)
    size = min(size, max(budget.usable - fixed, 0) // _MAX_FREE_SHARE)
    taken = sum(
        counter.count_text(section.text) + Section.FRAME_TOKENS
        for section in options.sections
        if section.zone == zone
    )
    return max(size - taken - Section.FRAME_TOKENS, 0)


def _write_update(
    asking: Asking, names: Sequence[str], sections: Sequence[Section], tokens: int
) -> tuple[str, tuple[str, ...]]:
    """What the tail says of rules that changed since, and what is to be known of the files now."""
    from loom.project.rules.carried import CarriedTexts
    from loom.project.rules.changes import ShownTexts, is_same, read_names, write_changes

    # A folder that is no longer at work has its rules in the system text all the same.
    rules, _ = _load_open(asking, [file.path for file in read_names(names)])
    if is_same(names, rules):
        return "", rules.notes
    # Messages may have rules as they were, or as they are now.
    names_of_files = {posixpath.basename(source.file.path) for source in rules.sources}
    names_of_files |= {posixpath.basename(file.path) for file in read_names(names)}
    messages = CarriedTexts(asking.messages).find_naming(names_of_files)
    shown = ShownTexts(
        (*(section.text for section in sections), *messages),
        tuple(_find_said_texts(asking.options, asking.head)),
    )
    count = _count(asking.options, asking.head)
    return write_changes(names, rules, shown, tokens, count), rules.notes


def _load(asking: Asking, known: Sequence[str] = ()) -> "ProjectRules":
    from loom.project.rules.project_rules import load_rules

    touched: Sequence[str] = ()
    if asking.project is not None:
        asked = asking.project.asked
        touched = _find_paths(asked.query, asked.touched)
    read = asking.options.caches.files
    return load_rules(asking.folder, (*touched, *known), read, asking.project_file)


def _load_open(asking: Asking, known: Sequence[str] = ()) -> "tuple[ProjectRules, tuple[str, ...]]":
    return _leave_out_closed(_load(asking, known), asking.options, asking.head)


def _leave_out_closed(
    rules: "ProjectRules", options: Options, head: Conversation
) -> "tuple[ProjectRules, tuple[str, ...]]":
    """The rules without files of a zone that has 0 tokens, and a note for each such zone."""
    from loom.project.rules.reading import on_one_line

    budget = budget_for(options, head)
    closed = [is_memory for zone, is_memory in _ZONES if budget.get(zone) == 0]
    if not closed:
        return rules, ()
    notes = []
    for zone, is_memory in _ZONES:
        paths = [each.file.path for each in rules.sources if each.is_memory is is_memory]
        files = list(map(on_one_line, paths))
        if is_memory in closed and files:
            notes.append(f"no rules of {', '.join(files)}: the zone {zone} has 0 tokens")
    left = tuple(each for each in rules.sources if each.is_memory not in closed)
    return replace(rules, sources=left), tuple(notes)


def _find_paths(query: str, touched: Sequence[str]) -> Sequence[str]:
    """The paths that a conversation is about, the newest last."""
    from loom.project.rank.request import paths_in

    return (*paths_in(query[:MAX_QUERY_CHARS]), *touched)


def _find_said_texts(options: Options, head: Conversation) -> list[str]:
    """What the caller's system text and sections say."""
    return [*(message.text for message in head.system), *(each.text for each in options.sections)]


def _tell_cuts(written: "WrittenRules", zone: str) -> list[str]:
    """A note for each piece that is cut, and one for all that have no room."""
    notes = [
        f"{each.piece.path}: {each.tokens:,} of about {each.full_tokens:,} tokens of "
        f"{each.piece.heading.lstrip('# ')} are in the request: {each.left_out.strip('[]')}"
        for each in written.pieces
        if each.left_out and each.text
    ]
    missing: dict[str, int] = {}
    for each in written.pieces:
        if not each.text:
            missing[each.piece.path] = missing.get(each.piece.path, 0) + each.full_tokens
    if missing:
        files = ", ".join(f"{path} (about {tokens:,} tokens)" for path, tokens in missing.items())
        notes.append(f"no room in the zone {zone} for rules of {files}")
    return notes


def _count(options: Options, head: Conversation) -> Callable[[str], int]:
    return gate_counter(options.model or head.model or None, options.ratio).count_text
