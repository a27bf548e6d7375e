"""Sessions as their users meet them, on both databases."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loom import (
    CannotFit,
    Conflict,
    Context,
    Conversation,
    Event,
    Loom,
    LoomError,
    Message,
    Session,
    Text,
)
from loom.context.policy import find_policy
from loom.conversation.canonical import to_json
from loom.stores.health.doctor import examine
from loom.stores.sessions import Addition
from loom.stores.sql.database import open_database
from tests.stores.tables import undo_search

pytestmark = pytest.mark.sqlite_first


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with Loom.open(address) as opened:
        yield opened


def prepare(session: Session, *values: Any, **options: Any) -> Any:
    return asyncio.run(
        session.prepare(
            *values, **({"window": 4000, "reserve_output": 500, "model": "gpt-4o"} | options)
        )
    )


def answer(name: str, text: str = "yes", **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": text} | more
    return {
        "id": name,
        "model": "gpt-4o",
        "choices": [{"message": said}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }


def texts(session: Session) -> list[str]:
    return [node.message.text for node in session.path if node.message]


def test_two_objects_on_one_session_continue_one_epoch(loom: Loom) -> None:
    one = loom.new()
    other = loom.session(one.id)
    one.append("the goal")
    before: list[Any] = []
    epoch = -1
    for number in range(24):
        session = (one, other)[number % 2].refresh()
        session.append(f"{number} " + "word " * 150, {"role": "assistant", "content": "done"})
        woven = prepare(session)
        sent = woven.openai()["messages"]
        if woven.report.epoch == epoch:
            assert sent[: len(before)] == before
        else:
            assert woven.report.epoch > epoch
            assert woven.report.epoch_reason != "continued"
        before, epoch = sent, woven.report.epoch
    assert epoch > 0


def test_the_same_answer_is_written_and_counted_once(loom: Loom) -> None:
    session = loom.new()
    session.append("what?")
    call = {"id": "c", "type": "function", "function": {"name": "sh", "arguments": "{}"}}
    first = session.absorb(answer("a1", tool_calls=[call]))
    assert session.absorb(answer("a1", tool_calls=[call])) == first
    session.append({"role": "tool", "tool_call_id": "c", "content": "ok"})
    assert [node.id for node in session.absorb(answer("a1", tool_calls=[call]))] == [
        node.id for node in first
    ]
    assert len(session.path) == 3
    assert session.row.usage.prompt == 9
    session.absorb(answer("a2"))
    assert len(session.path) == 4
    assert session.row.usage.prompt == 18


def test_every_answer_of_a_provider_that_repeats_its_ids_is_written(loom: Loom) -> None:
    """Ollama's ids are `chatcmpl-` and a random number below 999."""
    chance = random.Random(7)
    for _ in range(3):
        session, said = loom.new(), list[str]()
        for n in range(60):
            session.append(f"question {n}")
            said.append(chance.choice(["yes", "no", f"answer {n}"]))
            [node] = session.absorb(answer(f"chatcmpl-{chance.randrange(20)}", said[-1]))
            assert session.absorb(answer(node.generation, said[-1])) == [node]
        assert texts(session)[1::2] == said
        assert session.row.usage.prompt == 60 * 9


def test_an_answer_with_the_same_id_and_the_same_words_answers_another_question(loom: Loom) -> None:
    session = loom.new()
    for question in ("first?", "second?"):
        session.append(question)
        session.absorb(answer("chatcmpl-7", "ok"))
    assert texts(session) == ["first?", "ok", "second?", "ok"]
    assert session.row.usage.completion == 4


def test_calls_under_a_repeated_id_are_each_written(loom: Loom) -> None:
    """In one turn too: the same tool called again with the same arguments, and only the call's own
    id differs.
    """
    session = loom.new()
    session.append("go")
    for n in range(3):
        call = {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "sh", "arguments": "{}"},
        }
        session.absorb(answer("chatcmpl-7", "", tool_calls=[call]))
        session.append({"role": "tool", "tool_call_id": f"call_{n}", "content": "ok"})
    assert len(session.path) == 7


def test_an_answer_absorbed_again_after_a_restart_is_written_once(loom: Loom) -> None:
    session = loom.new()
    session.append("what?")
    for name in ("chatcmpl-7", ""):
        session.append("and?")
        before = session.absorb(answer(name))
        again = loom.session(session.id)
        assert [node.id for node in again.absorb(answer(name))] == [node.id for node in before]
        assert len(again.path) == len(session.path)


def test_an_answer_is_kept_as_it_came(loom: Loom) -> None:
    session = loom.new()
    session.append("what?")
    given = answer("a1") | {"odd": {"z": 1, "a": [None, "é"]}}
    (node,) = session.absorb(given)
    assert session.response(node.short_id) == to_json(given)


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (answer("x", role="user"), "expected assistant"),
        ("", "found the text ''"),
        (None, "found nothing"),
        ({"error": {"message": "overloaded"}}, "an object with the keys message"),
    ],
)
def test_what_is_no_answer_is_refused(loom: Loom, response: Any, complaint: str) -> None:
    session = loom.new()
    session.append("what?")
    with pytest.raises(LoomError, match=complaint):
        session.absorb(response)
    assert len(session.path) == 1


def test_a_purge_ends_every_object_of_the_session(loom: Loom) -> None:
    session = loom.new("secret")
    session.append(*(f"SECRET {n} " + "word " * 400 for n in range(12)))
    prepare(session)
    early, late = loom.session(session.id), loom.session(session.id)
    prepare(early)
    assert session.purge() == (12, 0)
    for ended in (session, early, late, loom.session(session.id)):
        for attempt in (
            lambda s=ended: prepare(s),
            lambda s=ended: s.append("more"),
            lambda s=ended: s.fork(),
        ):
            with pytest.raises(LoomError, match="purged"):
                attempt()
    assert list(examine(loom.store)) == []


def test_a_purge_tells_what_went_and_what_stays(loom: Loom) -> None:
    one = loom.new()
    one.append(*map(str, range(40)))
    two = one.fork(at=one.path[20].id)
    two.append(*map(str, range(100, 120)))
    three = two.fork()
    three.append("last")
    assert two.purge() == (0, 41)
    assert one.purge() == (19, 21)
    assert three.purge() == (42, 0)


def test_asking_again_asks_once(loom: Loom) -> None:
    session = loom.new()
    with pytest.raises(CannotFit):
        prepare(session, "what now?", window=20, reserve_output=15)
    prepare(session, "what now?")
    assert texts(session) == ["what now?"]
    session.absorb(answer("a1"))
    prepare(session, "what now?")
    assert texts(session) == ["what now?", "yes", "what now?"]


def test_a_retry_writes_nothing_twice_system_text_neither(loom: Loom) -> None:
    session = loom.new()
    for _ in range(2):
        session.append({"role": "system", "content": "You weave."}, after="")
    (first,) = session.append("begin")
    for _ in range(2):
        session.append({"role": "system", "content": "Be brief."}, "go on", after=first.id)
    assert texts(session) == ["begin", "Be brief.", "go on"]
    assert [aside.message.text for aside in session.row.asides] == ["You weave."]


def test_system_text_of_two_writers_is_not_lost(loom: Loom) -> None:
    one = loom.new()
    other = loom.session(one.id)
    one.append({"role": "system", "content": "One."})
    other.append({"role": "system", "content": "Two."})
    assert [aside.message.text for aside in one.refresh().row.asides] == ["One.", "Two."]
    one.append("begin")
    other.refresh()
    one.append({"role": "system", "content": "Three."})
    with pytest.raises(Conflict):
        other.append({"role": "system", "content": "Four."})
    one.refresh()
    one.change(model="gpt-4o")
    assert other.change(title="t").row.model == "gpt-4o"


def test_a_moved_cursor_is_a_conflict_and_never_a_rebase(loom: Loom) -> None:
    seen: list[Event] = []
    loom.listen(seen.append)
    one = loom.new()
    one.append("begin")
    other = loom.session(one.id)
    one.append("mine")
    with pytest.raises(Conflict) as caught:
        other.append("theirs")
    assert caught.value.expected == other.path[0].short_id
    assert texts(one.refresh()) == ["begin", "mine"]
    assert [event.kind for event in seen] == ["created", "appended", "appended", "conflict"]


def test_a_listener_that_fails_undoes_nothing(loom: Loom) -> None:
    def fails(event: Event) -> None:
        raise ValueError(event.kind)

    loom.listen(fails)
    with pytest.warns(RuntimeWarning, match="a listener failed"):
        session = loom.new()
    with pytest.warns(RuntimeWarning, match="appended"):
        session.append("kept")
    assert texts(session.refresh()) == ["kept"]


def test_a_store_is_named_by_a_path_too(tmp_path: Path) -> None:
    with Loom.open(tmp_path / "made" / "here.db") as loom:
        assert loom.sessions() == []
    with pytest.raises(LoomError, match="url must be a text or a path, found 5"):
        Loom.open(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "slip",
    [
        lambda loom, session: loom.session(None),
        lambda loom, session: loom.recall(None),
        lambda loom, session: session.recall(5),
        lambda loom, session: session.switch(None),
        lambda loom, session: loom.new(model=5),
        lambda loom, session: loom.new(title="two\nlines"),
        lambda loom, session: loom.recognise(5),
        lambda loom, session: session.append({"role": "user", "content": "x", "extra": object()}),
        lambda loom, session: session.append(5),
        lambda loom, session: session.append("x", generation="\0"),
        lambda loom, session: session.append("x", after="nowhere"),
        lambda loom, session: session.fork(at="nowhere"),
        lambda loom, session: prepare(session, pins=["nowhere"]),
    ],
)
def test_a_callers_slip_is_named(loom: Loom, slip: Any) -> None:
    session = loom.new()
    session.append("begin")
    with pytest.raises(LoomError) as caught:
        slip(loom, session)
    assert "\n" not in str(caught.value)
    assert texts(session.refresh()) == ["begin"]


def test_a_resent_history_is_recognised(loom: Loom) -> None:
    """Whatever clients shuffle: cache marks, whitespace of arguments, dropped reasoning."""
    session = loom.new()
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "sh", "arguments": '{"a": 1, "b": 2}'},
    }
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    session.append("begin", {"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "c", "content": "ok"})
    session.append({"role": "assistant", "content": [thought, {"type": "text", "text": "done"}]})
    call["function"] = {"name": "sh", "arguments": '{"b":2,"a":1}'}
    resent = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "begin", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "new"},
    ]
    found, count = loom.recognise(resent)
    assert found is not None
    assert (found.id, count) == (session.id, 4)
    session.append("elsewhere")
    forked, count = loom.recognise(resent)
    assert forked is not None
    assert forked.id != session.id
    assert (count, len(forked.path)) == (4, 4)
    assert loom.recognise([{"role": "user", "content": "never said"}]) == (None, 0)


def test_a_resent_history_with_system_messages_inside_is_recognised(loom: Loom) -> None:
    session = loom.new()
    reminder = Message("system", (Text("Reminder: be brief"),))
    session.append("begin", Message("assistant", (Text("done"),)), reminder, "go on")
    lead = {"role": "system", "content": "You weave."}
    resent = [
        lead,
        *(
            {"role": node.role, "content": node.message.text}
            for node in session.path
            if node.message
        ),
    ]
    found, count = loom.recognise([*resent, {"role": "user", "content": "new"}])
    assert found is not None
    assert (found.id, count) == (session.id, 4)
    # Older sessions keep them beside what was said.
    old = loom.new()
    old.append("first", Message("assistant", (Text("yes"),)))
    loom.store.sessions.append(
        old.row, old.path.end, [], now=loom.now(), added=Addition(asides=[(0, reminder)])
    )
    old.refresh().append("second")
    resent = [
        {"role": role, "content": text} for role, text in (("user", "first"), ("assistant", "yes"))
    ]
    resent += [
        {"role": "system", "content": reminder.parts[0].text},
        {"role": "user", "content": "second"},
    ]  # type: ignore[union-attr]
    found, count = loom.recognise([*resent, {"role": "user", "content": "third"}])
    assert found is not None
    assert (found.id, count) == (old.id, 4)


def reminded(session: Session, turns: int) -> None:
    session.append("the goal", {"role": "system", "content": "Rules: NEVER PUSH"})
    for n in range(turns):
        reminder = {"role": "system", "content": f"Reminder {n}: mind the tests"}
        session.append(
            f"question {n} " + "word " * 30, reminder, Message("assistant", (Text(f"answer {n}"),))
        )


@pytest.mark.parametrize("policy", ["default", "window", "turns", "tree", "partitions"])
def test_system_messages_of_a_session_leave_with_their_turn_and_the_newest_of_each_kind_stays(
    loom: Loom, policy: str
) -> None:
    session = loom.new(model="gpt-4o", system="You weave.")
    reminded(session, 120)
    context = prepare(session, window=3_000, reserve_output=200, policy=policy)
    sent = [message.text for message in context.conversation.messages]
    assert "Rules: NEVER PUSH" in sent
    assert "Reminder 119: mind the tests" in sent
    assert "Reminder 60: mind the tests" not in sent
    # One more neither changes the system text nor ends the epoch.
    session.append({"role": "system", "content": "Reminder 120: mind the tests"})
    grown = prepare(session, window=3_000, reserve_output=200, policy=policy)
    assert grown.conversation.system == context.conversation.system
    assert (
        grown.report.epoch_reason == "continued"
        or "by its own counter" in grown.report.epoch_reason
    )
    assert "Reminder 120: mind the tests" in [
        message.text for message in grown.conversation.messages
    ]
    assert [
        item.rule
        for item in context.report.items
        if item.action == "kept" and "its kind" in item.rule
    ]


def test_a_fork_has_the_newest_system_message_of_its_own_path(loom: Loom) -> None:
    session = loom.new(model="gpt-4o")
    reminded(session, 60)
    fork = session.fork(at=session.path[100].id)
    reminded(session, 60)
    sent = [
        message.text
        for message in prepare(fork, window=1_500, reserve_output=200).conversation.messages
    ]
    assert "Rules: NEVER PUSH" in sent
    assert (
        max(text for text in sent if text.startswith("Reminder")) == "Reminder 32: mind the tests"
    )


def test_system_messages_that_an_older_version_kept_beside_nodes_take_no_more_than_their_room(
    loom: Loom,
) -> None:
    session = loom.new(model="gpt-4o", system="You weave.")
    session.append("the goal")
    asides = [(0, Message("system", (Text(f"Reminder {n}: " + "word " * 30),))) for n in range(300)]
    asides.append((0, Message("system", (Text("Rules: NEVER PUSH"),))))
    loom.store.sessions.append(
        session.row, session.path.end, [], now=loom.now(), added=Addition(asides=asides)
    )
    session.refresh().append("go on")
    context = prepare(session, window=3_000, reserve_output=200)
    text = context.conversation.system[0].text
    assert text.startswith("You weave.")
    assert "Rules: NEVER PUSH" in text
    assert "Reminder 299" in text
    assert "Reminder 298" not in text
    assert len(session.conversation().messages) == 303


def test_a_store_in_which_system_messages_are_kept_beside_nodes_opens_and_goes_on(
    address: str,
) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o", system="You weave.")
        session.append(
            {"role": "system", "content": "Be brief."},
            "the goal",
            Message("assistant", (Text("yes " * 400),)),
        )
        asides = [
            (0, Message("system", (Text(f"Reminder {n}: mind the tests"),))) for n in range(3)
        ]
        loom.store.sessions.append(
            session.row, session.path.end, [], now=loom.now(), added=Addition(asides=asides)
        )
        session.refresh().append("go on")
        fork = session.fork(at=session.path[0].id)
        whole = session.conversation()
    with closing(open_database(address)) as database, database.write() as writer:
        undo_search(writer)
        writer.all("DROP INDEX nodes_reminder")
        writer.all("ALTER TABLE nodes DROP COLUMN reminder")
        writer.all("UPDATE store SET version = 4")
    with Loom.open(address) as loom:
        session = loom.session(session.id)
        assert session.conversation() == whole
        context = prepare(session, window=1_000, reserve_output=200)
        assert "Be brief." in system_text(context)
        assert "Reminder 2: mind the tests" in system_text(context)
        assert "Reminder 1" not in system_text(context)
        assert "Reminder" not in system_text(
            prepare(loom.session(fork.id), window=1_000, reserve_output=200)
        )
        # From now on they are nodes.
        session.append(
            Message("assistant", (Text("done"),)),
            {"role": "system", "content": "Reminder 3: mind the tests"},
            "more",
        )
        assert [node.role for node in session.path[3:]] == ["assistant", "system", "user"]
        sent = prepare(session, window=1_000, reserve_output=200)
        assert "Reminder 3: mind the tests" in [
            message.text for message in sent.conversation.messages
        ]
        found, count = loom.recognise(session.conversation().messages)
        assert found is not None
        assert (found.id, count) == (session.id, len(session.conversation().messages))
        assert list(examine(loom.store)) == []
        copied, whole = list(session.export()), session.conversation()
    with Loom.open(":memory:") as other:
        other.import_lines(copied)
        assert other.session(session.id).conversation() == whole


def system_text(context: Context) -> str:
    return "\n".join(message.text for message in context.conversation.system)


def test_a_session_remembers_its_policy_across_calls_and_restarts(address: str) -> None:
    mine = replace(find_policy("turns"), name="mine", summarize_past=7)
    with Loom.open(address) as loom:
        session = loom.new("talk")
        assert prepare(session, "Why?").report.policy == session.policy.name == "default"
        assert prepare(session, policy="turns").report.policy == "turns"
        assert prepare(session).report.policy == "turns"
        assert prepare(session, policy="window", preview=True).report.policy == "window"
        assert prepare(session, policy="window", at=session.cursor.id).report.policy == "window"
        assert session.policy.name == "turns", "who only looks changes nothing"
        with pytest.raises(CannotFit):
            prepare(session, policy="tree", window=5, reserve_output=1)
        assert session.policy.name == "turns", "nothing was sent by that"
        fork, other = session.fork(), loom.new("other")
        prepare(other, "What?", policy=mine)
    with Loom.open(address) as loom:
        assert prepare(loom.session(session.id)).report.policy == "turns"
        assert prepare(loom.session(fork.id)).report.policy == "turns"
        assert loom.session(other.id).policy == mine
        assert prepare(loom.session(other.id)).report.policy == "mine"
        assert prepare(loom.session(session.id).carry_on(), "Go on.").report.policy == "turns"
        assert prepare(loom.session(fork.id), policy="default").report.policy == "default"
        assert prepare(loom.session(fork.id)).report.policy == "default"
        assert list(examine(loom.store)) == []


def test_a_policy_that_travels_with_a_session_is_remembered_there(tmp_path: Path) -> None:
    with Loom.open(tmp_path / "one.db") as one, Loom.open(tmp_path / "two.db") as two:
        session = one.new("talk")
        prepare(session, "Why?", policy="turns")
        two.import_lines(session.export())
        assert prepare(two.session(session.id)).report.policy == "turns"


def test_a_policy_that_nobody_knows_any_more_is_named_with_the_way_out(loom: Loom) -> None:
    session = loom.new("talk")
    prepare(session, "Why?")
    loom.store.states.put(session.row.key, "policy", {"": '"of_another_version"'}, 1)
    with pytest.raises(
        LoomError, match=rf"session {session.id} remembers .*'of_another_version'.*prepare\(policy="
    ):
        prepare(session)
    assert prepare(session, policy="turns").report.policy == "turns"
    assert prepare(session).report.policy == "turns"


def test_after_a_restart_work_behind_the_scenes_goes_by_the_policy_of_the_session(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    class Summariser:
        async def answer(self, request: Conversation) -> Message:
            asked.append(request.messages[-1].text)
            return Message("assistant", (Text("They counted."),))

    async def play() -> None:
        with Loom.open(tmp_path / "loom.db", model=Summariser()) as loom:
            session = loom.new("talk")
            session.append("Count.")
            await session.prepare(policy="turns", model="gpt-4o")
            for n in range(24):
                session.append({"role": "user" if n % 2 else "assistant", "content": f"{n}"})
            name = session.id
        with Loom.open(tmp_path / "loom.db", model=Summariser()) as loom:
            loom.session(name).absorb(answer("a1", "24"))
            await loom.settle()

    asyncio.run(play())
    assert asked, "turns sums up what is past 20 messages, default would have waited"


def test_skills_of_a_session_give_way_before_its_memory(loom: Loom) -> None:
    session = loom.new(model="gpt-4o")
    session.append("Fix the login. " + "slow " * 15_350)
    sections = [
        ("skills", "cloth " * 400),
        ("memory", "weave " * 400),
        ("skills", "thread " * 400),
        ("memory", "loom " * 100),
    ]
    context = prepare(session, window=16_000, reserve_output=0, sections=sections)
    assert context.continuation.given_up == (2, 0)
    assert [
        session.recall(item.handles[0])
        for item in context.report.items
        if item.place == "sections[0]"
    ] == ["cloth " * 400]
    # It stays so while the epoch goes on.
    session.append(Message("assistant", (Text("I look."),)))
    grown = prepare(session, window=16_000, reserve_output=0, sections=sections)
    assert (grown.report.epoch_reason, grown.continuation.given_up) == ("continued", (2, 0))


def test_a_session_that_stops_at_the_limit_shows_sections_whole_or_refuses_with_their_numbers(
    loom: Loom,
) -> None:
    whole = replace(find_policy("tree"), name="whole", strategy="stop_at_limit")
    session = loom.new(model="gpt-4o")
    session.append("Fix the login. " + "slow " * 500)
    memory = "loom " * 3_000
    context = prepare(
        session, window=5_000, reserve_output=0, sections=[("memory", memory)], policy=whole
    )
    assert memory in system_text(context)
    session.append(Message("assistant", (Text("done " * 2_000),)), "Go on.")
    with pytest.raises(
        CannotFit,
        match=(
            r"stop_at_limit refuses to cut.*sections in memory take 3,\d{3} tokens, and the zone "
            r"has"
        ),
    ):
        prepare(
            session, window=5_000, reserve_output=0, sections=[("memory", memory)], policy=whole
        )
