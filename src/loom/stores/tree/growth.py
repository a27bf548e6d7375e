"""How a tree grows besides the path of one session: nodes after any node, whole trees from
elsewhere, and what is said of nodes.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.conversation.metadata import KIND as METADATA
from loom.errors import Conflict, Diverged
from loom.stores.sessions import SessionRow, by_key, conflict, lock, write_beside
from loom.stores.sql.database import Database, Reader
from loom.stores.transfer.newcomers import FIND_PLACES, Newcomers, Place
from loom.stores.tree import nodes
from loom.stores.tree.marks import (
    EdgeMark,
    FlagMark,
    LinkMark,
    MarkData,
    kind_of,
    marks_of,
    write_marks,
)
from loom.stores.tree.nodes import Draft, PlannedNode, insert_nodes
from loom.stores.tree.path import TREE, Node, nodes_by
from loom.stores.tree.together import bring_along
from loom.stores.views import PUT_HANDLE, HandleTarget, check_free


class NewNode(Struct, frozen=True):
    """A message that is written after any node, with its records and what its handles
    stand for.
    """

    draft: Draft
    records: Sequence[tuple[str, str]] = ()
    handles: Sequence[tuple[str, HandleTarget]] = ()


class Growth:
    def __init__(self, database: Database) -> None:
        self._database = database

    def append_at(
        self,
        row: SessionRow,
        after: Node | None,
        new: NewNode,
        *,
        now: int,
        move: bool = False,
        seen: int | None = None,
        commits: bool = False,
    ) -> tuple[SessionRow, Node]:
        """Write a message after any node of the tree, its records and what its handles
        stand for; and `move` there.

        `seen` is when the writer last looked: where another continued after that node since, that
        is a conflict. What `commits` is the text at the end of a document, which is then no longer
        uncommitted.
        """
        tree = row.tree.key
        with self._database.write() as writer:
            held, _ = lock(writer, row, importing=False)
            if move and held != row.cursor:
                before = nodes.get_or_none(writer, tree, row.cursor)
                raise conflict(writer, row, before, held)
            if (
                seen is not None
                and after is not None
                and (newer := _went_on(writer, row, after, seen))
            ):
                raise Conflict(row.id, after.short_id, newer)
            [made], known = nodes.append(writer, row.tree, after, [new.draft], row.key, now)
            records = [each for each in new.records if not known or each[0] != METADATA]
            write_beside(writer, row, made.seq, records, now)
            check_free(writer, tree, dict(new.handles))
            handles = [
                (tree, handle, row.key, "span", to_json(kept), now) for handle, kept in new.handles
            ]
            writer.run_many(PUT_HANDLE, handles)
            writer.all(
                "UPDATE sessions SET cursor = $2, updated = $3 WHERE key = $1",
                row.key,
                made.seq if move else held,
                now,
            )
            if move:
                # The tree's own session takes along who stood with it; who stood nowhere continues
                # from wherever one begins.
                stood = [after.seq if after else None]
                if held is None or not row.agent:
                    stood.append(held)
                bring_along(writer, tree, row.key, stood, made.seq)
            if commits:
                writer.all("DELETE FROM states WHERE session = $1 AND kind = 'buffer'", row.key)
            return by_key(writer, row.key), made

    def mark(self, row: SessionRow, marks: Sequence[tuple[int, MarkData]], now: int) -> None:
        """Write down what is said of nodes of the tree."""
        with self._database.write() as writer:
            lock(writer, row)
            write_marks(writer, row.tree.key, row.key, row.agent, now, marks)
            writer.all("UPDATE sessions SET updated = $2 WHERE key = $1", row.key, now)

    def check_versions(
        self, row: SessionRow, versions: Mapping[str, str], newcomers: Newcomers
    ) -> None:
        """That no new version of a tree from elsewhere stands for a message that was here before:
        by its id, what it is one of.
        """
        with self._database.read() as reader:
            found = _places(reader, row, [*versions, *versions.values()])
        for name, original in versions.items():
            if name not in found and not newcomers.may_stand_for("version", [found.get(original)]):
                raise Diverged(
                    row.id,
                    f"tree {row.tree.id} is already stored, and {name} of the file is another "
                    "version of a message that other "
                    "sessions here read. Nothing was changed; import the file into another project",
                )

    def insert_nodes(
        self,
        row: SessionRow,
        planned: Sequence[PlannedNode],
        marks: Mapping[str, Sequence[MarkData]],
        now: int,
        responses: Mapping[str, str],
        newcomers: Newcomers,
    ) -> int:
        """Write those of these nodes that are not there yet, with what is said of them by id; how
        many they were.

        Nothing is said of what was there before this import, and nothing that would be read there:
        newcomers.py has the rule.
        """
        with self._database.write() as writer:
            lock(writer, row)
            here = _places(
                writer, row, [name for plan in planned for name in (plan.id, plan.after) if name]
            )
            made = insert_nodes(writer, row.tree, [plan for plan in planned if plan.id not in here])
            seqs = {node.id: node.seq for node in made}
            taken = {
                plan.id: list(
                    _may_say(
                        newcomers, marks.get(plan.id, ()), here.get(plan.id), here.get(plan.after)
                    )
                )
                for plan in planned
            }
            told = [
                (seqs[name], mark)
                for name, several in taken.items()
                if name in seqs
                for mark in several
            ]
            told += _unsaid(
                writer,
                row.tree.key,
                {here[name].seq: several for name, several in taken.items() if name in here},
            )
            write_marks(writer, row.tree.key, row.key, row.agent, now, told)
            own = {
                name: text
                for name, text in responses.items()
                if not newcomers.are_guests_at(here.get(name))
            }
            for seq, name in writer.all(_LIVING, row.tree.key, to_json(list(own))) if own else ():
                write_beside(writer, row, seq, [("response", own[name])], now)
            newcomers.nodes.update(seqs.values())
            return len(made)

    def settle(
        self,
        row: SessionRow,
        marks: Mapping[str, Sequence[MarkData]],
        cursor: str,
        now: int,
        chosen: Mapping[str, str],
        newcomers: Newcomers,
    ) -> None:
        """What can be said of a tree once all of it is there: links of its new nodes.

        Where its own session comes with it, also at which node that stands and which versions it
        chose.
        """
        tree = row.tree.key
        with self._database.write() as writer:
            held, _ = lock(writer, row)
            found = _places(writer, row, [*marks, *filter(None, [cursor])])
            told = _unsaid(
                writer,
                tree,
                {
                    found[name].seq: several
                    for name, several in marks.items()
                    if not newcomers.are_guests_at(found[name])
                },
            )
            write_marks(writer, tree, row.key, row.agent, now, told)
            if row.key not in newcomers.sessions:
                return
            if held is None and cursor in found:
                writer.all(
                    "UPDATE sessions SET cursor = $2, updated = $3 WHERE key = $1",
                    row.key,
                    found[cursor].seq,
                    now,
                )
            writer.run_many(
                _CHOOSE,
                [(row.key, node, to_json(version), now) for node, version in chosen.items()],
            )


def _places(reader: Reader, row: SessionRow, names: Sequence[str]) -> dict[str, Place]:
    return {
        name: Place(*place)
        for name, *place in reader.all(FIND_PLACES, row.tree.key, to_json(names))
    }


def _may_say(
    newcomers: Newcomers, marks: Sequence[MarkData], place: Place | None, above: Place | None
) -> Iterator[MarkData]:
    """Those of these marks of a node that are taken."""
    edge = next((mark.edge for mark in marks if isinstance(mark, EdgeMark)), "continuation")
    return (mark for mark in marks if newcomers.may_say(kind_of(mark), place, edge, above))


_LIVING = f"SELECT n.seq, n.id FROM {nodes_by('id')} AND n.body IS NOT NULL"
_CHOOSE = """INSERT INTO states (session, kind, name, data, updated)
    VALUES ($1, 'version', $2, $3, $4)
    ON CONFLICT (session, kind, name) DO NOTHING"""


def _unsaid(
    reader: Reader, tree: int, marks: Mapping[int, Sequence[MarkData]]
) -> list[tuple[int, MarkData]]:
    """Those flags and links of which nothing was said yet, also not that they were taken back."""
    if any(marks.values()):
        known = {(mark.node, _about(mark.data)) for mark in marks_of(reader, tree, marks)}
    else:
        known = set()
    wanted = (
        (node, mark)
        for node, several in marks.items()
        for mark in several
        if isinstance(mark, FlagMark | LinkMark)
    )
    return [(node, mark) for node, mark in wanted if (node, _about(mark)) not in known]


def _about(data: object) -> tuple[str, ...]:
    match data:
        case FlagMark(flag):
            return (flag,)
        case LinkMark(target, tree, label):
            return (target, tree, label)
        case _:
            return ()


def _went_on(reader: Reader, row: SessionRow, after: Node, seen: int) -> str:
    """The newest node after this one that another session wrote since then, if there is one."""
    found = reader.first_row(
        f"""SELECT n.local FROM nodes n
            WHERE n.tree = {TREE} AND n.parent = $2 AND n.session <> $3 AND n.created > $4
            AND NOT EXISTS (SELECT 1 FROM records r
            WHERE r.tree = n.tree AND r.node = n.seq AND r.kind = 'edge')
            ORDER BY n.seq DESC LIMIT 1""",
        row.tree.key,
        after.seq,
        row.key,
        seen,
    )
    if found is None:
        return ""
    return str(found[0])
