"""How the bytes of a text tell their encoding, and that they are a text at all."""

import codecs

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a\x1b"))


def decode_marked(data: bytes) -> str | None:
    """The text after a byte order mark; None if there is no mark."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    return None


def count_control_bytes(data: bytes) -> int:
    """How many bytes no text has."""
    return len(data) - len(data.translate(None, _CONTROL))
