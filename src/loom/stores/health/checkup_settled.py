"""What must be true of trees as they describe themselves, of what projects settle, and of what
sessions have at hand.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.tree import TreeHead
from loom.stores import settings
from loom.stores.health.checkup import (
    COPY,
    NOT_UTF_8,
    UNREADABLE,
    CheckedTable,
    Problem,
    advise_update,
    decoder,
    read,
)
from loom.stores.health.purge import FOLDERS, PURGING
from loom.stores.snapshots import is_inside
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import is_garbled
from loom.stores.states import LOCAL, StateKinds, read_state

_ANEW = (
    "set it again, or delete it by hand: DELETE FROM settings; the project then has no such setting"
)


def _look_at_tree(_: Reader, values: Row, __: int) -> Iterator[Problem]:
    key, tenant, project, name, title, data, sessions, living = values
    head = read(decoder(TreeHead), data)
    place = f"tree {name} in {tenant}/{project}"
    if is_garbled((tenant, project, name, title)):
        yield Problem(place, f"its id, its title or its project cannot be read: {NOT_UTF_8}", COPY)
    elif head is None:
        yield Problem(place, "what it says of itself cannot be read", COPY)
    elif sessions and not living and (title or head != TreeHead(mode=head.mode)):
        nothing = f"title = '', data = '{to_json(TreeHead(mode=head.mode))}'"
        what = "all of its sessions were purged, and its words are still there"
        yield Problem(place, what, advise_update("trees", nothing, f"key = {key}"))


def _look_at_setting(_: Reader, values: Row, __: int) -> Iterator[Problem]:
    tenant, project, kind, name, data, _ = values
    held: Any = settings.KINDS.get(kind, object)
    settled = None
    if not is_garbled(values):
        settled = read(decoder(held), data)
    if settled is None or (isinstance(settled, Agent) and settled.name != name):
        yield Problem(
            _place(kind, name, f"in {tenant}/{project}"), "what is settled cannot be read", _ANEW
        )


def _look_at_state(
    kinds: StateKinds, own: Path | None, reader: Reader, values: Row
) -> Iterator[Problem]:
    session, kind, name, data, identity, status, tenant, project, tree = values
    place = _place(
        kind,
        name,
        f"of session {identity} in {tenant}/{project}" if identity else f"of session {session}",
    )
    drop = f"take it away by hand: DELETE FROM states WHERE session = {session}"
    if is_garbled((kind, name, data)):
        yield Problem(place, f"a state of the session cannot be read: {NOT_UTF_8}", drop)
        return
    if identity is None:
        yield Problem(place, "its session is not there", drop)
    elif kind == PURGING and status == "purged":
        what = "its purge did not come to its end: copies of its words may still be on disk"
        yield Problem(place, what, f"purge it again: loom session purge {identity}", note=True)
    elif kind == FOLDERS and not is_inside(name, own):
        what = (
            "it names a folder of snapshots, and this store cannot prove that it wrote there; a "
            "purge does not touch it"
        )
        yield Problem(place, what, f"look what is there; then {drop} AND kind = '{kind}'")
    elif status == "purged" and kind != FOLDERS:
        yield Problem(
            place, "its session was purged, and it is still there", f"{drop}; then VACUUM"
        )
    if kind in kinds or kind not in LOCAL:
        remedy = f"{drop} AND kind = '{kind}'"
        try:
            _, named = read_state(kinds, kind, name, data)
        except UNREADABLE as error:
            yield Problem(place, f"a state of the session cannot be read: {error}", remedy)
        else:
            yield from _missing_nodes(reader, tree, place, named, remedy)


def _missing_nodes(
    reader: Reader, tree: int, place: str, named: tuple[str, ...], remedy: str
) -> Iterator[Problem]:
    for node in named:
        if reader.first_row("SELECT 1 FROM nodes WHERE tree = $1 AND id = $2", tree, node) is None:
            yield Problem(place, f"it names the node {node}, which is not there", remedy)


def _place(kind: str, name: str, where: str) -> str:
    if name:
        return f"{kind} {name} {where}"
    return f"{kind} {where}"


_TREES = """SELECT t.key, t.tenant, t.project, t.id, t.title, t.data, (SELECT count(*)
    FROM sessions s WHERE s.tree = t.key),
    (SELECT count(*) FROM sessions s WHERE s.tree = t.key AND s.status <> 'purged')
    FROM trees t WHERE t.key > $1 ORDER BY t.key LIMIT $2"""
_SETTINGS = """SELECT tenant, project, kind, name, data, author FROM settings
    WHERE (tenant, project, kind, name) > ($1, $2, $3, $4)
    ORDER BY tenant, project, kind, name LIMIT $5"""
_STATES = """SELECT x.session, x.kind, x.name, x.data, s.id, s.status, s.tenant, s.project, s.tree
    FROM states x
    LEFT JOIN sessions s ON s.key = x.session WHERE (x.session, x.kind, x.name) > ($1, $2, $3)
    ORDER BY x.session, x.kind, x.name LIMIT $4"""


def settled_tables(own: Path | None, kinds: StateKinds) -> tuple[CheckedTable, ...]:
    """What else there is to look at in a store. `own` is the folder to which only it writes
    snapshots.
    """
    return (
        CheckedTable("trees", (0,), _TREES, _look_at_tree),
        CheckedTable("settings", ("", "", "", ""), _SETTINGS, _look_at_setting),
        CheckedTable(
            "states",
            (0, "", ""),
            _STATES,
            lambda reader, values, _: _look_at_state(kinds, own, reader, values),
        ),
    )
