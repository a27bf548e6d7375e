"""Notes and facts: who sees them, what replaces them, when they hold, and what a purge leaves."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from loom import ChoiceError, Loom, LoomError
from loom.stores.health.doctor import examine
from loom.types import Note, ProjectMemory

DAY = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loom(address: str, clock: Clock) -> Iterator[Loom]:
    with Loom.open(address, now=clock) as opened:
        yield opened


def texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes]


def problems(loom: Loom) -> list[Any]:
    return [problem for problem in examine(loom.store) if not problem.note]


def test_the_same_words_are_remembered_once(loom: Loom, clock: Clock) -> None:
    memory = loom.new().memory
    first = memory.remember("The build needs Python 3.11", kind="fact")
    clock.now += 5
    again = memory.remember("the build  needs python 3.11", kind="fact")
    assert again.id == first.id
    assert (again.created, again.updated, again.uses) == (first.created, clock.now, 1)
    assert len(memory.notes(history=True)) == 1


def test_what_the_model_says_and_what_the_user_says_are_told_apart(loom: Loom) -> None:
    memory = loom.new().memory
    model = memory.remember("Tests are slow", by="model")
    user = memory.remember("Tests are slow")
    assert model.id != user.id
    assert [note.by for note in memory.notes()] == ["user"], "equal texts are shown once"
    assert {note.by for note in memory.notes(history=True)} == {"user", "model"}


def test_the_newest_of_a_chain_is_shown_and_the_others_are_history(
    loom: Loom, clock: Clock
) -> None:
    memory = loom.new().memory
    paris = memory.remember("Ann lives in Paris", kind="fact", about="Ann")
    clock.now += 1
    rome = memory.remember("Ann lives in Rome", kind="fact", about="Ann", supersedes=paris.id[:8])
    assert rome.supersedes == paris.id
    assert texts(memory.notes()) == ["Ann lives in Rome"]
    clock.now += 1
    back = memory.remember("Ann lives in Paris", kind="fact", about="Ann")
    assert back.supersedes == rome.id, "said again, it is the newest"
    assert texts(memory.notes()) == ["Ann lives in Paris"]
    assert memory.remember("Ann lives in Paris", kind="fact", about="Ann").id == back.id
    states = {note.id: note.state for note in memory.notes(history=True)}
    assert states == {paris.id: "superseded", rome.id: "superseded", back.id: "valid"}
    assert problems(loom) == []


def test_a_note_holds_in_its_time_only(loom: Loom, clock: Clock) -> None:
    memory = loom.memory
    start = datetime.fromtimestamp((clock.now + DAY) / 1000, UTC)
    memory.remember("The office is closed", valid_from=start, valid_until=clock.now + 2 * DAY)
    assert memory.notes() == []
    assert memory.notes("office") == []
    assert [note.state for note in memory.notes(history=True)] == ["early"]
    clock.now += DAY
    assert texts(memory.notes("is the office open?")) == ["The office is closed"]
    clock.now += DAY
    assert memory.notes() == []
    assert [note.state for note in memory.notes(history=True)] == ["ended"]


def test_what_supersedes_later_lets_the_older_hold_until_then(loom: Loom, clock: Clock) -> None:
    old = loom.memory.remember("The price is 10")
    loom.memory.remember("The price is 12", supersedes=old.id, valid_from=clock.now + DAY)
    assert texts(loom.memory.notes()) == ["The price is 10"]
    clock.now += DAY
    assert texts(loom.memory.notes()) == ["The price is 12"]


def test_a_session_that_corrects_the_project_corrects_it_for_itself(loom: Loom) -> None:
    one, other = loom.new().memory, loom.new().memory
    held = loom.memory.remember("Indent with tabs")
    one.remember("Indent with spaces", supersedes=held.id)
    assert texts(one.notes()) == ["Indent with spaces"]
    assert texts(other.notes()) == texts(loom.memory.notes()) == ["Indent with tabs"]


def test_forgetting_hides_and_deletes_nothing(loom: Loom) -> None:
    memory = loom.new().memory
    note = memory.remember("The password is in the safe")
    memory.forget(note.id[:6])
    assert memory.notes() == memory.notes("password") == []
    assert memory.note(note.id).state == "forgotten"
    assert memory.note(note.id).text == note.text
    memory.remember("The password is in the safe")
    assert texts(memory.notes()) == [note.text], "what is remembered again is not forgotten"


def test_a_session_forgets_a_note_of_the_project_for_itself_only(loom: Loom) -> None:
    one, other = loom.new(), loom.new()
    rule = loom.memory.remember("Never deploy on Fridays", kind="fact", always=True)
    one.memory.forget(rule.id)
    assert one.memory.notes() == one.memory.notes("deploy") == []
    assert one.memory.note(rule.id).state == "forgotten"
    assert texts(other.memory.notes()) == texts(loom.memory.notes()) == [rule.text]
    assert loom.memory.note(rule.id).state == "valid"
    lines = list(loom.export())
    with Loom.open(":memory:", now=loom.now) as copy:
        copy.import_lines(lines)
        assert list(copy.export()) == lines
        assert copy.session(one.id).memory.notes() == []
    assert problems(loom) == []
    one.memory.remember("Never deploy on Fridays", kind="fact", scope="project")
    assert texts(one.memory.notes()) == [rule.text]
    loom.memory.forget(rule.id)
    assert other.memory.notes() == [], "who speaks for the project forgets it for all"
    one.purge()
    assert problems(loom) == []


def test_a_purged_note_has_no_words_anywhere(loom: Loom) -> None:
    note = loom.memory.remember("a secret word", about="xyzzy")
    loom.memory.purge(note.id)
    assert loom.memory.note(note.id).state == "purged"
    assert "secret" not in "".join(loom.export())
    assert "xyzzy" not in "".join(loom.export())
    with loom.store.database.read() as reader:
        assert reader.all("SELECT * FROM note_terms") == []
    assert problems(loom) == []


def test_a_purge_of_a_session_takes_its_notes_and_others_when_asked(loom: Loom) -> None:
    for asked in (False, True):
        session, other = loom.new(), loom.new()
        [node] = session.append(f"number {asked}")
        own = session.memory.remember("of the session")
        shared = session.memory.remember(f"for all {asked}", scope="project", sources=[node.id])
        handle = loom.search(f"number {asked}")[0].handle
        by_handle = other.memory
        known = loom.memory.remember(f"known {asked}", sources=[handle])
        away = loom.memory.remember(f"elsewhere {asked}")
        assert by_handle.note(known.id).sources == (handle,)
        session.purge(notes=asked)
        states = [other.memory.note(each.id).state for each in (shared, known, away)]
        assert states == (["purged", "purged", "valid"] if asked else ["valid"] * 3)
        assert session.memory.note(own.id).state == "purged"
        with pytest.raises(ChoiceError, match="purged"):
            session.memory.remember("more")
    assert problems(loom) == []


def test_notes_leave_and_come_back_with_their_ids(loom: Loom, clock: Clock) -> None:
    session = loom.new()
    session.append("hello")
    first = session.memory.remember("one", kind="fact", valid_until=clock.now + DAY)
    session.memory.remember("two", supersedes=first.id)
    loom.memory.remember("three", always=True)
    gone = loom.memory.remember("four")
    loom.memory.purge(gone.id)
    session.memory.forget(session.memory.remember("five", by="model").id)
    lines = list(loom.export())
    with Loom.open(":memory:", now=clock) as copy:
        copy.import_lines(lines)
        assert list(copy.export()) == lines
        assert copy.import_lines(lines)
        assert list(copy.export()) == lines
        there = copy.session(session.id).memory
        assert there.notes(history=True) == session.memory.notes(history=True) or [
            (note.id, note.state) for note in there.notes(history=True)
        ] == [(note.id, note.state) for note in session.memory.notes(history=True)]
        assert problems(copy) == []
    with Loom.open(":memory:", now=clock) as alone:
        alone.import_lines(list(session.export()))
        assert texts(alone.session(session.id).memory.notes()) == ["two"]
        assert alone.memory.notes() == []


def test_a_note_that_is_not_what_its_id_says_is_refused(loom: Loom) -> None:
    loom.memory.remember("pay Ann")
    lines = [line.replace("pay Ann", "pay Bob") for line in loom.export()]
    with Loom.open(":memory:") as copy, pytest.raises(LoomError, match="its id"):
        copy.import_lines(lines)


def test_a_failed_import_leaves_no_notes(loom: Loom) -> None:
    loom.memory.remember("pay Ann")
    lines = list(loom.export())
    with Loom.open(":memory:") as copy:
        with pytest.raises(LoomError):
            copy.import_lines([*lines[:-1], lines[-1].replace('"lines":1', '"lines":7')])
        assert copy.memory.notes(history=True) == []


def test_a_person_finds_the_notes_of_any_session_by_their_ids(loom: Loom) -> None:
    one, other = loom.new().memory, loom.new().memory
    note = one.remember("the secret")
    assert loom.memory.notes() == []
    assert texts(loom.memory.notes(everyone=True)) == ["the secret"]
    with pytest.raises(ChoiceError, match="no note"):
        other.note(note.id)
    loom.memory.forget(note.id)
    assert loom.memory.note(note.id).state == "forgotten"
    assert one.notes() == []


def test_a_damaged_note_is_left_out_of_an_export_and_named(loom: Loom) -> None:
    lost = loom.memory.remember("the first")
    loom.memory.remember("the second")
    with loom.store.database.write() as writer:
        writer.all("UPDATE notes SET data = '{' WHERE id = $1", lost.id)
    missed: list[str] = []
    lines = list(loom.export(missed=missed))
    assert missed == [f"note {lost.id}"]
    with pytest.warns(UserWarning, match=lost.id):
        assert texts(loom.memory.notes()) == ["the second"]
    with Loom.open(":memory:") as copy:
        copy.import_lines(lines)
        assert texts(copy.memory.notes()) == ["the second"]
    assert [problem.what for problem in problems(loom)] == ["what it says cannot be read"]


def test_notes_of_every_project_come_back_where_they_were(address: str) -> None:
    with Loom.open(address, project="web") as web, Loom.open(address, project="shop") as shop:
        web.memory.remember("of the web")
        shop.new().memory.remember("of a session")
        lines = list(web.export(everywhere=True))
        alone = list(shop.export())
    assert not any("of the web" in line for line in alone)
    with Loom.open(":memory:") as copy:
        copy.import_lines(lines, everywhere=True)
        assert list(copy.export(everywhere=True)) == lines
        assert copy.memory.notes(history=True) == []
    with Loom.open(address, project="web", agent="ann") as ann:
        assert not any("of the web" in line for line in ann.export())


def test_the_doctor_sees_words_that_were_changed(loom: Loom) -> None:
    note = loom.memory.remember("pay Ann")
    with loom.store.database.write() as writer:
        writer.all("UPDATE notes SET data = replace(data, 'Ann', 'Bob')")
    assert [problem.what for problem in problems(loom)] == [
        "its words are not those that were remembered"
    ]
    assert note.id in problems(loom)[0].place


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("", {}, "nothing to remember"),
        ("x" * 8001, {}, "at most 8,000"),
        ("x", {"kind": "rumour"}, "kind"),
        ("x", {"by": "system"}, "by"),
        ("x", {"scope": "session"}, "no session"),
        ("x", {"scope": "agent"}, "no agent"),
        ("x", {"supersedes": "zzzz"}, "no note"),
        ("x", {"sources": ["~aaaaaaaaaaaa"]}, "no handle"),
        ("x", {"sources": "~aaaaaaaaaaaa"}, "must be a list"),
        ("x", {"valid_from": "tomorrow"}, "2026-01-31"),
        ("x", {"valid_from": datetime(2026, 1, 1)}, "time zone"),
        ("x", {"valid_from": 5, "valid_until": 5}, "later"),
    ],
)
def test_what_cannot_be_remembered_is_refused(
    text: str, options: dict[str, Any], error: str
) -> None:
    with Loom.open(":memory:") as loom, pytest.raises(ChoiceError, match=error):
        loom.memory.remember(text, **options)


WHERE = [
    (tenant, project, agent)
    for tenant in ("acme", "umbrella")
    for project in ("web", "shop")
    for agent in ("", "ann", "bob")
]


def sees(reader: tuple[str, str, str, str], writer: tuple[str, str, str, str], scope: str) -> bool:
    """Whether a session of a tenant, project and agent sees what another remembered."""
    if reader[:2] != writer[:2]:
        return False
    if scope == "session":
        return reader == writer
    if scope == "agent":
        return reader[2] == writer[2]
    return True


def test_notes_never_leak_over_random_scopes(address: str) -> None:
    chance = random.Random(7)
    looms = {
        place: Loom.open(address, tenant=place[0], project=place[1], agent=place[2])
        for place in WHERE
    }
    memories: dict[tuple[str, str, str, str], ProjectMemory] = {}
    for place, loom in looms.items():
        for number in ("1", "2"):
            memories[(*place, number)] = loom.new(number).memory
    said: list[tuple[tuple[str, str, str, str], str, str]] = []
    for number in range(60):
        where = chance.choice(sorted(memories))
        scope = chance.choice(["session", "project", *(["agent"] if where[2] else [])])
        text = f"secret{number} of the shared topic"
        memories[where].remember(text, scope=scope)
        said.append((where, scope, text))
    for where, memory in memories.items():
        expected = {text for writer, scope, text in said if sees(where, writer, scope)}
        assert set(texts(memory.notes())) == expected
        assert set(texts(memory.notes("shared topic", 100))) == expected
        assert set(texts(memory.notes("shared topic", 100, history=True))) == expected
        hidden = {text for _, _, text in said} - expected
        for note in memory.notes(history=True):
            assert note.text not in hidden
    for place, loom in looms.items():
        everyone = {
            text
            for writer, scope, text in said
            if writer[:2] == place[:2] and (place[2] in ("", writer[2]) or scope == "project")
        }
        assert set(texts(loom.memory.notes(everyone=True))) == everyone
        assert set(texts(loom.memory.notes("shared topic", 100, everyone=True))) == everyone
        loom.close()
