"""Policies that somebody writes: the five of the page on them, what extends what, and what is
refused.
"""

import ast
import asyncio
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from loom import ChoiceError, Context, Loom, Policy, Rule, weave
from loom.context.history.strategies import STRATEGIES
from loom.context.policy import StrategyName, policies
from tests.shared import ROOT

PAGE = (ROOT / "docs" / "policies.md").read_text()
Chat = dict[str, Any]


def page_policies() -> dict[str, Policy]:
    """The policies of the page, by name."""
    found = [Policy.from_toml(text) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, Any] = {}
        exec(code, names)
        found.append(names["policy"])
    return {policy.name: policy for policy in found}


def call(number: int, tool: str, result: str) -> list[Chat]:
    """A call of a tool and its result."""
    function = {"name": tool, "arguments": "{}"}
    made = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def talk(*tools: str, turns: int = 12, words: int = 120) -> list[Chat]:
    """Turns in which the model calls these tools one after the other, with long results."""
    said: list[Chat] = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"<wish {turn}> please"})
        for n, tool in enumerate(tools):
            said += call(turn * len(tools) + n, tool, f"<{tool} {turn}> " + "word " * words)
    return [*said, {"role": "user", "content": "<now> go on"}]


def sent(messages: list[Chat], policy: str | Policy, window: int = 2500) -> str:
    context = weave(messages, model="gpt-4o", window=window, reserve_output=0, policy=policy)
    assert context.report.input_tokens <= window
    return str(context.openai()["messages"])


def test_the_page_has_an_example_and_five_policies() -> None:
    assert list(page_policies()) == [
        "work first",
        "support",
        "computer",
        "coder",
        "errors first",
        "words",
    ]


def test_the_page_names_what_default_keeps_and_how_to_turn_it_off() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\S+) \| (\S*) \|$", PAGE, re.MULTILINE)
    assert {"goal", "leaned_on", "words", "cover"} <= {field for field, _, _ in rows}
    for field, value, off in rows:
        given = tomllib.loads(f"value = {value.strip('`')}")["value"]
        assert getattr(policies()["default"], field) == given, field
        for name in ("window", "partitions", "turns", "tree") if off else ():
            given = tomllib.loads(f"value = {off.strip('`')}")["value"]
            assert getattr(policies()[name], field) == given, (name, field)


def test_each_part_of_what_stays_can_be_turned_off() -> None:
    talked = talk("search", turns=30)
    talked[-1:] = [
        {"role": "assistant", "content": "Shall I write it?"},
        {"role": "user", "content": "yes"},
    ]

    def rules(**fields: Any) -> set[str]:
        policy = Policy.extends("default", name="mine", **fields)
        report = weave(talked, model="gpt-4o", window=2500, reserve_output=0, policy=policy).report
        return {item.rule for item in report.items}

    assert "the request leans on it" in rules()
    assert "the request leans on it" not in rules(leaned_on=False)
    quoted = "> <wish 20> please"
    assert quoted in sent(talked, "default")
    assert quoted not in sent(talked, Policy.extends("default", name="mine", cover=0.0))


def test_support_keeps_every_message_of_the_user() -> None:
    messages = talk("search", turns=30)
    assert "<wish 7>" not in sent(messages, Policy.extends("default", name="plain", cover=0.0))
    there = sent(messages, page_policies()["support"])
    assert all(f"<wish {turn}>" in there for turn in range(30))


def test_computer_shows_only_the_last_screenshot() -> None:
    messages = talk("screenshot", "browser_click", turns=5, words=40)
    context = weave(messages, model="gpt-4o", policy=page_policies()["computer"])
    there = str(context.openai()["messages"])
    assert [turn for turn in range(5) if f"<screenshot {turn}>" in there] == [4]
    assert [turn for turn in range(5) if f"<browser_click {turn}>" in there] == [2, 3, 4]
    item = next(item for item in context.report.items if item.place == "messages[2]")
    assert (item.action, item.rule, item.returns_at) == (
        "shrunk",
        "the policy shows only the newest",
        0,
    )
    assert context.recall(item.handles[0]).startswith("<screenshot 0>")


def test_pictures_are_hidden_too() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    messages: list[Chat] = [{"role": "user", "content": "look"}]
    for n in range(3):
        use = {"type": "tool_use", "id": f"c{n}", "name": "screenshot", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": [picture]}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    context = weave(messages, model="claude-sonnet-4-5", policy=page_policies()["computer"])
    assert str(context.anthropic()["messages"]).count("base64") == 1


def test_coder_keeps_plan_and_tests_and_forgets_listings() -> None:
    messages = [
        *talk("list_files", "run_tests", turns=3),
        *call(900, "update_plan", "<plan> step one"),
        *talk("read", turns=20),
    ]
    policy = page_policies()["coder"]
    there = sent(messages, Policy.extends(policy, name="bare", cover=0.0))
    assert "<plan>" in there
    assert ["<run_tests 0>" in there, "<run_tests 1>" in there, "<run_tests 2>" in there] == [
        False,
        True,
        True,
    ]
    assert "<list_files 0>" not in sent(messages, policy, window=100_000)
    assert (policy.zones["rules"], policy.zones["memory"]) == (
        4096,
        policies()["default"].zones["memory"],
    )


def failing(messages: list[Chat], turn: int) -> list[Chat]:
    """The same in Anthropic's form, in which a result can say that it is an error."""
    made: list[Chat] = []
    for message in messages:
        if message["role"] == "tool":
            number = int(message["tool_call_id"][1:])
            block = {
                "type": "tool_result",
                "tool_use_id": f"c{number}",
                "content": message["content"],
                "is_error": number == turn,
            }
            made.append({"role": "user", "content": [block]})
        elif message.get("tool_calls"):
            use = {
                "type": "tool_use",
                "id": message["tool_calls"][0]["id"],
                "name": "run",
                "input": {},
            }
            made.append({"role": "assistant", "content": [use]})
        else:
            made.append(message)
    return made


def test_errors_stay_longest() -> None:
    messages = failing(talk("run", turns=30), 4)
    plain = Policy.extends("default", name="plain", cover=0.0)
    errors = Policy.extends(page_policies()["errors first"], name="errors", cover=0.0)
    assert "<run 4>" not in sent(messages, plain)
    assert "<run 4>" in sent(messages, errors)


def test_a_counter_of_ones_own_drives_the_strategy() -> None:
    """By words, of which there are fewer than tokens, more messages fit than by tokens."""
    messages = [
        {
            "role": ("user", "assistant")[n % 2],
            "content": f"<{n}> " + "antidisestablishmentarianism " * 20,
        }
        for n in range(41)
    ]
    words, twice = (
        Policy.extends(page_policies()["words"], name="bare", cover=0.0),
        Policy.extends(
            "default",
            name="twice",
            strategy="recent",
            counter=lambda text: 2 * len(text),
            cover=0.0,
        ),
    )
    kept = [
        sum(f"<{n}>" in sent(messages, policy, window=4000) for n in range(41))
        for policy in (words, twice)
    ]
    assert kept[0] > kept[1]


def test_a_policy_extends_another() -> None:
    made = Policy.extends("default", name="mine", refill=0.5, zones={"rules": 100})
    assert (made.refill, made.cover, made.zones["rules"], made.zones["memory"]) == (
        0.5,
        0.03,
        100,
        2048,
    )
    assert Policy.extends(made, name="yours").zones == made.zones
    assert Policy.extends("partitions", name="flat", strategy="newest").ladder == {}
    with pytest.raises(ChoiceError, match="has no name of its own"):
        Policy.from_toml('extends = "default"')


WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: weave([{"role": "user", "content": "hi"}], policy="defalt"),
        "unknown policy 'defalt'; the nearest is 'default'; choose",
    ),
    (
        lambda: Policy.extends("tre", name="x"),
        "unknown policy 'tre'; the nearest is 'tree'; choose one of default, partitions",
    ),
    (
        lambda: Policy.extends("default", name="x", strategy="newst"),
        "policy 'x': strategy: expected one of newest, recent, truncate_middle",
    ),
    (
        lambda: Policy(name="x", strategy="newst"),
        ("(the nearest is newest), found the text 'newst'"),
    ),  # type: ignore[arg-type]
    (
        lambda: Policy.extends("default", name="x", counter="trees"),
        "(the nearest is tree), found the text 'trees'",
    ),
    (
        lambda: Policy.extends("default", name="x", counter=3),
        "policy 'x': counter: expected one of best, window",
    ),
    (
        lambda: Policy.extends("default", name="x", summary="covers"),
        "policy 'x': summary: expected one of cover, message, system (the nearest is cover)",
    ),
    (
        lambda: Policy.extends("default", name="x", stategy="newest"),
        "(the nearest is strategy), found the text 'stategy'",
    ),
    (
        lambda: Policy.extends("default", name="x", rules=[{"rol": "user"}]),
        "the policy is not valid",
    ),
    (
        lambda: Policy.extends("default", name="default", counter=len),
        "a policy named 'default' ships with Loom",
    ),
    (
        lambda: Rule(role="usr", keep="all"),
        "expected one of system, developer, user, assistant, tool (the nearest is user)",
    ),
    (lambda: Rule(keep="all"), "a rule names either a role or a tool"),
    (lambda: Rule(tool="a"), "says either keep or show_last"),
    (lambda: Rule(role="user", show_last=1), "cannot say show_last"),
    (
        lambda: Rule(tool="a", keep=0),
        "keep of a rule for the tool 'a' must be a whole number of at least 1, found 0",
    ),
    (
        lambda: Rule(tool="a", keep="some"),
        "must be a whole number of at least 1, found the text 'some'",
    ),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_wrong_value_lists_the_right_ones(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ChoiceError, match=re.escape(says)):
        make()


@pytest.mark.parametrize("chosen", [[99], [0, 0], ["first"]])
def test_a_strategy_that_returns_anything_else_is_refused(chosen: list[Any]) -> None:
    policy = Policy.extends("default", name="odd", strategy=lambda *_: chosen)
    with pytest.raises(ChoiceError, match="a strategy must return indexes of the"):
        sent(talk("run", turns=30), policy)


def test_a_counter_that_returns_no_number_is_refused() -> None:
    policy = Policy.extends("default", name="odd", strategy="recent", counter=lambda text: text)
    with pytest.raises(ChoiceError, match="what a counter returns must be a whole number"):
        sent(talk("run", turns=30), policy)


# ── in sessions ──────────────────────────────────────────────────────────────


def test_a_session_remembers_rules_after_a_restart(tmp_path: Path) -> None:
    address, messages = str(tmp_path / "store.db"), talk("search", turns=40)
    with Loom.open(address) as loom:
        session = loom.new("talk", model="gpt-4o")
        session.append(*messages)
        asyncio.run(session.prepare(window=3000, policy=page_policies()["support"]))
    with Loom.open(address) as loom:
        session = loom.session(session.id)
        assert session.policy.rules == (Rule(role="user", keep="all"),)
        session.append(
            {"role": "assistant", "content": "done"}, {"role": "user", "content": "<more> go on"}
        )
        context = asyncio.run(session.prepare(window=3000))
    there = str(context.openai()["messages"])
    assert all(f"<wish {turn}>" in there for turn in range(40)), "also what was never in a window"


def test_a_policy_with_a_function_must_be_named_again_before_and_after_a_restart(
    tmp_path: Path,
) -> None:
    address, policy = str(tmp_path / "store.db"), page_policies()["errors first"]
    refusal = (
        "'errors first' does not ship with Loom, and a policy with a function cannot be stored; "
        "name"
    )

    def prepare(loom: Loom, name: str, **options: Any) -> Context:
        return asyncio.run(loom.session(name).prepare(window=2000, **options))

    with Loom.open(address) as loom:
        session = loom.new("talk", model="gpt-4o")
        session.append(*talk("search"))
        first = prepare(loom, session.id, policy=policy)
        with pytest.raises(ChoiceError, match=refusal):
            prepare(loom, session.id)
    with Loom.open(address) as loom:
        with pytest.raises(ChoiceError, match=refusal):
            prepare(loom, session.id)
        loom.session(session.id).absorb(
            {"choices": [{"message": {"role": "assistant", "content": "It is done."}}]}
        )
        again = prepare(loom, session.id, policy=policy)
        assert again.report.epoch == first.report.epoch, "the epoch goes on"
        assert prepare(loom, session.id, policy="default").report.policy == "default"
        assert loom.session(session.id).policy.name == "default"


def test_every_name_of_a_strategy_is_an_entry_of_one_table() -> None:
    assert set(STRATEGIES) == set(get_args(StrategyName))


def test_only_the_table_of_strategies_knows_them_by_name() -> None:
    """Others ask what is particular to a strategy, so a new one is a line of the table."""
    source = ROOT / "src" / "loom"
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Compare):
                continue
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            named = [side for side in sides if side.strip("'") in STRATEGIES]
            asked = [side for side in sides if side.endswith(".strategy")]
            assert not (named and asked), f"{path.name}:{node.lineno}"
