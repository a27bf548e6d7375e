"""What providers say when a request is too long is known as such, with its numbers; what only
sounds alike is not.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.providers.overflow import WORDINGS, Overflow, read_overflow
from tests.shared import FIXTURES, examples


def _rows() -> list[tuple[str, str, int, int]]:
    lines = (FIXTURES / "overflows.tsv").read_text(encoding="utf-8").splitlines()
    return [
        (words, provider, int(limit), int(asked))
        for provider, limit, asked, words in (line.split("\t") for line in lines)
    ]


OVERFLOWS = _rows()
OTHERS = (FIXTURES / "overflow_near_misses.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("words", "provider", "limit", "asked"), OVERFLOWS, ids=lambda value: str(value)[:40]
)
def test_words_of_each_provider_are_known(
    words: str, provider: str, limit: int, asked: int
) -> None:
    assert read_overflow(words) == Overflow(provider, limit, asked)
    assert read_overflow(RuntimeError(words)) == Overflow(provider, limit, asked)
    assert read_overflow({"error": {"message": words}}) == Overflow(provider, limit, asked)


@pytest.mark.parametrize("words", OTHERS, ids=lambda words: words[:40])
def test_what_only_sounds_alike_is_none(words: str) -> None:
    assert read_overflow(words) is None
    assert read_overflow(RuntimeError(words)) is None
    assert read_overflow({"error": {"message": words}}) is None


def test_every_provider_of_the_table_has_an_example() -> None:
    assert {wording.provider for wording in WORDINGS} == {
        provider for _, provider, _, _ in OVERFLOWS
    }


class StatusError(Exception):
    """As the SDKs have it: a short text, a status, and the body apart."""

    def __init__(self, text: str, status: int, body: Any = None, response: Any = None) -> None:
        super().__init__(text)
        self.status_code, self.body, self.response = status, body, response


TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"


@pytest.mark.parametrize(
    "error",
    [
        StatusError("Bad Request", 400, {"type": "error", "error": {"message": TOO_LONG}}),
        StatusError("Bad Request", 400, json.dumps({"error": {"message": TOO_LONG}}).encode()),
        StatusError(
            "Bad Request",
            400,
            None,
            SimpleNamespace(status_code=400, text=json.dumps({"message": TOO_LONG})),
        ),
        StatusError(
            "Bad Request",
            400,
            None,
            {"Error": {"Message": TOO_LONG}, "ResponseMetadata": {"HTTPStatusCode": 400}},
        ),
        SimpleNamespace(status_code=400, body={"error": TOO_LONG}),
        '{"message": "prompt is too long: 210000 tokens \\u003e 200000 maximum"}',
        "prompt is too long:\n  210000 tokens >\n  200000 maximum",
        ExceptionGroup("one of them", [ValueError("no"), RuntimeError(TOO_LONG)]),
    ],
    ids=[
        "body",
        "bytes",
        "response",
        "botocore",
        "not an exception",
        "escaped",
        "wrapped",
        "group",
    ],
)
def test_it_is_found_wherever_an_sdk_keeps_it(error: object) -> None:
    assert read_overflow(error) == Overflow("anthropic", 200_000, 210_000)


def test_it_is_found_in_what_caused_an_error() -> None:
    error = RuntimeError("the call failed")
    error.__cause__ = StatusError("Bad Request", 400, {"message": TOO_LONG})
    assert read_overflow(error) == Overflow("anthropic", 200_000, 210_000)
    error.__cause__.__cause__ = error
    assert read_overflow(error) == Overflow("anthropic", 200_000, 210_000)


def test_a_status_alone_tells() -> None:
    assert read_overflow(StatusError("", 413)) == Overflow("http")
    assert read_overflow(StatusError("", 400)) is None
    assert read_overflow(StatusError("", 429, {"error": {"message": TOO_LONG}})) is None
    assert (
        read_overflow(
            StatusError("Payload Too Large", 413, "on tokens per minute (TPM): Limit 6000")
        )
        is None
    )


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(TOO_LONG),
        ConnectionResetError(TOO_LONG),
        "",
        None,
        7,
        [],
        {},
        object(),
        b"\xff",
    ],
)
def test_what_says_nothing_of_length_is_none(error: object) -> None:
    assert read_overflow(error) is None


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")

    @property
    def body(self) -> str:
        raise RuntimeError("not read yet")


def test_an_error_that_cannot_be_read_is_none() -> None:
    assert read_overflow(Unreadable()) is None
    assert read_overflow({"a": object()}) is None


@settings(max_examples=examples(200))
@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from([words for words, *_ in OVERFLOWS] + OTHERS), max_size=4).map(
            " ".join
        ),
    )
)
def test_any_text_is_read(words: str) -> None:
    found = read_overflow(words)
    assert found is None or (found.limit >= 0 and found.asked >= 0)


def test_a_huge_error_is_read_in_no_time() -> None:
    words = "the request exceeds the available context size n_ctx " * 100_000 + "9" * 100_000
    assert read_overflow(words) == Overflow("llama.cpp")
