"""What a session remembers of the options of its requests, and what its folder is configured to."""

import asyncio
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import ChoiceError, Context, ContextWindow, Loom, LoomError, Session
from loom.budget.headroom import headroom_pct
from loom.types import RememberedOptions

WORDS = "The pump in the cellar hums and the valve behind it drips. "
NAMED = st.fixed_dictionaries(
    {},
    optional={
        "window": st.integers(1500, 6000),
        "reserve_output": st.integers(0, 400),
        "model": st.sampled_from(["gpt-4o", "anthropic:claude-sonnet-4-5", "unknown"]),
        "zones": st.dictionaries(
            st.sampled_from(["memory", "working", "of_mine"]), st.integers(0, 300)
        ),
        "policy": st.sampled_from(["default", "turns", "window", "partitions"]),
    },
)


def prepare(session: Session, request: str, **options: Any) -> Context:
    return asyncio.run(session.prepare(request, **options))


def sent(context: Context) -> tuple[Any, ...]:
    report = context.report
    return context.openai(), context.anthropic(), report.lines, report.notes, report.epoch_reason


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(NAMED, min_size=1, max_size=4))
def test_a_remembered_value_is_a_repeated_one(steps: list[dict[str, Any]]) -> None:
    """One session names a value once; the other one repeats all of them in every request."""
    with ExitStack() as stack:
        stores = [stack.enter_context(open_alike()) for _ in range(2)]
        once, repeated = (loom.new() for loom in stores)
        named: dict[str, Any] = {}
        for number, options in enumerate(steps):
            named |= options
            request = f"{number}: {WORDS * (40 if number % 2 else 3)}"
            first = prepare(once, request, **options)
            again = prepare(repeated, request, **named)
            assert sent(first) == sent(again)
            for session in (once, repeated):
                session.append({"role": "assistant", "content": WORDS * 20})
            once, repeated = (loom.session(once.id) for loom in stores)


def open_alike() -> Loom:
    """A store that names and dates its sessions like every other one that is opened so."""
    clock, ids = count(1), count(1)
    return Loom.open(":memory:", now=lambda: next(clock), fresh_id=lambda: f"session{next(ids)}")


def test_what_is_named_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    store = str(tmp_path / "a.db")
    project = tmp_path / "code"
    project.mkdir()
    (project / "pump.py").write_text("def hum() -> None: ...\n")
    with Loom.open(store) as loom:
        session = loom.new()
        assert session.remembered_options == RememberedOptions()
        prepare(session, "hum", window=5000, zones={"memory": 9}, project=project)
        prepare(session, "hum more", preview=True, window=9000)
    with Loom.open(store) as loom:
        session = loom.session(session.id)
        expected = RememberedOptions(window=5000, zones={"memory": 9}, project=str(project))
        assert session.remembered_options == expected
        context = prepare(session, "hum again")
        assert (context.report.window, "pump.py" in context.openai()["messages"][0]["content"]) == (
            5000,
            True,
        )
        for other in (session.fork(), session.carry_on()):
            assert other.remembered_options == expected
        assert session.set_options(window=None, reserve_output=7, policy="turns") == (
            RememberedOptions(reserve_output=7, zones={"memory": 9}, project=str(project))
        )
        assert session.policy.name == "turns"
        session.set_options(policy=None, zones=None, reserve_output=None, project=None)
        assert session.remembered_options == RememberedOptions()
        assert session.policy.name == "default"


def test_exports_keep_what_is_remembered(tmp_path: Path) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        prepare(session, "hum", window=5000, project=tmp_path)
        lines = list(loom.export(session.id))
    with Loom.open(":memory:") as other:
        other.import_lines(lines)
        assert other.session(session.id).remembered_options == RememberedOptions(
            window=5000, project=str(tmp_path)
        )


def test_a_folder_that_is_gone_is_reported(tmp_path: Path) -> None:
    project = tmp_path / "code"
    project.mkdir()
    with Loom.open(":memory:") as loom:
        session = loom.new()
        prepare(session, "hum", project=project)
        project.rmdir()
        context = prepare(session, "again")
        assert any(str(project) in note and "not there" in note for note in context.report.notes)
        with pytest.raises(ChoiceError, match="not a folder"):
            prepare(session, "again", project=project)


@pytest.mark.parametrize(
    "options",
    [{"window": 0}, {"zones": {"a": "b"}}, {"project": "/nowhere"}, {"policy": "nobody"}],
)
def test_only_what_prepare_takes_can_be_set(options: Any) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        with pytest.raises(ChoiceError):
            session.set_options(**options)
        assert session.remembered_options == RememberedOptions()


def test_another_model_of_the_session_replaces_the_remembered_one() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new(model="gpt-4o")
        prepare(session, "hum", model="gpt-4o-mini")
        assert prepare(session, "hum").report.model == "gpt-4o-mini"
        session.change(model="o3")
        assert prepare(session, "hum").report.model == "o3"


CONFIG = """\
store = "here.db"
[context]
model = "gpt-4o-mini"
window = 7000
reserved_output_tokens = 300
max_repo_map_tokens = 111
policy = "turns"
[context.zones]
memory = 77
"""


def test_a_folder_configures_the_requests_of_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("LOOM_STORE", raising=False)
    (tmp_path / ".loom.toml").write_text(CONFIG)
    with Loom.open(folder=tmp_path) as loom:
        assert loom.store.database.address == str(tmp_path / "here.db")
        assert loom.configuration is not None
        assert loom.configuration.window == 7000
        session = loom.new()
        report = prepare(session, "hum").report
        assert (report.model, report.window, report.reserved_output) == ("gpt-4o-mini", 7000, 300)
        assert (report.policy, session.remembered_options) == ("turns", RememberedOptions())
        own = loom.new(model="gpt-4o")
        assert prepare(own, "hum", window=8000).report.window == 8000
        again = prepare(own, "hum", policy="default").report
        assert (again.model, again.window, again.policy) == ("gpt-4o", 8000, "default")
    with Loom.open(":memory:", folder=tmp_path) as loom:
        assert loom.store.database.address == ":memory:"
    with Loom.open(":memory:") as loom:
        assert loom.configuration is None, "who names no folder reads no file"
        assert prepare(loom.new(), "hum").report.policy == "default"


SIZES = """\
[context]
reserved_output_tokens = 2000
max_repo_map_tokens = 1500
max_decision_context_tokens = 900
policy = "window"
"""


def test_a_project_that_a_request_names_configures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / ".loom.toml").write_text(SIZES)
    with Loom.open(":memory:") as loom:
        session = loom.new()
        for options in ({"project": tmp_path}, {}):
            context = prepare(session, "hum", window=32_000, **options)
            assert (context.report.reserved_output, context.report.policy) == (2000, "window")
        assert (session.policy.name, session.remembered_options.reserve_output) == ("window", None)
        named = prepare(session, "hum", reserve_output=100, policy="turns").report
        assert (named.reserved_output, named.policy) == (100, "turns")
        session.set_options(project=None, policy=None, reserve_output=None)
        assert prepare(session, "hum").report.reserved_output == 4096
    built = ContextWindow.build_messages(
        [{"role": "user", "content": "hum"}], "Be brief.", project_path=tmp_path, model="gpt-4o"
    )
    assert built.context.report.reserved_output == 2000
    with pytest.raises(LoomError, match=r"\.loom\.toml:2"):
        prepare(Loom.open(":memory:").new(), "hum", window=1500, project=tmp_path)


def test_the_headroom_grows_with_the_window() -> None:
    assert [headroom_pct(each, 10, 100) for each in (32_000, 128_000, 200_000, 1_000_000)] == [
        55,
        70,
        75,
        93,
    ]
    assert (headroom_pct(1, 30, 90), headroom_pct(10**9, 30, 90)) == (30, 90)


def test_the_headroom_decides_when_a_summary_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def is_due(text: str) -> bool:
        (tmp_path / ".loom.toml").write_text(text)
        with Loom.open(":memory:", folder=tmp_path) as loom:
            session = loom.new()
            for _ in range(12):
                session.append("hum?", {"role": "assistant", "content": WORDS * 6})
            prepare(session, "again", window=4000, reserve_output=100)
            return session._summaries.plan("due") is not None

    assert not is_due("[context]\nheadroom_floor_pct = 90")
    assert is_due("[context]\nheadroom_floor_pct = 10\nheadroom_ceiling_pct = 10")


def test_a_broken_file_of_the_remembered_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".loom.toml").write_text("[rules]\nstyle = = 1\n")
    with Loom.open(":memory:") as loom:
        session = loom.new()
        for options in ({"project": tmp_path}, {}):
            context = asyncio.run(session.prepare("hum", **options))  # type: ignore[arg-type]
            place = f"{tmp_path / '.loom.toml'}:2"
            assert any(place in note for note in context.report.notes)


def test_an_empty_folder_changes_nothing(tmp_path: Path) -> None:
    with open_alike() as plain, open_alike() as other:
        first = prepare(plain.new(), "hum")
        again = prepare(other.new(), "hum", project=tmp_path)
        assert first.openai() == again.openai()
        said = set(again.report.notes) - set(first.report.notes)
        assert all(note.startswith("no map: the project has no files") for note in said)
