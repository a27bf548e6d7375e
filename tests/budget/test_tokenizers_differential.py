"""The exact tokenizer beside another implementation of the same vocabulary, and pinned to known
tokens.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splintr import Tokenizer

from loom.budget.tokenizers import tokenizer
from tests import strategies as our
from tests.shared import FIXTURES, examples


@pytest.fixture(scope="module")
def reference() -> Any:
    """tiktoken with the ranks that litellm carries; nothing is downloaded."""
    found = find_spec("litellm")
    if found is None or found.origin is None or find_spec("tiktoken") is None:
        pytest.skip("tiktoken or litellm, which carries its ranks, is not installed")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(
        Path(found.origin).parent / "litellm_core_utils" / "tokenizers"
    )
    return pytest.importorskip("tiktoken", reason="tiktoken is not installed")


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_two_implementations_count_alike(reference: Any, encoding: str) -> None:
    other, count = reference.get_encoding(encoding), tokenizer(encoding)

    @settings(max_examples=examples(300))
    @given(text=st.one_of(our.texts, st.text(max_size=80)))
    def alike(text: str) -> None:
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert count(text) == len(other.encode_ordinary(clean))

    alike()
    for path in sorted(FIXTURES.glob("*.jsonl")):
        text = path.read_text()
        assert count(text) == len(other.encode_ordinary(text)), path.name


def test_known_tokens_stay_as_they_are() -> None:
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    assert encode("hello world") == [24912, 2375]
    assert len(encode("<|endoftext|>")) > 1, "a marker spelled out in a text is text"
