"""The map of a project in kept sessions: it stands for an epoch, whatever happens to the files; the
rest is in the tail.
"""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom import CannotFit, Loom, Session, dialect
from loom.context.request import Context
from loom.engine.sources.project_map import MAX_NEWS_TOKENS
from loom.errors import ChoiceError
from loom.project.maps import BEYOND
from tests.shared import examples

WORDS = ("receipt", "cart", "stock", "refund", "voucher", "parcel", "courier", "ledger")

pytestmark = pytest.mark.sqlite_first


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "shop"
    root.mkdir()
    for word in WORDS[:4]:
        write(root, word)
    return root


def write(root: Path, word: str, more: str = "") -> None:
    text = (
        f'def send_{word}(order):\n    """Everything about the {word}."""\n    return order\n{more}'
    )
    (root / f"{word}.py").write_text(text)


def ask(session: Session, request: str | None = None, **options: Any) -> Context:
    return asyncio.run(session.prepare(request, model="gpt-4o", **options))


def system(context: Context) -> str:
    return "\n".join(message.text for message in context.conversation.system)


def tail(context: Context) -> str:
    return "\n".join(
        message.text
        for message in context.conversation.messages[
            len(context.conversation.messages) - context.tail :
        ]
    )


def answered(session: Session) -> None:
    session.append({"role": "assistant", "content": "Done."})


def test_the_map_of_a_project_stands_in_the_system_text(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        context = ask(loom.new(), "The receipt is never sent", project=shop)
        assert "### receipt.py (relevance: high)\ndef send_receipt(order)" in system(context)
        assert context.tail == 0
        [item] = [item for item in context.report.items if item.zone == "repo_map"]
        assert item.action == "kept"
        assert item.after <= 2048


def test_what_comes_later_stands_in_the_tail_until_the_epoch_ends(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent", project=shop)
        answered(session)
        write(shop, "voucher")
        (shop / "cart.py").unlink()
        second = ask(session, "Now mend the voucher", project=shop)
        assert second.report.epoch_reason == "continued"
        assert system(second) == system(first)
        assert tail(second).startswith(BEYOND)
        assert "send_voucher" in tail(second)
        assert "No longer in the project: cart.py" in tail(second)
        begun = ask(session, project=shop, policy="turns")
        assert "send_voucher" in system(begun)
        assert "cart.py" not in system(begun)
        assert begun.tail == 0


def test_after_a_restart_the_same_map_stands(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent", project=shop)
        answered(session)
    write(shop, "receipt", "\n\ndef unsend_receipt(order):\n    return order\n")
    with Loom.open(address) as loom:
        again = ask(loom.session(session.id), "Go on", project=str(shop))
        assert again.report.epoch_reason == "continued"
        assert system(again) == system(first)
        fork = loom.session(session.id).fork()
        assert system(ask(fork, "Another way", project=shop)) == system(first)


def test_what_is_declared_otherwise_by_now_or_is_gone_is_told_in_the_tail(
    address: str, shop: Path
) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        ask(session, "The receipt is never sent", project=shop)
        answered(session)
        (shop / "receipt.py").write_text("def send_receipt(order, copy: bool):\n    return order\n")
        (shop / "cart.py").write_text("def send_basket(order):\n    return order\n")
        told = tail(ask(session, "Go on", project=shop))
        assert "send_receipt(order, copy: bool)" in told
        assert "No longer in the project: send_cart of cart.py" in told


@pytest.mark.parametrize("window", [8_000, 16_000, 32_000])
@pytest.mark.parametrize("zone", ["decision_context", "memory"])
@pytest.mark.parametrize("policy", ["default", "window", "turns", "partitions"])
def test_an_epoch_goes_on_where_the_map_fills_its_zone(
    shop: Path, window: int, zone: str, policy: str
) -> None:
    for n in range(60):
        write(
            shop,
            f"word{n}",
            "".join(f"\n\ndef more_{n}_{line}():\n    return {line}\n" for line in range(12)),
        )
    with Loom.open(":memory:") as loom:
        session = loom.new()
        options: Any = {
            "project": shop,
            "window": window,
            "sections": [(zone, "What was decided. " * 2000)],
            "policy": policy,
        }
        first = ask(session, "The receipt is never sent", **options)
        answered(session)
        write(shop, "voucher")
        second = ask(session, "Now mend the voucher", **options)
        assert second.report.epoch_reason == "continued"
        assert system(second) == system(first)
        assert second.report.input_tokens <= second.report.usable


def test_an_epoch_that_begins_leaves_room_for_its_tail(shop: Path) -> None:
    for n in range(40):
        write(shop, f"word{n}")
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append("Mend everything about the receipt")
        begun = []
        for n in range(80):
            session.append({"role": "assistant", "content": f"I looked at part {n}. " * 40})
            write(shop, WORDS[n % 8], f"\n\ndef more_{n}():\n    return {n}\n")
            context = ask(
                session,
                f"Now the {WORDS[n % 8]}, part {n}",
                project=shop,
                window=9_000,
                reserve_output=500,
            )
            begun += [n] if context.report.epoch_reason != "continued" else []
        assert len(begun) > 2
        assert all(later - earlier > 3 for earlier, later in pairwise(begun))


def test_a_request_that_names_no_project_has_the_one_that_is_remembered(
    address: str, shop: Path
) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent", project=shop)
        answered(session)
        later = ask(session, "Now mend the voucher")
        assert (system(later), later.report.epoch_reason) == (system(first), "continued")


@pytest.mark.parametrize("way", ["forgotten", "gone"])
def test_a_project_that_is_forgotten_or_gone_leaves_with_an_epoch_that_says_so(
    address: str, shop: Path, way: str
) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent", project=shop)
        answered(session)
        if way == "gone":
            shop.rename(shop.with_name("elsewhere"))
        else:
            session.set_options(project=None)
        later = ask(session, "Now mend the voucher")
        assert "Project" in system(first)
        assert "Project" not in system(later)
        assert later.report.epoch_reason == "the project was forgotten, or its folder is gone"
        answered(session)
        assert ask(session, "And the till").report.epoch_reason == "continued"


def test_a_project_that_comes_late_stands_in_the_tail_until_an_epoch_begins(
    address: str, shop: Path
) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent")
        late = ask(session, project=shop)
        assert late.report.epoch_reason == "continued"
        assert system(late) == system(first)
        assert "send_receipt" in tail(late)


def test_another_project_begins_an_epoch_that_says_so(
    address: str, shop: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(other, "ledger")
    with Loom.open(address) as loom:
        session = loom.new()
        ask(session, "The receipt is never sent", project=shop)
        context = ask(session, project=other)
        assert context.report.epoch_reason == "another project is mapped"
        assert "ledger.py" in system(context)
        assert "receipt.py" not in system(context)


def test_an_index_that_is_not_kept_is_told_of_in_the_report(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with Loom.open(":memory:") as loom:
        context = ask(loom.new(), "The receipt is never sent", project=shop)
        assert [
            note for note in context.report.notes if note.startswith("the index is only in memory")
        ]
        assert "receipt.py" in system(context)


def test_a_preview_changes_nothing(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent", project=shop)
        write(shop, "voucher")
        ask(session, project=shop, preview=True, policy="turns")
        assert system(ask(session, project=shop)) == system(first)


def test_undo_brings_back_the_map_of_the_epoch_before(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first = ask(session, "The receipt is never sent", project=shop)
        write(shop, "voucher")
        answered(session)
        ask(session, "Now mend the voucher", project=shop, policy="turns")
        session.undo()
        assert system(ask(session, project=shop)) == system(first)


def test_the_zone_says_how_large_the_map_may_be(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        for tokens in (0, 20, 40, 300):
            context = ask(
                loom.new(), "The receipt is never sent", project=shop, zones={"repo_map": tokens}
            )
            assert (
                sum(item.after for item in context.report.items if item.zone == "repo_map")
                <= tokens
            )


@pytest.mark.parametrize("tokens", [0, 10])
def test_a_zone_without_room_for_a_map_has_none_in_the_tail_either(
    address: str, shop: Path, tokens: int
) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        zones = {"repo_map": tokens}
        for request in ("The receipt is never sent", "See send_receipt in receipt.py"):
            context = ask(session, request, project=shop, zones=zones)
            said = [note for note in context.report.notes if note.startswith("no map: ")]
            assert len(said) == 1
            assert f"zone has {tokens} tokens" in said[0] or f"of {tokens} tokens" in said[0]
            assert "def send_receipt" not in system(context) + tail(context)
            answered(session)


def test_news_of_the_project_are_within_the_zone_of_the_map(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        ask(session, "Hello", project=shop, zones={"repo_map": 60})
        answered(session)
        for n in range(40):
            (shop / f"invoice_{n}.py").write_text(f"def send_invoice_{n}(): ...\n")
        context = ask(session, " ".join(f"See invoice_{n}.py." for n in range(20)))
        news = [item for item in context.report.lines if item.zone == "map_update"]
        assert 0 < sum(item.after for item in news) <= 60


def test_an_empty_project_is_said_to_be_empty(address: str, tmp_path: Path) -> None:
    with Loom.open(address) as loom:
        (tmp_path / "empty").mkdir()
        notes = ask(loom.new(), "Hello", project=tmp_path / "empty").report.notes
        assert "no map: the project has no files that Loom reads" in notes


def test_the_window_preset_draws_it_as_its_seed_does(address: str, shop: Path) -> None:
    with Loom.open(address) as loom:
        context = ask(loom.new(), "See receipt.py", project=shop, policy="window")
        assert "### receipt.py (relevance: high)\nFunctions: send_receipt\n" in system(context)


def test_a_project_that_is_no_folder_is_refused_before_anything_is_sent(
    address: str, shop: Path
) -> None:
    with Loom.open(address) as loom, pytest.raises(ChoiceError, match="is not a folder"):
        ask(loom.new(), "Hello", project=shop / "receipt.py")


OPERATIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(WORDS)),
    st.tuples(st.just("ask"), st.just("")),
    st.tuples(st.just("write"), st.sampled_from(WORDS)),
    st.tuples(st.just("remove"), st.sampled_from(WORDS)),
    st.tuples(st.just("talk"), st.sampled_from([20, 400])),
    st.tuples(st.just("restart"), st.just("")),
)


@given(
    st.lists(OPERATIONS, min_size=4, max_size=14),
    st.sampled_from([900, 2_500, 16_000]),
    st.sampled_from(["default", "window", "turns", "partitions", "tree"]),
)
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(24))
def test_the_prefix_of_an_epoch_stands_whatever_happens_to_the_files(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[str, Any]],
    window: int,
    policy: str,
) -> None:
    folder = tmp_path_factory.mktemp("law")
    shop = folder / "shop"
    shop.mkdir()
    for word in WORDS[:5]:
        write(shop, word)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        loom = Loom.open(str(folder / "store.db"))
        session = loom.new()
        session.append("Mend everything about the receipt")
        last: Context | None = None
        for number, (what, about) in enumerate(operations):
            match what:
                case "write":
                    write(shop, about, f"\n\ndef more_{number}():\n    return {number}\n")
                case "remove":
                    (shop / f"{about}.py").unlink(missing_ok=True)
                case "talk":
                    session.append(
                        {"role": "assistant", "content": f"I say {number} " * about},
                        f"and the {WORDS[number % 8]}?",
                    )
                case "restart":
                    loom.close()
                    loom = Loom.open(str(folder / "store.db"))
                    session = loom.session(session.id)
                case _:
                    try:
                        context = ask(
                            session,
                            f"Look at the {about}" if about else None,
                            window=window,
                            policy=policy,
                            project=shop,
                        )
                    except CannotFit:
                        last = None
                        continue
                    report = context.report
                    assert report.input_tokens <= report.usable
                    assert not [
                        found
                        for found in dialect("openai").check(context.openai())
                        if found.level == "error"
                    ]
                    assert (
                        sum(item.after for item in report.items if item.zone == "map_update")
                        <= MAX_NEWS_TOKENS
                    )
                    if last and report.epoch_reason == "continued":
                        before = last.conversation.messages[
                            : len(last.conversation.messages) - last.tail
                        ]
                        assert context.conversation.system == last.conversation.system
                        assert context.conversation.messages[: len(before)] == before
                    last = context
        loom.close()
