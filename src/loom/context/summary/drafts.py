"""A summary in the making: what a model is asked for, and what is made of its answers. Nothing here
asks it.
"""

from collections.abc import Callable

from msgspec import Struct

from loom.budget.counting import gate_counter
from loom.context.summary.summaries import (
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
from loom.conversation.message import Message
from loom.errors import ChoiceError

FRAME_TOKENS = 32  # that a request takes besides its texts
NO_ANSWER = "the model said nothing"
LONG_ANSWER = "the summary is longer than what it summarizes"


class SummaryTask(Struct, frozen=True, kw_only=True):
    """What is to be summarized, after which summary, in how many tokens, by a model of which
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


class SummaryPrompt(Struct, frozen=True):
    """One request to a model: which one it is, its words, and the tokens of what it summarizes."""

    what: str
    text: str
    size: int


class SummaryDraft:
    """The prompts for one summary, and what becomes of the answers."""

    def __init__(self, task: SummaryTask) -> None:
        self._task = task
        self._count: Callable[[str], int] = gate_counter(None).count_text
        self._words, self._notes = apart(task.existing)
        self._existing = self._clean(self._words, max(1, task.window // 4))
        self.has_messages = any(describe_messages(task.messages))
        frame = FRAME_TOKENS + self._count(system_prompt(task.tokens))
        # Where two are merged, both and what comes of them must fit.
        most = max(1, (task.window - frame - self._count(merge_prompt("", ""))) // 3)
        self.tokens = min(task.tokens, most)  # of one answer
        beside = frame + self._count(summary_prompt("", self._existing)) + self.tokens
        self._parts = parts(task.messages, task.window, self._count, omit=task.omit, beside=beside)

    @property
    def system(self) -> str:
        """What the model is told of its work."""
        return system_prompt(self.tokens)

    def prompts(self) -> list[SummaryPrompt]:
        """A prompt for each part of the messages; none if nothing fits the window of the model."""
        texts = self._parts.texts
        made: list[SummaryPrompt] = []
        for number, text in enumerate(texts, 1):
            before = self._existing if number == 1 else ""
            size = self._count(text) + self._count(before)
            prompt = summary_prompt(text, before)
            made.append(SummaryPrompt(f"part {number} of {len(texts)}", prompt, size))
        return made

    def merging(self, first: str, second: str) -> SummaryPrompt:
        """The prompt that makes one of two summaries."""
        size = self._count(first) + self._count(second)
        return SummaryPrompt("merging", merge_prompt(first, second), size)

    def read_answer(self, said: str, prompt: SummaryPrompt) -> tuple[str | None, str]:
        """What a model said as harmless words, and what is wrong with it. None if it said
        nothing.
        """
        text = self._clean(said, self.tokens)
        if not text:
            return None, NO_ANSWER
        if self._count(said) > prompt.size:
            return self._clean(text, min(self.tokens, prompt.size)), LONG_ANSWER
        return text, ""

    def join(self, first: str, second: str) -> str:
        """Two summaries one after the other, each in half of the tokens."""
        half = max(1, self.tokens // 2 - 1)
        return "\n\n".join(filter(None, (self._clean(part, half) for part in (first, second))))

    def finish(self, text: str) -> tuple[str, tuple[str, ...]]:
        """A model's words with their notes, and the notes alone."""
        return self._with_notes(text, self._notes + self._parts.notes)

    def finish_without_model(self) -> tuple[str, tuple[str, ...]]:
        """The summary from the messages' own words, with its notes, and the notes alone."""
        text = self._words
        if self.has_messages:
            tokens = self._task.tokens
            existing = self._clean(self._words, tokens)
            text = fallback(self._task.messages, tokens, self._count, existing)
        return self._with_notes(text, self._notes)

    def _with_notes(self, text: str, notes: Notes) -> tuple[str, tuple[str, ...]]:
        """All in all within what was asked for; notes that would take half of it are told beside
        it.
        """
        beside = 0
        if notes.lines:
            beside = self._count(add_notes("", notes)) + 4
        if beside * 2 > self._task.tokens:
            return self._clean(text, self._task.tokens), notes.lines
        return add_notes(self._clean(text, self._task.tokens - beside), notes), notes.lines

    def _clean(self, text: str, tokens: int) -> str:
        return clean_summary(text, tokens, self._count, self._task.known)
