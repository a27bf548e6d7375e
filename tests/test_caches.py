"""What is kept between requests: within a limit in bytes, and gone when its owner lets go."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from loom import Conversation, Loom, Message, Text, weave
from loom.budget.counting import Counter
from loom.budget.profiles import profile_for
from loom.context.caches import SHARED, Caches
from loom.context.options import check_options
from loom.context.weaving import build
from loom.conversation.growing import message_bytes

SECRET = "hunter2-is-the-secret-word"


def texts_held(root: object) -> Iterator[str]:
    """All texts that an object leads to, code and types aside."""
    passed, waiting = {id(root)}, [root]
    while waiting:
        for held in gc.get_referents(waiting.pop()):
            if isinstance(held, str):
                yield held
            elif (
                id(held) not in passed
                and not isinstance(held, type)
                and type(held).__name__ not in ("function", "module")
            ):
                passed.add(id(held))
                waiting.append(held)


def holders_of(words: str) -> list[str]:
    """The kinds of all objects in this process that hold a text with these words; this module and
    what runs aside.
    """
    gc.collect()
    found = []
    for each in gc.get_objects():
        if type(each).__name__ in ("frame", "cell") or each is globals():
            continue
        for held in gc.get_referents(each):
            if isinstance(held, str) and words in held:
                found.append(type(each).__name__)
    return found


def chat(words: str, turns: int = 40) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for number in range(turns):
        said.append(
            {
                "role": "user",
                "content": f"Question {number} about src/part_{number}.py: {words} {number}. "
                + "why " * 150,
            }
        )
        said.append(
            {"role": "assistant", "content": f"I changed src/part_{number}.py because of {words}."}
        )
    return said


def test_a_counter_remembers_no_words() -> None:
    counter = Counter(profile_for("gpt-4o"))
    message = Message("user", (Text(SECRET * 3),))
    assert counter.count_message(message) == counter.count_message(message) > 3
    assert not [text for text in texts_held(counter) if SECRET in text]


def test_caches_hold_words_until_they_are_cleared() -> None:
    caches = Caches()
    assert not [text for text in texts_held(caches) if SECRET in text]
    SHARED.clear()
    weave(chat(SECRET), model="gpt-4o", window=4000, reserve_output=500)
    assert [text for text in texts_held(SHARED) if SECRET in text], (
        "else the next lines prove nothing"
    )
    SHARED.clear()
    assert not [text for text in texts_held(SHARED) if SECRET in text]


def use_a_store(purge: bool) -> None:
    loom = Loom.open(":memory:")
    session = loom.new()
    for message in chat(SECRET):
        session.append(message)
    for _ in range(3):
        context = asyncio.run(session.prepare(model="gpt-4o", window=4000, reserve_output=500))
        assert context.report.dropped
        session.append("And now?")
    if purge:
        session.purge()
        del session, context, message
        assert not [text for text in texts_held(loom) if SECRET in text]
    loom.close()


def test_a_purge_and_a_close_let_go_of_all_words() -> None:
    for purge in (True, False):
        use_a_store(purge)
        assert holders_of(SECRET) == []


def test_what_is_kept_takes_no_more_than_its_limit_in_bytes() -> None:
    """Ten histories of 100,000 bytes, of which caches for 500,000 keep a few."""
    limit = 500_000
    asked = check_options(model="gpt-4o", window=4000, reserve_output=500)

    def build_one(number: int, caches: Caches) -> None:
        said = [Message("user", (Text(f"{number} {turn} " + "word " * 800),)) for turn in range(25)]
        context = build(Conversation(messages=tuple(said)), replace(asked, caches=caches), (), None)
        assert context.report.dropped

    build_one(-1, Caches(limit))  # what the first call loads is not measured
    caches = Caches(limit)
    tracemalloc.start()
    for number in range(10):
        build_one(number, caches)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2 * limit, f"{held:,} bytes"


def test_the_size_of_a_message_is_near_what_it_takes() -> None:
    small, large = Message("user", (Text("a"),)), Message("user", (Text("a" * 10_000),))
    assert message_bytes(large) - message_bytes(small) == 9_999
    assert message_bytes(Message("user", (Text("字" * 10_000),))) >= 20_000
