"""What can be read of an answer that is not whole."""

from typing import Any

from loom.dialects.input import Answer, parse_answer
from loom.errors import WireError


def read_partial(response: dict[str, Any]) -> Answer | None:
    """What came of an answer that broke off; None if nothing of it can be read."""
    try:
        answer = parse_answer(response)
    except WireError:
        return None
    return answer if answer.messages and answer.message.parts else None
