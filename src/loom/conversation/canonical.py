"""JSON in and out, the same way every time."""

import json
from math import isfinite
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def to_json(value: Any) -> str:
    """Compact JSON, keys in the order they came."""
    try:
        return _encode(value).decode()
    except (UnicodeEncodeError, RecursionError, OverflowError):
        # Half of a surrogate pair has no UTF-8 form; as an escape JSON can hold it. Numbers may be
        # larger than 64 bits too.
        return _slow_json(msgspec.to_builtins(value))


def is_sendable(text: str) -> bool:
    """Whether UTF-8 can hold a text: half of a surrogate pair has no form there, and no SDK can
    send it.
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_sendable(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair that stands alone."""
    if is_sendable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError where it is none."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        try:
            # The fast decoder refuses escaped halves of a surrogate pair, which JavaScript programs
            # do write.
            return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ValueError as slow:
            raise slow from error
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_sorted_json(value: Any) -> str:
    """Compact JSON with sorted keys: equal values give equal texts."""
    try:
        return _encode_sorted(value).decode()
    except (UnicodeEncodeError, RecursionError, OverflowError):
        return _slow_json(value, sort_keys=True)


def _slow_json(value: Any, sort_keys: bool = False) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys)
    # a circle, or a number of more digits than Python writes
    except (RecursionError, ValueError) as error:
        raise TypeError(f"JSON cannot express it ({error})") from None


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
