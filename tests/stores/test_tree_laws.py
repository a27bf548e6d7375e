"""Whatever is pruned, excluded, versioned, forked or merged: what is assembled keeps the laws, and
the doctor is content.

A second, plain reading of the same steps says what a path must show; where all of it fits, the two
are the same.
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from loom import CannotFit, Context, Loom
from loom.conversation.agents import Agent
from loom.conversation.tree import Mode, Reference, TreeHead
from loom.dialects import dialect
from loom.engine.session_state import STATE_KINDS
from loom.engine.trees import LoomTree, preferred_policy
from loom.errors import ChoiceError
from loom.stores.health.doctor import examine
from loom.stores.sessions import Scope
from loom.stores.store import Store
from tests.shared import examples

SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
_numbers = itertools.count()
WIDE = 200_000


class Leaf(Struct):
    """What is known of a node by who wrote it."""

    id: str
    parent: str
    role: str
    text: str
    edge: str = "continuation"
    edited_from: str = ""
    sources: tuple[Reference, ...] = ()
    excluded: bool = False
    included: bool = False
    pruned: bool = False


class Grove:
    """A tree, and a plain reading of what was done to it."""

    def __init__(self, loom: Loom, mode: Mode) -> None:
        self.loom, self.mode = loom, mode
        self.tree = loom.new_tree(
            "laws",
            head=TreeHead(
                mode=mode, system_context="The tree's own words.", buffer_mode_system_context=True
            ),
        )
        self.leaves: dict[str, Leaf] = {}
        self.chosen: dict[str, str] = {}
        self.words = itertools.count()

    # Doing

    def text(self, length: int) -> str:
        word = f"w{next(self.words):04}"
        return f"{word} " + "warp and weft " * length

    def say(self, share: float, length: int, asks: bool) -> None:
        name = self._any(share)
        if not self._refused(name):
            self._note(
                self.tree.say(self.text(length), after=name, role="user" if asks else "assistant")
            )

    def _refused(self, name: str) -> bool:
        """Behind what is pruned nothing is said, and that is told."""
        if not name or not any(leaf.pruned for leaf in self.path(name)):
            return False
        with pytest.raises(ChoiceError, match="nothing after it is read"):
            self.tree.say("lost", after=name)
        return True

    def edit(self, share: float, length: int) -> None:
        name = self._any(share)
        if name and not self._refused(self.leaves[name].parent):
            old, text = self.leaves[name], self.text(length)
            made = self.tree.edit(name, text)
            # a remark that is edited is still one
            edge = old.edge if self.mode == "dialogue" else "version"
            self._note(made, edge=edge, edited_from=name)
            if edge == "version":
                self.chosen[self._first(old.id)] = made.id

    def annotate(self, share: float) -> None:
        if name := self._any(share):
            self._note(self.tree.annotate(name, self.text(1)), edge="annotation")

    def source(self, share: float, other: float, role: str) -> None:
        name = self._any(share)
        if name and not self._refused(name):
            sources = (Reference(self._any(other) or name, role),)  # type: ignore[arg-type]
            self._note(self.tree.say(self.text(2), after=name, sources=sources), sources=sources)

    def exclude(self, share: float, on: bool) -> None:
        if name := self._any(share):
            leaf = self.leaves[name]
            self.tree.exclude(name, on=on)
            if leaf.edge == "annotation":
                leaf.included, leaf.excluded = not on, False
            else:
                leaf.excluded = on

    def prune(self, share: float, on: bool) -> None:
        if name := self._any(share):
            try:
                (self.tree.prune if on else self.tree.restore)(name)
                self.leaves[name].pruned = on
            except ChoiceError as error:
                assert "was pruned with" in str(error)  # noqa: PT017

    def merge(self, share: float, other: float) -> None:
        into, found = self._any(share), self._any(other)
        if into and found and not self._refused(into):
            try:
                self._note(self.tree.merge(found, into=into))
            except ChoiceError as error:
                assert re.search(("is on the path to|nothing to summarize"), str(error))  # noqa: PT017

    def mark(self, share: float, label: str) -> None:
        if name := self._any(share):
            self.tree.bookmark(name, label)
            self.tree.pin(name)

    def restart(self) -> None:
        self.tree = self.loom.tree(self.tree.id)

    def _any(self, share: float) -> str:
        names = list(self.leaves)
        return names[int(share * (len(names) - 1))] if names else ""

    def _note(self, node: Any, **more: Any) -> None:
        if node.id not in self.leaves:
            parent = (
                self.tree.read([node.parent])[node.parent].id if node.parent is not None else ""
            )
            self.leaves[node.id] = Leaf(node.id, parent, node.role, node.message.text, **more)

    # Reading

    def path(self, name: str) -> list[Leaf]:
        found = []
        while name:
            found.append(self.leaves[name])
            name = self.leaves[name].parent
        return found[::-1]

    def _first(self, name: str) -> str:
        while self.leaves[name].edge == "version":
            name = self.leaves[name].edited_from
        return name

    def shown(self, name: str) -> tuple[list[tuple[str, str]], list[str]]:
        """What the path to a node says, by a plain reading; and instructions."""
        path = self.path(name)
        gone = next((n for n, leaf in enumerate(path) if leaf.pruned), len(path))
        path = path[:gone]
        here = {leaf.id for leaf in path if not self._hidden(leaf)}
        # by place: references before, the node, remarks behind
        said: list[tuple[int, int, str, str]] = []
        instructions: list[str] = []
        taken: set[str] = set()
        for depth, leaf in enumerate(path):
            if not self._hidden(leaf):
                for role in ("instruction", "context"):
                    for source in leaf.sources:
                        found = self.leaves[source.node]
                        away = found.excluded or any(above.pruned for above in self.path(found.id))
                        if source.role != role or found.id in taken or away:
                            continue
                        taken.add(found.id)
                        if role == "instruction":
                            instructions.append(found.text)
                        elif found.id not in here:
                            said.append((max(depth - 1, 0), 0, found.role, found.text))
                standing = self._version(leaf)
                if standing is not None:
                    said.append((depth, 1, standing.role, standing.text))
            remarks = [
                other
                for other in self.leaves.values()
                if other.edge == "annotation" and other.parent == leaf.id
            ]
            following = path[depth + 1].id if depth + 1 < len(path) else ""
            said += [
                (depth, 2, other.role, other.text)
                for other in remarks
                if other.included and not (other.pruned or other.excluded) and other.id != following
            ]
        return [
            (role, text) for *_, role, text in sorted(said, key=lambda each: each[:2])
        ], instructions

    @staticmethod
    def _hidden(leaf: Leaf) -> bool:
        return leaf.excluded or (leaf.edge == "annotation" and not leaf.included)

    def _version(self, leaf: Leaf) -> Leaf | None:
        if self.mode == "dialogue":
            return leaf
        versions = [
            v
            for v in self.leaves.values()
            if v.edge == "version" and not v.pruned and self._first(v.id) == leaf.id
        ]
        if not versions or self.chosen.get(leaf.id) == leaf.id:
            return leaf
        chosen = next((v for v in versions if v.id == self.chosen.get(leaf.id)), versions[-1])
        return None if chosen.excluded else chosen

    def expected(self, name: str) -> tuple[list[tuple[str, str]], str]:
        """What is sent where everything fits: neighbours of one author are one, or all of it is one
        text.
        """
        said, instructions = self.shown(name)
        system = "\n\n".join(["The tree's own words.", *instructions])
        if self.mode == "buffer":
            return [("user", "".join(text for _, text in said))], system
        merged: list[tuple[str, str]] = []
        for role, text in said:
            if merged and merged[-1][0] == role:
                merged[-1] = (role, f"{merged[-1][1]}\n\n{text}")
            else:
                merged.append((role, text))
        return merged, system


@pytest.fixture
def looms(address: str) -> Iterator[Callable[[], Loom]]:
    """Each is a tenant of its own in one store, with a clock and ids that are the same every
    time.
    """
    store = Store(address, STATE_KINDS)

    def make() -> Loom:
        ticks, ids = itertools.count(1_700_000_000_000), itertools.count()
        scope = Scope(f"tenant {next(_numbers)}")
        return Loom(store, scope, lambda: next(ticks), lambda: f"tree{next(ids):06}")

    yield make
    store.close()


shares = st.floats(0, 1)
lengths = st.sampled_from([1, 5, 60])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.just(1.0), lengths, st.booleans()),
        st.tuples(st.just("say"), st.just(1.0), lengths, st.booleans()),
        st.tuples(st.just("say"), shares, lengths, st.booleans()),
        st.tuples(st.just("edit"), shares, lengths),
        st.tuples(st.just("annotate"), shares),
        st.tuples(st.just("source"), shares, shares, st.sampled_from(["context", "instruction"])),
        st.tuples(st.just("exclude"), shares, st.booleans()),
        st.tuples(st.just("prune"), shares, st.booleans()),
        st.tuples(st.just("merge"), shares, shares),
        st.tuples(st.just("mark"), shares, st.sampled_from(["", "gold", "织"])),
        st.just(("restart",)),
    ),
    min_size=4,
    max_size=24,
)


def grown(looms: Callable[[], Loom], mode: Mode, done: list[tuple[Any, ...]]) -> Grove:
    grove = Grove(looms(), mode)
    for name, *values in done:
        getattr(grove, name)(*values)
    return grove


def woven(tree: LoomTree, **wishes: Any) -> Context | None:
    try:
        return asyncio.run(tree.prepare(model="gpt-4o", **wishes))
    except CannotFit:
        return None
    except ChoiceError as error:
        assert "has no messages yet" in str(error)  # noqa: PT017
        return None


def words(text: str) -> set[str]:
    return set(re.findall(r"\bw\d{4}\b", text))


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
@given(done=steps)
@settings(SETTINGS, max_examples=examples(14))
def test_where_everything_fits_a_path_shows_what_a_plain_reading_does(
    looms: Any, mode: Mode, done: list[tuple[Any, ...]]
) -> None:
    grove = grown(looms, mode, done)
    for name in list(grove.leaves)[-4:]:
        expected, system = grove.expected(name)
        context = woven(grove.tree, at=name, window=WIDE)
        if context is None:
            assert not any(text for _, text in expected)
            continue
        assert [
            (message.role, message.text) for message in context.conversation.messages
        ] == expected
        assert "\n\n".join(message.text for message in context.conversation.system) == system


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
@given(
    done=steps,
    window=st.sampled_from([350, 700, 1500]),
    chosen=st.sampled_from(["tree", "rolling_window", "default"]),
)
@settings(SETTINGS, max_examples=examples(14))
def test_in_a_small_window_the_laws_hold(
    looms: Any, mode: Mode, done: list[tuple[Any, ...]], window: int, chosen: str
) -> None:
    from loom.conversation.tree import Preferences

    grove = grown(looms, mode, done)
    policy = (
        preferred_policy(Preferences("rolling_window")) if chosen == "rolling_window" else chosen
    )
    for name in list(grove.leaves)[-3:]:
        expected, system = grove.expected(name)
        wishes = {"at": name, "window": window, "reserve_output": 50, "policy": policy}
        context = woven(grove.tree, **wishes)
        if context is None:
            continue
        report = context.report
        assert report.input_tokens <= window - 50, "it fits"
        for wire in ("openai", "responses", "anthropic"):
            assert [
                f for f in dialect(wire).check(context.render(wire)) if f.level == "error"
            ] == [], "it is whole"
        assert "\n\n".join(message.text for message in context.conversation.system) == system, (
            "system text is never cut"
        )
        allowed = words("".join(text for _, text in expected)) | words(system)
        sent = words("".join(message.text for message in context.conversation.messages))
        assert sent <= allowed, "nothing comes in that is hidden, or on another branch"
        recalled: set[str] = set()
        for item in report.items:
            for handle in item.handles:
                recalled |= words(context.recall(handle))
                assert grove.tree.session().recall(handle) == context.recall(handle)
        assert recalled <= allowed, "nor is it recalled"
        assert sent | recalled >= words("".join(text for _, text in expected)), "nothing is lost"
        again = woven(grove.tree, **wishes)
        assert again is not None
        assert again.render("openai") == context.render("openai"), "it is the same every time"


@given(
    mode=st.sampled_from(["dialogue", "buffer"]),
    done=steps,
    more=steps,
    window=st.sampled_from([700, 2000]),
)
@settings(SETTINGS, max_examples=examples(12))
def test_between_epochs_a_request_only_grows(
    looms: Any, mode: Mode, done: list[tuple[Any, ...]], more: list[tuple[Any, ...]], window: int
) -> None:
    """Law 5: the request before without its tail, plus what is new; or the report names an
    epoch.
    """
    grove = grown(looms, mode, done)
    # by epoch: who comes back to a branch goes on with what was sent of it
    last: dict[int, Context] = {}
    for step in ((), *more):
        if step:
            getattr(grove, step[0])(*step[1:])
        context = woven(grove.tree, window=window, reserve_output=50, policy="default")
        if context is None:
            continue
        number = context.report.epoch
        assert (context.report.epoch_reason == "continued") == (number in last)
        if number in last:
            before = last[number]
            assert context.conversation.system == before.conversation.system
            if mode == "buffer":
                assert context.document().startswith(before.document())
            else:
                assert (
                    context.conversation.messages[: len(before.conversation.messages)]
                    == before.conversation.messages
                )
        last[number] = context


@given(mode=st.sampled_from(["dialogue", "buffer"]), done=steps)
@settings(SETTINGS, max_examples=examples(10))
def test_the_doctor_is_content_and_a_tree_goes_out_as_it_came(
    looms: Any, mode: Mode, done: list[tuple[Any, ...]]
) -> None:
    grove = grown(looms, mode, done)
    woven(grove.tree, window=700, reserve_output=50)
    assert list(examine(grove.loom.store)) == []
    told = grove.loom.export_tree(grove.tree.id)
    assert len(told.nodes) == len(grove.leaves)
    other = looms()
    copy, made = other.import_tree(told)
    assert made == len(told.nodes)
    assert other.export_tree(copy.id) == told
    assert list(examine(other.store)) == []
    assert other.import_tree(told)[1] == 0, "brought again, nothing is new"


def test_an_agents_headers_show_nothing_of_other_branches(looms: Any) -> None:
    grove = Grove(looms(), "dialogue")
    for share in (1.0, 1.0, 0.0, 1.0):
        grove.say(share, 1, True)
    grove.loom.keep_agent(Agent(name="bot", permissions=("loom_aware",)))
    name = list(grove.leaves)[1]
    context = woven(grove.tree, at=name, agent="bot")
    assert context is not None
    allowed = words("".join(text for _, text in grove.expected(name)[0]))
    assert words("".join(message.text for message in context.conversation.messages)) == allowed
