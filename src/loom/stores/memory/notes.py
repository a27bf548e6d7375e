"""Notes and facts: what a project, an agent or a session remembers.

Rules of this file:
- A note is seen by its session and its agent only, or by all of its project if it names none.
- The same words of the same speaker in the same place are one note.
- A note that supersedes another hides it where both are seen, from its own `valid_from` on.
- Nothing here is deleted but the words of what is purged: what is forgotten, superseded or not
  valid stays, and can be read as history.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.words import SPLITTER_VERSION, split_terms_for_index
from loom.errors import ChoiceError, shorten
from loom.stores.memory.rows import (
    ENDLESS,
    FORGOTTEN_NOTE,
    ID_CHARS,
    MAX_SOURCES,
    NewNote,
    Note,
    NoteBody,
    NoteKind,
    NoteScope,
    NoteState,
    note_id,
)
from loom.stores.sql.database import Database, Reader, Row, Writer
from loom.stores.sql.stored import UNREADABLE, decode_stored, read_each, read_rows, read_stored

MAX_HOLDING = 500  # newest notes with a term that are candidates for a question
MAX_COUNTED = 10_000  # notes that are counted to know how rare a term is
MAX_ALWAYS = 200  # newest notes for every request
_MAX_COMMON = 4  # terms of a question that more notes have, of which the newest are candidates
_MAX_CHAIN = 1000  # notes that supersede each other
_PAGE_ROWS = 500
_NAME = re.compile(f"[a-z2-7]{{1,{ID_CHARS}}}")


class NoteFilter(Struct, frozen=True):
    """Which notes are listed. `is_history`: also those that are not shown any more, or not yet."""

    kind: NoteKind | None = None
    about: str | None = None
    is_history: bool = False
    limit: int | None = None


class TermMatches(Struct, frozen=True):
    """Notes by the terms that they have, newest first, and how many notes there are in all."""

    holding: Mapping[str, Sequence[int]]
    notes: int


class StoredNotes:
    """The notes of all projects in a store, each seen from a scope."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, scope: NoteScope, new: NewNote, now: int) -> Note:
        """Remember something. What is known already is remembered again: it is not forgotten any
        more, and gets what is new of its times and sources.
        """
        with self._database.write() as writer:
            memory = lock_memory(writer, scope)
            if new.session:
                _check_session(writer, scope, new.session)
            if new.supersedes:
                older = _find(writer, memory, scope, new.supersedes, now)
                new = replace(new, supersedes=older.id)
            else:
                new = _follow_chain(writer, memory, new, now)
            return _put(writer, memory, scope, new, now)

    def find(self, scope: NoteScope, name: str, now: int) -> Note:
        """A note by its id, or by the first characters of it."""
        with self._database.read() as reader:
            return _find(reader, _find_memory(reader, scope), scope, name, now)

    def list_all(self, scope: NoteScope, wanted: NoteFilter, now: int) -> list[Note]:
        """The notes that are seen, the newest first."""
        with self._database.read() as reader:
            rows = read_rows(
                reader,
                _LISTED,
                *_seen_by(scope, _find_memory(reader, scope), now),
                wanted.kind or "",
                int(wanted.is_history),
                wanted.limit if wanted.limit and wanted.about is None else ENDLESS,
            )
        found = _read_all(rows, now)
        if wanted.about is not None:
            found = [note for note in found if note.about == wanted.about]
        return found[: wanted.limit]

    def list_always(self, scope: NoteScope, now: int) -> list[Note]:
        """The notes for every request, the newest first."""
        with self._database.read() as reader:
            seen = _seen_by(scope, _find_memory(reader, scope), now)
            return _read_all(read_rows(reader, _ALWAYS, *seen), now)

    def match(self, scope: NoteScope, terms: Iterable[str], now: int) -> TermMatches:
        """The valid notes that have these terms."""
        self._renew_terms(scope)
        with self._database.read() as reader:
            seen = _seen_by(scope, _find_memory(reader, scope), now)
            counts: dict[str, int] = dict(reader.all(_COUNT_TERMS, *seen, to_json(list(terms))))
            common = sorted(
                (term for term, count in counts.items() if count > MAX_HOLDING),
                key=lambda term: (counts[term], term),
            )
            rare = counts.keys() - set(common)
            found: dict[str, list[int]] = {}
            for term, key in reader.all(_HOLDING, *seen, to_json(sorted(rare))) if rare else ():
                found.setdefault(term, []).append(key)
            for term in common[:_MAX_COMMON]:
                found[term] = [key for (key,) in reader.all(_NEWEST_HOLDING, *seen, term)]
            counted = reader.first_row(_COUNT, *seen)
        return TermMatches(found, counted[0] if counted else 0)

    def read(self, scope: NoteScope, keys: Collection[int], now: int) -> dict[int, Note]:
        """Notes by their keys, of those that are seen."""
        with self._database.read() as reader:
            seen = _seen_by(scope, _find_memory(reader, scope), now)
            rows = read_rows(reader, _BY_KEYS, *seen, str(sorted(keys)))
        return {note.key: note for note in _read_all(rows, now)}

    def are_seen(self, scope: NoteScope, ids: Collection[str]) -> bool:
        """Whether all of these notes are seen, whatever their states."""
        with self._database.read() as reader:
            seen = _seen_by(scope, _find_memory(reader, scope), 0)
            rows = reader.all(_SEEN_IDS, *seen, to_json(sorted(ids)))
        return len(rows) == len(set(ids))

    def has_any(self, scope: NoteScope) -> bool:
        """Whether anything was ever remembered in a project."""
        with self._database.read() as reader:
            return bool(_find_memory(reader, scope))

    def forget(self, scope: NoteScope, name: str, now: int) -> Note:
        """Show a note no longer. It stays stored. A session forgets a note of others for itself
        only.
        """
        with self._database.write() as writer:
            memory = lock_memory(writer, scope)
            note = _find(writer, memory, scope, name, now)
            if scope.session and note.session != scope.session:
                session = (scope.tenant, scope.project, scope.session)
                writer.all(_FORGET_HERE, *session, FORGOTTEN_NOTE, note.id, now)
            elif note.state != "purged":
                writer.all(
                    "UPDATE notes SET forgotten = 1, updated = $2 WHERE key = $1", note.key, now
                )
                _count_change(writer, memory)
            return _find(writer, memory, scope, note.id, now)

    def purge(self, scope: NoteScope, name: str, now: int) -> Note:
        """Remove the words of a note for good; what is left is its id."""
        with self._database.write() as writer:
            memory = lock_memory(writer, scope)
            note = _find(writer, memory, scope, name, now)
            take_notes(writer, [note.key])
            _drop_views(writer, scope)
            return _find(writer, memory, scope, note.id, now)

    def shed(self) -> None:
        """Remove what was purged from the files of the database too."""
        self._database.shed()

    def remove(self, keys: Collection[int]) -> None:
        """Take back notes of an import that did not come to its end."""
        with self._database.write() as writer:
            take_notes(writer, keys)
            writer.run_many("DELETE FROM notes WHERE key = $1", [(key,) for key in keys])

    def count_uses(self, uses: Mapping[int, int], now: int) -> None:
        """Count how often notes were opened."""
        with self._database.write() as writer:
            writer.run_many(
                "UPDATE notes SET uses = uses + $2, used = $3 WHERE key = $1 AND data IS NOT NULL",
                [(key, count, now) for key, count in sorted(uses.items())],
            )

    def _renew_terms(self, scope: NoteScope) -> None:
        """Split the words again if other rules split them."""
        with self._database.read() as reader:
            sql = "SELECT 1 FROM memories WHERE tenant = $1 AND project = $2 AND version <> $3"
            is_old = reader.first_row(sql, scope.tenant, scope.project, SPLITTER_VERSION)
        if is_old:
            with self._database.write() as writer:
                lock_memory(writer, scope)


# What a project remembers


def _find_memory(reader: Reader, scope: NoteScope) -> int:
    """The key of what a project remembers; 0 if that is nothing."""
    sql = "SELECT key FROM memories WHERE tenant = $1 AND project = $2"
    row = reader.first_row(sql, scope.tenant, scope.project)
    return int(row[0]) if row else 0


def lock_memory(writer: Writer, scope: NoteScope) -> int:
    """The key of what a project remembers, which nobody else changes until this transaction ends.
    Words are split again if other rules split them.
    """
    writer.all(
        "INSERT INTO memories (tenant, project, version, revision) VALUES ($1, $2, $3, 0) "
        "ON CONFLICT (tenant, project) DO NOTHING",
        scope.tenant,
        scope.project,
        SPLITTER_VERSION,
    )
    sql = "SELECT key, version FROM memories WHERE tenant = $1 AND project = $2 {lock}"
    row = writer.first_row(sql, scope.tenant, scope.project)
    assert row is not None
    if row[1] != SPLITTER_VERSION:
        _split_again(writer, row[0])
    return int(row[0])


def _split_again(writer: Writer, memory: int) -> None:
    writer.all("DELETE FROM note_terms WHERE memory = $1", memory)
    last = 0
    while rows := writer.all(_NEXT, memory, last):
        for key, data in rows:
            try:
                put_terms(writer, memory, key, decode_stored(data, NoteBody))
            except UNREADABLE:  # damaged; the doctor tells of it
                continue
        last = rows[-1][0]
    writer.all("UPDATE memories SET version = $2 WHERE key = $1", memory, SPLITTER_VERSION)


def _count_change(writer: Writer, memory: int) -> None:
    writer.all("UPDATE memories SET revision = revision + 1 WHERE key = $1", memory)


def _check_session(reader: Reader, scope: NoteScope, session: str) -> None:
    """Refuse to remember anything for a session that was purged."""
    row = reader.first_row(
        "SELECT status FROM sessions WHERE tenant = $1 AND project = $2 AND id = $3",
        scope.tenant,
        scope.project,
        session,
    )
    if row is None or row[0] == "purged":
        raise ChoiceError(f"session {session} was purged; it can remember nothing more")


# Notes


def _seen_by(scope: NoteScope, memory: int, now: int) -> tuple[object, ...]:
    """The first parameters of every statement: what is seen, and when."""
    return (memory, scope.session, scope.agent, int(scope.everyone), now)


def _find(reader: Reader, memory: int, scope: NoteScope, name: str, now: int) -> Note:
    found: list[Note] = []
    if _NAME.fullmatch(name):
        last = name + "z" * (ID_CHARS - len(name))
        rows = read_rows(reader, _NAMED, *_seen_by(scope, memory, now), name, last)
        found = _read_all(rows, now)
    if len(found) == 1:
        return found[0]
    if found:
        raise ChoiceError(f"several notes begin with {shorten(name)!r}; give more characters")
    raise ChoiceError(f"there is no note {shorten(name)!r} here; loom memory list shows them")


def _follow_chain(reader: Reader, memory: int, new: NewNote, now: int) -> NewNote:
    """The note as it is remembered: what supersedes the same words is superseded by them again."""
    last = note_id(new)
    seen = {last}
    newest = ""
    for _ in range(_MAX_CHAIN):
        row = reader.first_row(_SUPERSEDING, memory, last, new.session, new.agent)
        if row is None or row[0] in seen:
            break
        newest = last = row[0]
        seen.add(last)
    if not newest:
        return new
    row = reader.first_row(
        "SELECT supersedes FROM notes WHERE memory = $1 AND id = $2", memory, last
    )
    again = replace(new, supersedes=row[0] if row else "")
    if note_id(again) == newest:
        return again
    return replace(new, supersedes=newest)


def _put(writer: Writer, memory: int, scope: NoteScope, new: NewNote, now: int) -> Note:
    identity = note_id(new)
    everyone = replace(scope, agent="", everyone=True)
    wanted = (*_seen_by(everyone, memory, now), identity, identity)
    rows = read_rows(writer, _NAMED, *wanted)
    if rows:
        _remember_again(writer, new, rows[0], now)
        session = (scope.tenant, scope.project, scope.session)
        writer.all(_UNFORGET_HERE, *session, FORGOTTEN_NOTE, identity)
        if rows[0][_DATA] is None:
            put_terms(writer, memory, rows[0][0], new.body)
    else:
        key = insert_note(writer, memory, new, identity, now)
        put_terms(writer, memory, key, new.body)
    _count_change(writer, memory)
    return _read_note(read_rows(writer, _NAMED, *wanted)[0], now)


def insert_note(writer: Writer, memory: int, new: NewNote, identity: str, now: int) -> int:
    """Write a note that is not there; its key."""
    [(key,)] = writer.all(
        _INSERT,
        memory,
        identity,
        new.session,
        new.agent,
        new.kind,
        new.by,
        new.supersedes,
        int(new.always),
        _or(new.valid_from, 0),
        _or(new.valid_until, ENDLESS),
        to_json(new.body),
        now,
    )
    return int(key)


def _remember_again(writer: Writer, new: NewNote, old: Row, now: int) -> None:
    """Write what is new of a note that is there."""
    note = _read_note(old, now)
    body = new.body
    if note.state != "purged":
        held = read_stored(old[_DATA], NoteBody, f"note {note.id}")
        body = replace(
            held,
            sources=_join(held.sources, body.sources),
            nodes=_join(held.nodes, body.nodes),
        )
    writer.all(
        """UPDATE notes SET data = $2, forgotten = 0, uses = uses + 1, used = $3, updated = $3,
            always = $4, valid_from = $5, valid_until = $6 WHERE key = $1""",
        note.key,
        to_json(body),
        now,
        int(new.always or note.always),
        _or(new.valid_from, note.valid_from or 0),
        _or(new.valid_until, _or(note.valid_until, ENDLESS)),
    )


def _join(held: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*held, *more)))[:MAX_SOURCES]


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def put_terms(writer: Writer, memory: int, key: int, body: NoteBody) -> None:
    writer.run_many(
        "INSERT INTO note_terms (memory, term, note) VALUES ($1, $2, $3)",
        [(memory, term, key) for term in note_terms(body.about, body.text)],
    )


def note_terms(about: str, text: str) -> list[str]:
    """The terms by which a note is found, each once."""
    said = f"{about}\n{text}".encode(errors="replace").decode()
    return sorted(set(split_terms_for_index(said)))


def _read_all(rows: Iterable[Row], now: int) -> list[Note]:
    return read_each(rows, lambda row: _read_note(row, now), lambda row: f"note {row[1]}")


def _read_note(row: Row, now: int) -> Note:
    key, identity, session, agent, kind, by, supersedes, always = row[:8]
    forgotten, start, stop, uses, used, data, created, updated, is_superseded = row[8:]
    body = NoteBody(text="")
    if data is not None:
        body = decode_stored(data, NoteBody)
    states: tuple[tuple[NoteState, bool], ...] = (
        ("purged", data is None),
        ("forgotten", bool(forgotten)),
        ("superseded", bool(is_superseded)),
        ("early", start > now),
        ("ended", stop <= now),
        ("valid", True),
    )
    return Note(
        id=identity,
        text=body.text,
        kind=kind,
        by=by,
        about=body.about,
        author=body.author,
        session=session,
        agent=agent,
        origin=body.origin,
        sources=body.sources,
        supersedes=supersedes,
        valid_from=start or None,
        valid_until=None if stop >= ENDLESS else stop,
        always=bool(always),
        created=created,
        updated=updated,
        uses=uses,
        used=used,
        state=next(state for state, holds in states if holds),
        key=key,
    )


# Purging


def take_notes(writer: Writer, keys: Collection[int]) -> None:
    """Take away the words of notes."""
    each = [(key,) for key in keys]
    writer.run_many("DELETE FROM note_terms WHERE note = $1", each)
    writer.run_many(
        "UPDATE notes SET data = NULL, always = 0, uses = 0, used = 0 WHERE key = $1", each
    )


def take_notes_of(
    writer: Writer, tenant: str, project: str, session: str, nodes: Collection[str] | None
) -> None:
    """Take away the words of the notes that only a session sees. With `nodes` (as `TREE/ID`), also
    of those for others that were remembered in it, or come from one of these.
    """
    row = writer.first_row(
        "SELECT key FROM memories WHERE tenant = $1 AND project = $2 {lock}", tenant, project
    )
    if row is None:
        return
    memory = row[0]
    gone = [key for (key,) in writer.all(_OF_SESSION, memory, session)]
    if nodes is not None:
        gone += _find_from(writer, memory, session, frozenset(nodes))
    take_notes(writer, gone)
    if gone:
        _count_change(writer, memory)
        _drop_views(writer, NoteScope(tenant, project))


def _find_from(reader: Reader, memory: int, session: str, nodes: frozenset[str]) -> list[int]:
    """The notes that were remembered in a session, or come from one of these nodes."""
    found: list[int] = []
    last = 0
    while rows := reader.all(_NEXT, memory, last):
        for key, data in rows:
            try:
                body = decode_stored(data, NoteBody)
            except UNREADABLE:  # what words are in it nobody knows
                found.append(key)
                continue
            if body.origin == session or not nodes.isdisjoint(body.nodes):
                found.append(key)
        last = rows[-1][0]
    return found


def _drop_views(writer: Writer, scope: NoteScope) -> None:
    """Take away views that have words of notes. The next request begins an epoch."""
    writer.all(
        """DELETE FROM views WHERE data LIKE '%"memory":{%'
            AND session IN (SELECT key FROM sessions WHERE tenant = $1 AND project = $2)""",
        scope.tenant,
        scope.project,
    )


_DATA = 13
# What is seen by a session ($2) and an agent ($3), or by everyone ($4), at a time ($5).
# With an agent named, everyone are its sessions and who sees what is for all.
_SEEN = """n.memory = $1 AND ((n.session IN ('', $2) AND n.agent IN ('', $3))
    OR (CAST($4 AS BIGINT) = 1 AND ($3 = '' OR n.agent = $3 OR EXISTS (SELECT 1 FROM sessions s
        JOIN memories m ON m.tenant = s.tenant AND m.project = s.project
        WHERE m.key = n.memory AND s.id = n.session AND s.agent = $3))))"""
_SUPERSEDED = """EXISTS (SELECT 1 FROM notes o WHERE o.memory = n.memory AND o.supersedes = n.id
    AND o.session IN ('', n.session, $2) AND o.agent IN ('', n.agent, $3) AND o.valid_from <= $5)"""
_FORGOTTEN_HERE = f"""EXISTS (SELECT 1 FROM memories m
    JOIN sessions s ON s.tenant = m.tenant AND s.project = m.project AND s.id = $2
    JOIN states x ON x.session = s.key AND x.kind = '{FORGOTTEN_NOTE}' AND x.name = n.id
    WHERE m.key = n.memory)"""
_OF_SCOPE = "(SELECT key FROM sessions WHERE tenant = $1 AND project = $2 AND id = $3)"
_FORGET_HERE = f"""INSERT INTO states (session, kind, name, data, updated)
    SELECT s.key, $4, $5, 'true', CAST($6 AS BIGINT) FROM sessions s WHERE s.key = {_OF_SCOPE}
    ON CONFLICT (session, kind, name) DO UPDATE SET updated = excluded.updated"""
_UNFORGET_HERE = f"DELETE FROM states WHERE session = {_OF_SCOPE} AND kind = $4 AND name = $5"
_VALID = f"""n.data IS NOT NULL AND n.forgotten = 0 AND n.valid_from <= $5 AND n.valid_until > $5
    AND NOT {_SUPERSEDED} AND NOT {_FORGOTTEN_HERE}"""
_SELECT = f"""SELECT n.key, n.id, n.session, n.agent, n.kind, n.said_by, n.supersedes, n.always,
    CASE WHEN n.forgotten = 1 OR {_FORGOTTEN_HERE} THEN 1 ELSE 0 END,
    n.valid_from, n.valid_until, n.uses, n.used, n.data, n.created, n.updated,
    CASE WHEN {_SUPERSEDED} THEN 1 ELSE 0 END FROM notes n"""
_NAMED = f"""{_SELECT} WHERE {_SEEN} AND n.id >= $6 AND n.id <= $7 ORDER BY n.id LIMIT 2"""
_LISTED = f"""{_SELECT} WHERE {_SEEN} AND ($6 = '' OR n.kind = $6)
    AND (CAST($7 AS BIGINT) = 1 OR ({_VALID})) ORDER BY n.updated DESC, n.key DESC LIMIT $8"""
_ALWAYS = f"""{_SELECT} WHERE {_SEEN} AND n.always = 1 AND {_VALID}
    ORDER BY n.updated DESC, n.key DESC LIMIT {MAX_ALWAYS}"""
_BY_KEYS = f"{_SELECT} WHERE {_SEEN} AND n.key IN {{each_int:6}}"
_SEEN_IDS = f"""SELECT n.id FROM notes n WHERE {_SEEN} AND n.id IN {{each:6}}
    AND n.created >= $5"""
_WITH_TERMS = f"""FROM {{each:6}} e CROSS JOIN note_terms t CROSS JOIN notes n
    WHERE t.memory = $1 AND t.term = e.value AND n.key = t.note AND {_SEEN} AND {_VALID}"""
_COUNT_TERMS = f"SELECT t.term, count(*) {_WITH_TERMS} GROUP BY t.term"
_HOLDING = f"SELECT t.term, n.key {_WITH_TERMS} ORDER BY n.key DESC"
_NEWEST_HOLDING = f"""SELECT n.key FROM note_terms t CROSS JOIN notes n
    WHERE t.memory = $1 AND t.term = $6 AND n.key = t.note AND {_SEEN} AND {_VALID}
    ORDER BY n.key DESC LIMIT {MAX_HOLDING}"""
_COUNT = f"""SELECT count(*) FROM (SELECT 1 FROM notes n WHERE {_SEEN} AND {_VALID}
    LIMIT {MAX_COUNTED}) x"""
_SUPERSEDING = """SELECT id FROM notes WHERE memory = $1 AND supersedes = $2
    AND session IN ('', $3) AND agent IN ('', $4) ORDER BY created DESC, key DESC LIMIT 1"""
_OF_SESSION = """SELECT key FROM notes WHERE memory = $1 AND session = $2 AND data IS NOT NULL"""
_NEXT = f"""SELECT key, data FROM notes WHERE memory = $1 AND key > $2 AND data IS NOT NULL
    ORDER BY key LIMIT {_PAGE_ROWS}"""
_INSERT = """INSERT INTO notes (memory, id, session, agent, kind, said_by, supersedes, always,
    forgotten, valid_from, valid_until, uses, used, data, created, updated)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, 0, 0, $11, $12, $12) RETURNING key"""
