"""Arrays in a file of the safetensors format: a header in JSON that says where each array is.

A file is mapped into memory, not read: what nobody looks at costs nothing, and processes share it.
"""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Tensor: TypeAlias = NDArray[Any]

# The names that the format has for types of numbers; those that are not here are not read.
_TYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I8": "|i1", "U8": "|u1"}
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 20
_ALIGNMENT_BYTES = 64


class TensorFile(Struct, frozen=True):
    """The arrays of a file by name, and what the file says about itself."""

    tensors: Mapping[str, Tensor]
    about: Mapping[str, str]


def open_tensors(path: Path) -> TensorFile:
    """Map a file; `ValueError` says why it is not one."""
    return _find_tensors(np.memmap(path, dtype=np.uint8, mode="r"))


def read_tensors(content: bytes) -> TensorFile:
    return _find_tensors(np.frombuffer(content, dtype=np.uint8))


def write_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """The bytes of a file. The same arrays give the same bytes."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(about.items()))}
    names = {kind: name for name, kind in _TYPES.items()}
    body = BytesIO()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        start = body.tell()
        body.write(tensor.tobytes())
        header[name] = {
            "dtype": names[tensor.dtype.str],
            "shape": list(tensor.shape),
            "data_offsets": [start, body.tell()],
        }
    written = msgspec.json.encode(header)
    padding = -(_LENGTH_BYTES + len(written)) % _ALIGNMENT_BYTES
    written += b" " * padding
    return len(written).to_bytes(_LENGTH_BYTES, "little") + written + body.getvalue()


def _find_tensors(content: NDArray[np.uint8]) -> TensorFile:
    length = int.from_bytes(content[:_LENGTH_BYTES].tobytes(), "little")
    start = _LENGTH_BYTES + length
    if length > _MAX_HEADER_BYTES or start > len(content):
        raise ValueError("the header is longer than the file")
    header = msgspec.json.decode(content[_LENGTH_BYTES:start].tobytes(), type=dict[str, Any])
    about = header.pop("__metadata__", {})
    tensors = {name: _cut(content[start:], entry) for name, entry in header.items()}
    return TensorFile(tensors, about)


def _cut(body: NDArray[np.uint8], entry: Mapping[str, Any]) -> Tensor:
    first, last = entry["data_offsets"]
    if last > len(body):
        raise ValueError("an array is longer than the file")
    return body[first:last].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
