"""A long random history in a store, by everything that a session can do; the same one for the same number."""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from loom import CannotFit, Loom, Session
from loom.conversation.canonical import to_json
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.errors import ChoiceError
from loom.stores.database import Database

WORDS = ["der", "Faden", "läuft", "über", "unter", "糸", "織る", "weft", "warp", "shuttle", "reed", "heddle", "ñ", "🧵", "tension"]


def open_loom(address: str, salt: str = "", **scope: str) -> Loom:
    """A store with a clock that ticks, and ids that are the same every time for the same salt and scope."""
    ticks = itertools.count(1_700_000_000_000)
    ids = itertools.count(random.Random(to_json([salt, scope])).randrange(10**9) * 1000)
    return Loom.open(address, now=lambda: next(ticks), fresh_id=lambda: f"s{next(ids):015}", **scope)


def text(chance: random.Random, length: int = 0) -> str:
    return " ".join(chance.choices(WORDS, k=length or chance.choice([1, 5, 40, 400])))


def exchange(chance: random.Random) -> list[Message]:
    """A request and what came of it."""
    said = [Message("user", (Text(text(chance)),))]
    if chance.random() < 0.5:
        call = ToolCall(f"call_{chance.randrange(10**6)}", "read", to_json({"path": text(chance, 1)}))
        said.append(Message("assistant", (Text("I look."), call)))
        said.append(Message("tool", (ToolResult(call.id, (Text(text(chance)),)),)))
    said.append(Message("assistant", (Text(text(chance)),)))
    return said


def answer(chance: random.Random) -> dict[str, Any]:
    """What a provider answers; now and then without an id, or the same again."""
    number = chance.randrange(50)
    usage = {"prompt_tokens": 100 + number, "completion_tokens": number, "prompt_tokens_details": {"cached_tokens": number}}
    said = {"role": "assistant", "content": f"answer {number}"}
    made = {"model": "gpt-4o", "choices": [{"index": 0, "message": said}], "usage": usage}
    return made | {"id": f"chat-{number}"} if number % 5 else made


def act(loom: Loom, sessions: list[Session], chance: random.Random) -> None:
    """One thing that may happen to one of the sessions."""
    session = chance.choice(sessions)
    does: list[Callable[[], object]] = [
        lambda: session.append(*exchange(chance)),
        lambda: session.append(*exchange(chance)),
        lambda: session.append("the same words", generation=chance.choice(["", "again"])),
        lambda: session.append(Message("system", (Text(text(chance, 3)),)), *exchange(chance)),
        lambda: prepare(session, chance),
        lambda: prepare(session, chance),
        lambda: session.absorb(answer(chance)) if session.cursor else None,
        lambda: session.absorb(answer(chance)) if session.cursor else None,
        lambda: sessions.append(session.fork(at=chance.choice(list(session.path)).id if session.cursor else None)),
        lambda: switch(loom, session, chance),
        lambda: session.change(title=text(chance, 2), system=text(chance, 5)),
        lambda: sessions.append(loom.new(model="gpt-4o", system="You weave.")),
    ]
    try:
        chance.choice(does)()
    except ChoiceError as error:  # somebody says again what was purged
        if "a purge is final" not in str(error):
            raise


def switch(loom: Loom, session: Session, chance: random.Random) -> None:
    """To any node of the tree, of whatever session."""
    rows = select(
        session._store.database, "SELECT id FROM nodes WHERE tree = $1 AND body IS NOT NULL ORDER BY id", session.row.tree.key
    )
    if rows:
        session.switch(chance.choice(rows)[0])


def prepare(session: Session, chance: random.Random) -> None:
    """Windows small enough that something has to go."""
    if session.cursor:
        with suppress(CannotFit):
            asyncio.run(session.prepare(window=chance.choice([700, 1200, 3000]), reserve_output=100))


def live(loom: Loom, seed: int, steps: int, purges: int = 0) -> list[Session]:
    """A history of so many steps; the sessions that are left."""
    chance = random.Random(seed)
    sessions = [loom.new(model="gpt-4o", system="You weave."), loom.new()]
    for step in range(steps):
        act(loom, sessions, chance)
        if purges and step % (steps // purges) == steps // purges - 1:
            sessions.pop(chance.randrange(len(sessions))).purge()
            sessions = sessions or [loom.new()]
    return [session.refresh() for session in sessions]


def select(database: Database, sql: str, *values: Any) -> list[Any]:
    with database.read() as reader:
        return reader.all(sql, *values)


def change(database: Database, sql: str, *values: Any) -> None:
    with database.write() as writer:
        writer.all(sql, *values)
