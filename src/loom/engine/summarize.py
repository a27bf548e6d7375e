"""Summaries by a model, the effect: it is asked part by part, and whatever it does there is a
summary in the end.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from loom.context import SummaryDraft, SummaryPrompt, SummaryTask
from loom.conversation.canonical import to_json
from loom.conversation.checked import checks_arguments
from loom.conversation.message import Carried, Conversation, Message, Text
from loom.dialects.input import Answer
from loom.errors import ChoiceError, shorten
from loom.providers.models import Model, weak_model_of


@checks_arguments
def check_model(model: Model | None) -> None:
    """Refuse what cannot answer."""


class MadeSummary(Struct, frozen=True, kw_only=True):
    """A summary, whose words it has, how often the model was asked for it, what it says of itself,
    and what went wrong.
    """

    text: str
    by: Literal["model", "extract"]
    calls: int
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


async def summarize(
    model: Model | None,
    task: SummaryTask,
    *,
    tries: int = 3,
    timeout: float = 120.0,
    temperature: float = 0.3,
) -> MadeSummary:
    """Sum up messages: by the model, or from their own words where there is none or it fails for
    good.

    One request at a time, each tried so often and waited for so many seconds. The existing summary
    goes into the new one. If the model has a weak model, that one is asked.
    """
    if tries < 1 or timeout <= 0:
        raise ChoiceError(
            f"{tries} tries of {timeout} seconds each; give at least 1 try and more than 0 seconds"
        )
    model = weak_model_of(model)
    draft = SummaryDraft(task)
    if not draft.has_messages:
        return _make_summary(draft.finish_without_model(), "extract")
    prompts = draft.prompts()
    asking = _Asking(model, draft, tries, timeout, temperature)
    text = await asking.summarize_parts(prompts) if model else ""
    if text:
        return _make_summary(draft.finish(text), "model", asking)
    if model and not prompts:
        asking.failures.append(
            f"the model was not asked: nothing fits its window of {task.window:,} tokens"
        )
    return _make_summary(draft.finish_without_model(), "extract", asking)


def _make_summary(
    finished: tuple[str, tuple[str, ...]],
    by: Literal["model", "extract"],
    asking: "_Asking | None" = None,
) -> MadeSummary:
    text, notes = finished
    if asking:
        calls, failures = asking.calls, tuple(asking.failures)
    else:
        calls, failures = 0, ()
    return MadeSummary(text=text, by=by, calls=calls, notes=notes, failures=failures)


class _Asking:
    """The requests for one summary, and what came of them."""

    def __init__(
        self,
        model: Model | None,
        draft: SummaryDraft,
        tries: int,
        timeout: float,
        temperature: float,
    ) -> None:
        self.calls = 0
        self.failures: list[str] = []
        self._model, self._draft = model, draft
        self._tries, self._timeout = tries, timeout
        self._settings = Carried("openai", to_json({"temperature": temperature}))

    async def summarize_parts(self, prompts: Sequence[SummaryPrompt]) -> str:
        """The summary of all parts; "" if the model fails at one of them."""
        made: list[str] = []
        for prompt in prompts:
            said = await self._say(prompt)
            if not said:
                return ""
            made.append(said)
        while len(made) > 1:
            merged = [
                await self._merge(first, second)
                for first, second in zip(made[::2], made[1::2], strict=False)
            ]
            made = [*merged, *made[len(merged) * 2 :]]
        return made[0] if made else ""

    async def _merge(self, first: str, second: str) -> str:
        # Two halves one after the other are worth more than an extract.
        return await self._say(self._draft.merging(first, second)) or self._draft.join(
            first, second
        )

    async def _say(self, prompt: SummaryPrompt) -> str:
        """What the model makes of a prompt, no longer than what that summarizes; "" if it fails for
        good.
        """
        spare = ""
        for number in range(1, self._tries + 1):
            try:
                said = (await self._answer(prompt.text)).text
            # whatever a model or its network does, there must be a summary
            except Exception as error:
                self._fail(prompt.what, number, f"{type(error).__name__}: {error}")
                continue
            text, problem = self._draft.read_answer(said, prompt)
            if text is not None and not problem:
                return text
            self._fail(prompt.what, number, problem)
            spare = spare if text is None else text
        return spare

    async def _answer(self, prompt: str) -> Answer:
        assert self._model is not None
        self.calls += 1
        request = Conversation(
            system=(Message("system", (Text(self._draft.system),)),),
            messages=(Message("user", (Text(prompt),)),),
            max_output=self._draft.tokens,
            settings=self._settings,
        )
        task = asyncio.ensure_future(self._model.answer(request))
        task.add_done_callback(_looked_at)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
        finally:
            # It is not waited for: what hangs may not heed being told to stop.
            task.cancel()
        if not done:
            raise TimeoutError(f"no answer within {self._timeout:g} seconds")
        return task.result()

    def _fail(self, what: str, number: int, why: str) -> None:
        self.failures.append(f"{what}, try {number}: {shorten(' '.join(why.split()), 200)}")


def _looked_at(task: "asyncio.Future[Answer]") -> None:
    """Take notice of how a request ended that nobody waits for any more, or asyncio complains of
    it.
    """
    if not task.cancelled():
        task.exception()
