"""Summaries of a session: written by a person, asked of a model, or made after an answer."""

from collections.abc import Sequence
from functools import partial

from loom.context import SummaryTask
from loom.conversation.checked import check_text
from loom.engine.prepare import BY_PERSON
from loom.engine.sessions.choices import RequestChoices
from loom.engine.sessions.place import SessionPlace
from loom.engine.summarize import MadeSummary, summarize
from loom.engine.summing import (
    BY_MODEL,
    RESULT_DIGEST_TOKENS,
    Plan,
    When,
    find_undigested,
    join_texts,
    make_summary,
    plan,
    with_digests,
)
from loom.errors import ChoiceError
from loom.providers.models import Model
from loom.stores import Node, Summary


class SessionSummaries:
    """What is summarized of a session, and who does it."""

    def __init__(self, place: SessionPlace, choices: RequestChoices) -> None:
        self._place, self._choices = place, choices

    def _list(self) -> Sequence[Summary]:
        place = self._place
        hidden = place.overlay(place.path).hidden
        return place.store.summaries.on_path(place.row, place.path, hidden)

    def read(self) -> str:
        """The summary that requests use."""
        return join_texts(self._list())

    def plan(self, when: When) -> Plan | None:
        """What to summarize now; None if nothing is due."""
        place = self._place
        options = self._choices.options_to_summarize()
        return plan(place.store, place.row, place.path, options, place.style(), when)

    def set(self, text: str) -> None:
        """Use the words of a person as the summary; "" takes all summaries back."""
        place = self._place
        if not check_text("a summary", text).strip():
            gone = place.store.summaries.retire(place.row, 0, place.now())
            reason = "summaries taken back by a person"
            place.emit("compressed", path="given", reason=reason, summaries=gone)
            return
        planned = self.plan("whole")
        if planned is None:
            raise ChoiceError(
                f"session {place.id} is too short for a summary: there is nothing before its last "
                "messages"
            )
        summary = make_summary(planned, text, BY_PERSON)
        place.store.summaries.add(place.row, planned.end, summary, place.now())
        reason = "written by a person"
        place.emit("compressed", path="given", reason=reason, messages=planned.stop)

    async def ask(self, model: Model | None) -> str:
        """Summarize all messages except the last ones now; "" if there was nothing to
        summarize.
        """
        planned = await self._place.run_off_loop(lambda: self.plan("now"))
        if planned:
            return await self._sum_up(planned, model or self._place.workspace.model, "asked")
        return ""

    async def make_due(self) -> bool:
        """Make what is due after an answer, behind the scenes. Returns whether it went well."""
        place = self._place
        planned = await place.run_off_loop(lambda: self.plan("due"))
        well = planned is None or bool(
            await self._sum_up(planned, place.workspace.model, "background")
        )
        if not self._choices.last_policy.digests:
            return well
        for node in await place.run_off_loop(
            lambda: find_undigested(place.store, place.row, place.overlay(place.path))
        ):
            is_digested = await self._digest(node)
            well = well and is_digested
        return well

    async def _digest(self, node: Node) -> bool:
        """Let the model of the store summarize a large tool result. Returns whether it did."""
        assert node.message is not None
        place = self._place
        task = SummaryTask(messages=(node.message,), tokens=RESULT_DIGEST_TOKENS)
        made = await summarize(place.workspace.model, task)
        if made.by == "model":
            add = place.store.summaries.add_digest
            await place.run_off_loop(partial(add, place.row, node, made.text, place.now()))
        place.emit(
            "compressed",
            path="background",
            reason="a large tool result",
            by=made.by,
            failures=made.failures,
        )
        return made.by == "model"

    async def _sum_up(self, planned: Plan, model: Model | None, path: str) -> str:
        made = await summarize(model, planned.task)
        return await self._place.run_off_loop(lambda: self._keep(planned, model, path, made))

    def _keep(self, planned: Plan, model: Model | None, path: str, made: MadeSummary) -> str:
        """Write down what a model made of a stretch, unless somebody was quicker; the text that is
        kept, else "".
        """
        place = self._place
        if not self._is_newest(planned):
            reason = "another summary was written meanwhile"
            place.emit("compressed", path=path, reason=reason, calls=made.calls)
            return made.text
        by = BY_MODEL if made.by == "model" else "its beginnings"
        # If covers tell of what was left out, their lines say more than its beginnings.
        is_kept = (
            made.by == "model" or model is None or self._choices.last_policy.summary != "cover"
        )
        if is_kept:
            summary = make_summary(planned, with_digests(made.text, planned.digests), by)
            place.store.summaries.add(place.row, planned.end, summary, place.now())
        place.emit(
            "compressed",
            path=path,
            reason=planned.why,
            messages=planned.stop - planned.start,
            by=by if is_kept else "nobody",
            calls=made.calls,
            failures=made.failures,
            notes=made.notes,
        )
        return made.text if is_kept else ""

    def _is_newest(self, planned: Plan) -> bool:
        """Whether nobody wrote a summary, or took one back, since this one was planned."""
        return tuple(summary.name for summary in self._list()) == planned.behind
