"""How a tree grows beside the path of one session: nodes behind any node, whole trees from elsewhere, and what is said of nodes."""

from collections.abc import Mapping, Sequence

from loom.conversation.canonical import to_json
from loom.errors import Conflict
from loom.stores import nodes
from loom.stores.database import Database, Reader
from loom.stores.marks import Said, write_marks
from loom.stores.nodes import Draft, Planned, plant
from loom.stores.path import TREE, Node, named
from loom.stores.sessions import SessionRow, by_key, conflict, lock, write_beside


class Growth:
    def __init__(self, database: Database) -> None:
        self._database = database

    def graft(
        self,
        row: SessionRow,
        after: Node | None,
        draft: Draft,
        *,
        now: int,
        records: Sequence[tuple[str, str]] = (),
        handles: Sequence[tuple[str, str]] = (),
        move: bool = False,
        seen: int | None = None,
    ) -> tuple[SessionRow, Node]:
        """Write a message behind any node of the tree, what stands beside it and what its handles stand for; and `move` there.

        `seen` is when the writer last looked: where another went on behind that node since, that is a conflict.
        """
        tree = row.tree.key
        with self._database.write() as writer:
            held, _ = lock(writer, row, importing=False)
            if move and held != row.cursor:
                before = nodes.get(writer, tree, row.cursor) if row.cursor is not None else None
                raise conflict(writer, row, before, held)
            if seen is not None and after is not None and (newer := _went_on(writer, row, after, seen)):
                raise Conflict(row.id, after.local, newer)
            made, _ = nodes.append(writer, row.tree, after, [draft], row.key, now)
            write_beside(writer, row, made[0], records, now)
            writer.many(
                """INSERT INTO handles (tree, handle, session, kind, data, created) VALUES ($1, $2, $3, 'span', $4, $5)
                    ON CONFLICT (tree, handle) DO NOTHING""",
                [(tree, handle, row.key, data, now) for handle, data in handles],
            )
            writer.all("UPDATE sessions SET cursor = $2, updated = $3 WHERE key = $1", row.key, made[0].seq if move else held, now)
            return by_key(writer, row.key), made[0]

    def mark(self, row: SessionRow, marks: Sequence[tuple[int, Said]], now: int) -> None:
        """Write down what is said of nodes of the tree."""
        with self._database.write() as writer:
            lock(writer, row)
            write_marks(writer, row.tree.key, row.key, row.agent, now, marks)
            writer.all("UPDATE sessions SET updated = $2 WHERE key = $1", row.key, now)

    def plant(self, row: SessionRow, planned: Sequence[Planned], marks: Mapping[str, Sequence[Said]], now: int) -> int:
        """Write those of these nodes that are not there yet, with what is said of them by id; how many they were."""
        with self._database.write() as writer:
            lock(writer, row)
            here = {name for (name,) in writer.all(_HERE, row.tree.key, to_json([plan.id for plan in planned]))}
            made = plant(writer, row.tree, [plan for plan in planned if plan.id not in here])
            told = [(node.seq, mark) for node in made for mark in marks.get(node.id, ())]
            write_marks(writer, row.tree.key, row.key, row.agent, now, told)
            return len(made)

    def settle(self, row: SessionRow, marks: Mapping[str, Sequence[Said]], cursor: str, now: int) -> None:
        """What can be said of a tree once all of it is there: links, if it has none yet, and where its own session stands."""
        tree = row.tree.key
        with self._database.write() as writer:
            held, _ = lock(writer, row)
            seqs: dict[str, int] = dict(writer.all(f"SELECT n.id, n.seq FROM {named('id')}", tree, to_json([*marks, cursor])))
            if marks and writer.one("SELECT 1 FROM records WHERE tree = $1 AND kind = 'link' LIMIT 1", tree) is None:
                told = [(seqs[name], mark) for name, several in marks.items() for mark in several]
                write_marks(writer, tree, row.key, row.agent, now, told)
            if held is None and cursor in seqs:
                writer.all("UPDATE sessions SET cursor = $2, updated = $3 WHERE key = $1", row.key, seqs[cursor], now)


_HERE = f"SELECT n.id FROM {named('id')}"


def _went_on(reader: Reader, row: SessionRow, after: Node, seen: int) -> str:
    """The newest node behind this one that another session wrote since then, if there is one."""
    found = reader.one(
        f"""SELECT n.local FROM nodes n WHERE n.tree = {TREE} AND n.parent = $2 AND n.session <> $3 AND n.created > $4
            AND NOT EXISTS (SELECT 1 FROM records r WHERE r.tree = n.tree AND r.node = n.seq AND r.kind = 'edge')
            ORDER BY n.seq DESC LIMIT 1""",
        row.tree.key,
        after.seq,
        row.key,
        seen,
    )
    return str(found[0]) if found else ""
