"""Notes out of a store and back in.

Out: those that are damaged are left out, and named. In: the id of each is made again and must be
what its line says. A note that is here already stays as it is, and so does a session that is here
already: notes come in only for the project, and for sessions that come with them.
"""

from collections.abc import Collection, Iterator

from loom.conversation.canonical import to_json
from loom.conversation.names import check_name
from loom.errors import ChoiceError, TranscriptError
from loom.stores.memory.notes import insert_note, lock_memory, put_terms
from loom.stores.memory.rows import ENDLESS, NewNote, NoteBody, NoteScope, note_id
from loom.stores.sessions import Scope
from loom.stores.sql.database import Reader, Row, Writer
from loom.stores.sql.stored import UNREADABLE, decode_stored, is_garbled, read_paged
from loom.stores.transfer.lines import REFUSED, NoteLine, read_line
from loom.stores.transfer.salvage import LeftOut


def has_notes(reader: Reader, scope: Scope, everywhere: bool) -> bool:
    """Whether an export of a scope has notes."""
    return next(_rows(reader, scope, everywhere), None) is not None


def export_notes(
    reader: Reader, scope: Scope, everywhere: bool, left_out: LeftOut, session: str | None = None
) -> Iterator[NoteLine]:
    """The notes of a scope, or of every tenant and project; with a session, those that only it
    sees. With an agent named, none of other agents, and none of the project.
    """
    for row in _rows(reader, scope, everywhere, session):
        try:
            if is_garbled(row):
                raise ValueError("a text is not UTF-8")
            line = _line(row, everywhere)
            _check(line)
            read_line(0, to_json(line))  # as an import reads it
        except (*REFUSED, *UNREADABLE, TranscriptError):
            left_out.add(f"note {row[3]!s:.200}")
        else:
            yield line


def _rows(
    reader: Reader, scope: Scope, everywhere: bool, session: str | None = None
) -> Iterator[Row]:
    where = ("", "") if everywhere else (scope.tenant, scope.project)
    return read_paged(reader, _NOTES, (0,), *where, scope.agent, session or "")


def _line(row: Row, everywhere: bool) -> NoteLine:
    _, tenant, project, identity, session, agent, kind, by, supersedes, always = row[:10]
    forgotten, start, stop, uses, used, data, created, updated = row[10:]
    return NoteLine(
        id=identity,
        tenant=tenant if everywhere else "",
        project=project if everywhere else "",
        session=session,
        agent=agent,
        kind=kind,
        by=by,
        supersedes=supersedes,
        always=bool(always),
        forgotten=bool(forgotten),
        valid_from=start or None,
        valid_until=None if stop >= ENDLESS else stop,
        uses=uses,
        used=used,
        body=decode_stored(data, NoteBody) if data is not None else None,
        created=created,
        updated=updated,
    )


def _check(line: NoteLine) -> None:
    """Raises if a line is not what its id says."""
    for what, name in (("session", line.session), ("agent", line.agent)):
        check_name(what, name)
    if line.body is not None and note_id(_to_new(line, line.body)) != line.id:
        raise ValueError("its id is not made from what it says")


def _to_new(line: NoteLine, body: NoteBody) -> NewNote:
    return NewNote(
        body=body,
        kind=line.kind,
        by=line.by,
        session=line.session,
        agent=line.agent,
        supersedes=line.supersedes,
        always=line.always,
        valid_from=line.valid_from,
        valid_until=line.valid_until,
    )


def take_note(
    writer: Writer, scope: Scope, number: int, line: NoteLine, fresh: Collection[str]
) -> int:
    """Bring a note into a scope; its key, or 0 if it is here already, or its session is. `fresh`
    are the sessions that came with the file.
    """
    try:
        _check(line)
    except (ValueError, ChoiceError) as error:
        raise TranscriptError(f"line {number}: note {line.id!s:.100}: {error}") from None
    if line.session and line.session not in fresh:
        return 0
    memory = lock_memory(writer, NoteScope(scope.tenant, scope.project))
    if writer.first_row(_HERE, memory, line.id) is not None:
        return 0
    key = insert_note(
        writer, memory, _to_new(line, line.body or NoteBody(text="")), line.id, line.created
    )
    writer.all(
        _RESTORE, key, int(line.forgotten), line.uses, line.used, line.updated, int(not line.body)
    )
    if line.body is not None:
        put_terms(writer, memory, key, line.body)
    return key


_HERE = "SELECT 1 FROM notes WHERE memory = $1 AND id = $2"
_RESTORE = """UPDATE notes SET forgotten = $2, uses = $3, used = $4, updated = $5,
    data = CASE WHEN CAST($6 AS BIGINT) = 1 THEN NULL ELSE data END WHERE key = $1"""
_NOTES = """SELECT n.key, m.tenant, m.project, n.id, n.session, n.agent, n.kind, n.said_by,
    n.supersedes, n.always, n.forgotten, n.valid_from, n.valid_until, n.uses, n.used, n.data,
    n.created, n.updated FROM notes n JOIN memories m ON m.key = n.memory
    WHERE n.key > $1 AND ($2 = '' OR m.tenant = $2) AND ($3 = '' OR m.project = $3)
    AND ($5 = '' OR n.session = $5)
    AND ($4 = '' OR n.agent = $4 OR n.session IN (SELECT s.id FROM sessions s
        WHERE s.tenant = m.tenant AND s.project = m.project AND s.agent = $4))
    ORDER BY n.key LIMIT 200"""
