"""What is kept of a request that was made: all of it in one transaction."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from loom.stores.sessions import SessionRow, lock_alive
from loom.stores.settings import StateValues, put_states
from loom.stores.sql.database import Database
from loom.stores.summaries import Summary, put_summary
from loom.stores.tree.path import Node
from loom.stores.view_record import EpochProgress, StoredView
from loom.stores.views import HandleTarget, advance_view, put_handles, put_view, share_handles


class SavedRequest(Struct, frozen=True, kw_only=True):
    """What the next request needs, what markers stand for, and what the session has at hand from
    now on.

    `view` is that of an epoch that begins, or how far one went that continues. Without it only the
    handles are kept. `inherited` are markers from an epoch of the session that this one was forked
    from. They become its own.
    """

    view: StoredView | EpochProgress | None
    handles: Mapping[str, HandleTarget]
    inherited: Collection[str]
    states: tuple[StateValues, ...] = ()
    # a summary, the node that it ends with, and when it was made
    note: tuple[Node, Summary, int] | None = None


class Requests:
    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, row: SessionRow, request: SavedRequest, now: int) -> None:
        """Keep all of it, or nothing. Of a session that was purged nothing is kept."""
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            if request.handles:
                put_handles(writer, row, request.handles, now)
            if request.inherited:
                share_handles(writer, row, request.inherited, now)
            if isinstance(request.view, EpochProgress):
                advance_view(writer, row, request.view)
            elif request.view is not None:
                put_view(writer, row, request.view, now)
            if request.note:
                put_summary(writer, row, *request.note)
            put_states(writer, row.key, request.states, now)
