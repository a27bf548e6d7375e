"""A graph computes what the model is defined to compute."""

from math import erf, sqrt

import numpy as np
import pytest

from loom.providers.embedders.onnx_graph import (
    ByteWeights,
    Encoder,
    Float32Weights,
    WeightForm,
    write_encoder,
)

onnxruntime = pytest.importorskip("onnxruntime")
SHAPE = Encoder(layers=2, heads=4, width=32)
WORDS, PLACES, INNER = 50, 16, 64
Weights = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def weights() -> Weights:
    made = np.random.default_rng(3)

    def draw(*shape: int, mean: float = 0.0) -> np.ndarray:
        return (mean + made.normal(0, 0.4, shape)).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": draw(WORDS, SHAPE.width),
        "embeddings.position_embeddings.weight": draw(PLACES, SHAPE.width),
        "embeddings.token_type_embeddings.weight": draw(2, SHAPE.width),
    }
    norms = ["embeddings.LayerNorm"]
    for number in range(SHAPE.layers):
        name = f"encoder.layer.{number}"
        for part, size in (
            ("attention.self.query", (SHAPE.width, SHAPE.width)),
            ("attention.self.key", (SHAPE.width, SHAPE.width)),
            ("attention.self.value", (SHAPE.width, SHAPE.width)),
            ("attention.output.dense", (SHAPE.width, SHAPE.width)),
            ("intermediate.dense", (INNER, SHAPE.width)),
            ("output.dense", (SHAPE.width, INNER)),
        ):
            found[f"{name}.{part}.weight"] = draw(*size)
            found[f"{name}.{part}.bias"] = draw(size[0])
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    for name in norms:
        found[f"{name}.weight"] = draw(SHAPE.width, mean=1)
        found[f"{name}.bias"] = draw(SHAPE.width)
    return found


def compute(weights: Weights, ids: list[int]) -> np.ndarray:
    """The mean over the pieces of one text, as the model is defined."""

    def linear(value: np.ndarray, name: str) -> np.ndarray:
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(value: np.ndarray, name: str) -> np.ndarray:
        centered = value - value.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    value = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: len(ids)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    value = norm(value.astype(np.float64), "embeddings.LayerNorm")
    gelu = np.vectorize(lambda x: x * 0.5 * (1 + erf(x / sqrt(2))))
    size = SHAPE.width // SHAPE.heads
    for number in range(SHAPE.layers):
        name = f"encoder.layer.{number}"
        query, key, content = (
            linear(value, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        )
        seen = np.zeros_like(value)
        for start in range(0, SHAPE.width, size):
            head = slice(start, start + size)
            share = np.exp(query[:, head] @ key[:, head].T / sqrt(size))
            seen[:, head] = share / share.sum(-1, keepdims=True) @ content[:, head]
        seen = linear(seen, f"{name}.attention.output.dense")
        value = norm(value + seen, f"{name}.attention.output.LayerNorm")
        inner = gelu(linear(value, f"{name}.intermediate.dense"))
        outer = linear(inner, f"{name}.output.dense")
        value = norm(value + outer, f"{name}.output.LayerNorm")
    return value.mean(0)


def run(weights: Weights, form: WeightForm, ids: list[list[int]]) -> np.ndarray:
    graph = write_encoder(SHAPE, weights, form)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    inputs = {"ids": np.array(ids), "positions": np.arange(len(ids[0]))}
    return session.run(["sentence"], inputs)[0]


@pytest.mark.parametrize("length", [1, 2, 7, PLACES])
def test_floats_compute_what_the_definition_says(weights: Weights, length: int) -> None:
    texts = np.random.default_rng(length).integers(0, WORDS, (3, length)).tolist()
    wanted = np.array([compute(weights, ids) for ids in texts])
    assert run(weights, Float32Weights(), texts) == pytest.approx(wanted, abs=1e-4)


def test_bytes_compute_nearly_the_same_in_half_of_the_size(weights: Weights) -> None:
    texts = np.random.default_rng(1).integers(0, WORDS, (1, 9)).tolist()
    wanted, found = compute(weights, texts[0]), run(weights, ByteWeights(), texts)[0]
    likeness = wanted @ found / np.linalg.norm(wanted) / np.linalg.norm(found)
    assert likeness > 0.98
    sizes = [len(write_encoder(SHAPE, weights, form)) for form in (ByteWeights(), Float32Weights())]
    assert sizes[0] < sizes[1] / 2


def test_a_row_of_zeros_stays_zeros(weights: Weights) -> None:
    name = "embeddings.word_embeddings.weight"
    empty = weights | {name: np.zeros_like(weights[name])}
    assert run(empty, ByteWeights(), [[1, 2]]) == pytest.approx(
        run(empty, Float32Weights(), [[1, 2]]), abs=0.3
    )
