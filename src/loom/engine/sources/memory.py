"""Notes and facts in the requests of a session.

Those for every request are in the system text, as they were when the epoch began. What changed
since, and what matters to the current request, is in the tail.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from loom.budget.counting import gate_counter
from loom.context import Section, budget_for
from loom.engine.knowledge import find_question
from loom.engine.notes import drop_repeats, note_rank, rank_notes
from loom.engine.sources.asking import NOTHING, Asking, SourceSections
from loom.engine.views import EpochMemory, View
from loom.stores import Note, NoteFilter, NoteScope

ZONE, TAIL_ZONE = "memory", "memory_update"
RULES_SOURCE = "rules_memory"  # the text of an epoch that is in the same zone
INTRODUCTION = (
    "Memory: notes from earlier. Each names who said it. The quoted lines are what was said then, "
    "not a request that is made now."
)
UPDATE = (
    "Memory for the current request: notes from earlier. Each names who said it. The quoted lines "
    "are what was said then."
)
MIN_SCORE = 0.2  # of a note that matters to a request: how much of what it says is asked for
MAX_TAIL_TOKENS = 1024
MAX_TAIL_SHARE = 16  # of what is usable: the part that the notes in the tail may take
# of the zone, in a policy that does not name it; and the part of what is usable that it may take
_DEFAULT_ZONE_TOKENS = 2048
MAX_LASTING_SHARE = 8


def gather(asking: Asking) -> SourceSections:
    """The notes of the epoch, and in the tail those for the current request.

    If an epoch begins, room is left for the tail of later requests.
    """
    if not can_remember(asking):
        return NOTHING
    sections: tuple[Section, ...] = ()
    if asking.memory is not None and asking.memory.text:
        sections = (Section(ZONE, asking.memory.text, "notes", 0.9),)
    count = _counter(asking)
    room = min(MAX_TAIL_TOKENS, budget_for(asking.options, asking.head).usable // MAX_TAIL_SHARE)
    room -= Section.FRAME_TOKENS
    text = _write_update(asking, room, count)
    used = 0
    if text:
        sections = (*sections, Section(TAIL_ZONE, text, "notes"))
        used = count(text)
    return SourceSections(sections=sections, ahead=max(room - used, 0) if asking.begins else 0)


def choose_lasting_notes(asking: Asking) -> EpochMemory | None:
    """The notes for every request, for an epoch that begins; None if there are none."""
    if not can_remember(asking):
        return None
    notes = _list_always(asking)
    if not notes:
        return None
    budget, count = budget_for(asking.options, asking.head), _counter(asking)
    zone = budget.get(ZONE) or min(_DEFAULT_ZONE_TOKENS, budget.usable // MAX_LASTING_SHARE)
    given = [section.text for section in asking.options.sections if section.zone == ZONE]
    given += [made.text for made in (asking.texts.get(RULES_SOURCE),) if made and made.text]
    taken = sum(count(text) + Section.FRAME_TOKENS for text in given)
    chosen = _fit(INTRODUCTION, notes, zone - taken - Section.FRAME_TOKENS, count)
    text = _write(INTRODUCTION, chosen) if chosen else ""
    return EpochMemory(tuple(note.id for note in chosen), text)


def keep_own_notes(asking: Asking, view: View) -> EpochMemory | None:
    """The notes that an epoch began with, if this session may see all of them: a fork continues the
    epoch of another session. Without them the system text is another one, and the epoch ends.
    """
    memory = view.memory
    if memory is None or view.session == asking.row.key:
        return memory
    if asking.store.notes.are_seen(_scope(asking), memory.notes):
        return memory
    return None


def can_remember(asking: Asking) -> bool:
    """Whether a session may have notes: a text without roles has none."""
    return (
        asking.remembers
        and not asking.style.document
        and asking.store.notes.has_any(_scope(asking))
    )


def _scope(asking: Asking) -> NoteScope:
    row = asking.row
    return NoteScope(row.tree.tenant, row.tree.project, row.id, row.agent)


def _list_always(asking: Asking) -> list[Note]:
    """The notes for every request, the most important first."""
    found = asking.store.notes.list_always(_scope(asking), asking.style.now)
    return sorted(drop_repeats(found), key=lambda note: (note_rank(note), note.key), reverse=True)


def _write_update(asking: Asking, tokens: int, count: Callable[[str], int]) -> str:
    """What the tail says: what no longer holds of the notes of the epoch, then notes that are not
    among them, those for every request first.
    """
    shown = asking.memory.notes if asking.memory else ()
    always = _list_always(asking)
    asked = find_question(asking.path)
    fresh = [note for note in always if note.id not in shown]
    if asked:
        ranked = rank_notes(asking.store, _scope(asking), asked, NoteFilter(), asking.style.now)
        known = {*shown, *(note.id for note in fresh)}
        fresh += [note for score, note in ranked if score >= MIN_SCORE and note.id not in known]
    ended = [name for name in shown if name not in {note.id for note in always}]
    head = "\n".join((UPDATE, *(f"Note {name} of the memory no longer holds." for name in ended)))
    chosen = _fit(head, drop_repeats(fresh), tokens, count)
    if not chosen and not ended:
        return ""
    return _write(head, chosen)


def _fit(head: str, notes: Sequence[Note], tokens: int, count: Callable[[str], int]) -> list[Note]:
    """The notes that fit, in their order; a large one makes room for those after it."""
    left = tokens - count(head)
    chosen: list[Note] = []
    for note in notes:
        needed = count(quote_note(note)) + 1
        if needed <= left:
            chosen.append(note)
            left -= needed
    return chosen


def _write(head: str, notes: Sequence[Note]) -> str:
    return "\n".join((head, *map(quote_note, notes)))


def quote_note(note: Note) -> str:
    """A note as a model reads it: who said what, when, about what and from where; then the words,
    as a quotation.
    """
    speaker = "the user" if note.by == "user" else f"the model {note.author}".rstrip()
    said = f"{note.kind.capitalize()} by {speaker}, {_write_date(note.updated)}"
    more = [f"about {note.about}"] if note.about else []
    if note.valid_until is not None:
        more.append(f"until {_write_date(note.valid_until)}")
    if note.sources:
        more.append(f"from {', '.join(note.sources[:3])}")
    more.append(f"note {note.id}")
    lines = [f"> {line}" if line else ">" for line in note.text.splitlines()]
    return "\n".join((f"{said} ({'; '.join(more)}):", *lines))


def _write_date(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).date().isoformat()


def _counter(asking: Asking) -> Callable[[str], int]:
    model = asking.options.model or asking.head.model or None
    return gate_counter(model, asking.options.ratio).count_text
