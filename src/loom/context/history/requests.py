"""What a user's message is: a task, something that leans on what was said before, or neither.

Rules of this file:
- A task is not a slash command, a greeting, a path alone, or nothing.
- A message leans on what was said before if it is short, or begins by agreeing and is not long.
- A message turns to something new if it is a task and shares few words with what users said since
  the last one that did.
"""

import re
from collections.abc import Sequence
from functools import cache

from loom.conversation.message import Message

LEANING_WORDS = 8  # a message with no more than these leans on what was said before
AGREEING_WORDS = 25  # so does one with no more than these that begins by agreeing
MIN_TASK_WORDS = 3
MAX_READ_CHARS = 1000  # of a message that are looked at: what is wanted is said at its beginning
MAX_GOAL_REQUESTS = 8  # messages of users among which the first goal is
NEW_WORDS = 12  # a message with fewer does not turn to something new
SHARED_WORDS = 0.25  # of its words, what a message that turns to something new may share
MIN_WORD_CHARS = 4  # shorter words are in every message
CJK_CHARS = 2  # characters that make a word where words are not parted by spaces

_GREETINGS = frozenset(
    [
        "hi",
        "hello",
        "hey",
        "hallo",
        "hola",
        "bonjour",
        "ciao",
        "yo",
        "morning",
        "afternoon",
        "evening",
        "good",
        "day",
        "there",
        "servus",
        "moin",
        "salut",
        "test",
        "ping",
        "thanks",
        "thank",
        "you",
        "你好",
        "您好",
        "こんにちは",
        "안녕하세요",
        "привет",
    ]
)
_AGREES = re.compile(
    r"(?:yes|yeah|yep|yup|ok|okay|sure|right|exactly|perfect|great|good|nice|cool|wow|amazing"
    r"|awesome|agreed|sounds good|looks good|lgtm|go ahead|do it|do that|please do|continue|go on"
    r"|proceed|no|nope|hmm|ja|oui|si|sí|да|好|是|はい|네)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")


@cache
def _cjk_letter() -> re.Pattern[str]:
    """Compiled at the first use: it takes many milliseconds."""
    return re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


def _cjk_letters(text: str) -> int:
    return 0 if text.isascii() else len(_cjk_letter().findall(text))


def count_words(text: str) -> int:
    """How many words a text has, also where they are not parted by spaces."""
    return len(text.split()) + _cjk_letters(text) // CJK_CHARS


def is_command(text: str) -> bool:
    """Whether a text is a command to the program that the user writes in."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return first.startswith("/") and "/" not in first[1:]


def states_task(text: str) -> bool:
    """Whether a message says what is wanted."""
    words = text.split()
    if not words or is_command(text):
        return False
    if len(words) == 1 and not _cjk_letters(text):  # a path, a file, a name
        return False
    named = [word.strip(".,!?:;").lower() for word in words]
    return count_words(text) >= MIN_TASK_WORDS and not _GREETINGS.issuperset(named)


def leans(text: str) -> bool:
    """Whether a message is only understood with what was said before it."""
    text = text[:MAX_READ_CHARS]
    words = count_words(text)
    if words <= LEANING_WORDS or is_command(text):
        return True
    return words <= AGREEING_WORDS and _AGREES.match(text.lstrip()) is not None


def find_leaned_on(history: Sequence[Message], users: Sequence[int]) -> list[int]:
    """What the newest message of a user leans on: the last one that says something by itself, and
    the model's last words before it. `users` are the places of their messages.
    """
    request = users[-1]
    if not leans(history[request].text):
        return []
    found: list[int] = []
    for place in reversed(users[:-1]):
        if not leans(history[place].text):
            found.append(place)
            break
    for place in range(request - 1, -1, -1):
        message = history[place]
        if message.role == "assistant" and message.text.strip():
            found.append(place)
            break
    return found


def find_goals(said: Sequence[tuple[int, str]]) -> tuple[int, int]:
    """The places of the first goal and of the one that users turned to last.

    The first goal is among the first messages of users: a path is read no further for it.
    """
    said = [(place, text[:MAX_READ_CHARS]) for place, text in said]
    begun = said[:MAX_GOAL_REQUESTS]
    first = next((place for place, text in begun if states_task(text)), said[0][0])
    current, known = first, set[str]()
    for place, text in said:
        words = _long_words(text)
        if place > first and _turns_to_new(text, words, known):
            current, known = place, set()
        known |= words
    return first, current


def _turns_to_new(text: str, words: set[str], known: set[str]) -> bool:
    if count_words(text) < NEW_WORDS or leans(text):
        return False
    return states_task(text) and len(words & known) < SHARED_WORDS * len(words)


def _long_words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if len(word) >= MIN_WORD_CHARS}
