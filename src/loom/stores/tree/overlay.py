"""What records say of a path: which nodes are hidden, what comes in, which version replaces a node,
and pins.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.tree import Mode, Reference
from loom.errors import ChoiceError
from loom.stores.sql.database import Reader
from loom.stores.tree import nodes
from loom.stores.tree.marks import FlagMark, Marks, read_mark, sum_marks
from loom.stores.tree.nodes import TreeRow
from loom.stores.tree.path import Node, OpenTransaction, Path


class Insertion(Struct, frozen=True):
    """A node that is read and is not on the path. `kind` says as what; `tree` names its tree if
    that is another one.
    """

    node: Node
    kind: str
    tree: str = ""

    @property
    def name(self) -> str:
        if self.tree:
            return f"{self.tree}/{self.node.id}"
        return self.node.id


class Overlay(Struct, frozen=True, kw_only=True):
    """What is hidden and why, versions, and what is read before and after a node, each by depth.

    `path` ends before the first node that is pruned.
    """

    path: Path
    hidden: dict[int, str] = {}
    versions: dict[int, Insertion] = {}
    before: dict[int, list[Insertion]] = {}
    after: dict[int, list[Insertion]] = {}
    instructions: tuple[Node, ...] = ()
    pins: tuple[Node, ...] = ()
    notes: tuple[str, ...] = ()

    def entries(self, depth: int) -> Iterator[Insertion | None]:
        """What is read at a place, in order. None is the node itself; it may be hidden."""
        yield from self.before.get(depth, ())
        yield self.versions.get(depth)
        yield from self.after.get(depth, ())

    def insertions(self) -> Iterator[Insertion]:
        """What is read before and after nodes of the path."""
        for by_depth in (self.before, self.after):
            for several in by_depth.values():
                yield from several

    @classmethod
    def read(
        cls,
        path: Path,
        tree: TreeRow,
        mode: Mode,
        chosen: Mapping[str, str],
        sources: Sequence[Reference] = (),
        include: Collection[str] = (),
    ) -> "Overlay":
        """The overlay of a path. `chosen` says which version replaces which node, `sources` what
        the next node is made from.

        `include` names annotations that this request reads.
        """
        with path.database.read() as reader:
            marked = marked_in(reader, path.tree)
            if path.end is None or not (marked or sources):
                return cls(path=path)
            path, pruned = _until_pruned(path, marked.values())
            if path.end is None:
                return Overlay(
                    path=path, notes=(f"from node {pruned} on, all of the path is pruned",)
                )
            if pruned:
                notes = [f"the path is read up to the node before {pruned}, which is pruned"]
            else:
                notes = []
            on = _on_path(path, marked.values())
            hidden = {mark.depth: why for mark in on if (why := _why_hidden(mark, include))}
            made = _Sources(reader, tree, path, hidden, marked, notes)
            for mark in sorted(on, key=lambda mark: mark.depth):
                if mark.depth not in hidden:
                    made.take(mark.marks.sources, mark.depth)
            made.take(sources, len(path))
            pins = path.nodes(
                [mark.seq for mark in on if mark.marks.flags.pinned and mark.depth not in hidden]
            )
            overlay = cls(
                path=path,
                hidden=hidden,
                before=made.before,
                after=_annotations(path, marked.values(), include),
                instructions=tuple(made.instructions),
                pins=tuple(pins),
                notes=tuple(notes),
            )
            if mode == "buffer":
                return _with_versions(overlay, marked.values(), chosen)
            return overlay


class _MarkedNode(Struct, frozen=True):
    seq: int
    id: str
    depth: int
    parent: int | None
    marks: Marks
    withdrawn: bool = False  # a remark that was read, until somebody excluded it


def _why_hidden(mark: _MarkedNode, include: Collection[str]) -> str:
    """Why a node is hidden; "" if it is not."""
    if mark.marks.flags.excluded:
        return "excluded"
    is_remark = mark.marks.edge_mark.edge == "annotation"
    if is_remark and not _is_included(mark, include):
        return "annotation"
    return ""


def marked_in(reader: Reader, tree: int) -> dict[int, _MarkedNode]:
    """The nodes of a tree with marks that change how a path is read."""
    found = reader.all(_SHAPING, tree)
    read = [read_mark((row[0], *row[4:8])) for row in found]
    marks = sum_marks(read)
    included = {
        mark.node: mark.data.on
        for mark in read
        if isinstance(mark.data, FlagMark) and mark.data.flag == "included"
    }
    return {
        row[0]: _MarkedNode(
            row[0], row[1], row[2], row[3], marks[row[0]], not included.get(row[0], True)
        )
        for row in found
    }


def kept_back(path: Path, marked: Mapping[int, _MarkedNode]) -> str:
    """Why the end of a path must not be shown to a model: it is excluded, or pruned by itself or
    with a node above it.
    """
    assert path.end is not None
    return why_kept_back(path, marked)(path.end)


def why_kept_back(path: Path, marked: Mapping[int, _MarkedNode]) -> Callable[[Node], str]:
    """Why a node of this path must not be shown to a model; "" if it may be."""
    pruned = _on_path(path, [mark for mark in marked.values() if mark.marks.flags.pruned])
    first = min((mark.depth for mark in pruned), default=len(path))

    def why(node: Node) -> str:
        own = marked.get(node.seq)
        if own and (own.marks.flags.excluded or own.withdrawn):
            return "excluded"
        if node.depth >= first:
            return "pruned"
        return ""

    return why


_SHAPING = """SELECT n.seq, n.id, n.depth, n.parent, r.kind, r.data, r.author, r.created
    FROM records r
    JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
    WHERE r.tree = $1 AND r.kind IN ('edge', 'sources', 'flag') AND r.data IS NOT NULL
    AND n.body IS NOT NULL
    AND (r.kind <> 'flag' OR r.data NOT LIKE '%"bookmarked"%')
    ORDER BY r.seq"""  # a bookmark changes nothing that is read


def _is_included(mark: _MarkedNode, include: Collection[str]) -> bool:
    return mark.marks.flags.included or mark.id in include


def _until_pruned(path: Path, marked: Iterable[_MarkedNode]) -> tuple[Path, str]:
    """The path up to what is pruned, which takes all below it along, and the name of that."""
    pruned = _on_path(path, [mark for mark in marked if mark.marks.flags.pruned])
    if not pruned:
        return path, ""
    first = min(pruned, key=lambda mark: mark.depth)
    short_id = path[first.depth].short_id
    return path.until(first.depth), short_id


def _on_path(path: Path, marked: Iterable[_MarkedNode]) -> list[_MarkedNode]:
    """Those of the nodes that stand on the path."""
    found = list(marked)
    at = path.names_at({mark.depth for mark in found})
    return [mark for mark in found if mark.depth in at and at[mark.depth][0] == mark.seq]


def _annotations(
    path: Path, marked: Iterable[_MarkedNode], include: Collection[str]
) -> dict[int, list[Insertion]]:
    """Annotations of nodes on the path that are read, each after its node."""
    wanted = [
        mark
        for mark in marked
        if mark.marks.edge_mark.edge == "annotation" and _is_included(mark, include)
    ]
    wanted = [mark for mark in wanted if not (mark.marks.flags.excluded or mark.marks.flags.pruned)]
    at = path.names_at({mark.depth - 1 for mark in wanted} | {mark.depth for mark in wanted})
    after: dict[int, list[Insertion]] = {}
    if wanted:
        read = {node.seq: node for node in path.nodes([mark.seq for mark in wanted])}
    else:
        read = {}
    for mark in sorted(wanted, key=lambda mark: mark.seq):
        # One that stands on the path itself is read there.
        if (
            at.get(mark.depth - 1, (None,))[0] == mark.parent
            and at.get(mark.depth, (None,))[0] != mark.seq
        ):
            after.setdefault(mark.depth - 1, []).append(Insertion(read[mark.seq], "annotation"))
    return after


def _with_versions(
    overlay: Overlay, marked: Iterable[_MarkedNode], chosen: Mapping[str, str]
) -> Overlay:
    """The overlay with the versions that replace nodes. Where such a version is excluded, nothing
    is read.
    """
    path, hidden = overlay.path, overlay.hidden
    standing = _standing_versions(path, marked, chosen)
    gone = {depth for depth, mark in standing.items() if mark.marks.flags.excluded}
    if standing:
        read = {node.seq: node for node in path.nodes([mark.seq for mark in standing.values()])}
    else:
        read = {}
    shown = {
        depth: mark for depth, mark in standing.items() if depth not in gone and depth not in hidden
    }
    return replace(
        overlay,
        hidden=hidden | dict.fromkeys(gone, "excluded"),
        versions={depth: Insertion(read[mark.seq], "version") for depth, mark in shown.items()},
    )


def _standing_versions(
    path: Path, marked: Iterable[_MarkedNode], chosen: Mapping[str, str]
) -> dict[int, _MarkedNode]:
    """Which version replaces a node of the path: the one that was chosen, else the latest edit that
    is not pruned.
    """
    versions = {mark.id: mark for mark in marked if mark.marks.edge_mark.edge == "version"}
    live = _live_versions(versions)
    standing: dict[int, _MarkedNode] = {}
    for depth, (_, name, _) in path.names_at({mark.depth for mark in versions.values()}).items():
        of_node = live.get(name, {})
        if of_node and chosen.get(name) != name:
            standing[depth] = of_node.get(chosen.get(name, ""), list(of_node.values())[-1])
    return standing


def _live_versions(versions: Mapping[str, _MarkedNode]) -> dict[str, dict[str, _MarkedNode]]:
    """Versions that are not pruned, by the node that was edited first, the latest last."""
    live: dict[str, dict[str, _MarkedNode]] = {}
    firsts: dict[str, str] = {}
    for mark in sorted(versions.values(), key=lambda mark: mark.seq):
        first, passed = mark.marks.edge_mark.first or mark.marks.edge_mark.edited_from, {mark.id}
        while first in versions and first not in passed:  # a tree from elsewhere may say anything
            passed.add(first)
            first = firsts.get(first) or versions[first].marks.edge_mark.edited_from
        firsts[mark.id] = first
        if not mark.marks.flags.pruned:
            live.setdefault(first, {})[mark.id] = mark
    return live


class _Sources:
    """What nodes of the path were made from beside their parents, each once."""

    def __init__(
        self,
        reader: Reader,
        tree: TreeRow,
        path: Path,
        hidden: dict[int, str],
        marked: Mapping[int, _MarkedNode],
        notes: list[str],
    ) -> None:
        self._reader, self._tree, self._path, self._hidden, self._marked, self._notes = (
            reader,
            tree,
            path,
            hidden,
            marked,
            notes,
        )
        self.before: dict[int, list[Insertion]] = {}
        self.instructions: list[Node] = []
        self._taken: set[str] = set()

    def take(self, sources: Sequence[Reference], depth: int) -> None:
        """The sources of the node at this depth: instructions, then references, which are read
        before what it answers.
        """
        for role in ("instruction", "context"):
            for source in sources:
                if source.role == role:
                    self._take_one(source, max(depth - 1, 0))

    def _take_one(self, source: Reference, depth: int) -> None:
        foreign = source.tree if source.tree != self._tree.id else ""
        key = self._tree.key
        if foreign:
            row = self._reader.first_row(_TREE_KEY, self._tree.tenant, self._tree.project, foreign)
            key = row[0] if row else 0
        try:
            node = nodes.find(self._reader, key, source.node)
        except ChoiceError:
            self._notes.append(f"the {source.role} {source.node} is not here and was left out")
            return
        marked = marked_in(self._reader, key) if foreign else self._marked
        why = "purged"
        if node.message is not None:
            why = kept_back(Path(OpenTransaction(self._reader), key, node), marked)
        if why:
            self._notes.append(f"the {source.role} {node.short_id} is {why} and was left out")
            return
        insertion = Insertion(node, source.role, foreign)
        if insertion.name in self._taken:
            return
        self._taken.add(insertion.name)
        if source.role == "instruction":
            self.instructions.append(node)
        elif foreign or not (
            self._path.holds(node.seq, node.depth) and node.depth not in self._hidden
        ):
            self.before.setdefault(depth, []).append(insertion)


_TREE_KEY = "SELECT key FROM trees WHERE tenant = $1 AND project = $2 AND id = $3"
