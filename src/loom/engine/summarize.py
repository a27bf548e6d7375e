"""Summaries by a model, the effect: it is asked part by part, and whatever it does there is a
summary in the end.
"""

import asyncio
from typing import Literal, Protocol

from msgspec import Struct

from loom.budget.counting import gate_counter
from loom.context import (
    Notes,
    add_notes,
    apart,
    clean_summary,
    describe_messages,
    fallback,
    merge_prompt,
    parts,
    summary_prompt,
    system_prompt,
)
from loom.conversation.canonical import to_json
from loom.conversation.message import Carried, Conversation, Message, Text
from loom.errors import ChoiceError, shorten

FRAME = 32  # tokens that a request takes beside its texts


class Model(Protocol):
    """Whatever answers a request."""

    async def answer(self, request: Conversation) -> Message: ...


class Ask(Struct, frozen=True, kw_only=True):
    """What is to be summed up, behind which summary, in how many tokens, by a model of which
    window.

    `known` are the handles that a summary may name; `omit` leaves out messages that are too large,
    which else are cut.
    """

    messages: tuple[Message, ...]
    existing: str = ""
    tokens: int = 500
    window: int = 32_000
    omit: bool = False
    known: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.window < 1:
            raise ChoiceError(
                f"a summary of {self.tokens} tokens in a window of {self.window}; give at least 1 "
                "of each"
            )


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
    ask: Ask,
    *,
    tries: int = 3,
    timeout: float = 120.0,
    temperature: float = 0.3,
) -> MadeSummary:
    """Sum up messages: by the model, or from their own words where there is none or it fails for
    good.

    One request at a time, each tried so often and waited for so many seconds. The existing summary
    goes into the new one.
    """
    if tries < 1 or timeout <= 0:
        raise ChoiceError(
            f"{tries} tries of {timeout} seconds each; give at least 1 try and more than 0 seconds"
        )
    count = gate_counter(None).count_text
    words, notes = apart(ask.existing)
    existing = clean_summary(words, max(1, ask.window // 4), count, ask.known)
    if not any(describe_messages(ask.messages)):
        return _make_summary(words, notes, "extract", ask)
    frame = FRAME + count(system_prompt(ask.tokens))
    # Where two are merged, both and what comes of them must fit.
    most = max(1, (ask.window - frame - count(merge_prompt("", ""))) // 3)
    asking = _Asking(model, min(ask.tokens, most), ask.known, tries, timeout, temperature)
    beside = frame + count(summary_prompt("", existing)) + asking.tokens
    given = parts(ask.messages, ask.window, count, omit=ask.omit, beside=beside)
    text = await asking.summarize_parts(given.texts, existing) if model else ""
    if text:
        return _make_summary(text, notes + given.notes, "model", ask, asking)
    if model and not given.texts:
        asking.failures.append(
            f"the model was not asked: nothing fits its window of {ask.window:,} tokens"
        )
    extract = fallback(
        ask.messages, ask.tokens, count, clean_summary(words, ask.tokens, count, ask.known)
    )
    return _make_summary(extract, notes, "extract", ask, asking)


def _make_summary(
    text: str,
    notes: Notes,
    by: Literal["model", "extract"],
    ask: Ask,
    asking: "_Asking | None" = None,
) -> MadeSummary:
    """The summary with its notes, all in all within what was asked for; notes that would take half
    of it are told beside it.
    """
    count = gate_counter(None).count_text
    beside = count(add_notes("", notes)) + 4 if notes.lines else 0
    if beside * 2 > ask.tokens:
        finished = clean_summary(text, ask.tokens, count, ask.known)
    else:
        finished = add_notes(clean_summary(text, ask.tokens - beside, count, ask.known), notes)
    calls, failures = (asking.calls, tuple(asking.failures)) if asking else (0, ())
    return MadeSummary(text=finished, by=by, calls=calls, notes=notes.lines, failures=failures)


class _Asking:
    """The requests for one summary, and what came of them."""

    def __init__(
        self,
        model: Model | None,
        tokens: int,
        known: frozenset[str],
        tries: int,
        timeout: float,
        temperature: float,
    ) -> None:
        self.tokens = tokens
        self.calls = 0
        self.failures: list[str] = []
        self._model, self._known = model, known
        self._tries, self._timeout = tries, timeout
        self._settings = Carried("openai", to_json({"temperature": temperature}))
        self._count = gate_counter(None).count_text

    async def summarize_parts(self, texts: tuple[str, ...], existing: str) -> str:
        """The summary of all parts; "" where the model fails at one of them."""
        made: list[str] = []
        for number, text in enumerate(texts, 1):
            before = existing if number == 1 else ""
            size = self._count(text) + self._count(before)
            said = await self._say(
                f"part {number} of {len(texts)}", summary_prompt(text, before), size
            )
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
        said = await self._say(
            "merging", merge_prompt(first, second), self._count(first) + self._count(second)
        )
        if said:
            return said
        # Two halves one behind the other are worth more than an extract.
        half = max(1, self.tokens // 2 - 1)
        return "\n\n".join(
            filter(
                None,
                (clean_summary(part, half, self._count, self._known) for part in (first, second)),
            )
        )

    async def _say(self, what: str, prompt: str, size: int) -> str:
        """What the model makes of a prompt, no longer than the `size` of what it was made from; ""
        where it fails for good.
        """
        spare = ""
        for number in range(1, self._tries + 1):
            try:
                said = (await self._answer(prompt)).text
            # whatever a model or its network does, there must be a summary
            except Exception as error:
                self._fail(what, number, f"{type(error).__name__}: {error}")
                continue
            text = clean_summary(said, self.tokens, self._count, self._known)
            if not text:
                self._fail(what, number, "the model said nothing")
            elif self._count(said) > size:
                self._fail(what, number, "the summary is longer than what it sums up")
                spare = clean_summary(text, min(self.tokens, size), self._count, self._known)
            else:
                return text
        return spare

    async def _answer(self, prompt: str) -> Message:
        assert self._model is not None
        self.calls += 1
        request = Conversation(
            system=(Message("system", (Text(system_prompt(self.tokens)),)),),
            messages=(Message("user", (Text(prompt),)),),
            max_output=self.tokens,
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


def _looked_at(task: "asyncio.Future[Message]") -> None:
    """Take notice of how a request ended that nobody waits for any more, or asyncio complains of
    it.
    """
    if not task.cancelled():
        task.exception()
