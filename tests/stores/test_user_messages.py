"""Messages of the user are found on a path without reading the rest of it."""

import random
from typing import Any

import pytest

from loom import Loom
from loom.stores.tree.path import Node, Path

pytestmark = pytest.mark.sqlite_first

ANY = 1 << 40  # more tokens and messages than a path has


def conversation(seed: int, length: int) -> list[dict[str, Any]]:
    """Requests, some next to each other, with answers between; it may begin with an answer."""
    rng = random.Random(seed)
    said = []
    for n in range(length):
        role = "user" if rng.random() < 0.3 else "assistant"
        said.append({"role": role, "content": f"{role} {seed} {n} " + "word " * rng.randrange(20)})
    return said


def expected(path: Path) -> list[Node]:
    """All messages of the user on a path, the newest first."""
    return [node for node in reversed(list(path)) if node.role == "user"]


@pytest.mark.parametrize("length", [1, 2, 3, 17, 60])
@pytest.mark.parametrize("seed", range(3))
def test_all_messages_of_the_user_are_found_and_the_nodes_next_to_them(
    address: str, seed: int, length: int
) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append(*conversation(seed, length))
        path = session.path
        asked, edges = path.requests(ANY, ANY, ANY)
        assert asked == expected(path)
        around = {depth for node in asked for depth in (node.depth - 1, node.depth + 1)}
        around |= {len(path) - 1}
        around -= {node.depth for node in asked}
        assert {node.depth for node in edges} >= around & set(range(len(path)))
        assert all(node == path[node.depth] for node in edges)


def test_those_of_another_branch_are_not_found(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append(*conversation(1, 30))
        forks = [session.fork(session.path[depth].id) for depth in (4, 17, 29)]
        for n, fork in enumerate(forks):
            fork.append(*conversation(10 + n, 12))
        for each in (session, *forks):
            assert each.path.requests(ANY, ANY, ANY)[0] == expected(each.path)


def test_they_end_with_the_one_that_reaches_the_limit(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append(*conversation(5, 60))
        path = session.path
        all_of_them = expected(path)
        for limit in (1, 10, 25, 60, 200):
            asked, _ = path.requests(limit, ANY, ANY)
            assert asked == all_of_them[: len(asked)]
            assert sum(node.tokens for node in asked[:-1]) < limit
            assert len(asked) == len(all_of_them) or sum(node.tokens for node in asked) >= limit
        assert path.requests(ANY, ANY, 4)[0] == all_of_them[:4]
        assert path.requests(0, ANY, ANY) == ([], [])


def test_a_long_one_leaves_room_for_others(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        said = conversation(5, 60)
        said[-1] = {"role": "user", "content": "log line " * 3000}
        session.append(*said)
        assert len(session.path.requests(200, ANY, ANY)[0]) == 1
        assert len(session.path.requests(200, 25, ANY)[0]) > 5


def test_those_above_a_node_are_found(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append(*conversation(3, 40))
        path = session.path
        asked, _ = path.requests(ANY, ANY, ANY, below=path[20])
        assert asked == [node for node in expected(path) if node.depth <= 20]


@pytest.mark.parametrize("seed", range(3))
def test_the_next_message_of_the_user_is_found_from_any_place(address: str, seed: int) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append(*conversation(seed, 40))
        fork = session.fork(session.path[20].id)
        fork.append(*conversation(seed + 100, 9))
        for path in (session.path, fork.path):
            users = [node.depth for node in reversed(expected(path))]
            for depth in range(-1, len(path)):
                found = path.request_after(depth)
                after = [user for user in users if user > depth]
                assert (found.depth if found else None) == (after[0] if after else None)


def test_a_path_without_any_has_none(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        assert session.path.requests(ANY, ANY, ANY) == ([], [])
        assert session.path.request_after(-1) is None
        session.append({"role": "assistant", "content": "Hello."})
        assert session.path.requests(ANY, ANY, ANY)[0] == []
        assert session.path.request_after(-1) is None
