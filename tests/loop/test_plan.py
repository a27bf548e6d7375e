"""Plans as models write them: what is repaired, and what is asked for again."""

import pytest

from loom import ChoiceError
from loom.loop.lenient_json import read_lenient
from loom.loop.plan import read_plan

STEP = '{"file":"a.py","action":"edit","description":"d","details":"x"}'
PLAN = f'{{"summary":"s","plan":[{STEP}]}}'


@pytest.mark.parametrize(
    "text",
    [
        PLAN,
        f"Sure:\n```json\n{PLAN}\n```\nBye.",
        PLAN.replace("}]", "},]"),
        PLAN.replace('"', "'"),
        PLAN.replace('"plan"', '// the steps\n"plan"'),
        PLAN.replace('"plan"', '/* the steps */ "plan"'),
        PLAN.replace('"summary"', "summary"),
        PLAN.replace('"', "“"),
        PLAN.replace('"edit"', '"Modify"'),
        f"{{}}\n{PLAN}",
        f"I use {{x}} and [y] here. {PLAN}",
    ],
)
def test_a_plan_is_read_however_it_is_written(text: str) -> None:
    plan = read_plan(text)
    assert plan.summary == "s"
    assert not plan.is_cut
    [step] = plan.plan
    assert (step.file, step.action, step.details) == ("a.py", "edit", "x")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"def f():\n\treturn 1\n"', "def f():\n\treturn 1\n"),
        ('"use print("a", "b") and d["k"]"', 'use print("a", "b") and d["k"]'),
        ("'don't'", "don't"),
        (r'"a\d \u00e9 \"q\" \\"', r'a\d é "q" ' + "\\"),
        ("True", "true"),
        ("None", ""),
        ('{"a": 1}', '{"a":1}'),
    ],
)
def test_details_are_what_was_meant(written: str, meant: str) -> None:
    [step] = read_plan(PLAN.replace('"x"', written)).plan
    assert step.details == meant


def test_a_plan_that_is_cut_off_has_the_whole_steps() -> None:
    three = f'{{"summary":"s","plan":[{STEP},{STEP},{STEP}]}}'
    ends = [three.rindex('"d"') + 2, three.rindex('"x"') + 2, three.rindex('"details"') + 12]
    for end in ends:
        plan = read_plan(three[:end])
        assert plan.is_cut
        assert len(plan.plan) == 2
    assert len(read_plan(three[:-2]).plan) == 3
    for end in range(len(three)):
        try:
            plan = read_plan(three[:end])
        except ChoiceError:
            continue
        assert all(step.details == "x" for step in plan.plan)


def test_a_list_of_steps_is_a_plan() -> None:
    assert len(read_plan(f"[{STEP}, {STEP}]").plan) == 2


@pytest.mark.parametrize("text", ["", "no plan", '{"summary":"s","plan":{}}', "[1]", "{" * 5000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ChoiceError, match="the plan cannot be read"):
        read_plan(text)


def test_lenient_json_ends_at_its_value() -> None:
    assert read_lenient('x [1, 2.5, -3e2, "a",] y', 2).value == [1, 2.5, -300.0, "a"]
    assert not read_lenient("[1, 2").is_whole
