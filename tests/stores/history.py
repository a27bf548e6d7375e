"""A long random history in a store, by everything that a session can do; the same one for the same
number.
"""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from loom import CannotFit, Loom, Session
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.conversation.tree import Preferences, Reference, TreeHead
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError, Conflict
from loom.providers.scripted import ScriptedModel
from loom.stores.sql.database import Database

WORDS = [
    "der",
    "Faden",
    "läuft",
    "über",
    "unter",
    "糸",
    "織る",
    "weft",
    "warp",
    "shuttle",
    "reed",
    "heddle",
    "ñ",
    "🧵",
    "tension",
]


def open_loom(address: str, salt: str = "", **scope: str) -> Loom:
    """A store with a clock that ticks, and ids that are the same every time for the same salt and
    scope.
    """
    ticks = itertools.count(1_700_000_000_000)
    ids = itertools.count(random.Random(to_json([salt, scope])).randrange(10**9) * 1000)
    return Loom.open(
        address, now=lambda: next(ticks), fresh_id=lambda: f"s{next(ids):015}", **scope
    )


def text(chance: random.Random, length: int = 0) -> str:
    return " ".join(chance.choices(WORDS, k=length or chance.choice([1, 5, 40, 400])))


def exchange(chance: random.Random) -> list[Message]:
    """A request and what came of it."""
    said = [Message("user", (Text(text(chance)),))]
    if chance.random() < 0.5:
        call = ToolCall(
            f"call_{chance.randrange(10**6)}", "read", to_json({"path": text(chance, 1)})
        )
        said.append(Message("assistant", (Text("I look."), call)))
        said.append(Message("tool", (ToolResult(call.id, (Text(text(chance)),)),)))
    said.append(Message("assistant", (Text(text(chance)),)))
    return said


def answer(chance: random.Random) -> dict[str, Any]:
    """What a provider answers; now and then without an id, or the same again."""
    number = chance.randrange(50)
    usage = {
        "prompt_tokens": 100 + number,
        "completion_tokens": number,
        "prompt_tokens_details": {"cached_tokens": number},
    }
    said = {"role": "assistant", "content": f"answer {number}"}
    made = {"model": "gpt-4o", "choices": [{"index": 0, "message": said}], "usage": usage}
    return made | {"id": f"chat-{number}"} if number % 5 else made


def act(loom: Loom, sessions: list[Session], chance: random.Random) -> None:
    """One thing that may happen to one of the sessions, or to the tree that it stands on."""
    session = chance.choice(sessions).refresh()
    if chance.random() < 0.4:
        act_on_tree(loom, sessions, session, chance)
        return
    does: list[Callable[[], object]] = [
        lambda: session.append(*exchange(chance)),
        lambda: session.append(*exchange(chance)),
        lambda: session.append("the same words", generation=chance.choice(["", "again"])),
        lambda: session.append(Message("system", (Text(text(chance, 3)),)), *exchange(chance)),
        lambda: prepare(session, chance),
        lambda: prepare(session, chance),
        lambda: session.absorb(answer(chance)) if session.cursor else None,
        lambda: session.absorb(answer(chance)) if session.cursor else None,
        lambda: sessions.append(
            session.fork(at=chance.choice(list(session.path)).id if session.cursor else None)
        ),
        lambda: switch(loom, session, chance),
        lambda: session.change(title=text(chance, 2), system=text(chance, 5)),
        lambda: under_pressure(session, chance),
        lambda: sessions.append(loom.new(model="gpt-4o", system="You weave.")),
    ]
    try:
        chance.choice(does)()
    except ChoiceError as error:  # somebody says again what was purged
        if "a purge is final" not in str(error):
            raise


def act_on_tree(
    loom: Loom, sessions: list[Session], session: Session, chance: random.Random
) -> None:
    """One thing that may happen to a tree, by the session's agent or by Ann."""
    tree, names = loom.tree(session.row.tree.id), living(session)
    if not names:
        session.append(*exchange(chance))
        return
    node, other = chance.choice(names), chance.choice(names)
    does: list[Callable[[str], object]] = [
        lambda agent: tree.annotate(node, text(chance, 3), agent=agent),
        lambda agent: tree.exclude(
            tree.annotate(node, text(chance, 3), agent=agent).id, on=False, agent=agent
        ),
        lambda agent: tree.edit(node, text(chance, 4), agent=agent),
        lambda agent: tree.edit(node, text(chance, 400), agent=agent),
        lambda agent: tree.exclude(node, on=chance.random() < 0.7, agent=agent),
        lambda agent: (
            tree.prune(node, agent=agent)
            if chance.random() < 0.3
            else tree.restore(node, agent=agent)
        ),
        lambda agent: tree.bookmark(node, text(chance, 2), on=chance.random() < 0.8, agent=agent),
        lambda agent: tree.pin(node, on=chance.random() < 0.5, agent=agent),
        lambda agent: tree.link(
            node, other, text(chance, 1), on=chance.random() < 0.8, agent=agent
        ),
        lambda agent: tree.merge(node, agent=agent, tokens=chance.choice([None, 80])),
        lambda agent: tree.switch(node, agent=agent, leave_digest=True),
        lambda agent: tree.say(
            text(chance),
            agent=agent,
            sources=[Reference(node, chance.choice(["context", "instruction"]))],
        ),
        lambda agent: tree.session(agent).draft(text(chance, 5)),
        lambda agent: loom.act(
            tree.id,
            f'Well.\n→ stash "a" "{text(chance, 3)}"\n→ pin {node}\n→ view {other}',
            agent="",
        ),
        lambda agent: sessions.append(new_document(loom, chance).session(agent)),
        lambda agent: tree.change(description=text(chance, 3), system_context=text(chance, 3)),
        lambda agent: settle(loom, chance),
    ]
    agent = chance.choice([session.row.agent, session.row.agent, "ann"])
    try:
        whose = tree.session(agent)
        if whose.id not in {known.id for known in sessions}:
            sessions.append(whose)
        chance.choice(does)(agent)
    # what is pruned, purged, the same already, overtaken or of another mode is refused
    except (ChoiceError, Conflict):
        pass


def under_pressure(session: Session, chance: random.Random) -> None:
    """What a session does when its window fills."""
    call = ToolCall(
        f"call_{chance.randrange(10**6)}",
        "search_context",
        to_json({"query": chance.choice(WORDS)}),
    )
    model = ScriptedModel.always(text(chance, 5))
    does: list[Callable[[], object]] = [
        lambda: session.set_summary(text(chance, 5)),
        lambda: asyncio.run(session.summarize(model)),
        session.undo,
        lambda: (session.append(Message("assistant", (call,))), session.use(call)),
        lambda: asyncio.run(
            session.prepare(window=2000, model="gpt-4o", overflow="prompt is too long")
        ),
        lambda: asyncio.run(session.prepare(window=1000, model="gpt-4o", policy="partitions")),
        session.resume,
    ]
    with suppress(ChoiceError, CannotFit):  # nothing to sum up, to undo or to ask
        chance.choice(does)()


def living(session: Session) -> list[str]:
    """The nodes of its tree that say something."""
    sql = "SELECT id FROM nodes WHERE tree = $1 AND body IS NOT NULL ORDER BY id"
    return [name for (name,) in select(session._store.database, sql, session.row.tree.key)]


def new_document(loom: Loom, chance: random.Random) -> LoomTree:
    """A tree in buffer mode that says something."""
    tree = loom.new_tree(
        text(chance, 2), head=TreeHead(mode="buffer", system_context=text(chance, 2))
    )
    for _ in range(3):
        tree.say(text(chance))
    tree.edit(chance.choice(living(tree.session())), text(chance, 3))
    return tree


def settle(loom: Loom, chance: random.Random) -> None:
    loom.keep_agent(Agent(name=chance.choice(["ann", "bob"]), system_prompt=text(chance, 3)))
    loom.prefer(Preferences(token_buffer=chance.randrange(100)))


def switch(loom: Loom, session: Session, chance: random.Random) -> None:
    """To any node of the tree, of whatever session."""
    names = living(session)
    if names:
        session.switch(chance.choice(names))


def prepare(session: Session, chance: random.Random) -> None:
    """Windows small enough that something has to go."""
    if session.cursor:
        with suppress(CannotFit):
            asyncio.run(
                session.prepare(window=chance.choice([700, 1200, 3000]), reserve_output=100)
            )


def live(loom: Loom, seed: int, steps: int, purges: int = 0) -> list[Session]:
    """A history of so many steps; the sessions that are left."""
    chance = random.Random(seed)
    sessions = [loom.new(model="gpt-4o", system="You weave."), loom.new()]
    settle(loom, chance)
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
