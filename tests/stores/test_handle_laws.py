"""A marker in scope recalls: whatever is forked, switched, purged or opened again, to the exact
words, and never to others.
"""

import asyncio
import itertools
import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from loom import CannotFit, Loom, Session
from loom.conversation.canonical import from_json
from loom.errors import ChoiceError
from loom.stores.health.doctor import examine
from tests.shared import examples
from tests.stores.history import act, open_loom, select, text

SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
_numbers = itertools.count()


class Mark(Struct, frozen=True):
    """What a handle stood for when its request was made, and the messages that it was cut from."""

    words: str
    nodes: frozenset[tuple[str, str]]


class Weavers:
    """Sessions on shared trees, and what the markers of their requests stood for when they were
    made.
    """

    def __init__(self, address: str, chance: random.Random) -> None:
        self._address, self._chance, self._opened = address, chance, 0
        self.marked: dict[str, dict[str, Mark]] = {}  # by session and handle
        self.loom = self._open()
        self.sessions = [self.loom.new(model="gpt-4o"), self.loom.new()]

    def _open(self) -> Loom:
        self._opened += 1
        return open_loom(self._address, salt=str(self._opened))

    def step(self) -> None:
        what = self._chance.random()
        if what < 0.5:
            act(self.loom, self.sessions, self._chance)
        elif what < 0.9:
            self._prepare(self._chance.choice(self.sessions).refresh())
        elif what < 0.95:
            self.loom.close()
            self.loom = self._open()
            self.sessions = [self.loom.session(session.id) for session in self.sessions]
        else:
            self._purge()

    def _prepare(self, session: Session) -> None:
        sections = [("memory", self._chance.choice(["the long memory ", "other words "]) * 300)]
        if session.cursor is None:
            session.append(text(self._chance, 40))
        with suppress(CannotFit):
            window = self._chance.choice([700, 1200, 3000])
            context = asyncio.run(
                session.prepare(window=window, reserve_output=100, sections=sections)
            )
            found = {handle for item in context.report.items for handle in item.handles}
            for handle in found:
                # of an epoch that goes on, a message may have been purged meanwhile
                with suppress(ChoiceError):
                    mark = Mark(context.recall(handle), self._nodes(session, handle))
                    self.marked.setdefault(session.id, {})[handle] = mark

    def _purge(self) -> None:
        gone = self.sessions.pop(self._chance.randrange(len(self.sessions)))
        gone.refresh().purge()
        self.marked.pop(gone.id, None)
        self.sessions = self.sessions or [self.loom.new()]

    def check(self) -> None:
        known = [session.refresh() for session in self.sessions]
        lost = "SELECT t.id, n.id FROM nodes n JOIN trees t ON t.key = n.tree WHERE n.body IS NULL"
        gone = set(select(self.loom.store.database, lost))
        for session in known:
            for handle, mark in self.marked.get(session.id, {}).items():
                self._check_own(session, handle, mark, gone)
        for session in self._chance.sample(known, min(len(known), 3)):
            for handle, mark in [pair for pairs in self.marked.values() for pair in pairs.items()]:
                with suppress(ChoiceError):
                    assert session.recall(handle) == mark.words

    def _check_own(
        self, session: Session, handle: str, mark: Mark, gone: set[tuple[str, str]]
    ) -> None:
        for recall in (session.recall, self.loom.recall):
            if gone.isdisjoint(mark.nodes):
                assert recall(handle) == mark.words
            else:
                with pytest.raises(ChoiceError, match="purged"):
                    recall(handle)

    def _nodes(self, session: Session, handle: str) -> frozenset[tuple[str, str]]:
        """The messages that a handle stands for, each with its tree."""
        sql = "SELECT data FROM handles WHERE tree = $1 AND handle = $2 AND session = $3"
        ((data,),) = select(
            self.loom.store.database, sql, session.row.tree.key, handle, session.row.key
        )
        found = select(
            self.loom.store.database,
            """SELECT t.id, n.id, p.id FROM nodes n JOIN trees t ON t.key = n.tree
                LEFT JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent""",
        )
        parents = {(tree, name): parent for tree, name, parent in found}
        made: set[tuple[str, str]] = set()
        for first, last in from_json(data).get("nodes", ()):
            tree, _, name = last.rpartition("/")
            made.add((tree or session.row.tree.id, name))
            while name != first.rpartition("/")[2]:
                name = parents[tree or session.row.tree.id, name]
                made.add((tree or session.row.tree.id, name))
        return frozenset(made)


@settings(SETTINGS, max_examples=examples(18))
@given(seed=st.integers(0, 10**9), steps=st.integers(5, 40))
def test_a_marker_in_scope_recalls_the_exact_words_and_never_others(
    tmp_path: Path, seed: int, steps: int
) -> None:
    file = tmp_path / f"{next(_numbers)}.db"
    weavers = Weavers(str(file), random.Random(seed))
    for _ in range(steps):
        weavers.step()
    weavers.check()
    assert list(examine(weavers.loom.store)) == []
    with open_loom(str(file), project="other") as other:
        for handle in [handle for pairs in weavers.marked.values() for handle in pairs]:
            with pytest.raises(ChoiceError, match="nothing was left out"):
                other.recall(handle)
    weavers.loom.close()
