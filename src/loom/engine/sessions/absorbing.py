"""An answer comes back: it is written where it belongs, with what it cost, and answers its
request.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from loom.context import find_strategy
from loom.conversation.agents import Agent
from loom.conversation.message import Message
from loom.conversation.metadata import write_metadata
from loom.dialects.input import Answer
from loom.engine.answers import (
    AnswerOutcome,
    AnswerPlace,
    AnswerPlacer,
    Order,
    cost_of,
    digest_of,
    generation_of,
    records_of,
    take_out_commands,
)
from loom.engine.sessions.choices import RequestChoices
from loom.engine.sessions.open_request import OpenRequest
from loom.engine.sessions.place import SessionPlace
from loom.engine.sessions.summaries import SessionSummaries
from loom.engine.sessions.writing import append_messages, commit_draft, note_cited
from loom.errors import Conflict
from loom.stores import Addition, Node, Request, Usage


class AnswerTaker:
    """Takes the answers of a session. What is due after one is summarized behind the scenes."""

    def __init__(
        self,
        place: SessionPlace,
        choices: RequestChoices,
        open_request: OpenRequest,
        summaries: SessionSummaries,
    ) -> None:
        self._place, self._choices = place, choices
        self._open_request, self._summaries = open_request, summaries

    def take(
        self,
        answer: Answer,
        choice: int,
        speaker: Agent | None,
        metadata: Mapping[str, Any] | None,
    ) -> tuple[AnswerOutcome, Order | None]:
        """Write an answer. Returns what happened, and the commands to run; None if there are none
        to run, because its speaker is not loom-aware or the answer came before.
        """
        beside = write_metadata(metadata)
        is_aware = speaker is not None and speaker.loom_aware
        if is_aware:
            messages, commands = take_out_commands(answer.messages)
        else:
            messages, commands = answer.messages, ()
        request = self._commit_and_look()
        placer = AnswerPlacer(
            self._place.store, self._place.row, self._place.path, self._open_request.is_lasting
        )
        place = placer.place(answer, choice, messages, request)
        conflict = None
        if is_aware:
            conflict = self._find_conflict(placer, place, messages, generation_of(answer, choice))
        nodes = self._write(answer, choice, () if conflict else messages, place, beside)
        spent = place.request or Request(place.node.id if place.node else "")
        spent = replace(spent, answer=digest_of(answer.raw), choices=(*spent.choices, choice))
        self._open_request.keep(spent, lasting=answer.choices > 1)
        words = "\n\n".join(message.text for message in messages if message.text)
        if nodes:
            note_cited(self._place, words)
        outcome = AnswerOutcome(words, tuple(nodes))
        if not is_aware or place.again:
            return outcome, None
        is_here = nodes and not place.late and self._place.path.end
        return outcome, Order(commands, self._place.end_id if is_here else place.at, conflict)

    def take_branch(self, answer: Answer, at: str) -> list[Node]:
        """Write an answer after any node, as a branch. Its commands are left out."""
        speaker, messages = self._place.speaker(), answer.messages
        if speaker is not None and speaker.loom_aware:
            messages, _ = take_out_commands(messages)
        place = AnswerPlace(self._place.node(at), None, late=True)
        return self._write(answer, 0, messages, place)

    def _commit_and_look(self) -> Request | None:
        """The request that an answer may answer. What was not committed was part of it, and is
        committed by the answer.
        """
        cursor = self._place.end_id
        request = self._open_request.find(cursor)
        committed = commit_draft(self._place)
        if request and committed and request.answer is None and request.node == cursor:
            return replace(request, node=committed.id)
        return request

    def _find_conflict(
        self, placer: AnswerPlacer, place: AnswerPlace, messages: Sequence[Message], generation: str
    ) -> Conflict | None:
        """That others continued since an agent that knows the loom looked: it is told, and may say
        it again elsewhere.
        """
        if (
            not place.late
            or place.other
            or not messages
            or placer.is_written(place, messages[0], generation)
        ):
            return None
        expected, found = (
            node.short_id if node else "its beginning"
            for node in (place.node, self._place.path.end)
        )
        self._place.emit("conflict", expected=expected, found=found)
        return Conflict(self._place.id, expected, found)

    def _write(
        self,
        answer: Answer,
        choice: int,
        messages: Sequence[Message],
        place: AnswerPlace,
        metadata: str = "",
    ) -> list[Node]:
        usage, learnt = cost_of(self._place.row, answer, place)
        records = records_of(answer, usage, place, spoken=bool(messages))
        nodes: list[Node] = []
        if messages:
            nodes = append_messages(
                self._place,
                messages,
                place.node,
                generation_of(answer, choice),
                Addition(usage=usage, records=records, calibration=learnt),
                move=not place.late,
                metadata=[metadata] * len(messages),
            )
        elif usage and (asked := place.node or self._place.path.end):
            charge = self._place.store.sessions.charge
            name, row, now = digest_of(answer.raw), self._place.row, self._place.now()
            self._place.move(charge(row, asked, name, usage, records, learnt, now))
        self._emit_cost(usage)
        # A turn is over when nothing is called any more; where turns are not what is cut, one need
        # not wait for that.
        strategy = find_strategy(self._choices.last_policy.strategy)
        if not strategy.takes_turns or not any(message.calls for message in answer.messages):
            self._place.workspace.start(self._place.id, self._summaries.make_due)
        return nodes

    def _emit_cost(self, usage: Usage | None) -> None:
        """Let listeners know of an answer, and of what it cost if that is known."""
        if usage:
            self._place.emit("used", **asdict(usage))
        cost = usage or Usage()
        self._place.emit(
            "absorbed",
            prompt=cost.prompt,
            completion=cost.completion,
            cached=cost.cached,
            cost=cost.cost,
        )
