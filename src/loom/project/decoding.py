"""The text of a file that people wrote: in UTF-8, or in UTF-16 as some editors save it."""

import codecs

from msgspec import Struct

NOT_TEXT = "it is not a text"
NOT_UTF8 = "it is not UTF-8, and some of its characters cannot be read; save it as UTF-8"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT_BYTES = 4096  # that tell how a file without a mark is encoded
_MIN_NUL_SHARE = 0.4  # of every other byte, in a text in UTF-16 that is mostly Latin


class DecodedText(Struct, frozen=True):
    """A text, and what is wrong with it. `is_text` is false for data that is no text at all."""

    text: str = ""
    problem: str = ""
    is_text: bool = True


def decode_text(content: bytes) -> DecodedText:
    """The text of a file, or of the beginning of one: half a character at the end is left out."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decode(content.removeprefix(mark), encoding)
    return _decode(content, _guess_encoding(content))


def _guess_encoding(content: bytes) -> str:
    sample = content[:_LOOKED_AT_BYTES]
    even, odd = sample[::2], sample[1::2]
    for encoding, high_bytes, low_bytes in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        has_nuls = high_bytes.count(0) >= max(_MIN_NUL_SHARE * len(high_bytes), 1)
        if has_nuls and 0 not in low_bytes:
            return encoding
    return "utf-8"


def _decode(content: bytes, encoding: str) -> DecodedText:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(content)
        problem = ""
    except UnicodeDecodeError:
        text, problem = content.decode(encoding, errors="replace"), NOT_UTF8
    text = text.rstrip("\0")  # what a crash leaves at the end of a file
    if "\0" in text:
        return DecodedText(problem=NOT_TEXT, is_text=False)
    return DecodedText(text, problem)
