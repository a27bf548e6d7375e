"""Whether a tool's result tells of an error."""

import re

from loom.conversation.message import Text, ToolResult

_HEAD = 200  # characters of a result in which it says whether it failed
# Most wires cannot say that a result is an error; then its first words do.
_FAILED = re.compile(
    r"\W*(?:tool_use_error|errors?\b|exception\b|fail(?:ed|ure)\b|traceback\b|cannot\b|could "
    r"not\b|unable to\b|invalid\b"
    r"|permission denied|no (?:match|replacement|such)\b)",
    re.IGNORECASE,
)
_EXIT = re.compile(r"exit(?:ed with)?[ _]code\"?:? ?-?[1-9]", re.IGNORECASE)


def has_failed(result: ToolResult) -> bool:
    """Whether a result tells of an error: by its mark, or by its words, because not every wire has
    a mark.
    """
    return result.error or is_failure(
        "\n".join(part.text for part in result.parts if isinstance(part, Text))
    )


def is_failure(text: str) -> bool:
    # JSON tells the exit code after the output
    ends = text[-_HEAD:] if text.startswith("{") else ""
    return bool(_FAILED.match(text[:_HEAD]) or _EXIT.search(text[:_HEAD]) or _EXIT.search(ends))
