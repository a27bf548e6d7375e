"""Search over what was cut: what is found, in which order, by which passage, and what never is."""

import asyncio
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import (
    Loom,
    LoomTree,
    Media,
    Message,
    Reasoning,
    Session,
    Text,
    ToolCall,
    ToolResult,
    TreeHead,
)
from loom.conversation.handles import to_lines
from loom.conversation.words import split_terms
from loom.engine.search import check_search, search_session, shown_in
from loom.errors import ChoiceError
from loom.recall.hits import Hit
from loom.recall.passages import PASSAGE_CHARS
from loom.recall.question import (
    MAX_QUERY_CHARS,
    find_matches,
    merge_stretches,
    read_question,
)
from loom.stores.health.doctor import examine
from loom.stores.tree.overlay import Overlay
from tests.shared import examples
from tests.stores.conftest import address, server  # noqa: F401


@pytest.fixture
def loom() -> Iterator[Loom]:
    with Loom.open(":memory:") as opened:
        yield opened


def found(loom: Loom, session: Session, query: Any, **options: Any) -> list[Hit]:
    """What is found on the path of a session, without what is hidden from it."""
    tree = loom.store.trees.head(session.row.tree)
    overlay = Overlay.read(session.path, tree.row, tree.head.mode, session.versions())
    return found_on(loom, session, overlay, query, **options)


def found_on(
    loom: Loom,
    session: Session,
    overlay: Overlay,
    query: Any,
    *,
    shown: Any = (),
    tokens: Any = None,
    limit: Any = None,
    where: Any = None,
) -> list[Hit]:
    request = check_search(query, tokens, limit, where, 1)
    return search_session(loom.store, session.row, overlay, request, frozenset(shown))


def places(hits: list[Hit]) -> list[int]:
    return [hit.place for hit in hits]


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def called(name: str, arguments: str, call: str = "c") -> Message:
    return Message("assistant", (ToolCall(call, name, arguments),))


def result(text: str, call: str = "c", name: str = "") -> Message:
    return Message("tool", (ToolResult(call, (Text(text),), name=name),))


TALK = (
    user("The login fails after authentication, they say."),
    called("read_file", '{"path":"src/app/login.py"}'),
    result("def login(user_id):\n    raise TimeoutError(4711)\n"),
    Message("assistant", (Text("密码错误的原因是服务器的时钟。"),)),
    user("Set RETRY_BUDGET to 3.17 in config.toml; the user has an id."),
    Message("assistant", (Reasoning("A zebra comes to mind.", "anthropic"), Text("Done."))),
    called("write", json.dumps({"path": "a.md", "text": 'first\nwalrus said "never"\nключ: 钥匙'})),
    Message(
        "user",
        (
            Media("file", "text", "the pangolin clause", name="contract.txt"),
            Media("image", "data", "panda"),
        ),
    ),
)


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ("authentication", [0]),
        ("Authentication!", [0]),
        ("the (login)", [1, 0, 2]),
        ("read_file", [1]),
        ("src/app/login.py", [1, 2, 0]),
        ("4711", [2]),
        ("471", []),
        ("TimeoutError", [2]),
        ("timeouterror", [2]),
        ("timeout", [2]),
        ("time", []),
        ("user_id", [2, 4]),
        ("密码", [3]),
        ("密码是多少", [3]),
        ("时钟 原因", [3]),
        ("码密", []),
        ("retry_budget", [4]),
        ("3.17", [4]),
        ("zebra", [5]),
        ("walrus", [6]),
        ("钥匙", [6]),
        ("КЛЮЧ", [6]),
        ("pangolin contract", [7]),
        ("panda", []),
        ('"login fails"', [0]),
        ("“login fails”", [0]),
        ('"Login fails"', []),
        ('"fails login"', []),
        ('login "say."', [0]),
        ('"):"', [2]),
        ('said "never"', [6]),
        ("nothing of the kind", []),
        ("the", [7, 0, 4]),
        ("unheard", []),
    ],
)
def test_words_names_and_phrases_are_found_in_any_script_and_any_part(
    loom: Loom, query: str, at: list[int]
) -> None:
    session = loom.new()
    session.append(*TALK)
    assert sorted(places(found(loom, session, query))) == sorted(at)
    assert places(found(loom, session, query))[:1] == at[:1]


def test_a_hit_is_recalled_word_for_word_and_has_one_handle(address: str) -> None:  # noqa: F811
    with Loom.open(address) as loom:
        session = loom.new()
        nodes = session.append(*TALK)
        [hit] = found(loom, session, "timeouterror")
        assert (hit.node, hit.place, hit.role, hit.text) == (
            nodes[2].short_id,
            2,
            "tool",
            "raise TimeoutError(4711)",
        )
        assert hit.score > 0
        assert session.recall(hit.handle) == to_lines([TALK[2]])
        assert found(loom, session, "4711 login")[0].handle == hit.handle
        fork = session.fork(at=nodes[2].id)
        assert found(loom, fork, "4711")[0].handle == hit.handle
        assert fork.recall(hit.handle) == to_lines([TALK[2]])
        session.append("4711 once more")
        assert places(found(loom, session, "4711")) == [8, 2]
        assert places(found(loom, session, "4711", limit=1)) == [8]
        assert not list(examine(loom.store))


def test_what_few_say_in_few_words_comes_first_and_of_equals_the_newer(loom: Loom) -> None:
    session = loom.new()
    between = ["weft " * 30] * 12
    session.append("warp beam", *between, "warp " + "and so on " * 50, *between)
    session.append("warp", *between, "warp", *between, "warp heddle", *between)
    assert places(found(loom, session, "warp heddle"))[0] == 52
    hits = found(loom, session, "warp")
    assert set(places(hits)) == {0, 13, 39, 52}, "who says the same is found once, the newer"
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == round(scores[0], 4)


def test_what_is_written_just_so_outranks_its_words(loom: Loom) -> None:
    session = loom.new()
    session.append(
        "app login src py login app py",
        "see src/app/login.py for it, and all the rest of what stands there",
        "else",
    )
    assert places(found(loom, session, "src/app/login.py")) == [1, 0]


def test_what_is_in_the_request_is_not_searched(loom: Loom) -> None:
    session = loom.new()
    session.append(*TALK)
    assert found(loom, session, "login", shown={0, 1, 2}) == []
    assert places(found(loom, session, "login", shown=[0, 2])) == [1]
    assert found(loom, loom.new(), "login") == []


def test_what_is_hidden_never_shows_up(loom: Loom) -> None:
    tree = loom.new_tree("a talk")
    nodes = [
        tree.say(text)
        for text in (
            "a heddle",
            "two heddles, a heddle",
            "heddle again",
            "and the last heddle",
            "heddle end",
        )
    ]
    assert len(found(loom, tree.session(), "heddle")) == 5
    tree.exclude(nodes[1].id)
    tree.annotate(nodes[0].id, "a remark on the heddle")
    assert sorted(places(found(loom, tree.session(), "heddle"))) == [0, 2, 3, 4]
    tree.prune(nodes[3].id)
    assert sorted(places(found(loom, tree.session(), "heddle"))) == [0, 2]
    assert places(
        found_on(loom, tree.session(), _bare(tree, {0}), "heddle", limit=1, shown={4, 3, 2})
    ) == [1]


def _bare(tree: LoomTree, hidden: set[int]) -> Overlay:
    return Overlay(path=tree.session().path, hidden=dict.fromkeys(hidden, "excluded"))


def test_other_sessions_and_branches_are_never_searched(loom: Loom) -> None:
    session = loom.new()
    shared, _ = session.append("the shared heddle", "my own heddle")
    branch = session.fork(at=shared.id)
    branch.append("the heddle of the branch")
    other = loom.new()
    other.append("a heddle elsewhere")
    assert [hit.text for hit in found(loom, session, "heddle")] == [
        "my own heddle",
        "the shared heddle",
    ]
    assert [hit.text for hit in found(loom, branch, "heddle")] == [
        "the shared heddle",
        "the heddle of the branch",
    ]
    [hit] = found(loom, other, "heddle")
    with pytest.raises(ChoiceError, match="nothing was left out under"):
        session.recall(hit.handle)
    session.append("no more")
    [own] = found(loom, session, "own")
    with pytest.raises(ChoiceError, match="nothing was left out under"):
        branch.recall(own.handle)


def test_what_was_purged_is_not_found(loom: Loom) -> None:
    session = loom.new()
    shared, own = session.append("the shared heddle", "my own heddle")
    assert own.depth == 1
    branch = session.fork(at=shared.id)
    branch.append("the heddle of the branch")
    branch.purge()
    assert found(loom, loom.session(session.id), "branch") == []
    path = session.path
    session.purge()
    assert found_on(loom, session, Overlay(path=path), "heddle") == []


def test_of_a_document_the_version_that_stands_is_searched(loom: Loom) -> None:
    tree = loom.new_tree("a text", head=TreeHead(mode="buffer"))
    first = tree.say("The heddle is old. ")
    tree.say("It goes on.")
    edited = tree.edit(first.id, "The heddle is new. ")
    session = tree.session()
    [hit] = found(loom, session, "heddle")
    assert (hit.text, hit.node, hit.place) == ("The heddle is new.", edited.short_id, 0)
    assert "The heddle is new. " in session.recall(hit.handle)
    assert found(loom, session, "old") == []


def test_what_only_repeats_comes_behind_what_said_it_first(loom: Loom) -> None:
    session = loom.new()
    session.append(user("The checksum is 99-ZX, " + "and much is said beside it " * 20))
    session.append(
        called("search_context", '{"query":"checksum"}', "s"),
        result("~abc: The checksum is 99-ZX", "s"),
    )
    session.append(
        called("recall", '{"handle":"~abc","why":"checksum"}', "r"),
        result("The checksum is 99-ZX", "r", "recall"),
    )
    session.append(called("sum", '{"what":"checksum"}', "s"), result("checksum", "s"))
    assert set(places(found(loom, session, "checksum"))[:3]) == {6, 5, 0}
    assert {1, 2, 3, 4} >= set(places(found(loom, session, "checksum"))[3:])


@pytest.mark.parametrize(
    ("query", "options", "told"),
    [
        ("", {}, "a search needs words to look for, found the text ''"),
        (" \n", {}, "a search needs words"),
        (None, {}, "found nothing"),
        ("!? …", {}, "there are no words in '!\\? …'; put symbols in quotes"),
        ('""', {}, "there are no words"),
        ("x" * (MAX_QUERY_CHARS + 1), {}, "takes at most 500 characters, found 501"),
        ("x", {"limit": 0}, "must be a whole number from 1, found 0"),
        ("x", {"tokens": 0}, "the tokens of a search must be a whole number from 1"),
        ("x", {"limit": True}, "must be a whole number from 1"),
        ("x", {"where": 3}, "a filter is names of metadata"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(
    loom: Loom, query: Any, options: dict[str, Any], told: str
) -> None:
    session = loom.new()
    session.append("hi")
    with pytest.raises(ChoiceError, match=told):
        found(loom, session, query, **options)


# Passages


def test_the_passage_is_the_line_that_says_most(loom: Loom) -> None:
    session = loom.new()
    log = (
        "\n".join(f"{n} heddle ok" for n in range(100))
        + "\n   heddle and treadle failed   \n"
        + "treadle\n" * 10
    )
    session.append(
        log, "between", "x" * 400 + " heddle " + "y" * 400, "长" * 400 + "织机" + "短" * 400
    )
    texts = {hit.place: hit.text for hit in found(loom, session, "treadle heddle")}
    assert "heddle and treadle failed" in texts[0]
    assert texts[2].startswith("heddle y")
    [wide] = found(loom, session, "织机")
    assert "织机" in wide.text
    assert len(wide.text) == PASSAGE_CHARS


WORDS = st.sampled_from(
    [
        "warp",
        "weft",
        "shed",
        "beam,",
        "src/loom.py",
        "织机",
        "x" * 350,
        "\n",
        "\t",
        "\u2028",
        "🧵",
        "ударить",
    ]
)
TEXTS = st.lists(WORDS, max_size=60)


@settings(max_examples=examples(40))
@given(
    before=st.lists(WORDS, max_size=60),
    behind=st.lists(WORDS, max_size=60),
    needle=st.sampled_from(["heddle", "梭子", "E-4711"]),
)
def test_a_passage_is_short_and_stands_in_its_message(
    before: list[str], behind: list[str], needle: str
) -> None:
    text = " ".join([*before, needle, *behind])
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(user(text), user("something else"))
        [hit] = found(loom, session, needle)
    assert hit.text in text
    assert needle in hit.text
    assert len(hit.text) <= PASSAGE_CHARS


@given(
    query=st.text("ab ü织机_1\"'.", min_size=1, max_size=12),
    text=st.text("abü织机_1 .\n", max_size=40),
)
@settings(max_examples=examples(200))
def test_what_matches_is_in_order_and_says_the_words(query: str, text: str) -> None:
    if not split_terms(query):
        return
    spots = merge_stretches(find_matches(read_question(query), text))
    assert all(0 <= start < stop <= len(text) for start, stop in spots)
    assert all(one[1] < other[0] for one, other in pairwise(spots))
    wanted = set(read_question(query).terms)
    assert bool(spots) >= bool(wanted & set(split_terms(text)))


# Requests


def prepared(session: Session) -> str:
    context = asyncio.run(
        session.prepare(model="gpt-4o", window=1500, reserve_output=200, policy="window")
    )
    return json.dumps(context.openai(), ensure_ascii=False)


def test_what_stands_whole_in_the_last_request_is_shown_and_all_that_came_since(loom: Loom) -> None:
    session = loom.new()
    session.append("the goal", *(f"number {n}: " + "word " * 40 for n in range(60)))
    assert shown_in(loom.store.views.read_newest(session.row, session.path), 61) == frozenset()
    for _ in range(3):
        request = prepared(session)
        shown = shown_in(loom.store.views.read_newest(session.row, session.path), len(session.path))
        texts = [node.message.text for node in session.path if node.message]
        assert shown == {n for n, text in enumerate(texts) if text in request}
        assert 2 < len(shown) < len(texts)
        session.append("more " * 30 + str(len(texts)))
    view = loom.store.views.read_newest(session.row, session.path)
    assert shown_in(view, len(session.path)) == shown | {len(session.path) - 1}


def test_what_was_cut_inside_is_not_shown(loom: Loom) -> None:
    session = loom.new()
    session.append(
        "the goal",
        called("cat", "{}"),
        result("heddle " * 5 + "word " * 4000 + "\nthe treadle\n" + "word " * 4000),
    )
    assert "treadle" not in prepared(session)
    assert shown_in(loom.store.views.read_newest(session.row, session.path), 3) == {0, 1}
    assert [hit.text for hit in found(loom, session, "treadle", shown={0, 1})] == ["the treadle"]


@pytest.mark.parametrize("size", [4_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_path_of_thousands_of_messages_takes_seconds_at_most(loom: Loom, size: int) -> None:
    session = loom.new()
    session.append(
        *(
            user(
                f"message {n}: the weft of the {n % 97}. loom 织机 is beaten again, "
                f"src/m{n % 313}.py"
            )
            for n in range(size)
        )
    )
    began = time.perf_counter()
    loom.index()
    assert places(found(loom, session, "message 3456"))[0] == 3_456
    assert len(found(loom, session, "the loom 织机 is", limit=50)) == 50
    # a quadratic search would take an hour for 20,000
    assert time.perf_counter() - began < size / 300
