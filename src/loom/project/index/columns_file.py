"""The file that the columns of an index are kept in, next to the index itself.

It saves the time to make them, and nothing else: where it is missing, damaged or another version's,
they are made of the index. It is written as a whole, and then put in the place of the one before.
"""

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from zlib import crc32

import msgspec
import numpy as np
from msgspec import Struct

from loom.project.index.columns import COLUMNS, Array, Columns
from loom.project.index.links import LinkedColumns, Links
from loom.project.index.strings import StoredStrings, StringTable

_MAGIC = b"loom columns 1\n"
_HEAD = struct.Struct("<II")  # the length of the contents, and their checksum
_WORD = 8  # bytes that a part is a multiple of, and that are summed up at once


class _FilePart(Struct, array_like=True):
    """A part of the file: of which type it is, how many there are, and what its bytes add up to."""

    type: str
    size: int
    total: int


class _Contents(Struct, array_like=True):
    about: dict[str, str]
    paths: list[str]
    parts: list[_FilePart]  # those of the strings, then each column, then those of the links


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Contents)


def save_columns(path: Path, stored: LinkedColumns, about: Mapping[str, str]) -> None:
    """Write columns, and what they were made by. Raises OSError if that cannot be."""
    columns = stored.columns
    strings = columns.strings.store()
    arrays: list[Array] = [
        np.frombuffer(strings.data, np.uint8),
        strings.ends,
        strings.checksums,
        strings.order,
        *(_narrow(name, columns[name]) for name in COLUMNS),
        *(getattr(stored.links, name) for name in Links.__struct_fields__),
    ]
    written = [_fill_words(array.tobytes()) for array in arrays]
    parts = [
        _FilePart(array.dtype.str, len(array), _add_up(data))
        for array, data in zip(arrays, written, strict=True)
    ]
    contents = _encode(_Contents(dict(about), list(columns.paths), parts))
    handle, name = mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            head = _MAGIC + _HEAD.pack(len(contents), crc32(contents)) + contents
            file.write(_fill_words(head))
            file.writelines(written)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def load_columns(path: Path, about: Mapping[str, str]) -> LinkedColumns | None:
    """The columns that were written last; None if there are none that are whole and made by this
    very version.
    """
    try:
        return _read_columns(path.read_bytes(), about)
    except (OSError, ValueError, TypeError, struct.error, msgspec.MsgspecError):
        return None


def _read_columns(data: bytes, about: Mapping[str, str]) -> LinkedColumns | None:
    """Raises ValueError and others if data is damaged."""
    start = len(_MAGIC) + _HEAD.size
    size, checksum = _HEAD.unpack_from(data, len(_MAGIC))
    encoded = data[start : start + size]
    if not data.startswith(_MAGIC) or crc32(encoded) != checksum:
        raise ValueError("the contents are damaged")
    contents = _decoder.decode(encoded)
    if contents.about != about:
        return None
    place = _whole_words(start + size)
    arrays = list[Array]()
    for part in contents.parts:
        array = np.frombuffer(data, np.dtype(part.type), part.size, place)
        after = place + _whole_words(array.nbytes)
        if _add_up(memoryview(data)[place:after]) != part.total:
            raise ValueError("a part is damaged")
        arrays.append(array)
        place = after
    texts, ends, checksums, order, *rest = arrays
    strings = StringTable(StoredStrings(texts.tobytes(), ends, checksums, order))
    columns = dict(zip(COLUMNS, rest, strict=False))
    return LinkedColumns(Columns(contents.paths, strings, columns), Links(*rest[len(COLUMNS) :]))


def _narrow(name: str, array: Array) -> Array:
    """How often something is said, in as few bytes as that needs: most is said once or twice."""
    if not name.endswith("_count") or array.max(initial=0) > np.iinfo(np.uint16).max:
        return array
    return array.astype(np.min_scalar_type(array.max(initial=0)))


def _fill_words(data: bytes) -> bytes:
    return data.ljust(_whole_words(len(data)), b"\0")


def _whole_words(size: int) -> int:
    """So many bytes, or the few more that make the last word whole."""
    return -(-size // _WORD) * _WORD


def _add_up(part: bytes | memoryview) -> int:
    """A checksum that takes next to no time: any byte that is another makes another sum."""
    return int(np.frombuffer(part, np.uint64).sum(dtype=np.uint64))
