"""What a session asks knowledge bases, and what it learns from their answers."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Evidence, Working, leans
from loom.conversation.message import Message
from loom.errors import ChoiceError, describe
from loom.providers.knowledge import (
    DEFAULT_SECONDS,
    KnowledgeBase,
    KnowledgeItem,
    check_bases,
    find_cited,
    is_cited,
)
from loom.stores import Path

MAX_LEANED_ON = 3  # requests before the current one that are read for one that says something
MAX_EVIDENCE_CHARS = 800
MAX_SECONDS = 600


class KnowledgeLookup(Struct, frozen=True):
    """Which knowledge bases are asked for a request, and how long they may take."""

    bases: tuple[KnowledgeBase, ...] = ()
    seconds: float = DEFAULT_SECONDS

    def choose(
        self, knowledge: object, seconds: object, stored: Callable[[], KnowledgeBase]
    ) -> "KnowledgeLookup":
        """The same with what a caller says otherwise. None says nothing, False means no base, and
        True those documents that `stored` makes a base of.
        """
        made = self
        if knowledge is not None:
            given = knowledge if isinstance(knowledge, list | tuple) else [knowledge]
            bases = [stored() if base is True else base for base in given if base is not False]
            made = replace(made, bases=check_bases(bases))
        if seconds is not None:
            made = replace(made, seconds=_check_seconds(seconds))
        return made


def _check_seconds(seconds: object) -> float:
    if (
        not isinstance(seconds, int | float)
        or isinstance(seconds, bool)
        or not 0 < seconds <= MAX_SECONDS
    ):
        raise ChoiceError(
            f"knowledge_seconds must be a number above 0, at most {MAX_SECONDS}, found "
            f"{describe(seconds)}"
        )
    return seconds


class UserRequest(Struct, frozen=True):
    """What a user asks, at which place of a path, in which node."""

    text: str
    place: int
    seq: int


def find_question(path: Path, request: str = "") -> str:
    """What is asked now: a request that is not on the path yet, or the newest message of the user.

    A request that leans on what was said before is asked together with that.
    """
    asked = [request] if request.strip() else []
    if not asked or leans(request):
        asked += [each.text for each in find_requests(path, MAX_LEANED_ON + 1 - len(asked))]
    return "\n".join(reversed(asked))


def find_requests(path: Path, limit: int = MAX_LEANED_ON + 1) -> list[UserRequest]:
    """The newest message of the user and those that it leans on, newest first, at most so many."""
    found: list[UserRequest] = []
    seq = path.end.request if path.end else None
    while seq is not None and len(found) < limit:
        if found and not leans(found[-1].text):
            break
        [node] = path.nodes([seq])
        if node.message and node.message.text.strip():
            found.append(UserRequest(node.message.text, node.depth, node.seq))
        seq = path[node.depth - 1].request if node.depth > 0 else None
    return found


def find_question_in(messages: Sequence[Message]) -> str:
    """What is asked now in a conversation, with what it leans on."""
    asked: list[str] = []
    for message in reversed(messages):
        if len(asked) > MAX_LEANED_ON or (asked and not leans(asked[-1])):
            break
        if message.role == "user" and message.text.strip():
            asked.append(message.text)
    return "\n".join(reversed(asked))


def make_evidence(items: Sequence[KnowledgeItem]) -> tuple[Evidence, ...]:
    """What was found, as the working state remembers it once it is cited."""
    return tuple(
        Evidence(
            source=item.source,
            title=item.title,
            content=item.content[:MAX_EVIDENCE_CHARS],
            score=item.score,
        )
        for item in items
    )


def learn_cited(working: Working, offered: Sequence[Evidence], text: str) -> Working:
    """The working state with what a text cites of the evidence that was offered."""
    cited = find_cited(text)
    for evidence in offered if cited else ():
        if is_cited(evidence.source, cited):
            working = working.learn(replace(evidence), citation=evidence.source)
    return working
