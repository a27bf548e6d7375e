"""A picture of a tree: its nodes as lines, as `tree` would draw them, with folds where there are
more than one can read.

Rules of this file:
- A straight run goes down at the same indentation, which grows only where a conversation forks or a
  remark is made.
- The way to the cursor is always drawn. Past `PATH_LEVELS` it goes straight on, and what branches
  off it comes before it.
- Every node is a line, or counted in exactly one fold. A fold never takes the place of one node,
  unless `depth` forbids that node.
- Nodes are shown in the order of how near they are to what matters: the root, the cursor, the forks
  between them, bookmarks.
  That order depends on the tree and the cursor alone, so more lines show all that fewer do.
- Every pass goes through the nodes in order, never down into them: a chat may be 100,000 messages
  deep.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from loom.conversation.tree import Edge, Flags

MAX_LEVELS = 12  # how far a picture is indented
# how far the way to the cursor is; the levels that are left are for what branches off it
PATH_LEVELS = 8
FOLD, FORK, LAST, PASSING, CLEAR = "┄ ", "├─ ", "└─ ", "│  ", "   "
GLYPHS: dict[Edge, str] = {"continuation": "", "annotation": "╌ ", "version": "≈ "}
UNDER_GLYPH = "  "

# How far one is from the other, in steps: what is nearer to the root, the cursor or a fork on its
# way is shown first.
_IN_RUN, _RUN_END = 3, 4  # from a node to the next in its run, from the first of a run to the last
_FIRST_BRANCH, _NEXT_BRANCH = 2, 2
_FIRST_ASIDE, _NEXT_ASIDE = 3, 2
_BOOKMARK = 1
_BEHIND = 1 << 40  # all others


class OutlineNode(Struct, frozen=True, kw_only=True):
    """What a picture of a tree needs to know of a node. Parents have smaller keys than children;
    siblings are in their order.
    """

    key: int
    parent: int | None
    short_id: str
    role: str
    author: str = ""
    edge: Edge = "continuation"
    flags: Flags = Flags()
    pruned: bool = False  # it, or a node above it


class OutlineLine(Struct, frozen=True):
    """A line of the picture: a node, or a fold that stands for several.

    `lead` is all that is drawn before it, the glyph of a fold too. `branches` are the leaves below
    a node, or in a fold. `names` are the short ids of a fold's first node and, if it is one stretch
    of conversation, of its last.
    """

    lead: str
    twig: OutlineNode | None
    on_path: bool = False
    here: bool = False
    folded: int = 0
    branches: int = 0
    names: tuple[str, str] = ("", "")


class Sizes(Struct, frozen=True):
    """How large a tree is. Branches and depth go by continuations from a root: what is said under a
    remark is not a branch.
    """

    nodes: int
    branches: int
    depth: int
    annotations: int
    versions: int


def sizes(twigs: Iterable[OutlineNode]) -> Sizes:
    """How large a tree is."""
    ordered = _in_order(twigs)
    # how many nodes down by continuations; 0 for what is attached to a remark or a version
    reach: dict[int, int] = {}
    continued: set[int] = set()
    for twig in ordered:
        above = None
        if twig.parent is not None:
            above = reach.get(twig.parent)
        if twig.parent is None or above is None:
            reach[twig.key] = 1
        elif above and twig.edge == "continuation":
            reach[twig.key] = above + 1
            continued.add(twig.parent)
        else:
            reach[twig.key] = 0
    return Sizes(
        nodes=len(ordered),
        branches=sum(depth > 0 for depth in reach.values()) - len(continued),
        depth=max(reach.values(), default=0),
        annotations=sum(twig.edge == "annotation" for twig in ordered),
        versions=sum(twig.edge == "version" for twig in ordered),
    )


def outline(
    twigs: Sequence[OutlineNode],
    *,
    at: int | None = None,
    lines: int | None = 200,
    depth: int | None = None,
    root: int | None = None,
) -> list[OutlineLine]:
    """Lay out a tree, or what is attached to `root`, in at most this many lines; the root, `at` and
    their folds are shown even in fewer.

    Nodes more than `depth` steps below the root are folded, unless they lead to `at`. A cursor
    outside the picture marks nothing.
    """
    shape = _Shape(twigs, at, depth, root)
    if not shape.size:
        return []
    shown = _DrawnNodes(shape)
    if lines is None or shape.size <= lines:
        shown.show_all()
    else:
        shown.show_nearest(lines)
    return list(_Pen(shape, shown).draw())


def _in_order(twigs: Iterable[OutlineNode]) -> list[OutlineNode]:
    return sorted(twigs, key=lambda twig: twig.key)


# above all roots, so that several roots are siblings as others are
_TOP = OutlineNode(key=0, parent=None, short_id="", role="")


class _Shape:
    """A tree by position: 0 stands above the roots, and each node after its parent. Each list has
    an entry per node.
    """

    def __init__(
        self, twigs: Iterable[OutlineNode], at: int | None, depth: int | None, root: int | None
    ) -> None:
        self.twigs, self.up, self.cursor = _hang(twigs, at, root)
        nodes = range(1, len(self.twigs))
        self.size = len(nodes)
        self.depth = depth
        self.conts: list[list[int]] = [[] for _ in self.twigs]
        self.asides: list[list[int]] = [[] for _ in self.twigs]
        self.is_aside = [
            up > 0 and twig.edge != "continuation"
            for up, twig in zip(self.up, self.twigs, strict=True)
        ]
        for node in nodes:
            (self.asides if self.is_aside[node] else self.conts)[self.up[node]].append(node)
        self._count()
        self._find_path()
        self._join_runs()
        self._set_levels()
        self._measure()

    def _count(self) -> None:
        """How many nodes and leaves each holds with what is below it, and whether there is a
        bookmark.
        """
        self.count = [1] * (self.size + 1)
        self.marked = [twig.flags.bookmarked for twig in self.twigs]
        said = [True] * (self.size + 1)  # part of the conversation, not under a remark on it
        for node in range(1, self.size + 1):
            said[node] = said[self.up[node]] and not self.is_aside[node]
        self.is_leaf = [told and not conts for told, conts in zip(said, self.conts, strict=True)]
        self.leaves = [int(leaf) for leaf in self.is_leaf]
        for node in range(self.size, 0, -1):
            above = self.up[node]
            self.count[above] += self.count[node]
            self.leaves[above] += self.leaves[node]
            self.marked[above] |= self.marked[node]

    def _find_path(self) -> None:
        self.path = [self.cursor] if self.cursor else []
        while self.path and self.path[-1]:
            self.path.append(self.up[self.path[-1]])
        self.path.reverse()
        self.on_path = [False] * (self.size + 1)
        for node in self.path:
            self.on_path[node] = True

    def _join_runs(self) -> None:
        """What can be shortened in its middle, each named by its first node: the path to the
        cursor, and straight runs off it.
        """
        # the next of the same run, or 0
        self.follow = [conts[0] if len(conts) == 1 else 0 for conts in self.conts]
        for above, node in pairwise(self.path):
            self.follow[above] = node
        if self.path:
            self.follow[self.cursor] = 0
        self.run = list(range(self.size + 1))
        self.nth = [0] * (self.size + 1)
        self.last = list(range(self.size + 1))  # of a run, by its first
        for node in range(1, self.size + 1):
            above = self.up[node]
            if self.follow[above] == node:
                self.run[node] = self.run[above]
                self.nth[node] = self.nth[above] + 1
                self.last[self.run[node]] = node

    def _set_levels(self) -> None:
        """How far each node is indented, at most; where the path goes straight on; and what may not
        be shown.
        """
        level, below = [0] * (self.size + 1), [-1] * (self.size + 1)
        self.straightened = [False] * (self.size + 1)
        self.closed = [False] * (self.size + 1)
        self.too_deep = [False] * (self.size + 1)
        for above, node in pairwise(self.path):
            grows = self.is_aside[node] or len(self.conts[above]) > 1
            self.straightened[above] = grows and level[above] >= PATH_LEVELS
            level[node] = level[above] + (grows and not self.straightened[above])
        for node in range(1, self.size + 1):
            above = self.up[node]
            below[node] = below[above] + 1
            if self.on_path[node]:
                continue
            level[node] = level[above] + (
                self.is_aside[node] or len(self.conts[above]) > 1 or self.straightened[above]
            )
            self.too_deep[node] = self.depth is not None and below[node] > self.depth
            self.closed[node] = (
                self.closed[above] or self.too_deep[node] or level[node] > MAX_LEVELS
            )

    def _measure(self) -> None:
        """How far each node is from what matters: always farther than the first of its run, and
        that one than its parent.
        """
        self.far = [0] * (self.size + 1)
        self._measure_path()
        steps = [0] * (self.size + 1)
        for node in range(self.size + 1):
            self._step_to_children(node, steps)
            if self.on_path[node] or not node:
                continue
            first, twig = self.run[node], self.twigs[node]
            if first == node:
                above = self.up[node]
                self.far[node] = self.far[above] + steps[node]
            else:
                above = first
                left = self.nth[self.last[first]] - self.nth[node]
                self.far[node] = self.far[first] + min(
                    _IN_RUN * self.nth[node], _RUN_END + _IN_RUN * left
                )
                if twig.flags.bookmarked:
                    self.far[node] = self.far[first] + _BOOKMARK
            if twig.pruned and not self.twigs[above].pruned:
                self.far[node] += _BEHIND

    def _measure_path(self) -> None:
        forks = [
            place
            for place, node in enumerate(self.path)
            if len(self.conts[node]) > 1 or self.is_aside[self.follow[node]]
        ]
        far = [_BEHIND] * len(self.path)
        for nth, place in enumerate(forks):
            far[place] = min(4 + 3 * nth, 2 * (len(forks) - nth))
        for place, node in enumerate(self.path):
            if node == self.cursor:
                far[place] = 0
            elif self.up[node] == 0 or self.twigs[node].flags.bookmarked:
                far[place] = min(far[place], 1)
        for place in range(1, len(far)):
            far[place] = min(far[place], far[place - 1] + _IN_RUN)
        for place in range(len(far) - 2, -1, -1):
            far[place] = min(far[place], far[place + 1] + _IN_RUN)
        for node, distance in zip(self.path, far, strict=True):
            self.far[node] = distance

    def _step_to_children(self, node: int, steps: list[int]) -> None:
        for nth, child in enumerate(self.asides[node]):
            steps[child] = _FIRST_ASIDE + _NEXT_ASIDE * nth
        plain = 0
        for child in self.conts[node]:
            steps[child] = _FIRST_BRANCH
            if not (self.marked[child] or self.on_path[child]):
                steps[child] += _NEXT_BRANCH * plain
                plain += not self.twigs[child].pruned


def _hang(
    twigs: Iterable[OutlineNode], at: int | None, root: int | None
) -> tuple[list[OutlineNode], list[int], int]:
    """The nodes of the picture, the position of each one's parent, and that of the cursor or 0."""
    places: dict[int, int] = {}
    kept, up = [_TOP], [0]
    for twig in _in_order(twigs):
        if twig.parent is None or twig.key == root:
            above = 0
        else:
            above = places.get(twig.parent, 0)
        if root is None or above or twig.key == root:
            places[twig.key] = len(kept)
            kept.append(twig)
            up.append(above)
    return kept, up, 0 if at is None else places.get(at, 0)


class _DrawnNodes:
    """Which nodes are lines. In a run any may be, once its first is; elsewhere a node needs its
    parent.
    """

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        self.visible = [False] * (shape.size + 1)
        self.visible[0] = True
        self._runs: dict[int, list[int]] = {0: [0]}  # the visible nodes of a run, in order
        # visible ones that begin a run
        self._conts, self._asides = [0] * (shape.size + 1), [0] * (shape.size + 1)

    def show_all(self) -> None:
        self.visible = [not closed for closed in self._shape.closed]

    def show_nearest(self, lines: int) -> None:
        shape = self._shape
        room = lines - 1  # all are in one fold at first
        for node in (shape.path[1] if shape.path else 1, shape.cursor):
            if not self.visible[node]:
                room -= self._show(node)
        for node in sorted(
            (node for node, closed in enumerate(shape.closed) if not closed),
            key=shape.far.__getitem__,
        ):
            if self.visible[node]:
                continue
            room -= self._show(node)
            # what comes later might fit, but a sibling would then be shown before one that is
            # nearer
            if room < 0:
                self._hide(node)
                return

    def after(self, node: int) -> int:
        """The next visible node of the same run, or 0."""
        run = self._runs.get(self._shape.run[node], [])
        place = bisect_right(run, node)
        if place < len(run):
            return run[place]
        return 0

    def _show(self, node: int) -> int:
        """Make a node visible; how many lines that takes."""
        owner = self._owner(node)
        before = self._folds(owner)
        self._count(node, 1)
        self.visible[node] = True
        run = self._runs.setdefault(self._shape.run[node], [])
        run.insert(bisect_right(run, node), node)
        return 1 + self._folds(node) + self._folds(owner) - before

    def _hide(self, node: int) -> None:
        self._count(node, -1)
        self.visible[node] = False
        run = self._runs[self._shape.run[node]]
        del run[bisect_right(run, node) - 1]

    def _count(self, node: int, change: int) -> None:
        if self._shape.run[node] == node:
            (self._asides if self._shape.is_aside[node] else self._conts)[self._shape.up[node]] += (
                change
            )

    def _owner(self, node: int) -> int:
        """The visible node under which a hidden one is folded."""
        if self._shape.run[node] == node:
            return self._shape.up[node]
        run = self._runs[self._shape.run[node]]
        return run[bisect_right(run, node) - 1]

    def _folds(self, node: int) -> int:
        """How many folds stand under a visible node, as `_below` draws them."""
        shape = self._shape
        follow = shape.follow[node]
        goes_on = follow > 0 and self._runs[shape.run[node]][-1] > node
        gap = goes_on and not self.visible[follow]
        by_aside = shape.is_aside[follow]
        conts = self._conts[node] + (goes_on and not by_aside)
        asides = self._asides[node] + (goes_on and by_aside)
        if gap and not by_aside and len(shape.conts[node]) == 1:
            return 1
        if shape.conts[node] and not conts:
            return 1 + gap
        return gap + (conts < len(shape.conts[node])) + (asides < len(shape.asides[node]))


class _Step(Struct, frozen=True):
    """A node to be drawn: what comes before it, and what before those below it."""

    node: int
    lead: str
    body: str


class _Pen:
    """Draws the nodes that are shown, and folds for the others."""

    def __init__(self, shape: _Shape, shown: _DrawnNodes) -> None:
        self._shape, self._shown = shape, shown

    def draw(self) -> Iterator[OutlineLine]:
        waiting = self._below(0, "")[::-1]
        while waiting:
            step = waiting.pop()
            if isinstance(step, OutlineLine):
                yield step
            else:
                yield self._line(step.lead, step.node)
                waiting += self._below(step.node, step.body)[::-1]

    def _below(self, node: int, body: str) -> list[OutlineLine | _Step]:
        """What is drawn under a node: what is said about it, its branches, then the one that goes
        straight on.
        """
        conts, asides = self._shape.conts[node], self._shape.asides[node]
        straight = self._straight_on(node)
        goes_on = straight > 0 and self._leads(straight)
        steps: list[OutlineLine | _Step] = []
        for child in asides:
            if child != straight and self._leads(child):
                steps += self._way(child, body + self._glyph(child), body + UNDER_GLYPH)
        rest = [child for child in asides if not self._leads(child)]
        hidden = [child for child in conts if not self._leads(child)]
        if len(hidden) == len(conts) > 0:
            steps.append(self._fold(body + FORK if goes_on else body, hidden, rest))
        elif len(conts) == 1 and goes_on and not self._shown.visible[conts[0]]:
            return steps + self._way(straight, body, body, rest)
        else:
            if rest:
                steps.append(self._fold(body + self._glyph(rest[0]), rest))
            branches = [child for child in conts if child != straight and self._leads(child)]
            steps += self._branches(branches, hidden, goes_on, body)
        if goes_on:
            steps += self._way(straight, body + self._glyph(straight), body)
        return steps

    def _straight_on(self, node: int) -> int:
        """The node that is drawn straight below this one; 0 where none is."""
        conts = self._shape.conts[node]
        if self._shape.straightened[node]:
            return self._shape.follow[node]
        if len(conts) == 1:
            return conts[0]
        return 0

    def _branches(
        self, branches: Sequence[int], hidden: Sequence[int], goes_on: bool, body: str
    ) -> list[OutlineLine | _Step]:
        """The branches that are drawn, then one fold for those that are not."""
        steps: list[OutlineLine | _Step] = []
        for child in branches:
            last = child == branches[-1] and not hidden and not goes_on
            steps += self._way(
                child, body + (LAST if last else FORK), body + (CLEAR if last else PASSING)
            )
        if hidden:
            steps.append(self._fold(body + (FORK if goes_on else LAST), hidden))
        return steps

    def _way(
        self, node: int, lead: str, body: str, rest: Sequence[int] = ()
    ) -> list[OutlineLine | _Step]:
        """A node that is shown, or the fold that leads to the next of its run that is; `rest` is
        folded with it.
        """
        if self._shown.visible[node]:
            return [_Step(node, lead, body)]
        until = self._shown.after(node)
        return [self._fold(lead, [node], rest, until), _Step(until, body, body)]

    def _fold(
        self, lead: str, hidden: Sequence[int], rest: Sequence[int] = (), until: int = 0
    ) -> OutlineLine:
        """A line for these nodes and all below them, `rest` too, up to the node `until`."""
        shape, first = self._shape, hidden[0]
        folded = sum(shape.count[node] for node in (*hidden, *rest)) - (
            shape.count[until] if until else 0
        )
        if folded == 1 and not shape.too_deep[first]:
            return self._line(lead, first)
        if until:
            last = shape.up[until]
        else:
            last = shape.last[shape.run[first]]
        stretch = first != last and (until > 0 or (len(hidden) == 1 and not shape.conts[last]))
        return OutlineLine(
            lead=lead + FOLD,
            twig=None,
            on_path=shape.on_path[first],
            folded=folded,
            branches=sum(shape.leaves[node] for node in hidden)
            - (shape.leaves[until] if until else 0),
            names=(shape.twigs[first].short_id, shape.twigs[last].short_id if stretch else ""),
        )

    def _line(self, lead: str, node: int) -> OutlineLine:
        shape = self._shape
        return OutlineLine(
            lead=lead,
            twig=shape.twigs[node],
            on_path=shape.on_path[node],
            here=node == shape.cursor,
            branches=shape.leaves[node] - shape.is_leaf[node],
        )

    def _leads(self, node: int) -> bool:
        """Whether a node, or one further on in its run, is shown."""
        return self._shown.visible[node] or self._shown.after(node) > 0

    def _glyph(self, node: int) -> str:
        if self._shape.is_aside[node]:
            return GLYPHS[self._shape.twigs[node].edge]
        return ""
