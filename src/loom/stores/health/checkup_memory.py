"""What must be true of notes: each is what its id says, its words can be found, and what it names
is there.
"""

from collections.abc import Iterator

from loom.stores.health.checkup import COPY, NOT_UTF_8, CheckedTable, Problem, decoder, read
from loom.stores.memory.notes import note_terms
from loom.stores.memory.rows import NewNote, NoteBody, note_id
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import is_garbled

_WORDS = "the notes are not affected; split their words again: UPDATE memories SET version = 0"
_LEFT_BEHIND = "nothing is damaged: it was imported without that note"


def _look_at_note(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    key, identity, session, agent, kind, by, supersedes, data, tenant, project, status = values
    place = f"note {identity} in {tenant}/{project}"
    if is_garbled(values):
        yield Problem(place, f"its words or names cannot be read: {NOT_UTF_8}", COPY)
        return
    if tenant is None:
        yield Problem(place, "the project that remembers it is not there", COPY)
        return
    if session and status is None:
        yield Problem(place, f"session {session}, which remembers it, is not there", COPY)
    if supersedes and reader.first_row(_OLDER, key) is None:
        yield Problem(place, f"it supersedes {supersedes}, which is not here", _LEFT_BEHIND, True)
    if data is None:
        yield from _look_at_terms(reader, place, key, [])
        return
    body = read(decoder(NoteBody), data)
    if body is None:
        yield Problem(place, "what it says cannot be read", COPY)
        return
    if status == "purged" and session:
        remedy = f"purge it by hand: UPDATE notes SET data = NULL WHERE key = {key}"
        yield Problem(place, "its session was purged, and its words are still here", remedy)
    new = NewNote(body=body, kind=kind, by=by, session=session, agent=agent, supersedes=supersedes)
    if note_id(new) != identity:
        yield Problem(place, "its words are not those that were remembered", COPY)
        return
    yield from _look_at_terms(reader, place, key, note_terms(body.about, body.text))


def _look_at_terms(reader: Reader, place: str, key: int, terms: list[str]) -> Iterator[Problem]:
    found = sorted(term for (term,) in reader.all(_TERMS, key))
    if found != terms:
        yield Problem(place, "it cannot be found by its words", _WORDS)


_NOTES = """SELECT n.key, n.id, n.session, n.agent, n.kind, n.said_by, n.supersedes, n.data,
    m.tenant, m.project, s.status FROM notes n LEFT JOIN memories m ON m.key = n.memory
    LEFT JOIN sessions s ON s.tenant = m.tenant AND s.project = m.project AND s.id = n.session
    WHERE n.key > $1 ORDER BY n.key LIMIT $2"""
_OLDER = """SELECT 1 FROM notes n JOIN notes o ON o.memory = n.memory AND o.id = n.supersedes
    WHERE n.key = $1"""
_TERMS = "SELECT term FROM note_terms WHERE note = $1"


def memory_tables() -> tuple[CheckedTable, ...]:
    """What there is to look at of notes."""
    return (CheckedTable("notes", (0,), _NOTES, _look_at_note),)
