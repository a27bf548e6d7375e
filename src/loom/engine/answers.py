"""An answer: what it says, the `→` commands in it, where it belongs, what it cost, and what came of
it.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from textwrap import indent

from msgspec import Struct
from msgspec.structs import replace

from loom.budget import models
from loom.budget.calibration import observe
from loom.conversation.canonical import to_json
from loom.conversation.commands import Found, limit_batch, parse_commands
from loom.conversation.compactions import is_compaction
from loom.conversation.identity import node_id
from loom.conversation.message import Message, Part, Text
from loom.conversation.names import plain_name
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.dialects.input import Answer
from loom.engine.aware import Result
from loom.engine.prepare import calibration
from loom.errors import Conflict
from loom.stores import Node, Path, Request, SessionRow, Store, Usage

RECENT_NODES = 64  # among which an answer is looked for that was written already


class Order(Struct, frozen=True):
    """The commands of an answer, in their order. `at` is the node where the agent knows itself to
    stand, if it looked.

    `conflict` says why its words were not written, if they were not.
    """

    commands: tuple[Found, ...]
    at: str | None = None
    conflict: Conflict | None = None


class AnswerOutcome(Struct, frozen=True):
    """What came of an answer: what it says besides its commands, the nodes that say it, and what
    came of its commands.
    """

    said: str
    nodes: tuple[Node, ...] = ()
    results: tuple[Result, ...] = ()

    @property
    def node(self) -> Node | None:
        """The last node that was written; None if the answer was only commands, or was not
        written.
        """
        if self.nodes:
            return self.nodes[-1]
        return None

    def __str__(self) -> str:
        said = [self.said] if self.said else []
        return "\n".join(
            (*said, *(f"{result.command}\n{indent(result.text, '  ')}" for result in self.results))
        )


def digest_of(raw: str) -> str:
    """A short name of a response as it came; "" if there was none."""
    if raw:
        return blake2b(raw.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return ""


def take_out_commands(messages: Iterable[Message]) -> tuple[tuple[Message, ...], tuple[Found, ...]]:
    """The messages without their `→` commands, and those commands. Calls, reasoning and all else
    stay as they came.
    """
    left: list[Message] = []
    found: list[Found] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, Text):
                text, commands = parse_commands(part.text)
            else:
                text, commands = "", ()
            found += commands
            if not isinstance(part, Text) or not commands:
                parts.append(part)
            elif text.strip():
                parts.append(replace(part, text=text))
        if len(parts) == len(message.parts) or parts:
            left.append(
                message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))
            )
    return tuple(left), limit_batch(found)


class AnswerPlace(Struct, frozen=True):
    """Where an answer is written: after which node, and as the answer of which request.

    `late`: others continued there meanwhile. `other`: another choice of the answer came before;
    `again`: this one did. `at` is the node where its speaker knows itself to stand.
    """

    node: Node | None
    request: Request | None
    late: bool = False
    other: bool = False
    again: bool = False
    at: str | None = None


def generation_of(answer: Answer, choice: int) -> str:
    """The provider's name for an answer tells two equal answers apart. Of several choices each is
    its own.
    """
    return plain_name(f"{answer.id}#{choice}" if choice else answer.id)


class AnswerPlacer:
    """Finds where answers belong on the path of a session. `lasting`: another object may have made
    the request.
    """

    def __init__(self, store: Store, row: SessionRow, path: Path, lasting: bool) -> None:
        self._store, self._row, self._path, self._lasting = store, row, path, lasting

    def place(
        self, answer: Answer, choice: int, messages: Sequence[Message], request: Request | None
    ) -> AnswerPlace:
        """After what its request ended with; without a request, after the cursor."""
        if request and answer.raw and request.answer == digest_of(answer.raw):
            place = self._place_again(answer, choice, request)
            if place:
                return place
        if request and request.answer is not None:
            request = None
        if request is None or not self._lasting:
            return AnswerPlace(
                self._follows(messages, answer.raw, generation_of(answer, choice)), request
            )
        node, end = self._node(request), self._path.end
        late = (node.seq if node else None) != (end.seq if end else None)
        return AnswerPlace(node, request, late=late, at=request.node)

    def _place_again(self, answer: Answer, choice: int, request: Request) -> AnswerPlace | None:
        """Where an answer belongs that came before: the same choice once more, or another one."""
        node, again = self._node(request), choice in request.choices
        if again:
            known = not self._asked_since(node)
        else:
            known = answer.choices > 1
        if known:
            return AnswerPlace(node, request, late=True, other=True, again=again)
        return None

    def _node(self, request: Request) -> Node | None:
        if request.node:
            return self._store.sessions.node(self._row, request.node)
        return None

    def _asked_since(self, node: Node | None) -> bool:
        """Whether somebody asked something after a node, or is elsewhere: what comes then answers
        that.
        """
        if node is not None and not self._path.holds(node.seq, node.depth):
            return True
        start = node.depth + 1 if node else 0
        newer = self._path[max(start, len(self._path) - RECENT_NODES) :]
        return any(each.role == "user" for each in newer)

    def is_written(self, place: AnswerPlace, first: Message, generation: str) -> bool:
        """Whether it is this answer that continued from its place, and comes once more."""
        behind = place.node.id if place.node else ""
        return self._path.says(node_id(self._row.tree.id, behind, first, generation))

    def _follows(self, messages: Sequence[Message], raw: str, generation: str) -> Node | None:
        """The node that an answer follows: the cursor, unless the same answer was written a moment
        ago.

        The provider's id alone proves nothing, for some providers repeat theirs. An answer that
        comes again is one that the path ends with, or one of this turn whose calls were answered
        since.
        """
        spoken = [message for message in messages if message.role not in SYSTEM_ROLES]
        if not spoken:
            return self._path.end
        recent = self._path[-RECENT_NODES:]
        for first in range(len(recent) - len(spoken), -1, -1):
            chain = recent[first : first + len(spoken)]
            if _says(chain, spoken, generation) and self._came_before(
                spoken, raw, chain[-1], generation
            ):
                if chain[0].depth:
                    return self._path[chain[0].depth - 1]
                return None
            if recent[first].role == "user":
                break
        return self._path.end

    def _came_before(
        self, messages: Sequence[Message], raw: str, node: Node, generation: str
    ) -> bool:
        """Whether an answer that says the same as this node, under the same id, is that answer and
        not another one.
        """
        stands_last = self._path.end is not None and node.seq == self._path.end.seq
        if stands_last and generation:
            return True
        calls = any(call.id for message in messages for call in message.calls)
        return (stands_last or calls) and raw in self._store.sessions.records(
            self._row, node, "response"
        )


def _says(chain: Sequence[Node], messages: list[Message], generation: str) -> bool:
    return [node.message for node in chain] == messages and all(
        node.generation == generation for node in chain
    )


def cost_of(row: SessionRow, answer: Answer, place: AnswerPlace) -> tuple[Usage | None, str]:
    """What an answer cost, and what its tokens teach the counter. A response costs once, however
    many choices it has.
    """
    if place.other or not answer.raw:
        return None, ""
    request = place.request
    model = answer.model or (request.model if request else "") or row.model
    price = answer.cost
    if price is None:
        price = models.cost(
            models.model(model), answer.prompt, answer.completion, answer.cached, answer.written
        )
    learnt = ""
    # What a provider compacted first, it read as less than was sent.
    compacted = any(is_compaction(part) for said in answer.messages for part in said.parts)
    if request and request.counted and answer.prompt and not compacted:
        learnt = to_json(
            observe(
                calibration(row), request.model, counted=request.counted, reported=answer.prompt
            )
        )
    return Usage(answer.prompt, answer.completion, answer.cached, price), learnt


def records_of(
    answer: Answer, usage: Usage | None, place: AnswerPlace, *, spoken: bool
) -> list[tuple[str, str]]:
    """What is stored with the nodes of an answer: the response as it came, its usage, and what it
    was made from.
    """
    records = [("response", answer.raw)] if answer.raw else []
    records += [("usage", to_json(usage))] if usage else []
    if place.request and place.request.sources and spoken:
        records.append(("sources", to_json(place.request.sources)))
    return records
