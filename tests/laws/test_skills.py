"""Skills in the requests of sessions: within their budget, and never ahead of the history within an
epoch.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loom import Loom
from loom.context import Context, policies
from loom.engine.sessions import Session
from loom.engine.sources.skills import ZONE_TOKENS
from loom.engine.tools import tools
from loom.errors import CannotFit, ChoiceError
from tests.shared import ROOT

PDF = "Fill in the PDF form with the data of the company."
NOTES = "Write the release notes and the changelog from the commits."


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    from shutil import copytree

    copytree(ROOT / "tests" / "fixtures" / "skills", tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def loom() -> Iterator[Loom]:
    with Loom.open(":memory:") as opened:
        yield opened


def ask(session: Session, request: str | None = None, **options: Any) -> Context:
    given = None if request is None else {"role": "user", "content": request}
    return asyncio.run(session.prepare(given, model="gpt-4o", **options))


def said(context: Context) -> tuple[str, list[Any]]:
    messages = context.openai()["messages"]
    return messages[0]["content"], messages


def call(session: Session, number: int, name: str | None, unload: str | None = None) -> str:
    from loom.conversation.canonical import to_json

    made = {
        "id": f"c{number}",
        "type": "function",
        "function": {
            "name": "load_skill",
            "arguments": to_json({"name": name, "unload": unload}),
        },
    }
    session.append({"role": "assistant", "content": None, "tool_calls": [made]})
    node = session.use(made)
    assert node is not None
    assert node.message is not None
    [result] = node.message.results
    return "".join(getattr(part, "text", "") for part in result.parts)


def test_a_request_has_the_list_and_the_skill_that_it_asks_for(loom: Loom, project: Path) -> None:
    context = ask(loom.new(), PDF, project=project)
    system, _ = said(context)
    assert "- release-notes: Write release notes" in system
    assert '<skill name="pdf-forms">' in system
    assert "scripts/fields.py" in system
    assert '<skill name="release-notes">' not in system
    assert any(note.startswith("skill pdf-forms: in the request") for note in context.report.notes)


def test_without_a_project_nothing_is_added(loom: Loom, tmp_path: Path) -> None:
    assert len(said(ask(loom.new(), PDF))[1]) == 1
    (tmp_path / "empty").mkdir()
    context = ask(loom.new(), PDF, project=tmp_path / "empty")
    assert "skill" not in str(context.openai()).lower()
    assert not any("skill" in note for note in context.report.notes)


def test_a_skill_that_is_needed_later_is_in_the_tail_and_the_prefix_stays(
    loom: Loom, project: Path
) -> None:
    session = loom.new()
    first = said(ask(session, PDF, project=project))
    session.append({"role": "assistant", "content": "Done."})
    context = ask(session, NOTES, project=project)
    system, messages = said(context)
    assert context.report.epoch_reason == "continued"
    assert messages[: len(first[1])] == first[1]
    assert '<skill name="release-notes">' in messages[-1]["content"]
    put_new_skill(project)
    session.append({"role": "assistant", "content": "Done."})
    context = ask(session, "Thanks.", project=project)
    assert context.report.epoch_reason == "continued"
    assert said(context)[0] == system
    assert "New skills:\n- brand-new: Something new." in said(context)[1][-1]["content"]


def put_new_skill(project: Path) -> None:
    folder = project / "skills" / "brand-new"
    folder.mkdir(parents=True)
    text = "---\nname: brand-new\ndescription: Something new.\n---\nDo it.\n"
    (folder / "SKILL.md").write_text(text)


def test_a_model_with_the_tool_is_told_the_name_and_loads_it(loom: Loom, project: Path) -> None:
    session = loom.new(tools=tools())
    system = said(ask(session, PDF, project=project))[0]
    session.append({"role": "assistant", "content": "Done."})
    hinted = said(ask(session, NOTES, project=project))[1][-1]["content"]
    assert "- release-notes: load it with load_skill" in hinted
    assert "<skill" not in hinted
    assert "Read `git log LAST_TAG..HEAD`" in call(session, 1, "release-notes")
    context = ask(session, project=project)
    after, messages = said(context)
    assert (after, context.report.epoch_reason) == (system, "continued")
    assert messages[-1]["role"] == "tool"  # nothing is said twice
    assert "there is no skill" in call(session, 2, "relase-notes")
    assert call(session, 3, None).count("\n- ") == 14


def test_a_loaded_skill_stays_in_sight_in_each_later_epoch(loom: Loom, project: Path) -> None:
    session = loom.new(tools=tools())
    options: dict[str, Any] = {"project": project, "window": 9000, "reserve_output": 1000}
    ask(session, "Prepare everything for Friday.", **options)
    call(session, 1, "flaky-tests")
    seen = set()
    for n in range(14):
        session.append({"role": "assistant", "content": f"Step {n}. " + f"word{n} " * 500})
        context = ask(session, f"Go on with step {n}.", **options)
        text = str(context.openai()["messages"])
        # The history may still have it where there is room.
        assert 1 <= text.count('<skill name="flaky-tests">') <= 2, (n, context.report.epoch)
        seen.add(("<skill" in said(context)[0], context.report.epoch > 0))
    assert (True, True) in seen  # it moved into the zone
    call(session, 2, None, unload="flaky-tests")
    for n in range(8):
        session.append({"role": "assistant", "content": f"More {n}. " + f"term{n} " * 500})
        context = ask(session, f"Go on with part {n}.", **options)
    assert '<skill name="flaky-tests">' not in said(context)[0]


def test_the_same_request_is_made_after_a_restart(project: Path, tmp_path: Path) -> None:
    url = str(tmp_path / "loom.db")
    with Loom.open(url) as loom:
        session = loom.new()
        name = session.id
        system = said(ask(session, PDF, project=project))[0]
        session.append({"role": "assistant", "content": "Done."})
    for file in project.rglob("SKILL.md"):
        file.write_text(file.read_text() + "\nChanged.\n")
    with Loom.open(url) as loom:
        context = ask(loom.session(name), "And now?", project=project)
    assert (said(context)[0], context.report.epoch_reason) == (system, "continued")


def test_skills_that_the_caller_names_are_in_the_request(loom: Loom, project: Path) -> None:
    session = loom.new(tools=tools())
    names = ["docker-images", "load-testing", "grpc-endpoint", "flaky-tests"]
    system, _ = said(ask(session, "Hello.", project=project, skills=names))
    assert all(f'<skill name="{name}">' in system for name in names)
    session.append({"role": "assistant", "content": "Hi."})
    tail = said(ask(session, "Go.", project=project, skills=["security-review"]))[1][-1]["content"]
    assert '<skill name="security-review">' in tail
    before = len(session.path)
    with pytest.raises(ChoiceError, match="nearest is docker-images"):
        ask(session, "No.", project=project, skills=["docker-image"])
    with pytest.raises(ChoiceError, match="not a folder"):
        ask(session, "No.", skill_folders=[project / "none"])
    assert len(session.path) == before


def test_a_tree_has_the_skills_of_a_project_too(loom: Loom, project: Path) -> None:
    tree = loom.new_tree("work")
    context = asyncio.run(
        tree.prepare({"role": "user", "content": PDF}, project=project, model="gpt-4o")
    )
    assert '<skill name="pdf-forms">' in str(context.openai())


@pytest.mark.parametrize(
    "options",
    [
        {"zones": {"skills": 300}},
        {"zones": {"skills": 120}},
        {"window": 3000, "reserve_output": 500},
    ],
)
@pytest.mark.parametrize("is_of_caller", [True, False])
def test_a_skill_that_is_named_is_cut_and_the_list_gives_way(
    loom: Loom, project: Path, options: dict[str, Any], is_of_caller: bool
) -> None:
    file = project / ".claude" / "skills" / "pdf-forms" / "SKILL.md"
    file.write_text(file.read_text() + "Then look at each field again.\n" * 2000)
    if is_of_caller:
        options = {**options, "skills": ["pdf-forms"]}
    request = "Go." if is_of_caller else "/pdf-forms please"
    context = ask(loom.new(), request, project=project, **options)
    system, _ = said(context)
    assert '<skill name="pdf-forms">' in system
    assert any(
        note.startswith("skill pdf-forms: in the request, cut") for note in context.report.notes
    )
    assert "- release-notes" not in system
    assert "the list of skills: left out, no room in the zone" in context.report.notes


def test_a_skill_that_is_named_later_is_cut_in_the_tail_of_a_small_window(
    loom: Loom, project: Path
) -> None:
    file = project / ".claude" / "skills" / "pdf-forms" / "SKILL.md"
    file.write_text(file.read_text() + "Then look at each field again.\n" * 2000)
    options: dict[str, Any] = {"project": project, "window": 3000, "reserve_output": 500}
    session = loom.new()
    ask(session, "Hello.", **options)
    session.append({"role": "assistant", "content": "Hi."})
    context = ask(session, "/pdf-forms please", **options)
    assert context.report.epoch_reason == "continued"
    assert '<skill name="pdf-forms">' in said(context)[1][-1]["content"]


def test_the_zone_of_the_policy_holds_the_list_and_the_texts(loom: Loom, project: Path) -> None:
    file = project / ".claude" / "skills" / "pdf-forms" / "SKILL.md"
    file.write_text(file.read_text() + "Then look at each field again.\n" * 2000)
    size = policies()["default"].zones["skills"]
    context = ask(loom.new(), "/pdf-forms please", project=project)
    assert size - 148 < context.report.zones["skills"]["used"] <= size
    # a policy that names no size has room for the whole list and for texts of 4,000 tokens
    larger = replace(policies()["default"], name="own", zones={})
    context = ask(loom.new(), "/pdf-forms please", project=project, policy=larger)
    assert "- release-notes" in said(context)[0]
    assert 4000 < context.report.zones["skills"]["used"] <= ZONE_TOKENS


@pytest.mark.parametrize("policy", sorted(policies()))
def test_skills_never_make_a_request_impossible(loom: Loom, project: Path, policy: str) -> None:
    names = ["pdf-forms", "docker-images", "load-testing"]
    for window in (120, 200, 400, 800, 2000, 6000):
        options: dict[str, Any] = {"policy": policy, "window": window, "reserve_output": 20}
        try:
            ask(loom.new(), PDF, **options, sections=[("memory", "Remember the milk.")])
        except CannotFit:
            continue
        context = ask(
            loom.new(),
            PDF,
            **options,
            skill_folders=[project / ".claude" / "skills"],
            skills=names,
            sections=[("memory", "Remember the milk.")],
        )
        kept = {item.zone: item.action for item in context.report.items}
        if "memory" in kept and kept["memory"] != "kept":
            assert "skills" not in kept or kept["skills"] == "dropped"


def test_in_the_policy_of_partitions_skills_come_after_memory(loom: Loom, project: Path) -> None:
    system, _ = said(
        ask(
            loom.new(system="Be brief."),
            PDF,
            policy="partitions",
            project=project,
            sections=[("memory", "REMEMBER")],
        )
    )
    assert system.index("Be brief.") < system.index("REMEMBER") < system.index("<skill name=")


@pytest.mark.parametrize("policy", sorted(policies()))
def test_a_session_with_skills_goes_on_wherever_one_without_does(
    loom: Loom, project: Path, policy: str
) -> None:
    requests = [PDF, NOTES, "Use the docker-images skill.", "Thanks.", PDF, "Continue."]
    folders = [project / ".claude" / "skills"]
    for window in (500, 1500, 5000):
        options: dict[str, Any] = {"policy": policy, "window": window, "reserve_output": 60}
        plain, skilled = loom.new(), loom.new()
        before: list[Any] = []
        for request in requests:
            try:
                ask(plain, request, **options)
            except CannotFit:
                break
            context = ask(skilled, request, skill_folders=folders, **options)
            messages = said(context)[1]
            if context.report.epoch_reason == "continued" and policy == "default":
                assert messages[0] == before[0]
            before = messages
            assert context.report.input_tokens <= context.report.usable
            for session in (plain, skilled):
                session.append({"role": "assistant", "content": f"{request} " * 20})


def test_what_was_loaded_comes_along_with_an_export(loom: Loom, project: Path) -> None:
    session = loom.new(tools=tools())
    ask(session, "Hello.", project=project)
    call(session, 1, "flaky-tests")
    with Loom.open(":memory:") as other:
        other.import_lines(session.export())
        copy = other.session(session.id)
        assert len(copy.skills.list_all().found) == 14
        system, _ = said(ask(copy, "Go on.", project=project))
    assert "- flaky-tests: " in system


def test_a_zone_of_0_has_no_skills_and_the_tail_names_none(loom: Loom, project: Path) -> None:
    session = loom.new(tools=tools())
    context = ask(session, "Hello.", project=project, zones={"skills": 0})
    assert "no skills: their zone has 0 tokens" in context.report.notes
    session.append({"role": "assistant", "content": "Hello."})
    put_new_skill(project)
    context = ask(session, NOTES, project=project)
    assert context.report.epoch_reason == "continued"
    assert "load_skill" not in said(context)[1][-1]["content"]
    assert [note for note in context.report.notes if "skill" in note] == [
        "no skills: their zone has 0 tokens"
    ]


def test_a_new_skill_that_the_request_needs_is_named_once(loom: Loom, project: Path) -> None:
    session = loom.new(tools=tools())
    ask(session, "Hello.", project=project)
    session.append({"role": "assistant", "content": "Hello."})
    put_new_skill(project)
    said_last = said(ask(session, "Use the brand-new skill.", project=project))[1][-1]["content"]
    assert said_last.count("brand-new") == 1 + said_last.count("the request names it")
    assert "- brand-new: Something new. New: load it with load_skill" in said_last
