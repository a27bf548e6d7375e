"""Views and handles: what stood for what in the last request, and the way back to what was cut."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.handles import mint, texts_of, to_lines
from loom.conversation.message import Message
from loom.errors import ChoiceError, StoreError, shorten
from loom.stores.sessions import Scope, SessionRow, lock_alive
from loom.stores.sql.database import Database, Reader, Row, Writer
from loom.stores.sql.stored import UNREADABLE, damage_error, is_text_damaged, read_stored
from loom.stores.tree import nodes
from loom.stores.tree.overlay import marked_in, why_kept_back
from loom.stores.tree.path import CHUNK_NODES, Node, OpenTransaction, Path, is_on_path
from loom.stores.view_record import EpochProgress, StoredView, ViewRecord, decode_view, encode_view

MAX_KEPT_EPOCHS = 64  # epochs of a session whose views are kept, for undoing them
_HIGHEST_RATIO = 100.0
MAX_TRIED_EPOCHS = 16  # epochs of a session that are tried for one that stands on a path
_MAX_FORKS = 64  # of forks without a request of their own that are gone through to find one

PUT_HANDLE = """INSERT INTO handles (tree, handle, session, kind, data, created)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tree, handle, session) DO NOTHING"""

_SHARE_HANDLES = """INSERT INTO handles (tree, handle, session, kind, data, created)
    SELECT h.tree, h.handle, CAST($2 AS BIGINT), h.kind, h.data, CAST($3 AS BIGINT) FROM handles h
    WHERE h.tree = $1 AND h.handle IN {each:4} AND h.data IS NOT NULL
    AND h.session = (SELECT min(o.session) FROM handles o
        WHERE o.tree = h.tree AND o.handle = h.handle AND o.data IS NOT NULL)
    ON CONFLICT (tree, handle, session) DO NOTHING"""


class NewestView(Struct, frozen=True):
    """The newest view of a path, where there is one that can be read."""

    view: StoredView | None
    is_damaged: bool = False


class HandleTarget(Struct, frozen=True, omit_defaults=True):
    """What a handle stands for, as it is stored: stretches of nodes, a text by its place in a node,
    or the text itself.

    Who comes after the node `at` may bring it back; without it, after the last of the nodes.
    `TREE/ID` is in another tree. `minted_at` is the place from which the handle was made; what was
    kept before places were has none. `shows` are nodes whose words are in a text that came from no
    node itself.
    """

    nodes: tuple[tuple[str, str], ...] = ()
    place: str | None = None
    text: str | None = None
    at: str = ""
    minted_at: str = ""
    shows: tuple[str, ...] = ()

    @classmethod
    def of_nodes(
        cls, place: str, nodes: Sequence[tuple[str, str]], at: str = ""
    ) -> "tuple[str, HandleTarget]":
        """The handle of stretches of nodes at a place, and what is kept under it."""
        return mint(place, to_json(nodes)), cls(tuple(nodes), at=at, minted_at=place)

    @classmethod
    def of_text(
        cls, place: str, text: str, shows: Sequence[str] = ()
    ) -> "tuple[str, HandleTarget]":
        """The handle of a text that is in no node, and what is kept under it."""
        return mint(place, text), cls(text=text, minted_at=place, shows=tuple(shows))


class FoundHandle(Struct, frozen=True):
    """The handle of a message that a search found, and the keys of its tree and session."""

    tree: int
    session: int
    handle: str
    target: HandleTarget


def _is_kept(reader: Reader, found: FoundHandle) -> bool:
    """Whether a session has this handle, and for the same."""
    row = reader.first_row(_OWN, found.tree, found.handle, found.session)
    if row is None or row[0] is None:
        return False
    return _is_same(reader, found.tree, found.handle, _read(row[0]), found.target)


def names(handle: str, kept: HandleTarget, text: str | None = None) -> bool | None:
    """Whether a handle is made from what is kept under it; none if that was kept without its
    place and cannot be told.

    `text` is the text of the part, where only its place in a node is kept.
    """
    if kept.place is None and kept.text is None:
        content = to_json(kept.nodes)
    else:
        content = kept.text if kept.text is not None else text or ""
    if kept.minted_at:
        return mint(kept.minted_at, content) == handle
    if kept.place is not None and kept.nodes:
        guess = f"{kept.nodes[0][0]}.{kept.place}"
    else:
        guess = "span" if kept.text is None else "section 0"
    if mint(guess, content) == handle:
        return True
    return None


class Views:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read_newest(self, row: SessionRow, path: Path) -> ViewRecord | None:
        """The newest view whose whole span is on this path: the session's own, else one of the
        session that it was forked from.
        """
        found = self.find_newest(row, path).view
        if found:
            return found.record
        return None

    def find_newest(self, row: SessionRow, path: Path) -> "NewestView":
        """The same, and whether there was one that is damaged."""
        with path.database.read() as reader:
            for tried in range(MAX_TRIED_EPOCHS):
                try:
                    found = reader.first_row(_NEWEST, row.key, row.tree.key, tried)
                except StoreError as error:
                    if is_text_damaged(error):
                        return NewestView(None, is_damaged=True)
                    raise
                if found is None:
                    break
                session, node, depth, seen, digest, data, epoch, check = found
                if path.holds(node, depth):
                    record = read_view(data, check, epoch, depth)
                    if record is None:
                        return NewestView(None, is_damaged=True)
                    return NewestView(
                        StoredView(
                            record=record, node=node, session=session, seen=seen, hash=digest
                        )
                    )
        return NewestView(None)

    def is_newest(self, row: SessionRow, reached: EpochProgress | None, path: Path) -> bool:
        """Whether requests of the session went as far as this. Another program may have continued
        with it. A purged one ends here.
        """
        with path.database.read() as reader:
            found = reader.first_row(_STANDING, row.key)
            row.check_alive(found[0] if found else "purged")
            if reached is None or found is None:
                return False
            return found[1:] == (reached.epoch, reached.node, reached.seen)

    def epoch(self, row: SessionRow, path: Path) -> int:
        """The number of the session's newest epoch; -1 where there is none."""
        with path.database.read() as reader:
            found = reader.first_row("SELECT max(epoch) FROM views WHERE session = $1", row.key)
            return found[0] if found and found[0] is not None else -1

    def undo(self, row: SessionRow, path: Path, now: int) -> tuple[int, int]:
        """Let the epoch before the newest one stand again, as one more; its number, and when it
        first began.
        """
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            found = writer.all(_EVERY_VIEW, row.key, row.tree.key)
            readable = ((one[:6], read_view(one[4], one[7], one[0], one[6])) for one in found)
            kept, views = [], dict[int, ViewRecord]()
            for one, view in readable:
                if view is not None:
                    kept.append(one)
                    views[one[0]] = view
            if not views:
                raise ChoiceError(
                    f"session {row.id} has made no request of its own yet, so there is no "
                    "epoch to undo"
                )
            newest = max(one[0] for one in found)
            if newest not in views:
                raise damage_error(f"the newest epoch of session {row.id}")
            if views[newest].of >= 0:
                standing = views[newest].of
            else:
                standing = newest
            before = [one for one in kept if one[0] < standing and views[one[0]].of < 0]
            if not before:
                raise ChoiceError(
                    f"session {row.id} is in its first epoch; there is none before it to go back to"
                )
            number, node, seen, digest, _, began = before[-1]
            depth = writer.first_row(
                "SELECT depth FROM nodes WHERE tree = $1 AND seq = $2", row.tree.key, node
            )
            if depth is None or not Path(OpenTransaction(writer), path.tree, path.end).holds(
                node, depth[0]
            ):
                raise ChoiceError(
                    f"the previous epoch was on another branch than the one session {row.id} "
                    "is on; switch back first"
                )
            record = views[number]
            again = replace(
                record, of=number, undone=True, epoch=replace(record.epoch, number=newest + 1)
            )
            put_view(writer, row, StoredView(record=again, node=node, seen=seen, hash=digest), now)
            return newest + 1, began

    def clashes(self, row: SessionRow, handles: Mapping[str, HandleTarget]) -> frozenset[str]:
        """Those of these handles under which something else is kept in the tree."""
        if not handles:
            return frozenset()
        with self._database.read() as reader:
            return frozenset(_clashes(reader, row.tree.key, handles))

    def keep(self, row: SessionRow, handles: Sequence[tuple[str, HandleTarget]], now: int) -> None:
        """Keep what handles stand for that a session made."""
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            check_free(writer, row.tree.key, dict(handles))
            put_handles(writer, row, dict(handles), now)

    def keep_found(self, found: Sequence["FoundHandle"], now: int) -> None:
        """Keep what handles stand for that a search made, each for its session. Most searches find
        what was found before, and write nothing.
        """
        with self._database.read() as reader:
            fresh = [each for each in found if not _is_kept(reader, each)]
        if not fresh:
            return
        with self._database.write() as writer:
            for session in sorted({each.session for each in fresh}):
                lock_alive(writer, session)
            for each in fresh:
                check_free(writer, each.tree, {each.handle: each.target})
            writer.run_many(
                PUT_HANDLE,
                [
                    (each.tree, each.handle, each.session, "span", to_json(each.target), now)
                    for each in fresh
                ],
            )

    def recall(
        self,
        row: SessionRow,
        path: Path,
        handle: str,
        write: Callable[[list[Message]], str] = to_lines,
    ) -> str:
        """What was cut under this handle in this session, or on a path that it stands on or stood
        on in its last request. `write` makes a text of messages.
        """
        with self._database.read() as reader:
            kept = self._in_scope(reader, row, path.end, handle)
            return _resolve(reader, row.tree.key, handle, kept, write=write)

    def target(self, row: SessionRow, path: Path, handle: str) -> HandleTarget:
        """What a handle stands for that this session can recall."""
        with self._database.read() as reader:
            return self._in_scope(reader, row, path.end, handle)

    def targets_anywhere(self, scope: Scope, handle: str) -> list[tuple[str, HandleTarget]]:
        """What a handle stands for in any session in scope, each with the id of its tree."""
        with self._database.read() as reader:
            found = _find_anywhere(reader, scope, handle)
            ids = {tree: nodes.tree_name(reader, tree) for tree, _ in found}
            return [(ids[tree], _read(data)) for tree, data in found if data is not None]

    def recall_shown(
        self,
        row: SessionRow,
        path: Path,
        handle: str,
        hidden: Collection[int],
        write: Callable[[list[Message]], str] = to_lines,
    ) -> tuple[str, int]:
        """The same for a model: without what is excluded or pruned by now, wherever it stands, and
        how many messages that are.

        `hidden` are more nodes of the tree that are not shown. `write` makes a text of messages.
        """
        with self._database.read() as reader:
            kept = self._in_scope(reader, row, path.end, handle)
            screen = _Screen(reader, row.tree.key, hidden)
            screen.check(handle, kept)
            return _resolve(reader, row.tree.key, handle, kept, screen, write), screen.count

    @staticmethod
    def _in_scope(reader: Reader, row: SessionRow, end: Node | None, handle: str) -> HandleTarget:
        own = reader.first_row(_OWN, row.tree.key, handle, row.key)
        if own is not None and own[0] is not None:
            return _read(own[0])
        rows = reader.all(_OTHERS, row.tree.key, handle, row.key)
        reach = Reach(reader, row.tree.key, row.key, end)
        found = [
            kept
            for (data,) in rows
            if data is not None and reach.holds(handle, kept := _read(data))
        ]
        if found:
            return _only(reader, row.tree.key, handle, found)
        raise (
            _purged_error(handle)
            if own is not None or (None,) in rows
            else _unknown(handle, f"session {row.id}")
        )

    def recall_any(
        self, scope: Scope, handle: str, write: Callable[[list[Message]], str] = to_lines
    ) -> str:
        """What was cut under this handle in any session in scope, or on the path of one. `write`
        makes a text of messages.
        """
        with self._database.read() as reader:
            found = _find_anywhere(reader, scope, handle)
            texts = {
                tree: [_read(data) for at, data in found if at == tree and data is not None]
                for tree, _ in found
            }
            said = {
                _resolve(reader, tree, handle, _only(reader, tree, handle, several), write=write)
                for tree, several in texts.items()
                if several
            }
            if len(said) > 1:
                raise _ambiguous(handle)
            if not said and found:
                raise _purged_error(handle)
            if not said:
                raise _unknown(handle, f"project {scope.project!r}")
            return said.pop()


_OWN = "SELECT data FROM handles WHERE tree = $1 AND handle = $2 AND session = $3"
_OTHERS = "SELECT DISTINCT data FROM handles WHERE tree = $1 AND handle = $2 AND session <> $3"
_ANYWHERE = """SELECT DISTINCT h.tree, s.agent, h.data FROM trees t JOIN handles h ON h.tree = t.key
    JOIN sessions s ON s.key = h.session
    WHERE t.tenant = $1 AND t.project = $2 AND h.handle = $3"""


def _find_anywhere(reader: Reader, scope: Scope, handle: str) -> dict[tuple[int, str | None], None]:
    """What is kept under a handle in the sessions of a scope, by the keys of its trees."""
    rows = reader.all(_ANYWHERE, scope.tenant, scope.project, handle)
    return {
        (tree, data): None
        for tree, agent, data in rows
        if scope.agent in ("", agent)
        or (data is not None and _is_reached(reader, tree, scope.agent, handle, _read(data)))
    }


class Reach:
    """What a session can recall of what others keep: what stands on its path, or was in or above
    its last request.
    """

    def __init__(self, reader: Reader, tree: int, session: int, end: Node | None) -> None:
        self._reader, self._tree, self._session, self._end = reader, tree, session, end
        self._last: tuple[Node, frozenset[str]] | None = None
        self._looked = False

    def holds(self, handle: str, kept: HandleTarget) -> bool:
        anchor = kept.at or (kept.nodes[-1][1] if kept.nodes else "")
        if anchor and is_on_path(self._reader, self._tree, self._end, anchor):
            return True
        last = self._last_request()
        return last is not None and (
            handle in last[1]
            or bool(anchor and is_on_path(self._reader, self._tree, last[0], anchor))
        )

    def _last_request(self) -> tuple[Node, frozenset[str]] | None:
        """Where the session's last request ended, and the handles in its markers."""
        if not self._looked:
            self._looked = True
            found = _one_or_none(self._reader, _LAST_VIEW, self._session, self._tree)
            view = None
            if found is not None:
                view = read_view(found[1], found[2], found[3], found[4])
            if found is not None and view is not None:
                self._last = (
                    nodes.get(self._reader, self._tree, found[0]),
                    frozenset(handles_of(view)),
                )
        return self._last


_LAST_VIEW = """SELECT v.node, v.data, v.digest, v.epoch, n.depth FROM views v
    JOIN nodes n ON n.tree = $2 AND n.seq = v.node
    WHERE v.session = $1 ORDER BY v.epoch DESC LIMIT 1"""


def digest_of(data: str) -> str:
    """By what a view is known to be as it was written."""
    return blake2b(data.encode(errors="surrogatepass"), digest_size=12, person=b"view").hexdigest()


def read_view(data: object, digest: str, epoch: int, depth: int) -> ViewRecord | None:
    """A view as it was written; none if it is damaged: it is only a cache, and the next request
    begins an epoch.
    """
    try:
        if not isinstance(data, str) or (digest and digest_of(data) != digest):
            return None
        view = decode_view(data)
        check_view(view, epoch, depth)
    except UNREADABLE:
        return None
    return view


def _one_or_none(reader: Reader, sql: str, *values: Any) -> Row | None:
    """A view's row; none if its text is damaged."""
    try:
        return reader.first_row(sql, *values)
    except StoreError as error:
        if is_text_damaged(error):
            return None
        raise


def check_view(view: ViewRecord, epoch: int, depth: int) -> None:
    """Raises ValueError where a view cannot be one of a path that ends at this depth."""
    if view.epoch.number != epoch or not view.epoch.policy:
        raise ValueError("its epoch is another")
    if (
        not (isfinite(view.ratio) and 0 < view.ratio <= _HIGHEST_RATIO)
        or view.total < 0
        or view.of < -1
        or view.as_of < 0
    ):
        raise ValueError("its numbers are none that are counted")
    _check_stretches(view.ranges, depth + 1)
    # older versions did not know where
    if not view.ranges or len(view.positions) not in (0, len(view.epoch.pieces)):
        raise ValueError("it does not say where its pieces are")
    _check_stretches(view.positions, depth + 1)
    for piece in view.epoch.pieces:
        if not piece.items or not 0 <= piece.span.start < piece.span.stop:
            raise ValueError("one of its pieces is empty")
    for before, after in pairwise(view.epoch.pieces):
        if before.span.stop != after.span.start:
            raise ValueError("its pieces do not follow each other")


def _check_stretches(stretches: tuple[tuple[int, int], ...], length: int) -> None:
    begin = 0
    for start, stop in stretches:
        if not 0 <= start < stop <= length or start < begin:
            raise ValueError(f"a stretch from {start} to {stop} is not on its path")
        begin = start


def handles_of(view: ViewRecord) -> set[str]:
    """The handles in the markers of a view."""
    return {
        handle for piece in view.epoch.pieces for item in piece.items for handle in item.handles
    }


def _is_reached(reader: Reader, tree: int, agent: str, handle: str, kept: HandleTarget) -> bool:
    """Whether a session of this agent on the tree can recall it."""
    for session, cursor in reader.all(_SESSIONS_OF, tree, agent):
        end = None
        if cursor is not None:
            end = nodes.get(reader, tree, cursor)
        if Reach(reader, tree, session, end).holds(handle, kept):
            return True
    return False


_SESSIONS_OF = (
    "SELECT key, cursor FROM sessions WHERE tree = $1 AND agent = $2 AND status <> 'purged' "
    "ORDER BY key"
)


def check_free(reader: Reader, tree: int, handles: Mapping[str, HandleTarget]) -> None:
    """That each of these handles stands for what is kept under it, and for nothing else in the
    tree.
    """
    for handle in _clashes(reader, tree, handles):
        raise ChoiceError(
            f"{handle} already names something else in this tree; change the text "
            "slightly and try again"
        )


def _clashes(reader: Reader, tree: int, handles: Mapping[str, HandleTarget]) -> Iterator[str]:
    for handle, data in reader.all(_UNDER, tree, to_json(sorted(handles))):
        if not _is_same(reader, tree, handle, _read(data), handles[handle]):
            yield handle


# All that is kept under a handle of a tree is the same, so one record of it tells.
_UNDER = """SELECT h.handle, h.data FROM handles h
    WHERE h.tree = $1 AND h.handle IN {each:2} AND h.session = (
    SELECT min(o.session) FROM handles o
    WHERE o.tree = h.tree AND o.handle = h.handle AND o.data IS NOT NULL)"""


def _only(reader: Reader, tree: int, handle: str, found: Sequence[HandleTarget]) -> HandleTarget:
    """The one thing that all of these stand for."""
    if all(_is_same(reader, tree, handle, found[0], other) for other in found[1:]):
        return found[0]
    raise _ambiguous(handle)


def _is_same(
    reader: Reader, tree: int, handle: str, one: HandleTarget, other: HandleTarget
) -> bool:
    """Whether two records give back the same. One may hold the text of which the other names the
    place in a node.
    """
    if (one.nodes, one.place, one.text) == (other.nodes, other.place, other.text):
        return True
    if {(one.place, one.text), (other.place, other.text)} == {(None, None)}:
        return False
    try:
        return _resolve(reader, tree, handle, one) == _resolve(reader, tree, handle, other)
    except ChoiceError:  # words that were purged cannot be taken for others
        return True


_ADVANCE = "UPDATE views SET node = $3, seen = $4, hash = $5 WHERE session = $1 AND epoch = $2"

# The views of the first session that has any, from $1 on to the sessions that it was forked from;
# the newest first.
_NEWEST = f"""WITH RECURSIVE o (key, tenant, project, origin, tree, age) AS (
        SELECT key, tenant, project, origin, tree, 0 FROM sessions WHERE key = $1
        UNION ALL
        SELECT s.key, s.tenant, s.project, s.origin, s.tree, o.age + 1 FROM o CROSS JOIN sessions s
        WHERE s.tenant = o.tenant AND s.project = o.project AND s.id = o.origin AND s.tree = $2
        AND s.key < o.key
        AND o.age < {_MAX_FORKS} AND (SELECT v.session FROM views v WHERE v.session = o.key
        LIMIT 1) IS NULL)
    SELECT v.session, v.node, n.depth, v.seen, v.hash, v.data, v.epoch, v.digest FROM o
    CROSS JOIN views v CROSS JOIN nodes n
    WHERE v.session = o.key AND n.tree = o.tree AND n.seq = v.node ORDER BY o.age, v.epoch DESC
    LIMIT 1 OFFSET $3"""


def origin_of(reader: Reader, tree: int, session: int) -> int | None:
    """The session of the same tree that this one was forked from."""
    found = reader.first_row(
        """SELECT o.key FROM sessions s
            JOIN sessions o ON o.tenant = s.tenant AND o.project = s.project AND o.id = s.origin
            WHERE s.key = $1 AND o.tree = $2 AND o.key < s.key""",
        session,
        tree,
    )
    return found[0] if found else None


_EVERY_VIEW = """SELECT v.epoch, v.node, v.seen, v.hash, v.data, v.created, n.depth, v.digest
    FROM views v
    JOIN nodes n ON n.tree = $2 AND n.seq = v.node WHERE v.session = $1 ORDER BY v.epoch"""
_STANDING = """SELECT s.status, v.epoch, v.node, v.seen FROM sessions s
    LEFT JOIN views v ON v.session = s.key
    WHERE s.key = $1 ORDER BY v.epoch DESC LIMIT 1"""


def put_view(writer: Writer, row: SessionRow, view: StoredView, now: int) -> None:
    """Keep the view of an epoch that begins."""
    number, data = view.record.epoch.number, encode_view(view.record)
    writer.all(
        """INSERT INTO views (session, epoch, node, seen, hash, data, created, digest)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            ON CONFLICT (session, epoch) DO UPDATE
            SET node = excluded.node, seen = excluded.seen, hash = excluded.hash,
            data = excluded.data, digest = excluded.digest""",
        row.key,
        number,
        view.node,
        view.seen,
        view.hash,
        data,
        now,
        digest_of(data),
    )
    # A policy that moves at every call would else keep more views than messages. Handles stay,
    # whatever view they come from.
    writer.all(
        "DELETE FROM views WHERE session = $1 AND epoch < $2", row.key, number - MAX_KEPT_EPOCHS
    )


def advance_view(writer: Writer, row: SessionRow, reached: EpochProgress) -> None:
    """Keep how far the requests of an epoch went."""
    writer.all(_ADVANCE, row.key, reached.epoch, reached.node, reached.seen, reached.hash)


def put_handles(
    writer: Writer, row: SessionRow, handles: Mapping[str, HandleTarget], now: int
) -> None:
    """Keep what handles stand for."""
    rows = (
        (row.tree.key, handle, row.key, _kind(kept), to_json(kept), now)
        for handle, kept in handles.items()
    )
    writer.run_many(PUT_HANDLE, rows)


def share_handles(writer: Writer, row: SessionRow, handles: Collection[str], now: int) -> None:
    """Keep for this session too what others keep under these handles."""
    writer.all(_SHARE_HANDLES, row.tree.key, row.key, now, to_json(sorted(handles)))


def _kind(kept: HandleTarget) -> str:
    if kept.text is not None:
        return "text"
    if kept.place is None:
        return "span"
    return "part"


def _read(data: str) -> HandleTarget:
    return read_stored(data, HandleTarget, "what a handle names")


def _resolve(
    reader: Reader,
    tree: int,
    handle: str,
    kept: HandleTarget,
    screen: "_Screen | None" = None,
    write: Callable[[list[Message]], str] = to_lines,
) -> str:
    if kept.text is not None:
        return kept.text
    if kept.place is None:
        text = ""
        for said in _stretches(reader, tree, handle, kept, screen):
            # grows in place; joined at the end, all of it would be in memory twice
            text += write(said)
        return text
    return dict(texts_of(next(_stretches(reader, tree, handle, kept))[0]))[kept.place]


def _stretches(
    reader: Reader, tree: int, handle: str, kept: HandleTarget, screen: "_Screen | None" = None
) -> Iterator[list[Message]]:
    """What was said, a part at a time: it may be most of a long session."""
    for first, last in kept.nodes:
        key = _tree_named(reader, tree, first)
        begin, end = (nodes.find(reader, key, name.rpartition("/")[2]) for name in (first, last))
        start, path = begin, Path(OpenTransaction(reader), key, end)
        why = screen.why(path) if screen else None
        for position in range(start.depth, len(path), CHUNK_NODES):
            found = path[position : position + CHUNK_NODES]
            if screen and why:
                found = screen.let_through(found, why)
            for node in found:
                if node.message is None:
                    gone = (
                        f"of what was left out under {handle!r}, message {node.short_id} was "
                        "purged and is gone for good"
                    )
                    raise ChoiceError(gone)
            yield [node.message for node in found if node.message]


class _Screen:
    """What a model may see of what is kept: nothing that is excluded, and nothing that is pruned
    with a node above it.
    """

    def __init__(self, reader: Reader, tree: int, hidden: Collection[int]) -> None:
        self._reader, self._tree, self._hidden = reader, tree, hidden
        self._marked: dict[int, Mapping[int, Any]] = {}
        self.count = 0  # messages that were held back

    def why(self, path: Path) -> Callable[[Node], str]:
        """Why a node of a path is held back; "" if it is not."""
        if path.tree not in self._marked:
            self._marked[path.tree] = marked_in(self._reader, path.tree)
        kept_back = why_kept_back(path, self._marked[path.tree])
        hidden = self._hidden if path.tree == self._tree else ()
        return lambda node: "excluded" if node.seq in hidden else kept_back(node)

    def let_through(self, found: Sequence[Node], why: Callable[[Node], str]) -> list[Node]:
        shown = [node for node in found if not why(node)]
        self.count += len(found) - len(shown)
        return shown

    def check(self, handle: str, kept: HandleTarget) -> None:
        """That something of it may be seen: of a text all, of messages at least one."""
        whole = kept.text is not None or kept.place is not None
        if whole:
            reasons = [self._why_named(name) for stretch in kept.nodes for name in stretch]
        else:
            reasons = []
        reasons += [self._why_named(name) for name in kept.shows]
        if not whole and not any(_stretches(self._reader, self._tree, handle, kept, self)):
            reasons = ["excluded"]
        self.count = 0
        for reason in filter(None, reasons):
            raise ChoiceError(
                f"what was left out under {handle!r} is now {reason} and stays hidden"
            )

    def _why_named(self, name: str) -> str:
        try:
            key = _tree_named(self._reader, self._tree, name)
            node = nodes.find(self._reader, key, name.rpartition("/")[2])
        except ChoiceError:  # it is not here, so nobody hid it here
            return ""
        return self.why(Path(OpenTransaction(self._reader), key, node))(node)


def _tree_named(reader: Reader, tree: int, name: str) -> int:
    """The tree of a node that is named so in this tree."""
    other = name.rpartition("/")[0]
    if not other:
        return tree
    row = reader.first_row(
        "SELECT o.key FROM trees t JOIN trees o ON o.tenant = t.tenant "
        "AND o.project = t.project AND o.id = $2 WHERE t.key = $1",
        tree,
        other,
    )
    if row is None:
        raise ChoiceError(
            f"tree {shorten(other)!r}, from which something was left out, is no longer stored"
        )
    return int(row[0])


def _purged_error(handle: str) -> ChoiceError:
    return ChoiceError(f"what was left out under {handle!r} was purged and is gone for good")


def _ambiguous(handle: str) -> ChoiceError:
    return ChoiceError(
        f"{handle} names several different things here; name the session whose request "
        "has the marker"
    )


def _unknown(handle: object, where: str) -> ChoiceError:
    return ChoiceError(
        f"nothing was left out under {shorten(str(handle))!r} in {where}; handles are in "
        "markers and reports"
    )
