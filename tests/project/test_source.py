"""Source behind a large map: the best of it, whole, once, and within the budget."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import project_map
from loom.budget.tokenizers import tokenizer
from loom.project.draw.source import HEADER, MIN_SOURCE_TOKENS
from tests.shared import examples

count = tokenizer("o200k_base")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    (root / "mail.py").write_text(
        'class Mail:\n    def send_receipt(self, order):\n        """Send a '
        'receipt.\n\n```\nMail().send_receipt(order)\n```\n"""\n'
        "        return order\n\n    def other(self):\n        return 1\n"
    )
    for n in range(30):
        body = "\n".join(f"    value_{line} = {line}" for line in range(60))
        (root / f"cart_{n}.py").write_text(f"def cart_{n}(items):\n{body}\n    return items\n")
    return root


def test_a_large_map_has_the_source_of_what_matters_most_behind_it(
    shop: Path, tmp_path: Path
) -> None:
    made = project_map(
        shop, "the receipt is never sent", tokens=MIN_SOURCE_TOKENS + 1000, cache=tmp_path / "cache"
    )
    first, source = made.text.split(HEADER)
    assert "### mail.py (relevance: high)" in first
    # a longer fence than those inside
    assert "\n````\n    def send_receipt(self, order):\n" in source
    assert source.count("def send_receipt(self, order)") == 1
    assert made.tokens == count(made.text) <= MIN_SOURCE_TOKENS + 1000


def test_a_smaller_one_has_none(shop: Path, tmp_path: Path) -> None:
    assert (
        HEADER
        not in project_map(
            shop, "the receipt is never sent", tokens=MIN_SOURCE_TOKENS, cache=tmp_path / "cache"
        ).text
    )


@given(
    st.integers(MIN_SOURCE_TOKENS, 3 * MIN_SOURCE_TOKENS),
    st.sampled_from(["", "the receipt", "cart items", "value_7 of cart_3 and cart_11"]),
)
@settings(deadline=None, max_examples=examples(12))
def test_no_map_is_over_its_budget(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, query: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "source"
    if not folder.exists():
        for n in range(40):
            (folder / f"part_{n % 3}").mkdir(parents=True, exist_ok=True)
            body = "\n".join(f"    value_{line} = items[{line}]" for line in range(n * 3))
            (folder / f"part_{n % 3}" / f"cart_{n}.py").write_text(
                f"def cart_{n}(items):\n{body}\n    return items\n"
            )
    made = project_map(folder, query, tokens=tokens, cache=folder.parent / "cache")
    assert made.tokens == count(made.text) <= tokens


def test_what_changed_since_it_was_read_is_left_out(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.project.draw.source.read_text", lambda *_: "nothing of it\n" * 100)
    assert (
        HEADER
        not in project_map(
            shop,
            "the receipt is never sent",
            tokens=MIN_SOURCE_TOKENS + 1000,
            cache=tmp_path / "cache",
        ).text
    )
