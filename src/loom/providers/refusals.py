"""What the refusals of providers mean: whether the same request may succeed later, and when."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from loom.errors import ProviderError, RequestTooLong, shorten
from loom.providers.overflow import read_overflow
from loom.providers.wires.folding import objects_of

# A request of these may be sent again: the time was over, somebody else was quicker, too many at
# once. Also all errors of the server itself (500 and more, 529 among them).
_PASSING = frozenset({408, 409, 425, 429})
MAX_SHOWN_CHARS = 500  # of what a provider says
_PURSE = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.I)
# Errors that come in the middle of a stream have a name and no status.
STATUS_BY_KIND = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "context_length_exceeded": 400,
}


def is_passing(status: int, said: str = "") -> bool:
    """Whether the same request may succeed later. An empty purse does not fill by waiting."""
    if status == 429 and _PURSE.search(said):
        return False
    return status in _PASSING or 500 <= status < 600


def read_retry_after(value: object, now: float | None = None) -> float | None:
    """How many seconds a provider asks to wait: given in seconds, or as a date of HTTP."""
    if value is None or isinstance(value, bool):
        return None
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return _seconds_until(str(value), time.time() if now is None else now)
    return seconds if 0 <= seconds < float("inf") else None


def _seconds_until(date: str, now: float) -> float | None:
    try:
        return max(parsedate_to_datetime(date).timestamp() - now, 0.0)
    except (TypeError, ValueError, OverflowError):
        return None


def find_retry_after(headers: Mapping[str, str]) -> float | None:
    """What the headers of an answer say; milliseconds are more exact."""
    precise = read_retry_after(headers.get("retry-after-ms"))
    if precise is not None:
        return precise / 1000
    return read_retry_after(headers.get("retry-after"))


def make_refusal(
    provider: str, status: int, said: str, retry_after: float | None = None
) -> ProviderError:
    """The error for what a provider said in place of an answer."""
    shown = shorten(" ".join(said.split()), MAX_SHOWN_CHARS)
    text = f"{provider} answered {status}: {shown or 'nothing'}"
    if status in (400, 413, 422, 429, 500) and (
        overflow := read_overflow(f"status {status}. {said}")
    ):
        return RequestTooLong(
            text, provider=provider, status=status, limit=overflow.limit, asked=overflow.asked
        )
    return ProviderError(
        text,
        provider=provider,
        status=status,
        is_passing=is_passing(status, said),
        retry_after=retry_after,
    )


def mask(said: str, key: str) -> str:
    """What somebody else said, without the key."""
    return said.replace(key, "…") if key else said


def find_error(data: Any) -> Any:
    """The error in a body or an event that has one in place of an answer; else None."""
    if not isinstance(data, dict):
        return None
    if data.get("type") == "response.failed" or data.get("status") == "failed":
        response = data.get("response", data)
        return (response.get("error") if isinstance(response, dict) else None) or "it failed"
    error = data.get("error")
    if "error" in (data.get("type"), data.get("object")):
        return error or data
    return _find_choice_error(data, error)


def _find_choice_error(data: dict[str, Any], error: Any) -> Any:
    """The error of a choice, or the one next to choices of which none has ended; else None."""
    choices = objects_of(data.get("choices"))
    for choice in choices:
        if choice.get("error") or choice.get("finish_reason") == "error":
            return error or choice.get("error") or "the model ended with an error"
    has_ended = any(choice.get("finish_reason") for choice in choices)
    has_answer = has_ended or data.get("output") or data.get("content")
    if isinstance(error, dict | str) and error and not has_answer:
        return error
    return None


def describe_error(error: Any) -> str:
    """What an error of a provider says, with its names."""
    if not isinstance(error, dict):
        return str(error)
    kinds = [error.get(key) for key in ("type", "code")]
    named = [kind for kind in kinds if isinstance(kind, str) and kind and kind != "error"]
    said = error.get("message")
    if not isinstance(said, str):
        return msgspec.json.encode(error).decode()
    return f"{said} ({', '.join(named)})" if named else said


def status_of(error: Any) -> int:
    """The status of HTTP that an error without one would have."""
    if isinstance(error, dict):
        for key in ("status", "code", "type"):
            value = error.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
                return value
            if isinstance(value, str) and value in STATUS_BY_KIND:
                return STATUS_BY_KIND[value]
    return 500


def read_error(content: bytes) -> str:
    """What the body of a refusal says."""
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return content.decode(errors="replace")
    if isinstance(body, list) and body:
        body = body[0]
    return describe_error(body.get("error", body) if isinstance(body, dict) else body)
