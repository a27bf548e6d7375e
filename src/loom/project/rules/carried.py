"""Files of rules that a conversation carries already: some programs put `AGENTS.md` or `CLAUDE.md`
into a message of their own.

Only a file that a message has from its first line to its last one counts. Whoever quotes some lines
of a file talks about them.
"""

from collections.abc import Iterable

from loom.conversation.message import Message
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.project.rules.blocks import MIN_REPEAT_CHARS, normalize_lines
from loom.project.rules.reading import clean_text

_SPEAKERS = ("user", *SYSTEM_ROLES)  # those whose words a model keeps to


class CarriedTexts:
    """What users and system messages of a conversation say."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        spoken = (message.text for message in messages if message.role in _SPEAKERS)
        self._texts = [text for text in spoken if len(text) >= MIN_REPEAT_CHARS]
        self._lines: dict[int, str] = {}

    def has(self, text: str) -> bool:
        """Whether one message has all lines of a text, one after the other."""
        wanted = normalize_lines(text)
        if len(wanted) < MIN_REPEAT_CHARS:
            return False
        longest = max(text.split("\n"), key=len).strip()
        return any(
            longest in each and wanted in self._normalize(n) for n, each in enumerate(self._texts)
        )

    def find_naming(self, names: Iterable[str]) -> list[str]:
        """The texts of messages that name one of these files."""
        wanted = tuple(names)
        return [text for text in self._texts if any(name in text for name in wanted)]

    def _normalize(self, place: int) -> str:
        """The lines of a message, to be compared; made once."""
        if place not in self._lines:
            self._lines[place] = normalize_lines(clean_text(self._texts[place]))
        return self._lines[place]
