"""Tokens are counted the same wherever it is done."""

import sys
from pathlib import Path

import pytest

from loom.budget.tokenizers import tokenizer
from loom.project import counting
from loom.project.counting import ENCODING, CountingProcess

TEXTS = (
    "",
    "### src/app.py (relevance: high)\n",
    "größe 設定 😀",
    "half \ud83d of a pair",
    "x" * 100_000,
)


@pytest.fixture(autouse=True)
def _nothing_loaded() -> None:
    tokenizer.cache_clear()


def test_where_a_tokenizer_is_loaded_no_process_is_started() -> None:
    assert tokenizer(ENCODING)("one two three") == 3
    process = CountingProcess()
    assert process._process is None
    assert process.count("one two three") == 3


def test_a_process_counts_as_this_one_does() -> None:
    process = CountingProcess()
    assert [process.count(text) for text in TEXTS] == [tokenizer(ENCODING)(text) for text in TEXTS]
    assert process._process is not None
    assert process._process.poll() is None


@pytest.mark.parametrize("program", ["exit 1", "exec cat > /dev/null", "head -c 5", "exec yes"])
def test_without_a_process_that_answers_tokens_are_counted_here(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python3"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(counting, "MAX_WAIT_SECONDS", 0.2)
    process = CountingProcess()
    assert [process.count(text) for text in TEXTS] == [tokenizer(ENCODING)(text) for text in TEXTS]
    assert process._process is not None
    assert process._process.returncode is not None


def test_where_no_process_can_be_started_tokens_are_counted_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/none/python3")
    assert CountingProcess().count("one two three") == 3
