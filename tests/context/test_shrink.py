"""Shrinking: the words behind a handle are words that somebody said, never a marker of ours."""

import re

from loom.budget.counting import Counter
from loom.budget.profiles import profile
from loom.context.handles import Archive
from loom.context.shorten.shrink import smallest
from loom.conversation.canonical import to_json
from loom.conversation.message import Message, Reasoning, Text


def test_texts_beside_reasoning_come_back_without_the_marker_that_stands_for_it() -> None:
    texts = ("first word " * 200, "second word " * 200)
    message = Message(
        "assistant", (Reasoning("hm", origin="anthropic", signature="c2ln"), *map(Text, texts))
    )
    archive = Archive()
    [made] = smallest((message,), 0, Counter(profile("o200k_base")), archive)
    handles = re.findall(r"~[a-z2-7]{12}", made.text)
    assert [archive.recall(handle) for handle in handles] == [to_json(message), "\n".join(texts)]
