"""The table that Loom ships: small, quick to load, the same every time, and of some sense."""

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import EmbedderError
from loom.providers.embedders import StaticEmbedder
from loom.providers.embedders.static import TABLE
from tests.shared import ROOT, examples


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def test_rows_have_length_one_and_the_stated_size(embedder: StaticEmbedder) -> None:
    rows = embedder.embed(["a cat", "the price of gold rose again"])
    assert rows.shape == (2, embedder.dimensions) == (2, 256)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("my dog is ill", "the puppy was sick", "the invoice was paid"),
        ("How do I reset my password?", "forgot login credentials", "How do I bake my bread?"),
        ("we drove to the beach", "a car trip to the sea", "we sold the shares"),
        ("the database is too slow", "SQL queries with bad performance", "the choir sang well"),
        ("she became a physician", "her career as a doctor", "her career as a singer"),
        ("painting a sunrise", "art with watercolours", "a lawsuit in court"),
        ("the function raises an exception", "an error in the code", "a party in the garden"),
        ("he plays the guitar", "a musician in a band", "a farmer in a field"),
    ],
)
def test_what_means_nearly_the_same_is_nearer(
    embedder: StaticEmbedder, query: str, near: str, far: str
) -> None:
    first, second, third = embedder.embed([query, near, far])
    assert first @ second > first @ third + 0.05


def test_words_that_say_little_count_little(embedder: StaticEmbedder) -> None:
    plain, wordy, other = embedder.embed(
        ["whale", "and then it is that the whale was there", "and then it is that it was there"]
    )
    assert plain @ wordy > 0.7
    assert plain @ other < 0.5


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(max_size=200), max_size=12))
def test_a_text_becomes_the_same_alone_and_among_others(texts: list[str]) -> None:
    embedder = StaticEmbedder()
    together = embedder.embed(texts)
    assert together.shape == (len(texts), 256)
    assert np.isfinite(together).all()
    for text, row in zip(texts, together, strict=True):
        assert np.array_equal(embedder.embed([text])[0], row)
        assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5) or not row.any()


def test_a_text_without_a_word_has_zeros(embedder: StaticEmbedder) -> None:
    assert not embedder.embed(["", " \n\t", "\x00"]).any()
    assert embedder.embed([]).shape == (0, 256)


def test_halves_of_surrogate_pairs_do_no_harm(embedder: StaticEmbedder) -> None:
    odd, plain = embedder.embed(["the cat \ud800 sleeps", "the cat sleeps"])
    assert odd @ plain > 0.9


def test_words_that_look_like_marks_are_words(embedder: StaticEmbedder) -> None:
    first, second = embedder.embed(["[SEP] x", "[ sep ] x"])
    assert np.array_equal(first, second)


def test_a_huge_text_is_its_beginning(embedder: StaticEmbedder) -> None:
    huge = "whale ship harpoon " * 3_000_000
    first, second = embedder.embed([huge, huge[:32_000]])
    assert np.array_equal(first, second)


def test_a_line_without_spaces_is_read(embedder: StaticEmbedder) -> None:
    assert np.isfinite(embedder.embed(["a" * 1_000_000, "a\n" * 500_000])).all()


def test_other_scripts_have_vectors_where_the_table_knows_them(embedder: StaticEmbedder) -> None:
    assert embedder.embed(["日本 東京"]).any()


def test_nothing_is_asked_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert StaticEmbedder().embed(["a cat"]).any()


def test_the_name_says_which_table_it_is(embedder: StaticEmbedder) -> None:
    model, _, digest = embedder.name.partition(":")
    assert model == "loom-static-256"
    assert len(digest) == 8
    assert StaticEmbedder().name == embedder.name


def test_the_table_is_small_and_says_what_it_is_made_of() -> None:
    assert TABLE.stat().st_size < 9_000_000
    notice = (TABLE.parent / "NOTICE.md").read_text(encoding="utf-8")
    for part in ("all-MiniLM-L6-v2", "Apache", "scripts/embedding_table.py"):
        assert part in notice


@pytest.mark.parametrize("content", [b"", b"\x00" * 7, b"\xff" * 64, b"\x02" + b"\x00" * 7 + b"{}"])
def test_a_damaged_table_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    with pytest.raises(EmbedderError, match="damaged"):
        StaticEmbedder(damaged)


@pytest.mark.parametrize(
    "code",
    [
        "import loom.providers.embedders as e; e.choose_embedder('none')",
        "import loom; s = loom.Loom.open(':memory:').new(); "
        "s.append({'role': 'user', 'content': 'Hello'}); s.prepare()",
    ],
    ids=["choosing none", "a session without a search"],
)
def test_numpy_is_not_loaded_before_it_must(code: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print('numpy' in sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == "False"
