"""Decisions in the requests of sessions: whose they are, where they are, what the map gets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom import Context, Loom, Session, weave
from loom.budget.counting import gate_counter
from loom.decisions.section import INTRODUCTION
from loom.engine.decision_tools import DecisionQuery, answer_decision_tool

count = gate_counter("gpt-4o").count_text
START = 1772274600000  # 2026-02-28 10:30 UTC


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def pass_minutes(self, minutes: int) -> None:
        self.now += 60_000 * minutes


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loom(clock: Clock) -> Iterator[Loom]:
    with Loom.open(":memory:", now=clock) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for n in range(150):
        functions = "\n".join(f"def compute_{n}_{m}(value): ..." for m in range(8))
        (folder / f"module_{n}.py").write_text(functions, encoding="utf-8")
    return folder


def prepared(session: Session, request: str = "Go on.", **options: Any) -> Context:
    usual = {"model": "gpt-4o", "window": 64_000}
    context = asyncio.run(session.prepare(request, **(usual | options)))
    session.append({"role": "assistant", "content": "Done."})
    return context


def system(context: Context) -> str:
    return "\n".join(message.text for message in context.conversation.system)


def tail(context: Context) -> str:
    return context.conversation.messages[-1].text


def test_default_has_decisions_in_the_tail_and_the_epoch_goes_on(loom: Loom, clock: Clock) -> None:
    session = loom.new()
    session.decisions.log("Add authentication to the API", kind="goal", confidence=85)
    first = prepared(session)
    assert tail(first).startswith(INTRODUCTION)
    assert "## Active Goals\n- Add authentication to the API (confidence: 85%)" in tail(first)
    clock.pass_minutes(5)
    session.decisions.log("Use JWT tokens for auth")
    second = prepared(session, "And now?")
    assert second.report.epoch_reason == "continued"
    assert "- [decision] Use JWT tokens for auth" in tail(second)


@pytest.mark.parametrize("policy", ["window", "partitions", "turns"])
def test_in_the_system_text_they_stay_for_the_epoch_and_changes_are_in_the_tail(
    loom: Loom, clock: Clock, policy: str
) -> None:
    session = loom.new()
    goal = session.decisions.log("Add authentication to the API", kind="goal", confidence=85)
    first = prepared(session, policy=policy)
    assert "- Add authentication to the API (confidence: 85%)" in system(first)
    clock.pass_minutes(5)
    session.decisions.log("Use JWT tokens for auth")
    session.decisions.abandon(goal.id, "not needed")
    second = prepared(session, "And now?", policy=policy)
    assert system(second) == system(first)
    assert "[2026-02-28 10:35] decision: Use JWT tokens for auth" in tail(second)
    assert "goal: Add authentication to the API [abandoned]" in tail(second)


def test_a_request_without_decisions_is_as_it_was(loom: Loom) -> None:
    context = prepared(loom.new(), policy="window")
    assert system(context) == ""
    assert context.report.notes == ()


def test_projects_and_folders_never_see_each_others_decisions(
    tmp_path: Path, clock: Clock, project: Path
) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "one.py").write_text("def one(): ...", encoding="utf-8")
    store = tmp_path / "loom.db"
    for name in ("a", "b"):
        with Loom.open(store, project=name, now=clock) as loom:
            loom.decisions.log(f"Decide for {name}")
            loom.decisions.of_folder(str(project)).log(f"Decide in the folder of {name}")
    with Loom.open(store, project="a", now=clock) as loom:
        session = loom.new()
        assert "Decide for a" in tail(prepared(session))
        assert "Decide for b" not in tail(prepared(session))
        assert "in the folder" not in tail(prepared(session))
        within = tail(prepared(loom.new(), project=project))
        assert "Decide in the folder of a" in within
        assert "Decide for" not in within
        assert "folder of b" not in within
        assert "Decide" not in str(prepared(loom.new(), project=other_folder).conversation.messages)


def test_what_a_session_logs_belongs_to_the_folder_that_it_works_in(
    loom: Loom, project: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(project, target_is_directory=True)
    session = loom.new()
    prepared(session, project=link)
    session.decisions.log("Use JWT tokens for auth")
    assert "Use JWT" in tail(prepared(session, "And now?", project=project))
    assert "Use JWT" in tail(prepared(session, "Next."))
    assert "Use JWT" not in tail(prepared(loom.new()))


def test_what_another_folder_decided_leaves_with_it(loom: Loom, project: Path) -> None:
    loom.decisions.of_folder(project).log("Reach the moon", kind="goal")
    session = loom.new()
    assert "Reach the moon" in system(prepared(session, policy="window", project=project))
    session.set_options(project=None)
    context = prepared(session, "And now?", policy="window")
    assert "Reach the moon" not in system(context) + tail(context)


def test_a_rare_word_of_the_request_counts_more_than_common_ones(loom: Loom, clock: Clock) -> None:
    loom.decisions.log("Build zeppelin part 1", kind="goal")
    for n in range(600):
        clock.pass_minutes(1)
        loom.decisions.log(f"Renew token cache and login queue {n}", kind="goal")
    asked = "How is the zeppelin with the token cache and login queue?"
    assert "- Build zeppelin part 1\n" in tail(prepared(loom.new(), asked))


def test_another_size_of_the_zone_begins_an_epoch(loom: Loom) -> None:
    session = loom.new()
    session.decisions.log("Use JWT tokens for auth")
    none: dict[str, Any] = {"zones": {"decision_context": 0}}
    assert "Use JWT" not in system(prepared(session, policy="window", **none))
    context = prepared(session, "And now?", policy="window", zones={"decision_context": 1024})
    assert "Use JWT" in system(context)


def test_a_rejected_option_is_a_lesson_and_no_recent_decision(loom: Loom, clock: Clock) -> None:
    session = loom.new()
    goal = session.decisions.log("Ship the login page", kind="goal")
    why = "needs sticky sessions"
    session.decisions.log(
        "Use cookies", kind="option", parent=goal.id, edge="rejected", rationale=why
    )
    text = tail(prepared(session))
    assert "- [REJECTED] Use cookies — needs sticky sessions" in text
    assert "- [option] Use cookies" not in text
    assert "option: Use cookies [rejected]" in text


def test_an_option_that_was_rejected_and_chosen_says_both_and_the_newer_wins(
    loom: Loom, clock: Clock
) -> None:
    session = loom.new()
    log, link = session.decisions.log, session.decisions.link
    web, mobile = log("Web", kind="goal"), log("Mobile", kind="goal")
    option = log("Use cookies", kind="option", parent=web.id, edge="rejected", rationale="sticky")
    clock.pass_minutes(1)
    link(mobile.id, option.id, "chosen")
    text = tail(prepared(session))
    both = "chosen for Mobile; rejected for Web: sticky"
    assert f"- [option] Use cookies ({both})" in text
    assert f"option: Use cookies [{both}]" in text
    assert "[REJECTED]" not in text
    asked = DecisionQuery("recent_decisions")
    assert "Use cookies [chosen]" in answer_decision_tool(session.decisions, asked)
    assert f"- chosen: **Use cookies**\n  - {both}" in session.decisions.write_up()
    clock.pass_minutes(1)
    link(mobile.id, option.id, "rejected", rationale="no browser")
    text = tail(prepared(session))
    assert "- [REJECTED] Use cookies — rejected: no browser; chosen before" in text
    assert "- [option] Use cookies" not in text
    clock.pass_minutes(1)
    link(mobile.id, option.id, "chosen", rationale="it has one now")  # the same edge again
    text = tail(prepared(session))
    assert "(chosen: it has one now; rejected before: no browser)" in text


def test_what_became_of_an_option_since_the_epoch_began_is_in_the_tail(
    loom: Loom, clock: Clock
) -> None:
    session = loom.new()
    goal = session.decisions.log("Web", kind="goal")
    option = session.decisions.log("Use cookies", kind="option", parent=goal.id)
    prepared(session, policy="window")
    clock.pass_minutes(1)
    session.decisions.link(goal.id, option.id, "rejected")
    assert "option: Use cookies [rejected]" in tail(prepared(session, policy="window"))


def test_a_finished_pivot_leaves_a_lesson_with_its_reason(loom: Loom, clock: Clock) -> None:
    old = loom.decisions.log("Use JWT tokens")
    clock.pass_minutes(1)
    loom.decisions.pivot(old.id, "Tokens cannot be revoked", "Use sessions")
    text = tail(prepared(loom.new()))
    assert "needs re-evaluation" not in text
    assert "- [SUPERSEDED] Use JWT tokens → replaced by Use sessions — Tokens cannot be" in text
    loom.decisions.log("Reconsidering: Use sessions", kind="revisit")
    text = tail(prepared(loom.new()))
    assert "- [REVISIT] Reconsidering: Use sessions — needs re-evaluation" in text


def test_what_matters_to_the_request_is_shown_though_it_is_old(loom: Loom, clock: Clock) -> None:
    session = loom.new()
    loom.decisions.log("Sign cookies with the rotating secret")
    loom.decisions.log("数据库使用 PostgreSQL 而不是 MySQL")
    for n in range(300):
        clock.pass_minutes(1)
        loom.decisions.log(f"Rename variable number {n}")
        loom.decisions.log(f"Reach milestone {n}", kind="goal")
    assert "cookies" not in tail(prepared(session, "Rename something."))
    assert "Sign cookies with the rotating" in tail(prepared(session, "How is a cookie signed?"))
    assert "而不是 MySQL" in tail(prepared(session, "为什么数据库不用 MySQL?"))
    assert "- Reach milestone 3\n" in tail(prepared(session, "What about milestone 3?"))
    seed = prepared(loom.new(), "What about milestone 3?", policy="window")
    assert "- Reach milestone 3\n" in system(seed)


@pytest.mark.parametrize("policy", ["default", "window"])
@pytest.mark.parametrize("tokens", [100, 400, 1024])
def test_the_zone_is_obeyed_and_what_is_left_out_is_reported(
    loom: Loom, policy: str, tokens: int
) -> None:
    session = loom.new()
    for n in range(150):
        session.decisions.log(f"Reach milestone number {n}", kind="goal")
    context = prepared(session, policy=policy, zones={"decision_context": tokens})
    zone = context.report.zones["decision_context"]
    assert 0 < zone["used"] <= tokens
    [note] = [note for note in context.report.notes if "decisions are truncated" in note]
    assert "of 150 active goals" in note
    [item] = [item for item in context.report.items if item.zone == "decision_context"]
    assert item.action == "kept"
    assert "[truncated...]" in system(context) + tail(context)


@pytest.mark.parametrize("policy", ["default", "window"])
def test_what_decisions_leave_the_map_gets(loom: Loom, project: Path, policy: str) -> None:
    """And keeps for the epoch, while decisions come."""
    session = loom.new()
    context = prepared(session, policy=policy, project=project)
    zones = context.report.zones
    alone = zones["repo_map"]["used"]
    assert 2048 < alone <= 2048 + 1024
    assert any("the map takes" in note and "1,024" in note for note in context.report.notes)
    decisions = loom.decisions.of_folder(str(project))
    for n in range(60):
        decisions.log(f"Reach milestone number {n}", kind="goal")
    later = prepared(session, "And now?", policy=policy, project=project)
    assert later.report.epoch_reason == "continued"
    assert later.report.zones["repo_map"]["used"] == alone
    for request in (context, later):
        sizes = [zone["budget"] for name, zone in request.report.zones.items() if name in zones]
        assert sum(sizes) <= request.report.window
    other = prepared(loom.new(), policy=policy, project=project).report.zones
    together = other["repo_map"]["used"] + other["decision_context"]["used"]
    assert other["repo_map"]["used"] < alone
    assert 2048 < together <= 2048 + 1024


def test_a_map_that_the_caller_sized_gets_no_more(loom: Loom, project: Path) -> None:
    context = prepared(loom.new(), project=project, zones={"repo_map": 500})
    assert context.report.zones["repo_map"]["used"] <= 500


def test_the_section_is_kept_until_something_changes(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = loom.new()
    session.decisions.log("Use JWT tokens for auth")
    asked: list[object] = []
    recent = type(loom.store.decisions).recent

    def count_calls(*values: Any) -> Any:
        asked.append(values)
        return recent(*values)

    monkeypatch.setattr(type(loom.store.decisions), "recent", count_calls)
    for _ in range(3):
        asyncio.run(session.prepare("Go on.", model="gpt-4o", preview=True))
    assert len(asked) == 1
    session.decisions.log("Use RS256")
    assert "Use RS256" in tail(prepared(session))
    assert len(asked) == 2


def test_many_evicted_messages_are_warned_about_once(loom: Loom) -> None:
    session = loom.new()
    said = [
        {"role": role, "content": f"{role} {n} " + "word " * 100}
        for n in range(100)
        for role in ("user", "assistant")
    ]
    session.append(*said)
    warned = []
    for n in range(12):
        context = prepared(session, f"Next {n} " + "word " * 400, window=8000)
        warned += [note for note in context.report.notes if "messages evicted" in note]
        if n == 0:
            assert warned == [
                f"{context.report.dropped} messages evicted—consider summarization or archiving"
            ]
    assert len(warned) == 1
    assert context.report.epoch > 0, "another epoch began meanwhile"
    first = weave(said, model="gpt-4o", window=8000)
    assert any("messages evicted—" in note for note in first.report.notes)
    more = [*said, {"role": "user", "content": "Next"}]
    second = weave(more, model="gpt-4o", window=8000, previous=first)
    assert not any("messages evicted" in note for note in second.report.notes)


def test_decisions_of_another_project_are_named_as_such(loom: Loom, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second", tmp_path / "copy" / "first"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a.py").write_text("def f(): ...\n", encoding="utf-8")
    first, second, copy = map(str, folders)
    session = loom.new()
    prepared(session, project=first)
    session.decisions.log("Ship", kind="goal", confidence=85)
    session.decisions.abandon(session.decisions.log("Use XML").id, "slow")
    loom.decisions.of_folder(second).log("Use TOML")

    def lines(folder: str) -> list[str]:
        context = prepared(session, project=folder)
        said = [*context.conversation.system, *context.conversation.messages]
        [text] = [each.text for each in said if INTRODUCTION in each.text]
        return [line for line in text.split("\n") if "Ship" in line or "Use" in line]

    assert not any("of folder" in line for line in lines(first))
    assert lines(second) == [
        "- Ship [of folder first] (confidence: 85%)",
        "- [decision] Use TOML",
        "[2026-02-28 10:30] goal: Ship [of folder first]",
        "[2026-02-28 10:30] decision: Use XML [of folder first] [abandoned]",
        "- [ABANDONED] Use XML [of folder first] — slow",
    ]
    assert "- Ship [of folder /" in lines(copy)[0]  # the whole path, as the names are the same
