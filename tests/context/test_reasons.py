"""Why an epoch began: causes that programs ask for, and one sentence for each."""

from string import Formatter
from typing import Any, get_args

import pytest

from loom import weave
from loom.context.history.reasons import _SENTENCES, Cause, EpochReason

LONG = [
    {"role": role, "content": f"{role} {n}: " + "a few words more. " * 40}
    for n in range(30)
    for role in ("user", "assistant")
] + [{"role": "user", "content": "Go on."}]


def test_every_cause_has_a_sentence() -> None:
    assert set(_SENTENCES) == set(get_args(Cause))


@pytest.mark.parametrize("cause", get_args(Cause))
def test_a_sentence_is_one_line_made_of_its_figures(cause: Cause) -> None:
    names = [name for _, name, _, _ in Formatter().parse(_SENTENCES[cause]) if name]
    said = EpochReason(cause, dict.fromkeys(names, 1)).sentence
    assert said
    assert "\n" not in said
    assert "{" not in said


def test_a_program_asks_for_the_cause_and_people_read_the_sentence() -> None:
    options: Any = {"model": "gpt-4o", "window": 4_000, "reserve_output": 500}
    first = weave(LONG, **options)
    assert first.continuation.reason.cause == "alone"
    assert first.report.epoch_reason == "each call is its own"
    second = weave([*LONG, {"role": "assistant", "content": "Yes."}], previous=first, **options)
    assert second.continuation.reason.cause == "continued"
    assert second.continuation.is_continued
    third = weave(LONG, previous=first, system="Another.", **options)
    assert third.continuation.reason.cause == "head"
    assert third.report.epoch_reason == third.continuation.reason.sentence
