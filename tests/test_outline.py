"""A tree as lines: how it looks, what is folded where there are too many, and that no node is lost
or counted twice.
"""

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loom.conversation.outline import MAX_LEVELS, OutlineLine, OutlineNode, Sizes, outline, sizes
from loom.conversation.tree import Edge, Flags
from tests.shared import examples

LEAST = 7  # lines that the root, the cursor and their folds may take, however few are asked for
SPARE = 4  # lines that are left where the next node would take more, with its folds


def tree(*nodes: str) -> list[OutlineNode]:
    """Nodes as "name parent …": the words that follow are an edge, `bookmarked` or `pruned`. `-`
    has no parent.
    """
    twigs: list[OutlineNode] = []
    keys: dict[str, int] = {}
    for key, words in enumerate(map(str.split, nodes)):
        name, parent, *rest = words
        above = keys.get(parent)
        keys[name] = key
        edges: list[Edge] = [edge for edge in ("annotation", "version") if edge in rest]
        twigs.append(
            OutlineNode(
                key=key,
                parent=above,
                short_id=name,
                role="user",
                edge=edges[0] if edges else "continuation",
                flags=Flags(bookmarked="bookmarked" in rest, pruned="pruned" in rest),
                pruned="pruned" in rest or (above is not None and twigs[above].pruned),
            )
        )
    return twigs


def key_of(twigs: Sequence[OutlineNode], name: str) -> int:
    return next(twig.key for twig in twigs if twig.short_id == name)


def run(names: str, start: int, count: int, parent: str) -> list[str]:
    """A straight run of nodes, each named by a letter and its number."""
    return [
        f"{names}{n} {parent if n == start else f'{names}{n - 1}'}"
        for n in range(start, start + count)
    ]


def text(lines: Sequence[OutlineLine]) -> str:
    """A picture: a fold as how many nodes, of how many branches, from where to where."""
    return "\n".join(
        line.lead + (_fold(line) if line.twig is None else line.twig.short_id) for line in lines
    )


def _fold(line: OutlineLine) -> str:
    first, last = line.names
    return f"{line.folded} ({line.branches}) {first}" + (f"–{last}" if last else "")


def picture(drawn: str) -> str:
    """A picture as a test has it, without the indentation of the test."""
    return "\n".join(line[4:] for line in drawn.strip("\n").rstrip(" ").rstrip("\n").split("\n"))


CHAT = tree("a -", "b a", "c b", "d c", "e b", "f e", "g f", "h f")


# How it looks


def test_a_chat_that_forks_indents_only_at_its_branch_points() -> None:
    assert text(outline(CHAT)) == picture("""
    a
    b
    ├─ c
    │  d
    └─ e
       f
       ├─ g
       └─ h
    """)


def test_nothing_is_an_empty_picture() -> None:
    assert outline([]) == []
    assert outline(CHAT, root=99) == []


def test_a_straight_chat_does_not_drift_to_the_right() -> None:
    lines = outline(tree(*run("n", 0, 100, "-")))
    assert [line.lead for line in lines] == [""] * 100


def test_remarks_and_versions_stand_under_their_node_before_what_follows() -> None:
    twigs = tree(
        "a -",
        "b a",
        "c b",
        "r a annotation",
        "v b version",
        "s b annotation",
        "t s",
        "u t",
        "x t",
        "d b",
    )
    assert text(outline(twigs)) == picture("""
    a
    ╌ r
    b
    ≈ v
    ╌ s
      t
      ├─ u
      └─ x
    ├─ c
    └─ d
    """)


def test_several_roots_are_siblings() -> None:
    assert text(outline(tree("a -", "b -", "c a", "d b", "e b", "f -"))) == picture("""
    ├─ a
    │  c
    ├─ b
    │  ├─ d
    │  └─ e
    └─ f
    """)


def test_a_node_whose_parent_is_not_given_is_a_root() -> None:
    assert text(outline(CHAT[4:])) == text(outline(CHAT, root=key_of(CHAT, "e")))


def test_siblings_stand_in_the_order_of_their_keys_however_they_are_given() -> None:
    assert outline(CHAT[::-1]) == outline(CHAT)
    assert sizes(CHAT[::-1]) == sizes(CHAT)


def test_the_way_to_the_cursor_is_marked() -> None:
    lines = outline(CHAT, at=key_of(CHAT, "f"))
    assert [line.twig.short_id for line in lines if line.twig and line.on_path] == [
        "a",
        "b",
        "e",
        "f",
    ]
    assert [line.twig.short_id for line in lines if line.twig and line.here] == ["f"]
    assert text(lines) == text(outline(CHAT))


def test_a_node_tells_how_many_branches_are_below_it() -> None:
    told = {line.twig.short_id: line.branches for line in outline(CHAT) if line.twig}
    assert told == {"a": 3, "b": 3, "c": 1, "d": 0, "e": 2, "f": 2, "g": 0, "h": 0}


def test_what_hangs_on_a_node_can_be_drawn_alone() -> None:
    lines = outline(CHAT, root=key_of(CHAT, "e"), at=key_of(CHAT, "h"))
    assert text(lines) == picture("""
    e
    f
    ├─ g
    └─ h
    """)
    assert [line.on_path for line in lines] == [True, True, False, True]


def test_a_remark_can_be_the_root_of_a_picture() -> None:
    twigs = tree("a -", "r a annotation", "s r", "t r", "b a")
    assert text(outline(twigs, root=key_of(twigs, "r"))) == picture("""
    r
    ├─ s
    └─ t
    """)


@pytest.mark.parametrize("at", [0, 99])
def test_a_cursor_outside_the_picture_marks_nothing(at: int) -> None:
    assert outline(CHAT, root=key_of(CHAT, "e"), at=at) == outline(CHAT, root=key_of(CHAT, "e"))


# What is folded


def test_a_long_run_keeps_its_ends() -> None:
    assert text(outline(tree(*run("n", 0, 1000, "-")), lines=8)) == picture("""
    n0
    n1
    n2
    n3
    ┄ 993 (0) n4–n996
    n997
    n998
    n999
    """)


def test_the_way_to_the_cursor_keeps_its_root_its_end_and_what_follows() -> None:
    lines = outline(tree(*run("n", 0, 1000, "-")), at=500, lines=10)
    assert text(lines) == picture("""
    n0
    n1
    ┄ 496 (0) n2–n497
    n498
    n499
    n500
    n501
    n502
    ┄ 496 (0) n503–n998
    n999
    """)
    assert [line.on_path for line in lines] == [True] * 6 + [False] * 4


FAN = tree(
    "a -",
    *(f"b{n} a" + " bookmarked" * (n == 70) for n in range(100)),
    *(f"c{n} b{n}" for n in range(100)),
)


def test_of_many_siblings_the_first_and_the_bookmarked_and_the_cursors_are_shown() -> None:
    assert text(outline(FAN, at=key_of(FAN, "c40"), lines=10)) == picture("""
    a
    ├─ b0
    │  c0
    ├─ b1
    │  c1
    ├─ b40
    │  c40
    ├─ b70
    │  c70
    └─ ┄ 192 (96) b2
    """)


def test_a_bookmark_inside_a_long_run_is_shown() -> None:
    twigs = tree(*run("n", 0, 50, "-"), "m n49 bookmarked", *run("o", 0, 50, "m"))
    assert text(outline(twigs, lines=6)) == picture("""
    n0
    n1
    ┄ 48 (0) n2–n49
    m
    ┄ 49 (0) o0–o48
    o49
    """)


def test_pruned_branches_are_folded_before_others() -> None:
    twigs = tree("a -", "p a pruned", *run("q", 0, 3, "p"), "b a", *run("c", 0, 4, "b"))
    assert text(outline(twigs, lines=10)) == text(outline(twigs, lines=None))
    assert text(outline(twigs, lines=9)) == picture("""
    a
    ├─ p
    │  q0
    │  ┄ 2 (1) q1–q2
    └─ b
       c0
       c1
       c2
       c3
    """)
    assert text(outline(twigs, lines=7)) == picture("""
    a
    ├─ b
    │  c0
    │  c1
    │  c2
    │  c3
    └─ ┄ 4 (1) p–q2
    """)


def test_what_follows_a_pruned_node_in_a_run_is_folded_first_too() -> None:
    twigs = tree(*run("n", 0, 4, "-"), "p n3 pruned", *run("q", 0, 6, "p"))
    assert text(outline(twigs, lines=5)) == picture("""
    n0
    n1
    n2
    n3
    ┄ 7 (1) p–q5
    """)


def test_remarks_are_folded_with_the_run_or_under_a_glyph_of_their_own() -> None:
    twigs = tree(
        *run("n", 0, 30, "-"),
        "r n0 annotation",
        "s n0 annotation",
        "t n15 annotation",
        "u n29 version",
        "v n29 version",
    )
    assert text(outline(twigs, lines=4)) == picture("""
    n0
    ┄ 31 (0) n1–n28
    n29
    ≈ ┄ 2 (0) u
    """)


def test_a_branch_that_is_folded_names_its_first_node_and_a_run_its_last() -> None:
    twigs = tree("a -", "b a", "c a", "d c", "e c")
    assert [(line.names, line.branches) for line in outline(twigs, depth=0)[1:]] == [(("b", ""), 3)]
    assert [
        (line.names, line.branches) for line in outline(tree("a -", "b a", "c b"), depth=0)[1:]
    ] == [(("b", "c"), 1)]


def test_nodes_below_the_depth_are_folded() -> None:
    assert text(outline(CHAT, depth=2)) == picture("""
    a
    b
    ├─ c
    │  ┄ 1 (1) d
    └─ e
       ┄ 3 (2) f
    """)
    assert text(outline(CHAT, depth=0)) == picture("""
    a
    ┄ 7 (3) b
    """)


def test_the_way_to_the_cursor_is_shown_below_the_depth_too() -> None:
    assert text(outline(CHAT, depth=1, at=key_of(CHAT, "h"))) == picture("""
    a
    b
    ├─ e
    │  f
    │  ├─ h
    │  └─ ┄ 1 (1) g
    └─ ┄ 2 (1) c–d
    """)


COMB = tree("a0 -", *(node for n in range(1, 40) for node in (f"a{n} a{n - 1}", f"b{n} a{n - 1}")))


def test_branch_points_below_twelve_levels_are_folded() -> None:
    lines = outline(COMB)
    assert [_fold(line) for line in lines if line.twig is None] == ["54 (28) a13"]
    assert max(len(line.lead) for line in lines) == 3 * MAX_LEVELS + len("┄ ")


def test_past_eight_levels_the_way_to_the_cursor_goes_straight_on() -> None:
    last = outline(COMB, at=key_of(COMB, "a12"), depth=11)[8:18]
    assert text(last).replace("│  " * 7, "… ") == picture("""
    … ├─ a8
    … │  ├─ b9
    … │  a9
    … │  ├─ b10
    … │  a10
    … │  ├─ b11
    … │  a11
    … │  ├─ ┄ 1 (1) b12
    … │  a12
    … │  ┄ 54 (28) a13
    """)
    assert [line.on_path for line in last] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_cursor_far_down_many_forks_keeps_the_root_and_the_forks_beside_it() -> None:
    assert text(outline(COMB, at=key_of(COMB, "a30"), lines=10)) == picture("""
    a0
    ├─ ┄ 56 (28) a1–a28
    │  a29
    │  ├─ b30
    │  a30
    │  ├─ a31
    │  │  ┄ 16 (9) a32
    │  └─ b31
    └─ b1
    """)


def test_a_cursor_in_remarks_on_remarks_goes_straight_on_too() -> None:
    twigs = tree("n0 -", *(f"n{n} n{n - 1} annotation" for n in range(1, 12)), "m n9", "o n0")
    assert text(outline(twigs, at=11)[7:]).replace(" " * 12, "… ") == picture("""
    … ╌ n7
    …   ╌ n8
    …     ╌ n9
    …     ├─ m
    …     ╌ n10
    …     ╌ n11
    o
    """)


# Limits


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_the_root_and_the_cursor_are_shown_however_few_lines_there_are(lines: int) -> None:
    assert text(outline(FAN, lines=lines, at=key_of(FAN, "b40"))) == picture("""
    a
    ├─ b40
    │  c40
    └─ ┄ 198 (99) b0
    """)


@pytest.mark.parametrize(
    ("lines", "drawn"), [(1, 2), (2, 2), (10, 10), (200, 200), (201, 201), (None, 201)]
)
def test_a_picture_has_as_many_lines_as_it_may(lines: int | None, drawn: int) -> None:
    assert len(outline(FAN, lines=lines)) == drawn


def test_a_chat_of_100_000_messages_is_drawn_without_recursion() -> None:
    twigs = straight(100_000)
    assert len(outline(twigs, lines=None)) == 100_000
    assert len(outline(twigs, at=99_999)) == 200
    assert sizes(twigs) == Sizes(
        nodes=100_000, branches=1, depth=100_000, annotations=0, versions=0
    )


def straight(count: int) -> list[OutlineNode]:
    return [
        OutlineNode(key=n, parent=n - 1 if n else None, short_id=f"n{n}", role="user")
        for n in range(count)
    ]


def bushy(count: int) -> list[OutlineNode]:
    """A branch for every ten nodes, each from a node a third of the way back."""
    return [
        OutlineNode(
            key=n,
            parent=(n - 1 if n % 10 else n * 2 // 3) if n else None,
            short_id=f"n{n}",
            role="user",
        )
        for n in range(count)
    ]


def fan(count: int) -> list[OutlineNode]:
    return [
        OutlineNode(key=n, parent=0 if n else None, short_id=f"n{n}", role="user")
        for n in range(count)
    ]


def work(twigs: list[OutlineNode], **given: Any) -> int:
    """How many lines of code a picture takes: the same each time, as a clock is not."""
    done = 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal done
        done += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        outline(twigs, **given)
    finally:
        sys.settrace(before)
    return done


@pytest.mark.parametrize("lines", [200, None])
@pytest.mark.parametrize("make", [straight, bushy, fan])
def test_the_work_is_linear_in_the_number_of_nodes(make: Any, lines: int | None) -> None:
    few, many = (work(make(count), at=count - 1, lines=lines) for count in (500, 5_000))
    assert many <= 11 * few


def test_10_000_nodes_in_1_000_branches_take_few_steps_each() -> None:
    twigs = bushy(10_000)
    assert sizes(twigs).branches == 1_000
    assert work(twigs, at=9_999) <= 100 * len(twigs)


# Laws


@st.composite
def trees(draw: st.DrawFn) -> list[OutlineNode]:
    """Trees that mostly go straight on, with forks, remarks, versions, several roots, bookmarks and
    pruned branches.
    """
    edges: st.SearchStrategy[Edge] = st.sampled_from(
        ["continuation", "continuation", "continuation", "annotation", "version"]
    )
    node = st.tuples(st.integers(0, 9), edges, st.integers(0, 9))
    twigs: list[OutlineNode] = []
    for key, (back, edge, flag) in enumerate(draw(st.lists(node, max_size=60))):
        parent = None if not key or back == 9 else max(0, key - 1 - max(0, back - 3))
        pruned = flag == 8 or (parent is not None and twigs[parent].pruned)
        flags = Flags(bookmarked=flag == 9, pruned=flag == 8)
        twigs.append(
            OutlineNode(
                key=key,
                parent=parent,
                short_id=f"n{key}",
                role="user",
                edge=edge,
                flags=flags,
                pruned=pruned,
            )
        )
    return twigs


numbers = st.integers(0, 60)
options = st.fixed_dictionaries(
    {"lines": st.one_of(st.none(), numbers)},
    optional={"at": numbers, "depth": st.integers(0, 20), "root": numbers},
)


def within(twigs: list[OutlineNode], root: int | None) -> dict[int, OutlineNode]:
    """The nodes that hang on a root, with it; all if there is none."""
    kept: dict[int, OutlineNode] = {}
    for twig in twigs:
        if root is None or twig.key == root or twig.parent in kept:
            kept[twig.key] = twig
    return kept


@settings(max_examples=examples(50))
@given(trees(), options)
def test_every_node_is_a_line_or_in_exactly_one_fold(
    twigs: list[OutlineNode], given: dict[str, Any]
) -> None:
    lines = outline(twigs, **given)
    nodes = within(twigs, given.get("root"))
    drawn = [line.twig.key for line in lines if line.twig]
    assert len(set(drawn)) == len(drawn)
    assert len(drawn) + sum(line.folded for line in lines) == len(nodes)
    assert all(line.folded for line in lines if not line.twig)


@settings(max_examples=examples(50))
@given(trees(), options)
def test_parents_are_drawn_before_children(twigs: list[OutlineNode], given: dict[str, Any]) -> None:
    places = {
        line.twig.key: place for place, line in enumerate(outline(twigs, **given)) if line.twig
    }
    for key in places:
        above = twigs[key].parent
        while above is not None and above != given.get("root"):
            assert places.get(above, -1) < places[key]
            above = twigs[above].parent


@settings(max_examples=examples(50))
@given(trees(), options)
def test_a_picture_keeps_to_its_lines_and_its_width(
    twigs: list[OutlineNode], given: dict[str, Any]
) -> None:
    lines = outline(twigs, **given)
    if given["lines"] is not None:
        assert len(lines) <= max(given["lines"], LEAST)
        assert (
            len(lines)
            >= min(given["lines"], len(outline(twigs, **given | {"lines": None}))) - SPARE
        )
    assert all(len(line.lead) <= 3 * MAX_LEVELS + 4 for line in lines)


@settings(max_examples=examples(50))
@given(trees(), options, numbers)
def test_more_lines_show_more(twigs: list[OutlineNode], given: dict[str, Any], lines: int) -> None:
    some, more = (
        {line.twig.key for line in outline(twigs, **given | {"lines": limit}) if line.twig}
        for limit in (lines, lines + 5)
    )
    assert some <= more


@settings(max_examples=examples(50))
@given(trees(), options)
def test_only_the_depth_makes_a_fold_of_one_node(
    twigs: list[OutlineNode], given: dict[str, Any]
) -> None:
    if given.pop("depth", None) is None:
        assert all(line.folded != 1 for line in outline(twigs, **given))


@settings(max_examples=examples(50))
@given(trees(), options)
def test_the_cursor_and_its_root_are_always_shown(
    twigs: list[OutlineNode], given: dict[str, Any]
) -> None:
    lines = outline(twigs, **given)
    nodes = within(twigs, given.get("root"))
    way = []
    node = nodes.get(given.get("at", -1))
    while node is not None:
        way.append(node.key)
        node = None if node.parent is None else nodes.get(node.parent)
    drawn = [line.twig.key for line in lines if line.twig and line.on_path]
    assert [line.twig.key for line in lines if line.twig and line.here] == way[:1] == drawn[-1:]
    assert drawn[:1] == way[-1:]
    assert set(drawn) <= set(way)
    if given["lines"] is None:
        assert drawn == way[::-1]


@settings(max_examples=examples(50))
@given(trees(), options)
def test_leaves_are_lines_or_counted_in_a_fold(
    twigs: list[OutlineNode], given: dict[str, Any]
) -> None:
    lines = outline(twigs, **given)
    nodes = within(twigs, given.get("root"))
    continued = {twig.parent for twig in nodes.values() if twig.edge == "continuation"}
    said: set[int] = set()
    for key, twig in nodes.items():
        if twig.parent not in nodes or (twig.parent in said and twig.edge == "continuation"):
            said.add(key)
    leaves = said - continued
    assert sum(line.branches for line in lines if not line.twig) + sum(
        line.twig.key in leaves for line in lines if line.twig
    ) == len(leaves)
    assert sizes(list(nodes.values())).branches == len(leaves)


@settings(max_examples=examples(50))
@given(trees())
def test_a_whole_picture_can_be_read_back(twigs: list[OutlineNode]) -> None:
    lines = outline(twigs, lines=None)
    assume(all(line.twig for line in lines))
    above: dict[int, int] = {}  # the node that what stands in a column follows
    parents: dict[int, int | None] = {}
    for line in lines:
        assert line.twig
        glyph = next(
            (glyph for glyph in ("├─ ", "└─ ", "╌ ", "≈ ") if line.lead.endswith(glyph)), ""
        )
        column = len(line.lead) - len(glyph)
        parents[line.twig.key] = above.get(column)
        above = {place: key for place, key in above.items() if place <= column}
        above[len(line.lead)] = line.twig.key
    assert parents == {twig.key: twig.parent for twig in twigs}
    drawn = [line.twig for line in lines if line.twig]
    for parent in {twig.parent for twig in twigs}:
        asides = [
            twig.key
            for twig in drawn
            if twig.parent == parent is not None and twig.edge != "continuation"
        ]
        conts = [twig.key for twig in drawn if twig.parent == parent and twig.key not in asides]
        assert asides == sorted(asides)
        assert conts == sorted(conts)


# Sizes


def test_sizes_of_nothing_are_zero() -> None:
    assert sizes([]) == Sizes(nodes=0, branches=0, depth=0, annotations=0, versions=0)


def test_sizes_count_branches_and_depth_by_continuations() -> None:
    twigs = tree(
        "a -", "b a", "c b", "d b", "e d", "r e annotation", "s r", "t s", "v b version", "w -"
    )
    assert sizes(CHAT) == Sizes(nodes=8, branches=3, depth=5, annotations=0, versions=0)
    assert sizes(twigs) == Sizes(nodes=10, branches=3, depth=4, annotations=1, versions=1)
