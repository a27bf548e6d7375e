"""What a user's message is: a task, a request that leans on what was said before, a new goal."""

import pytest

from loom.context.history.requests import (
    AGREEING_WORDS,
    LEANING_WORDS,
    MAX_GOAL_REQUESTS,
    count_words,
    find_goals,
    find_leaned_on,
    is_command,
    leans,
    states_task,
)
from loom.conversation.message import Message, Text, ToolCall, ToolResult

TASK = "Please write a parser for the log files of the old weaving mill"
SAME_TASK = "The parser for log files should also read files of the weaving mill next door, please"
OTHER_TASK = "Translate the manual of our dishwasher into plain French, keeping every table intact"


@pytest.mark.parametrize(
    "text",
    [
        TASK,
        "fix the build",
        "see src/a.py and src/b.py",
        "/home/ann/notes.md please read it",
        "hello, please fix the build",
        "把重试预算设为三",
        "修复登录页面的错误",
        "こんにちは、ログを直して",
    ],
)
def test_it_states_a_task(text: str) -> None:
    assert states_task(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t",
        "/mode",
        "/compact keep the plan in mind",
        "hi",
        "Hello there!",
        "good morning",
        "thank you, good day",
        "你好",
        "src/main.py",
        "/home/ann/project/src/main.py",
        "https://example.org/a/b",
        "go on",
    ],
)
def test_it_states_no_task(text: str) -> None:
    assert not states_task(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/mode", True),
        ("/compact now", True),
        ("/home/ann/a.py", False),
        ("see /mode", False),
        ("", False),
        ("  ", False),
        ("  /mode", True),
    ],
)
def test_a_slash_command_is_not_a_path(text: str, expected: bool) -> None:
    assert is_command(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes, do it",
        "wow",
        "ok, this looks amazing, start implementing",
        "continue",
        "and the second one?",
        "/compact keep all the plans and all the names of files that we have found so far",
        "yes, and please use the second of your three plans, but leave the tests as they are",
        "好，开始吧",
        " ".join(["word"] * LEANING_WORDS),
    ],
)
def test_it_leans_on_what_was_said_before(text: str) -> None:
    assert leans(text)


@pytest.mark.parametrize(
    "text",
    [
        TASK,
        "yes, " + "please change this other thing as well " * 4,
        " ".join(["ok", *["word"] * AGREEING_WORDS]),
        " ".join(["word"] * (LEANING_WORDS + 1)),
        "okra is what we should plant in the third bed of the garden",
        "把登录页面的错误信息改成中文，并且不要改动其他页面的配置",
    ],
)
def test_it_says_something_by_itself(text: str) -> None:
    assert not leans(text)


@pytest.mark.parametrize(
    ("text", "words"), [("", 0), ("two words", 2), ("重试预算", 3), ("fix 登录页面 now", 5)]
)
def test_words_are_counted_where_no_spaces_part_them(text: str, words: int) -> None:
    assert count_words(text) == words


# ── what a request leans on ──────────────────────────────────────────────────


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def assistant(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", (Text(text), *calls) if text else calls)


def leaned_on(*messages: Message) -> list[int]:
    users = [n for n, message in enumerate(messages) if message.role == "user"]
    return find_leaned_on(messages, users)


def test_a_request_leans_on_the_last_that_says_something_and_on_the_models_last_words() -> None:
    said = [user(TASK), assistant("Plan A?"), user("no"), assistant("Plan B?"), user("yes")]
    assert leaned_on(*said) == [0, 3]


def test_calls_without_words_are_not_the_models_last_words() -> None:
    call = ToolCall("c1", "bash", "{}")
    result = Message("tool", (ToolResult("c1", (Text("done"),)),))
    assert leaned_on(user(TASK), assistant("Plan?"), assistant("", call), result, user("go")) == [
        0,
        1,
    ]


def test_a_request_of_its_own_leans_on_nothing() -> None:
    assert leaned_on(user("yes"), assistant("Plan?"), user(TASK)) == []


def test_there_may_be_nothing_to_lean_on() -> None:
    assert leaned_on(user("yes")) == []
    assert leaned_on(user("yes"), user("go on")) == []


# ── goals ────────────────────────────────────────────────────────────────────


def goals(*texts: str) -> tuple[int, int]:
    return find_goals([(10 * n, text) for n, text in enumerate(texts)])


def test_the_first_goal_is_the_first_task() -> None:
    assert goals("/mode", "hello", "src/main.py", "", TASK, "yes") == (40, 40)


def test_without_a_task_the_first_message_is_the_goal() -> None:
    assert goals("hello", "hi", "yes") == (0, 0)


def test_the_first_goal_is_among_the_first_messages() -> None:
    assert goals(*["hello"] * (MAX_GOAL_REQUESTS - 1), TASK)[0] == 10 * (MAX_GOAL_REQUESTS - 1)
    assert goals(*["hello"] * MAX_GOAL_REQUESTS, TASK)[0] == 0


def test_users_turn_to_a_new_goal_in_words_that_they_have_not_used() -> None:
    assert goals(TASK, "yes", OTHER_TASK, "and number the tables") == (0, 20)
    assert goals(TASK, SAME_TASK) == (0, 0)
    assert goals(TASK, "translate the manual") == (0, 0), "too short to be sure"


def test_the_first_goal_may_come_back_as_the_current_one() -> None:
    assert goals(TASK, OTHER_TASK, TASK) == (0, 20)
