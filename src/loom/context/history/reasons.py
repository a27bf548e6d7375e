"""Why an epoch began, or goes on: a cause with its figures. The sentence for people is made of it
where a report is written; programs ask for the cause.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Cause = Literal[
    "alone",
    "continued",
    "first",
    "pruned",
    "head",
    "tools_loaded",
    "tool_called",
    "history",
    "before_request",
    "pin",
    "compacted",
    "larger_window",
    "no_room",
    "room",
    "formula",
    "eviction",
    "pays",
    "rung",
    "renewed",
    "gate",
    "refused",
    "summary_written",
    "other_summary",
    "other_project",
    "no_project",
    "marks",
    "shorter_path",
    "arrived",
    "undone",
]

_SENTENCES: Mapping[Cause, str] = {
    "alone": "each call is its own",
    "continued": "continued",
    "first": "the first request on this path",
    "pruned": "what is pruned changed",
    "head": "system text, tools, sections, model or policy changed",
    "tools_loaded": "find_tools loaded {names}",
    "tool_called": "a tool was called that the request left out: {names}",
    "history": "the history changed before its end",
    "before_request": "the sections before the request changed, or there is another request",
    "pin": "a pin changed",
    "compacted": "the provider compacted what came before",
    "larger_window": "the window grew from {before:,} to {now:,} tokens; left-out text may return",
    "no_room": "what must be next to the history leaves no room for it",
    "room": "{tokens:,} tokens no longer fit {room:,}",
    "formula": "{tokens:,} tokens by the policy's own counter no longer fit {room:,}",
    "eviction": "by its own counter {policy} leaves out more",
    "pays": "it pays: about {saved:,} tokens less in each call, {recached:,} cached again",
    "rung": "pressure {pressure:.2f}: {rung}",
    "renewed": "pressure {pressure:.2f}: renewed",
    "gate": "the ladder does not reach; the gate decides",
    "refused": "the provider refused the last request as too long",
    "summary_written": "a summary was written",
    "other_summary": "there is another summary",
    "other_project": "another project is mapped",
    "no_project": "the project was forgotten, or its folder is gone",
    "marks": "the nodes that are excluded, included, edited or merged have changed",
    "shorter_path": "the path now ends before what the last request showed",
    "arrived": "about {tokens:,} tokens have come since, too many to append",
    "undone": "the last epoch was undone, and the one before it continues",
}


class EpochReason(Struct, frozen=True):
    """Why an epoch began, or goes on, with the figures that its sentence names."""

    cause: Cause
    figures: Mapping[str, int | float | str] = {}

    @property
    def sentence(self) -> str:
        """The reason for people."""
        return _SENTENCES[self.cause].format(**self.figures)


ALONE = EpochReason("alone")
CONTINUED = EpochReason("continued")
