"""The decision graph: what is logged, linked, superseded, and who sees it."""

import asyncio
import random
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loom import ChoiceError, Conflict, Loom
from loom.engine.decisions import ProjectDecisions
from loom.stores.health.doctor import examine

DAY = 86_400_000
COMMIT = "4fd1c2e9a7b0"


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loom(address: str, clock: Clock) -> Iterator[Loom]:
    with Loom.open(address, now=clock) as opened:
        yield opened


def titles(decisions: list[Any]) -> list[str]:
    return [each.title for each in decisions]


def problems(loom: Loom) -> list[Any]:
    return [problem for problem in examine(loom.store) if not problem.note]


def test_what_is_logged_again_is_found(loom: Loom) -> None:
    decisions = loom.new().decisions
    first = decisions.log("Use JWT", confidence=85)
    again = decisions.log(" use  jwt ", commits=[COMMIT.upper()])
    assert again.id == first.id
    assert (again.confidence, again.commits) == (85, (COMMIT,))
    assert decisions.log("Use JWT", kind="option").id != first.id
    assert loom.new().decisions.log("Use JWT").id != first.id, "another session decided it too"
    assert problems(loom) == []


def test_an_active_goal_is_found_by_its_title_in_the_whole_project(loom: Loom) -> None:
    goal = loom.new().decisions.log("Add authentication", kind="goal", description="to the API")
    same = loom.new().decisions.log("ADD authentication", kind="goal")
    assert (same.id, same.description) == (goal.id, "to the API")
    loom.decisions.abandon(goal.id, "not needed")
    later = loom.decisions.log("Add authentication", kind="goal")
    assert later.id != goal.id
    assert titles(loom.decisions.active_goals()) == ["Add authentication"]
    assert problems(loom) == []


def test_what_was_given_up_can_be_logged_again(loom: Loom) -> None:
    decisions = loom.decisions
    first = decisions.log("Cache in memory")
    decisions.abandon(first.id, "too large")
    second = decisions.log("Cache in memory")
    assert (second.status, second.generation) == ("active", 1)
    assert decisions.decision(first.id).metadata == {"abandoned_because": "too large"}
    assert decisions.log("Cache in memory").id == second.id
    assert problems(loom) == []


def test_lists_are_what_requests_need(loom: Loom) -> None:
    session = loom.new()
    decisions = session.decisions
    goal = decisions.log("Add authentication", kind="goal", confidence=85)
    jwt = decisions.log("Use JWT", parent=goal.id)
    cookies = decisions.log("Use cookies", kind="option", parent=goal.id, edge="rejected")
    action = decisions.log("Implement middleware", kind="action", parent=jwt.id[:6])
    decisions.log("Tests pass", kind="outcome", parent=action.id)
    assert titles(decisions.active_goals()) == ["Add authentication"]
    assert titles(decisions.recent()) == ["Implement middleware", "Use cookies", "Use JWT"]
    assert titles(decisions.recent(2)) == ["Implement middleware", "Use cookies"]
    assert titles(decisions.own(2)) == ["Implement middleware", "Tests pass"]
    assert titles(loom.decisions.of_session(session.id, 2)) == titles(decisions.own(2))
    decisions.abandon(cookies.id)
    revisit = decisions.log("Is JWT right?", kind="revisit", parent=jwt.id)
    assert titles(decisions.prior()) == [revisit.title, cookies.title]
    edges = {(edge.source, edge.target, edge.kind) for edge in decisions.edges(goal.id)}
    assert edges == {(goal.id, jwt.id, "leads_to"), (goal.id, cookies.id, "rejected")}
    assert titles(decisions.list_all(kind="option", status="abandoned")) == ["Use cookies"]
    assert problems(loom) == []


def test_words_find_a_decision_in_any_script(loom: Loom) -> None:
    decisions = loom.decisions
    decisions.log("Use PostgreSQL for the store", description="because of pgvector")
    decisions.log("认证使用令牌")
    old = decisions.log("Use MySQL for the store")
    decisions.supersede(old.id, decisions.log("Use SQLite for the store").id)
    assert titles(decisions.search("pgvector")) == ["Use PostgreSQL for the store"]
    assert titles(decisions.search("令牌")) == ["认证使用令牌"]
    assert titles(decisions.search("which store?"))[-1] == "Use MySQL for the store"
    assert titles(decisions.search("store", status="superseded")) == ["Use MySQL for the store"]
    assert decisions.search("unheard") == []


@pytest.mark.sqlite_first
def test_a_rare_word_wins_over_common_ones(loom: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.stores.decisions.graph.MAX_HOLDING", 20)
    monkeypatch.setattr(
        "loom.stores.decisions.graph._HOLDING",
        """SELECT t.decision FROM decision_terms t WHERE t.graph = $1 AND t.term = $2
            ORDER BY t.decision DESC LIMIT 21""",
    )
    for number in range(5):
        loom.decisions.log(f"Build zeppelin part {number}")
    for number in range(100):
        loom.decisions.log(f"The {('token cache', 'login queue')[number % 2]} {number}")
    found = loom.decisions.search("How is the zeppelin with the token cache and login queue?", 5)
    assert all("zeppelin" in title for title in titles(found)), titles(found)


def test_a_decision_is_found_by_its_commit_and_its_message(loom: Loom) -> None:
    session = loom.new()
    [node] = session.append("We need tokens")
    made = session.decisions.log("Use JWT", nodes=[node.id], commits=["4fd1c2e9a7b0c0ffee"])
    full = f"{session.row.tree.id}/{node.id}"
    assert made.nodes == (full,)
    assert titles(loom.decisions.list_all(commit="4FD1C2E")) == ["Use JWT"]
    assert titles(loom.decisions.list_all(node=full)) == ["Use JWT"]
    assert loom.decisions.list_all(commit="4fd1c2f") == []
    with pytest.raises(ChoiceError, match="git log"):
        session.decisions.log("Use JWT", commits=["HEAD"])
    with pytest.raises(ChoiceError, match="TREE/ID"):
        loom.decisions.log("Use JWT", nodes=["message 3"])
    with pytest.raises(ChoiceError):
        loom.decisions.log("x", nodes=[f"{session.row.tree.id}/1:{'a' * 32}"])


# Superseding


def test_one_decision_supersedes_another_once(loom: Loom) -> None:
    decisions = loom.decisions
    old, new, other = (decisions.log(name) for name in ("Use cookies", "Use JWT", "Use mTLS"))
    edge = decisions.supersede(old.id[:5], new.id, "cookies need a session")
    assert (edge.source, edge.target, edge.kind) == (old.id, new.id, "supersedes")
    assert decisions.decision(old.id).status == "superseded"
    assert decisions.supersede(old.id, new.id) == edge, "again it is found"
    with pytest.raises(Conflict, match=f"superseded by {new.id}"):
        decisions.supersede(old.id, other.id)
    with pytest.raises(ChoiceError, match="only an active decision"):
        decisions.supersede(new.id, old.id)
    with pytest.raises(ChoiceError, match="itself"):
        decisions.supersede(new.id, new.id)
    assert titles(decisions.recent()) == ["Use mTLS", "Use JWT"]
    assert problems(loom) == []


def test_a_pivot_is_one_chain_or_nothing(loom: Loom) -> None:
    decisions = loom.new().decisions
    old = decisions.log("Use JWT")
    made = decisions.pivot(old.id, "Tokens cannot be revoked", "Use sessions", confidence=70)
    assert made.revisit.title == "Reconsidering: Use JWT"
    kinds = [made.observation.kind, made.revisit.kind, made.decision.kind]
    assert kinds == ["observation", "revisit", "decision"]
    assert made.decision.confidence == 70
    graph = decisions.graph(old.id)
    found = {(edge.source, edge.target, edge.kind) for edge in graph.edges}
    assert found == {
        (old.id, made.observation.id, "leads_to"),
        (made.observation.id, made.revisit.id, "leads_to"),
        (made.revisit.id, made.decision.id, "leads_to"),
        (old.id, made.decision.id, "supersedes"),
    }
    again = decisions.pivot(old.id, "Tokens cannot be revoked", "Use sessions")
    assert again == made, "a retry finds it"
    before = decisions.revision
    with pytest.raises(Conflict):
        decisions.pivot(old.id, "Something else", "Use mTLS")
    with pytest.raises(ChoiceError, match="title"):
        decisions.pivot(made.decision.id, " ", "Use mTLS")
    assert decisions.revision == before
    assert len(decisions.own(50)) == 4
    assert problems(loom) == []


def test_many_writers_lose_nothing_and_one_of_them_supersedes(address: str) -> None:
    with Loom.open(address) as loom:
        old = loom.decisions.log("The old way").id
    outcomes: list[str] = []

    def work(number: int) -> None:
        with Loom.open(address) as loom:
            for turn in range(5):
                loom.decisions.log(f"step {turn} of {number}", kind="action", parent=old)
            new = loom.decisions.log(f"the way of {number}")
            try:
                loom.decisions.supersede(old, new.id)
                outcomes.append("won")
            except Conflict:
                outcomes.append("conflict")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Loom.open(address) as loom:
        assert sorted(outcomes) == ["conflict"] * 3 + ["won"]
        graph = loom.decisions.graph()
        assert len(graph.decisions) == 1 + 4 * 6
        assert len([edge for edge in graph.edges if edge.kind == "leads_to"]) == 20
        assert len([edge for edge in graph.edges if edge.kind == "supersedes"]) == 1
        assert problems(loom) == []


# Confidence


def test_what_depends_on_an_uncertain_decision_is_marked_once(loom: Loom) -> None:
    decisions = loom.decisions
    chain = [decisions.log(f"step {number}") for number in range(8)]
    for before, after in pairwise(chain):
        decisions.link(before.id, after.id, "requires")
    decisions.link(chain[3].id, chain[0].id, "blocks")  # a circle
    beside = decisions.log("beside")
    decisions.link(chain[0].id, beside.id, "leads_to")
    changed = decisions.set_confidence(chain[0].id, 40)
    assert titles(list(changed.uncertain)) == [f"step {number}" for number in range(1, 6)]
    assert decisions.decision(chain[1].id).metadata == {"upstream_uncertainty": True}
    assert not decisions.decision(chain[6].id).is_uncertain, "five edges away at most"
    assert not decisions.decision(beside.id).is_uncertain
    assert decisions.set_confidence(chain[0].id, 30).uncertain == ()
    decisions.set_confidence(chain[2].id, 10)
    cleared = decisions.set_confidence(chain[0].id, 50).certain
    assert titles(list(cleared)) == ["step 2"], "what depends on step 2 stays uncertain"
    cleared = decisions.set_confidence(chain[2].id, None).certain
    assert len(cleared) >= 5
    assert not any(each.is_uncertain for each in decisions.list_all())
    with pytest.raises(ChoiceError, match="from 0 to 100"):
        decisions.set_confidence(chain[0].id, 101)


def test_what_is_linked_later_is_as_uncertain_and_what_is_given_up_holds_nothing_back(
    loom: Loom,
) -> None:
    decisions = loom.decisions
    doubtful = decisions.log("Use a queue", confidence=30)
    below = decisions.log("Write a worker", parent=doubtful.id, edge="requires")
    last = decisions.log("Deploy the worker")
    assert below.is_uncertain
    decisions.link(below.id, last.id, "blocks")
    assert decisions.decision(last.id).is_uncertain
    decisions.abandon(doubtful.id, "too slow")
    assert not any(each.is_uncertain for each in decisions.list_all())
    other = decisions.log("Use a table", confidence=80)
    decisions.link(other.id, last.id, "requires")
    decisions.log("Use a table", confidence=20)
    assert decisions.decision(last.id).is_uncertain
    decisions.pivot(other.id, "It locks", "Use a file")
    assert not decisions.decision(last.id).is_uncertain
    decisions.set_confidence(other.id, 10)
    assert not decisions.decision(last.id).is_uncertain, "what was superseded decides nothing"


@pytest.mark.parametrize("seed", range(4))
def test_a_decision_is_uncertain_if_and_only_if_it_depends_on_a_doubtful_one(
    loom: Loom, seed: int
) -> None:
    dice, decisions = random.Random(seed), loom.decisions
    made = [decisions.log(f"step {number}") for number in range(12)]
    edges: set[tuple[str, str]] = set()
    for _ in range(40):
        one, other = dice.sample(made, 2)
        kind = dice.choice(["link", "link", "doubt", "trust", "abandon"])
        if kind == "link":
            decisions.link(one.id, other.id, dice.choice(["requires", "blocks"]))
            edges.add((one.id, other.id))
        elif kind == "abandon" and dice.random() < 0.3:
            decisions.abandon(one.id)
        elif kind != "abandon":
            decisions.set_confidence(one.id, 20 if kind == "doubt" else 90)
        now = {each.id: each for each in decisions.list_all()}
        doubtful = {
            name
            for name, each in now.items()
            if each.status == "active" and (each.confidence or 100) < 50
        }
        for name, each in now.items():
            above, level = set[str](), {name}
            for _ in range(5):
                level = {source for source, target in edges if target in level}
                above |= level
            assert each.is_uncertain == bool(doubtful & above - {name}), each.title


def test_the_owner_of_an_uncertain_decision_is_notified(address: str) -> None:
    with Loom.open(address, agent="ann") as ann, Loom.open(address, agent="bob") as bob:
        top = ann.decisions.log("Use PostgreSQL")
        below = bob.decisions.log("Use pgvector")
        heard: list[Any] = []
        ann.listen(heard.append)
        ann.decisions.link(top.id, below.id, "requires")
        ann.decisions.set_confidence(top.id, 20)
        changes = [event.what["change"] for event in heard if event.kind == "decided"]
        assert changes == ["linked", "confidence", "uncertain"]
        [event] = bob.bus.query_by_target("bob")
        assert event.action == "decision.uncertain"
        assert event.parameters["decisions"] == [below.id]
        ann.decisions.set_confidence(top.id, 10)
        assert len(bob.bus.query_by_target("bob")) == 1


# Edges


def test_edges_have_rules(loom: Loom) -> None:
    one, two = loom.decisions.log("one"), loom.decisions.log("two")
    with pytest.raises(ChoiceError, match="itself"):
        loom.decisions.link(one.id, one.id)
    loom.decisions.link(one.id, two.id, "requires", rationale="first")
    again = loom.decisions.link(one.id, two.id, "requires", rationale="second", weight=2.0)
    assert (again.rationale, again.weight) == ("second", 2.0)
    loom.decisions.link(two.id, one.id, "requires")
    assert len(loom.decisions.edges(one.id)) == 2, "circles are allowed"
    assert len(loom.decisions.graph(one.id).decisions) == 2
    with pytest.raises(ChoiceError, match="one of leads_to, chosen"):
        loom.decisions.link(one.id, two.id, "leadsto_")  # type: ignore[arg-type]
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ChoiceError):
            loom.decisions.link(one.id, two.id, weight=weight)
    loom.decisions.link(one.id, two.id, "supersedes")
    assert loom.decisions.decision(one.id).status == "superseded"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "descision"}, "the nearest is decision"),
        ({"confidence": -1}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"edge": "lead"}, "leads_to"),
        ({"metadata": [1]}, "metadata"),
        ({"parent": "aaaa"}, "no decision 'aaaa'"),
        ({"description": "x" * 9000}, "description"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    loom: Loom, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ChoiceError, match=named):
        loom.decisions.log("Use JWT", **options)
    assert loom.decisions.list_all() == []
    with pytest.raises(ChoiceError, match="title"):
        loom.decisions.log("x" * 400)
    with pytest.raises(ChoiceError, match="log takes title without a name, found 2 values"):
        loom.decisions.log("goal", "Use JWT")  # type: ignore[misc]


# Scopes


def test_two_projects_and_two_folders_never_see_each_other(address: str) -> None:
    """Random writes in random scopes: each scope has what was written in it, and nothing else."""
    dice = random.Random(7)
    scopes = [
        (tenant, project, folder)
        for tenant in ("t1", "t2")
        for project in ("p1", "p2")
        for folder in ("", "/srv/a", "/srv/a/b")
    ]
    looms = {
        (tenant, project): Loom.open(address, tenant=tenant, project=project)
        for tenant, project, _ in scopes
    }
    written: dict[tuple[str, str, str], set[str]] = {scope: set() for scope in scopes}

    def at(scope: tuple[str, str, str]) -> ProjectDecisions:
        return looms[scope[:2]].decisions.of_folder(scope[2])

    try:
        for number in range(60):
            scope, other = dice.sample(scopes, 2)
            kind = dice.choice(("goal", "decision", "option", "action", "revisit"))
            made = at(scope).log(f"the same words {number % 7}", kind=kind)
            written[scope].add(made.id)
            with pytest.raises(ChoiceError):
                at(other).link(made.id, made.id)
            if written[other] - written[scope] and dice.random() < 0.5:
                alien = sorted(written[other] - written[scope])[0]
                for verb in (at(scope).supersede, at(scope).link):
                    with pytest.raises(ChoiceError, match="no decision"):
                        verb(made.id, alien)
        for scope, ids in written.items():
            here = at(scope)
            assert {each.id for each in here.list_all(limit=500)} == ids
            seen = [*here.search("same words", 500), *here.active_goals(500), *here.recent(500)]
            seen += [*here.prior(500), *here.graph().decisions]
            assert {each.id for each in seen} <= ids
            assert here.pulse().total == len(ids)
    finally:
        for loom in looms.values():
            loom.close()


def test_a_purged_session_leaves_no_words(loom: Loom) -> None:
    session, other = loom.new(), loom.new()
    secret = session.decisions.log("The secret is xyzzy", kind="goal", description="plugh")
    kept = other.decisions.log("Keep it", parent=secret.id, rationale="because it stays")
    session.decisions.link(kept.id, secret.id, "supports", rationale="frobozz")
    session.purge()
    left = loom.decisions.decision(secret.id)
    assert (left.title, left.description, left.purged, left.kind) == ("", "", True, "goal")
    assert titles(loom.decisions.list_all()) == ["Keep it"]
    assert loom.decisions.active_goals() == loom.decisions.search("xyzzy") == []
    assert {edge.rationale for edge in loom.decisions.edges(kept.id)} == {""}
    with loom.store.database.read() as reader:
        for table in ("decisions", "decision_edges", "decision_terms"):
            rows = str(reader.all(f"SELECT * FROM {table}"))
            assert not any(word in rows for word in ("xyzzy", "plugh", "frobozz"))
    with pytest.raises(ChoiceError, match="purged"):
        loom.decisions.link(kept.id, secret.id)
    with pytest.raises(ChoiceError, match="purged"):
        session.decisions.log("more")
    assert problems(loom) == []


def test_no_view_of_another_session_keeps_purged_words(loom: Loom) -> None:
    first, second = loom.new(model="gpt-4o"), loom.new(model="gpt-4o")
    first.decisions.log("The secret is xyzzy", kind="goal")
    asked = second.prepare("What is the goal?", policy="window", window=20_000)
    assert "xyzzy" in str(asyncio.run(asked).openai())

    def views() -> str:
        with loom.store.database.read() as reader:
            return str(reader.all("SELECT data FROM views"))

    assert "xyzzy" in views()
    first.purge()
    assert "xyzzy" not in views()
    asked = second.prepare("And now?", policy="window", window=20_000)
    assert "xyzzy" not in str(asyncio.run(asked).openai())


def test_one_decision_can_be_purged(loom: Loom) -> None:
    made = loom.decisions.log("The secret is xyzzy")
    loom.decisions.purge(made.id)
    assert loom.decisions.decision(made.id).purged
    again = loom.decisions.log("The secret is xyzzy")
    assert again.id != made.id
    assert problems(loom) == []


# The pulse


def test_the_pulse_counts_what_is_wrong(loom: Loom, clock: Clock) -> None:
    decisions = loom.decisions
    assert decisions.pulse().health == 100
    goal = decisions.log("Ship it", kind="goal")
    decision = decisions.log("Use JWT", parent=goal.id, confidence=40)
    decisions.log("lonely", kind="observation")
    pulse = decisions.pulse()
    assert (pulse.gaps.count, pulse.orphans.count, pulse.low_confidence.count) == (2, 1, 1)
    assert pulse.health == 100 - 20 - 5 - 3
    assert decisions.pulse() is pulse, "nothing changed"
    action = decisions.log("Write it", kind="action", parent=decision.id)
    decisions.link(goal.id, action.id)
    pulse = decisions.pulse()
    assert (pulse.gaps.count, pulse.health) == (0, 92)
    assert pulse.stale.count == 0
    clock.now += 7 * DAY + 1000
    pulse = decisions.pulse()
    assert sorted(titles(list(pulse.stale.decisions))) == ["Ship it", "Use JWT"]
    assert pulse.health == 92
    for number in range(20):
        decisions.log(f"lonely {number}", confidence=0)
    assert decisions.pulse().health == 0


def test_the_revision_changes_with_every_change(loom: Loom) -> None:
    decisions = loom.decisions
    seen = [decisions.revision]
    one, two = decisions.log("one"), decisions.log("two")
    for work in (
        lambda: decisions.link(one.id, two.id),
        lambda: decisions.attach(one.id, commits=[COMMIT]),
        lambda: decisions.set_confidence(one.id, 60),
        lambda: decisions.supersede(one.id, two.id),
        lambda: decisions.abandon(two.id),
        lambda: decisions.purge(two.id),
    ):
        work()
        seen.append(decisions.revision)
    assert seen == sorted(set(seen))
    assert decisions.of_folder("/elsewhere").revision == 0
    assert decisions.folders() == {"": 1}


def test_a_session_logs_in_the_folder_that_it_works_in(loom: Loom, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    session = loom.new()
    session.decisions.log("before")
    session.set_options(project=str(tmp_path / "link"))
    assert session.decisions.folder == str(tmp_path / "real")
    session.decisions.log("after")
    assert titles(loom.decisions.list_all()) == ["before"]
    assert titles(loom.decisions.of_folder(tmp_path / "link").recent()) == ["after"]


def test_a_session_always_sees_its_own_decisions(loom: Loom, tmp_path: Path) -> None:
    session, other = loom.new(), loom.new()
    other.decisions.log("of another", kind="goal")
    goal = session.decisions.log("my goal", kind="goal")
    old = session.decisions.log("my way", parent=goal.id)
    session.set_options(project=tmp_path)
    decisions = session.decisions
    loom.decisions.of_folder(tmp_path).log("of the folder", kind="goal")
    assert titles(decisions.active_goals()) == ["of the folder", "my goal"]
    assert titles(decisions.active_goals(1)) == ["of the folder"]
    assert titles(decisions.own()) == ["my goal", "my way"]
    assert titles(decisions.recent()) == titles(decisions.search("way")) == ["my way"]
    assert decisions.search("another") == []
    assert titles(decisions.list_all()) == ["of the folder", "my way", "my goal"]
    counts = loom.store.decisions.count(decisions.scope, session.id)
    assert (counts.goals, counts.of_session) == (2, 2)
    assert decisions.decision(goal.id).folder == ""
    with pytest.raises(ChoiceError, match="no decision"):
        decisions.decision(loom.decisions.search("another")[0].id)
    before = decisions.revision
    made = decisions.pivot(old.id, "seen", "another way")
    assert made.decision.folder == "", "it belongs to what it replaces"
    assert decisions.revision > before
    assert titles(decisions.prior()) == ["Reconsidering: my way", "my way"]
    below = decisions.log("under it", kind="action", parent=goal.id)
    assert titles(decisions.recent(1)) == ["under it"]
    assert decisions.log("under it", kind="action", parent=goal.id) == below
    here = decisions.log("here")
    assert here.folder == str(tmp_path)
    with pytest.raises(ChoiceError, match="no decision"):
        decisions.link(goal.id, here.id)
    assert len(decisions.graph(goal.id).decisions) == 6
    assert len(decisions.edges(goal.id)) == 2
    decisions.abandon(goal.id)
    assert loom.decisions.decision(goal.id).status == "abandoned"
    assert problems(loom) == []


def test_a_session_sees_the_goal_that_it_logged_again(loom: Loom, tmp_path: Path) -> None:
    goal = loom.new().decisions.log("Add authentication", kind="goal")
    session = loom.new()
    assert session.decisions.log("add authentication", kind="goal").id == goal.id
    session.set_options(project=tmp_path)
    decisions = session.decisions
    assert titles(decisions.active_goals()) == ["Add authentication"]
    assert titles(decisions.search("authentication")) == ["Add authentication"]
    assert titles(decisions.list_all()) == ["Add authentication"]
    assert loom.store.decisions.count(decisions.scope, session.id).goals == 1
    assert decisions.log("Use JWT", parent=goal.id).folder == ""
    assert loom.decisions.of_folder(tmp_path).active_goals() == []
    assert problems(loom) == []
    with Loom.open(":memory:") as copy:
        copy.import_lines(loom.export())
        assert copy.decisions.decision(goal.id).sessions == (session.id,)
        assert problems(copy) == []


def test_a_request_shows_what_a_tool_logged_in_its_folder(loom: Loom, tmp_path: Path) -> None:
    session = loom.new(model="gpt-4o")

    async def ask() -> tuple[str, str]:
        await session.prepare("Begin", project=tmp_path)
        session.decisions.log("Rewrite the frobnicator", kind="goal")
        here = await session.prepare("Go on", project=tmp_path)
        (tmp_path / "b").mkdir()
        other = loom.new(model="gpt-4o")
        there = await other.prepare("And there?", project=tmp_path / "b")
        return str(here.openai()), str(there.openai())

    here, there = asyncio.run(ask())
    assert "Rewrite the frobnicator" in here
    assert "Rewrite the frobnicator" not in there
