"""A report is written down as a whole, and whoever holds it or its context continues the epoch."""

import msgspec
import pytest

from loom import weave
from loom.context.policy import policies
from loom.context.report import Report
from loom.conversation.canonical import to_json
from loom.errors import ChoiceError

SAID = [
    {"role": role, "content": f"{role} says word_{n} " * 30}
    for n in range(12)
    for role in ("user", "assistant")
]
OPTIONS = {"model": "gpt-4o", "window": 2000, "reserve_output": 0}


@pytest.mark.parametrize(
    "policy", [name for name in policies() if policies()[name].strategy != "stop_at_limit"]
)
def test_a_report_is_read_back_as_it_was_written(policy: str) -> None:
    first = weave(SAID[:18], policy=policy, **OPTIONS)
    for context in (first, weave(SAID, policy=policy, previous=first, **OPTIONS)):
        written = to_json(context.report)
        assert "continuation" not in written
        assert msgspec.json.decode(written, type=Report) == context.report
        assert to_json(context.report.as_dict())


def test_the_report_and_the_context_continue_the_same_epoch() -> None:
    first = weave(SAID[:18], **OPTIONS)
    by_context = weave(SAID, previous=first, **OPTIONS)
    by_report = weave(SAID, previous=first.report, **OPTIONS)
    assert by_context.openai() == by_report.openai()
    assert by_context.report == by_report.report


def test_a_report_that_was_read_back_continues_nothing_and_says_so() -> None:
    report = msgspec.json.decode(to_json(weave(SAID, **OPTIONS).report), type=Report)
    assert report.items == report.lines
    with pytest.raises(ChoiceError, match="give the context itself"):
        weave(SAID, previous=report, **OPTIONS)
