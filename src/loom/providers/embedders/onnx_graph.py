"""An encoder of the BERT family as a graph for ONNX Runtime, written from its weights.

The file format is protocol buffers, of which a graph needs little: numbers, bytes and nested
messages, each with the number of its field. `Float32Weights` computes as the model does;
`ByteWeights` holds each weight in a byte, which is faster and a quarter of the size.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.providers.embedders.tensors import Tensor

Weights = Mapping[str, Tensor]
_Floats = NDArray[np.float32]

IDS, POSITIONS, SENTENCE = "ids", "positions", "sentence"

_FUSED = "com.microsoft"  # operators that ONNX Runtime adds to the standard ones
_FORMAT_VERSION, _OPERATORS_VERSION, _FUSED_VERSION = 8, 17, 1
_TENSOR_TYPES = {"float32": 1, "uint8": 2, "int64": 7}
_FLOAT, _INT64 = 1, 7
_EPSILON = 1e-12
_QKV = ("query", "key", "value")
_BYTE_CENTER = 128  # a weight of zero; the others are up to 127 above or below it
_BYTE_REACH = 127


class Encoder(Struct, frozen=True):
    """The shape of a model."""

    layers: int
    heads: int
    width: int


# What is in protocol buffers


def _number(value: int) -> bytes:
    """Seven bits per byte, the lowest first; a negative number as 64 bits."""
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _integer(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value)


def _block(field: int, content: bytes | str) -> bytes:
    if isinstance(content, str):
        content = content.encode()
    return _number(field << 3 | 2) + _number(len(content)) + content


def _blocks(field: int, contents: Sequence[bytes | str]) -> bytes:
    return b"".join(_block(field, content) for content in contents)


def _attribute(name: str, value: int | float | Sequence[int]) -> bytes:
    if isinstance(value, float):
        single = _number(2 << 3 | 5) + struct.pack("<f", value)
        return _block(1, name) + single + _integer(20, 1)
    if isinstance(value, int):
        return _block(1, name) + _integer(3, value) + _integer(20, 2)
    return _block(1, name) + b"".join(_integer(8, item) for item in value) + _integer(20, 7)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """An input or output; a dimension that is a text may have any size."""
    sizes = [_integer(1, size) if isinstance(size, int) else _block(2, size) for size in shape]
    tensor = _integer(1, kind) + _block(2, _blocks(1, sizes))
    return _block(1, name) + _block(2, _block(1, tensor))


class OnnxGraph:
    """Nodes and constants, as they are added. Each method returns the name of what it made."""

    def __init__(self) -> None:
        self._nodes: list[bytes | str] = []
        self._constants: list[bytes | str] = []

    def constant(self, tensor: Tensor) -> str:
        name = f"constant{len(self._constants)}"
        sizes = b"".join(_integer(1, size) for size in tensor.shape)
        kind = _integer(2, _TENSOR_TYPES[tensor.dtype.name])
        content = np.ascontiguousarray(tensor).tobytes()
        self._constants.append(sizes + kind + _block(8, name) + _block(9, content))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def node(self, operator: str, *inputs: str, **attributes: int | float | Sequence[int]) -> str:
        name = f"node{len(self._nodes)}"
        self._add(operator, inputs, [name], attributes)
        return name

    def split(self, value: str, axis: int, sizes: Sequence[int]) -> list[str]:
        names = [f"node{len(self._nodes)}part{number}" for number in range(len(sizes))]
        self._add("Split", [value, self.integers(*sizes)], names, {"axis": axis})
        return names

    def result(self, name: str, value: str) -> None:
        self._add("Identity", [value], [name], {})

    def _add(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, int | float | Sequence[int]],
    ) -> None:
        domain, _, name = operator.rpartition(":")
        written = [_attribute(key, value) for key, value in attributes.items()]
        self._nodes.append(
            _blocks(1, inputs)
            + _blocks(2, outputs)
            + _block(4, name)
            + _blocks(5, written)
            + _block(7, domain)
        )

    def write(self, inputs: Sequence[bytes], outputs: Sequence[bytes]) -> bytes:
        content = (
            _blocks(1, self._nodes)
            + _block(2, "encoder")
            + _blocks(5, self._constants)
            + _blocks(11, inputs)
            + _blocks(12, outputs)
        )
        standard = _block(1, "") + _integer(2, _OPERATORS_VERSION)
        fused = _block(1, _FUSED) + _integer(2, _FUSED_VERSION)
        versions = _integer(1, _FORMAT_VERSION) + _blocks(8, [standard, fused])
        return versions + _block(7, content)


# What the model computes


class WeightForm(Protocol):
    """How weights are held, and how one multiplies by them."""

    def look_up(self, graph: OnnxGraph, table: _Floats, ids: str) -> str:
        """The rows of a table."""
        ...

    def multiply(self, graph: OnnxGraph, value: str, weight: _Floats, bias: _Floats) -> str:
        """The value times the weight, plus the bias."""
        ...


class Float32Weights:
    """Weights as they are."""

    def look_up(self, graph: OnnxGraph, table: _Floats, ids: str) -> str:
        return graph.node("Gather", graph.constant(table), ids)

    def multiply(self, graph: OnnxGraph, value: str, weight: _Floats, bias: _Floats) -> str:
        product = graph.node("MatMul", value, graph.constant(weight))
        return graph.node("Add", product, graph.constant(bias))


class ByteWeights:
    """Weights as bytes, with a scale for each column; what they are multiplied by becomes bytes
    too, by the largest value in it.

    Both are unsigned: a processor without instructions for this would cut the sums of signed ones.
    """

    def look_up(self, graph: OnnxGraph, table: _Floats, ids: str) -> str:
        scale = _scale_of(table, axis=1)
        rows = graph.node("Gather", graph.constant(_to_bytes(table, scale)), ids)
        centered = graph.node(
            "Sub",
            graph.node("Cast", rows, to=_FLOAT),
            graph.constant(np.array(_BYTE_CENTER, np.float32)),
        )
        scales = graph.node("Gather", graph.constant(scale), ids)
        return graph.node("Mul", centered, scales)

    def multiply(self, graph: OnnxGraph, value: str, weight: _Floats, bias: _Floats) -> str:
        scale = _scale_of(weight, axis=0)
        return graph.node(
            f"{_FUSED}:DynamicQuantizeMatMul",
            value,
            graph.constant(_to_bytes(weight, scale)),
            graph.constant(scale[0]),
            graph.constant(np.full(weight.shape[1], _BYTE_CENTER, np.uint8)),
            graph.constant(bias),
        )


def _scale_of(weight: _Floats, axis: int) -> _Floats:
    scale: _Floats = np.abs(weight).max(axis=axis, keepdims=True) / np.float32(_BYTE_REACH)
    scale[scale == 0] = 1
    return scale


def _to_bytes(weight: _Floats, scale: _Floats) -> NDArray[np.uint8]:
    levels: NDArray[np.uint8] = (np.rint(weight / scale) + _BYTE_CENTER).astype(np.uint8)
    return levels


class _EncoderWriter:
    """Writes one encoder. Texts of one call have the same number of pieces, so no mask is needed.

    The vector of a text is the mean over its pieces.
    """

    def __init__(self, shape: Encoder, weights: Weights, form: WeightForm) -> None:
        self._shape = shape
        self._weights = weights
        self._form = form
        self._graph = OnnxGraph()
        size = shape.width // shape.heads
        self._by_head = self._graph.integers(0, 0, 3 * shape.heads, size)
        self._together = self._graph.integers(0, 0, shape.width)
        self._shrink = np.float32(1 / np.sqrt(size))

    def write(self) -> bytes:
        graph, width = self._graph, self._shape.width
        value = self._input_vectors()
        for number in range(self._shape.layers):
            value = self._layer(f"encoder.layer.{number}.", value)
        graph.result(SENTENCE, graph.node("ReduceMean", value, axes=[1], keepdims=0))
        inputs = [
            _value(IDS, _INT64, ["texts", "pieces"]),
            _value(POSITIONS, _INT64, ["pieces"]),
        ]
        return graph.write(inputs, [_value(SENTENCE, _FLOAT, ["texts", width])])

    def _input_vectors(self) -> str:
        graph, weights = self._graph, self._weights
        words = self._form.look_up(graph, weights["embeddings.word_embeddings.weight"], IDS)
        kind = weights["embeddings.token_type_embeddings.weight"][0]
        places = graph.constant(weights["embeddings.position_embeddings.weight"] + kind)
        value = graph.node("Add", words, graph.node("Gather", places, POSITIONS))
        scale, shift = self._norm("embeddings.LayerNorm.")
        return graph.node("LayerNormalization", value, scale, shift, axis=-1, epsilon=_EPSILON)

    def _layer(self, name: str, value: str) -> str:
        graph = self._graph
        seen = self._linear(f"{name}attention.output.dense.", self._attend(name, value))
        value = self._add_and_norm(f"{name}attention.output.LayerNorm.", seen, value)
        inner = self._linear(f"{name}intermediate.dense.", value)
        outer = self._linear(f"{name}output.dense.", graph.node(f"{_FUSED}:Gelu", inner))
        return self._add_and_norm(f"{name}output.LayerNorm.", outer, value)

    def _attend(self, name: str, value: str) -> str:
        graph, heads, width = self._graph, self._shape.heads, self._shape.width
        parts = [f"{name}attention.self.{part}." for part in _QKV]
        weight = np.concatenate([self._weights[f"{part}weight"] for part in parts]).T.copy()
        bias = np.concatenate([self._weights[f"{part}bias"] for part in parts])
        weight[:, :width] *= self._shrink
        bias[:width] *= self._shrink
        product = self._form.multiply(graph, value, weight, bias)
        by_head = graph.node("Reshape", product, self._by_head)
        turned = graph.node("Transpose", by_head, perm=[0, 2, 1, 3])
        query, key, content = graph.split(turned, 1, [heads] * 3)
        likeness = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
        share = graph.node("Softmax", likeness, axis=-1)
        seen = graph.node("MatMul", share, content)
        back = graph.node("Transpose", seen, perm=[0, 2, 1, 3])
        return graph.node("Reshape", back, self._together)

    def _linear(self, name: str, value: str) -> str:
        weight = np.ascontiguousarray(self._weights[f"{name}weight"].T)
        return self._form.multiply(self._graph, value, weight, self._weights[f"{name}bias"])

    def _norm(self, name: str) -> tuple[str, str]:
        constant, weights = self._graph.constant, self._weights
        return constant(weights[f"{name}weight"]), constant(weights[f"{name}bias"])

    def _add_and_norm(self, name: str, value: str, before: str) -> str:
        scale, shift = self._norm(name)
        return self._graph.node(
            f"{_FUSED}:SkipLayerNormalization", value, before, scale, shift, epsilon=_EPSILON
        )


def write_encoder(shape: Encoder, weights: Weights, form: WeightForm) -> bytes:
    """The bytes of an ONNX file. It takes `ids` (texts by pieces) and `positions` (0 and up), and
    gives `sentence`, a row for each text.
    """
    return _EncoderWriter(shape, weights, form).write()
