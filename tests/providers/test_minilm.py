"""MiniLM reads a text as a whole, the same way every time, from weights that are checked."""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from loom.errors import EmbedderError
from loom.providers.embedders import minilm
from loom.providers.embedders.minilm import MAX_WINDOWS, WINDOW_PIECES, MiniLMEmbedder

pytest.importorskip("onnxruntime")
pytest.importorskip("splintr")
is_installed = minilm.find_spec("all_minilm_l6_v2") is not None
needs_weights = pytest.mark.skipif(not is_installed, reason="the extra embed is not installed")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def embedder(cache: Path) -> MiniLMEmbedder:
    if not is_installed:
        pytest.skip("the extra embed is not installed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOOM_CACHE", str(cache))
        return MiniLMEmbedder()


def likeness(embedder: MiniLMEmbedder, texts: Sequence[str]) -> list[float]:
    """How near the first text is to each of the others."""
    first, *others = embedder.embed(texts)
    return [float(first @ other) for other in others]


def test_rows_have_length_one_and_the_stated_size(embedder: MiniLMEmbedder) -> None:
    rows = embedder.embed(["a cat", "the price of gold rose again"])
    assert rows.shape == (2, embedder.dimensions)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_what_means_the_same_is_nearer_though_it_shares_no_word(embedder: MiniLMEmbedder) -> None:
    near, same_words, far = likeness(
        embedder,
        [
            "How do I reset my password?",
            "I forgot the login credentials and want new ones",
            "How do I bake my bread?",
            "The whale is the largest animal",
        ],
    )
    assert near > same_words > far
    assert near > 0.4
    assert far < 0.1


def test_likenesses_are_those_of_the_model(embedder: MiniLMEmbedder) -> None:
    """Computed with the weights as 32-bit floats; bytes are within 0.03."""
    found = likeness(
        embedder,
        ["a cat sits on the mat", "the kitten is on the rug", "stock prices fell", "a cat"],
    )
    assert found == pytest.approx([0.6068, 0.0714, 0.5979], abs=0.03)


def test_a_text_becomes_the_same_alone_and_among_others(embedder: MiniLMEmbedder) -> None:
    texts = ["one", "a much longer text about nothing at all", "three words here", ""]
    together = embedder.embed(texts)
    assert all(
        np.array_equal(embedder.embed([text])[0], row)
        for text, row in zip(texts, together, strict=True)
    )
    assert np.array_equal(embedder.embed(texts), together)


def test_one_thread_gives_what_many_give(embedder: MiniLMEmbedder, cache: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOOM_CACHE", str(cache))
        single = MiniLMEmbedder(threads=1)
    texts = [f"text number {number}" for number in range(20)]
    assert np.array_equal(single.embed(texts), embedder.embed(texts))


def test_a_text_without_a_word_has_zeros(embedder: MiniLMEmbedder) -> None:
    assert not embedder.embed(["", " \n\t"]).any()
    assert embedder.embed([]).shape == (0, embedder.dimensions)


def test_odd_characters_are_read(embedder: MiniLMEmbedder) -> None:
    rows = embedder.embed(
        ["\ud800 half a pair", "\x00\x01", "[CLS] [SEP] [MASK]", "日本語", "x" * 999]
    )
    assert np.isfinite(rows).all()


def test_words_that_look_like_marks_are_words(embedder: MiniLMEmbedder) -> None:
    [found] = likeness(embedder, ["[SEP]", "[ sep ]"])
    assert found == pytest.approx(1)


def test_a_huge_text_costs_as_much_as_its_windows(
    embedder: MiniLMEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []
    run = embedder._session.run

    class Session:
        def run(self, names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            lengths.append(inputs["ids"].shape[1])
            return run(names, inputs)

    monkeypatch.setattr(embedder, "_session", Session())
    assert embedder.embed(["word " * 2_000_000]).any()
    assert lengths == [WINDOW_PIECES + 2] * MAX_WINDOWS


def test_a_long_text_is_near_to_what_is_said_late_in_it(embedder: MiniLMEmbedder) -> None:
    filler = "The committee discussed the budget for the next year. " * 30
    late = filler + "The dragon sleeps on a hoard of gold coins in the mountain. " * 15
    rows = embedder.embed(["a dragon guards its gold", filler, late])
    assert rows[0] @ rows[2] > rows[0] @ rows[1] + 0.1


@needs_weights
def test_the_model_is_kept_and_a_damaged_one_is_made_again(
    cache: Path, embedder: MiniLMEmbedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [kept] = cache.iterdir()
    content = kept.read_bytes()
    damaged = tmp_path / kept.name
    damaged.write_bytes(content[:1000])
    monkeypatch.setenv("LOOM_CACHE", str(tmp_path))
    assert np.array_equal(MiniLMEmbedder().embed(["x"]), embedder.embed(["x"]))
    assert damaged.read_bytes() == content
    monkeypatch.setattr(minilm, "convert_weights", lambda _: pytest.fail("converted again"))
    MiniLMEmbedder()


@needs_weights
def test_without_a_place_for_the_cache_it_works_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOOM_CACHE", str(tmp_path / "file" / "folder"))
    assert MiniLMEmbedder().embed(["x"]).any()


def test_other_weights_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "model.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("model.safetensors", b"other")
        opened.writestr("tokenizer.json", b"{}")
    with pytest.raises(EmbedderError, match="are not those of all-MiniLM-L6-v2"):
        minilm.convert_weights(archive)


def test_an_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(b"no archive")
    for name in ("model.zip", "missing.zip"):
        with pytest.raises(EmbedderError, match="not the archive of the model"):
            minilm.convert_weights(tmp_path / name)


def test_without_the_extra_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(minilm, "find_spec", lambda _: None)
    with pytest.raises(EmbedderError, match=r"pip install 'loomwright\[embed\]'"):
        MiniLMEmbedder()


def test_without_the_runtime_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbedderError, match=r"onnxruntime; .*loomwright\[embed\]"):
        minilm._open_session(b"")
