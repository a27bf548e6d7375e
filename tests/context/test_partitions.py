"""Partitions: what is less protected gives way first, and what is protected never does."""

import pytest
from msgspec.structs import replace

from loom import CannotFit, Section, weave
from loom.context.policy import policies
from loom.context.state.partitions import PARTITIONS, partition_of

ASKED = [{"role": "user", "content": "Fix the login. " + "It fails after an hour. " * 30}]


def test_the_most_protected_comes_first() -> None:
    assert list(PARTITIONS) == ["system", "working", "memory", "skill", "history"]
    assert [protection for _, protection in PARTITIONS.values()] == [
        "never",
        "own size",
        "last",
        "on demand",
        "first",
    ]


@pytest.mark.parametrize(
    ("zone", "partition"),
    [
        ("system_prompt", "system"),
        ("rules", "system"),
        ("working", "working"),
        ("memory", "memory"),
        ("decision_context", "memory"),
        ("repo_map", "memory"),
        ("knowledge", "memory"),
        ("skills", "skill"),
        ("tool_definitions", "skill"),
        ("summary", "history"),
        ("history", "history"),
        ("of my own", "memory"),
    ],
)
def test_each_zone_belongs_to_a_partition(zone: str, partition: str) -> None:
    assert partition_of(zone) == partition


def test_a_partition_holds_every_zone_that_a_policy_places() -> None:
    placed = {
        zone
        for each in policies().values()
        for zone in (*each.system, *each.before_request, *each.tail, *each.zones)
    }
    known = {zone for zones, _ in PARTITIONS.values() for zone in zones}
    assert placed - known == {"workspace", "runtime"}  # seed 002's own, protected like memory


SECTIONS = [
    Section("rules", "RULE " * 40),
    Section("memory", "ALPHA " * 900, relevance=0.9),
    Section("knowledge", "BETA " * 900, relevance=0.1),
    Section("repo_map", "GAMMA " * 900, relevance=0.5),
    Section("working", "WORKING " * 20),
]


@pytest.mark.parametrize(
    ("words", "shown"),
    [(4000, "ABG"), (13_500, "AG"), (14_500, "A"), (15_500, ""), (40_000, "ABG")],
)
def test_memory_gives_way_before_the_request_is_cut_the_least_relevant_first(
    words: int, shown: str
) -> None:
    asked = [{"role": "user", "content": "Fix the login. " + "slow " * words}]
    context = weave(
        asked,
        system="You are careful.",
        window=16_000,
        reserve_output=0,
        sections=SECTIONS,
        model="gpt-4o",
    )
    text = str(context.openai())
    assert context.report.input_tokens <= 16_000
    assert all(word in text for word in ("RULE", "WORKING", "Fix the login."))
    assert "".join(name[0] for name in ("ALPHA", "BETA", "GAMMA") if name in text) == shown
    request = next(
        item
        for item in context.report.items
        if item.rule == "current request" or item.rule == "fits"
    )
    assert request.action == ("shrunk" if words == 40_000 else "kept"), (
        "what cannot be whole in any case takes nobody's place"
    )
    for item in context.report.items:
        if item.rule == "no room beside history":
            assert context.recall(item.handles[0]) == SECTIONS[int(item.place[9:-1])].text


def test_what_was_given_up_stays_so_within_an_epoch() -> None:
    asked = [{"role": "user", "content": "Fix the login. " + "slow " * 14_500}]
    first = weave(asked, window=16_000, reserve_output=0, sections=SECTIONS, model="gpt-4o")
    more = [*asked, {"role": "assistant", "content": "I look."}]
    second = weave(
        more, window=16_000, reserve_output=0, sections=SECTIONS, model="gpt-4o", previous=first
    )
    assert second.report.epoch_reason == "continued"
    assert second.openai()["messages"][0] == first.openai()["messages"][0]


def test_what_is_protected_is_never_given_up() -> None:
    sections = [Section("rules", "RULE " * 200), Section("memory", "ALPHA " * 200)]
    with pytest.raises(CannotFit):
        weave(
            ASKED,
            system="You are careful. " * 40,
            window=300,
            reserve_output=0,
            sections=sections,
            model="gpt-4o",
        )


OF_PARTITIONS = [
    Section("skills", "cloth " * 400, relevance=0.9),
    Section("memory", "weave " * 400, relevance=0.1),
    Section("summary", "told " * 400, relevance=0.9),
    Section("skills", "thread " * 400, relevance=0.2),
]


@pytest.mark.parametrize(
    "policy", [name for name in policies() if policies()[name].strategy != "whole_turns"]
)
@pytest.mark.parametrize(
    ("words", "gone"), [(14_000, ()), (14_950, (2, 3)), (15_350, (2, 3, 0)), (15_750, (2, 3, 0, 1))]
)
def test_summaries_give_way_before_skills_and_skills_before_memory(
    policy: str, words: int, gone: tuple[int, ...]
) -> None:
    asked = [{"role": "user", "content": "Fix the login. " + "slow " * words}]
    context = weave(
        asked,
        window=16_000,
        reserve_output=0,
        sections=OF_PARTITIONS,
        model="gpt-4o",
        policy=policy,
    )
    assert context.continuation.given_up == gone


def test_skills_that_leave_no_room_for_the_request_are_left_out_with_their_handles() -> None:
    skills = [Section("skills", f"Skill {n}: " + "knit " * 100) for n in range(3)]
    prompt, zones = "You are careful. " * 100, {"skills": 20_000}
    context = weave(
        ASKED,
        system=prompt,
        window=650,
        reserve_output=0,
        sections=skills,
        zones=zones,
        model="gpt-4o",
    )
    gone = [item for item in context.report.items if item.rule == "no room beside history"]
    assert [context.recall(item.handles[0]) for item in gone] == [skill.text for skill in skills]


WHOLE = replace(policies()["tree"], name="whole", strategy="stop_at_limit")


@pytest.mark.parametrize("zone", ["memory", "working", "skills", "rules", "of my own"])
def test_stop_at_limit_keeps_a_section_larger_than_its_zone_where_there_is_room(zone: str) -> None:
    text = "loom " * 6_000
    context = weave(
        ASKED,
        window=16_000,
        reserve_output=0,
        sections=[(zone, text)],
        model="gpt-4o",
        policy=WHOLE,
    )
    assert text in str(context.openai())
    assert [item.action for item in context.report.items if item.place == "sections[0]"] == ["kept"]
    assert context.report.zones[zone]["used"] <= context.report.zones[zone]["budget"]


@pytest.mark.parametrize("words", [6_900, 9_000])
def test_stop_at_limit_refuses_a_section_for_which_there_is_no_room_and_names_it(
    words: int,
) -> None:
    with pytest.raises(
        CannotFit,
        match=r"sections in memory take [69],\d{3} tokens, and the zone has [\d,]+: shorten them",
    ):
        weave(
            ASKED,
            window=7_000,
            reserve_output=0,
            sections=[("memory", "loom " * words)],
            model="gpt-4o",
            policy=WHOLE,
        )
