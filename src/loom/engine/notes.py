"""Which notes say something of a question, and in which order they are shown."""

from collections.abc import Sequence

from loom.conversation.repeats import normal_text
from loom.recall.importance import (
    NOTE_HALF_LIFE_MS,
    choose_candidates,
    note_importance,
    rank_value,
    score_note,
)
from loom.recall.question import find_content_terms
from loom.stores import Note, NoteFilter, NoteScope, Store, note_terms

MAX_ASKED_CHARS = 8000  # of a question that are read for its terms, half of them from its end
MAX_ASKED_TERMS = 128
MAX_NOTE_TERMS = 1000
TOPIC_SCORE = 0.5  # at least, of a note whose whole topic is asked for
MAX_SCORED = 200  # notes that are read to know how much of what they say is asked for


def find_asked_terms(text: str) -> tuple[str, ...]:
    """The terms of a question by which notes are looked for."""
    half = MAX_ASKED_CHARS // 2
    if len(text) > MAX_ASKED_CHARS:
        text = f"{text[:half]}\n{text[-half:]}"
    return find_content_terms(text, MAX_ASKED_TERMS)


def rank_notes(
    store: Store, scope: NoteScope, query: str, wanted: NoteFilter, now: int
) -> list[tuple[float, Note]]:
    """The notes that say something of a query, each with how much it matters, the best first."""
    terms = find_asked_terms(query)
    if wanted.is_history:
        found = store.notes.list_all(scope, wanted, now)
        asked = frozenset(terms)
        holding: dict[str, list[int]] = {}
        for note in found:
            for term in asked.intersection(note_terms(note.about, note.text)):
                holding.setdefault(term, []).append(note.key)
        count = len(found)
    else:
        matches = store.notes.match(scope, terms, now)
        holding, count = {term: list(keys) for term, keys in matches.holding.items()}, matches.notes
        keys = choose_candidates(holding, count, MAX_SCORED)
        found = [
            note
            for note in store.notes.read(scope, keys, now).values()
            if wanted.kind in (None, note.kind) and wanted.about in (None, note.about)
        ]
    scored = [(_score(note, terms, holding, count), note) for note in found]
    return sorted(
        ((score, note) for score, note in scored if score > 0),
        key=lambda each: (each[0], note_rank(each[1]), each[1].key),
        reverse=True,
    )


def _score(note: Note, asked: Sequence[str], holding: dict[str, list[int]], count: int) -> float:
    """How much a note matters to a question; one whose topic is asked for matters."""
    terms = find_content_terms(f"{note.about}\n{note.text}", MAX_NOTE_TERMS)
    topic = find_content_terms(note.about, MAX_NOTE_TERMS)
    score = score_note(terms, holding, count, asked)
    return max(score, TOPIC_SCORE) if topic and set(topic) <= set(asked) else score


def note_rank(note: Note) -> float:
    """By what notes are ranked, the greater first."""
    moment = max(note.updated, note.used)
    return rank_value(note_importance(note.kind, note.by), moment, note.uses, NOTE_HALF_LIFE_MS)


def drop_repeats(notes: Sequence[Note]) -> list[Note]:
    """The notes without those whose text another has: what the user said stays, then the newest."""
    best: dict[str, Note] = {}
    for note in notes:
        text = normal_text(note.text)
        if text not in best or _outranks(note, best[text]):
            best[text] = note
    kept = {note.key for note in best.values()}
    return [note for note in notes if note.key in kept]


def _outranks(note: Note, other: Note) -> bool:
    return (note.by == "user", note.updated, note.key) > (
        other.by == "user",
        other.updated,
        other.key,
    )
