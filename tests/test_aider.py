"""Chat histories of aider: samples written by hand in the form that the program writes."""

import contextlib
import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom import read_runs, read_trees
from loom.cli.main import cli
from loom.errors import TranscriptError
from loom.transcripts import aider

TWO = """
# aider chat started at 2026-03-04 09:15:00

> /usr/bin/aider --model weaver-1 loom.py··
> Aider v0.86.0··
> Main model: weaver-1 with diff edit format··
> Added loom.py to the chat.··

#### Add a function that counts the threads.··
#### ####··
#### Keep it short:··
#### ··
#### > one line··

I add `count`.

#### Where it goes

> A quotation of mine.

loom.py
```python
# aider chat is not started here
#### not the user
> not the program··
<<<<<<< SEARCH
=======
def count(threads):
    return len(threads)
>>>>>>> REPLACE
```


> Tokens: 2.1k sent, 90 received.··
> Applied edit to loom.py··

#### /run pytest··

> FAILED tests/test_loom.py
E   assert 3 == 4

1 failed in 0.02s··
> Add 0.1k tokens of command output to the chat? (Y)es/(N)o [Yes]: y··

#### /clear··

#### Now fix it··

Done: the cloth has ü threads.

# aider chat started at 2026-03-05 10:00:00

> Aider v0.86.0··

#### <blank>··

# aider chat started at 2026-03-06 11:00:00

#### Hello··

Hi.
""".replace("·", " ")  # the program ends lines with two spaces


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_each_chat_is_a_run_and_each_line_has_its_speaker(tmp_path: Path) -> None:
    first, empty, last = read_runs(write(tmp_path / ".aider.chat.history.md", TWO))
    assert (first.format, first.name, first.head.model) == (
        "aider chat",
        "2026-03-04 09:15:00",
        "weaver-1",
    )
    assert first.created == 1_772_615_700_000
    said = [(message.role, message.text) for message in first.messages()]
    assert said[0] == (
        "user",
        "Add a function that counts the threads.\n####\nKeep it short:\n\n> one line",
    )
    role, answer = said[1]
    assert role == "assistant"
    assert answer.startswith("I add `count`.\n\n#### Where it goes\n\n> A quotation of mine.\n\n")
    assert "# aider chat is not started here\n#### not the user\n> not the program  \n" in answer
    assert answer.endswith(">>>>>>> REPLACE\n```")
    assert said[2:] == [
        ("system", "Tokens: 2.1k sent, 90 received.\nApplied edit to loom.py"),
        ("user", "/run pytest"),
        (
            "system",
            "FAILED tests/test_loom.py\nE   assert 3 == 4\n\n1 failed in 0.02s\n"
            "Add 0.1k tokens of command output to the chat? (Y)es/(N)o [Yes]: y",
        ),
        ("user", "/clear"),
        ("user", "Now fix it"),
        ("assistant", "Done: the cloth has ü threads."),
    ]
    carried = next(first.messages()).carried
    assert carried is not None
    assert "Aider v0.86.0" in json.loads(carried.fields)["started"]
    assert list(empty.messages()) == []
    assert [message.text for message in last.messages()] == ["Hello", "Hi."]
    trees = list(read_trees(tmp_path / ".aider.chat.history.md"))
    assert [len(tree.nodes) for tree in trees] == [8, 0, 2]
    assert trees[0].nodes[0].created == first.created


def test_without_the_spaces_at_the_ends_lines_are_what_they_begin_with(tmp_path: Path) -> None:
    stripped = "\n".join(line.rstrip() for line in TWO.splitlines())
    first, *_ = read_runs(write(tmp_path / "history.md", stripped))
    said = [(message.role, message.text) for message in first.messages()]
    assert said[0][1].endswith("Keep it short:\n\n> one line")
    assert ("user", "Where it goes") in said, "nothing tells it from a line of the user"
    assert ("system", "Tokens: 2.1k sent, 90 received.\nApplied edit to loom.py") in said
    assert any("#### not the user" in text for role, text in said if role == "assistant")


def test_line_ends_of_other_systems_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "history.md"
    path.write_bytes(b"\xef\xbb\xbf" + TWO.replace("\n", "\r\n").encode())
    assert [[message.text for message in run.messages()] for run in read_runs(path)] == [
        [message.text for message in run.messages()]
        for run in read_runs(write(tmp_path / "plain.md", TWO))
    ]


def test_a_fence_that_never_closes_does_not_swallow_the_next_request(tmp_path: Path) -> None:
    begun = "# aider chat started at 2026-03-04 09:15:00\n\n#### a  \n\n"
    text = f"{begun}```\ncut off\n\n#### b  \n\nyes\n"
    [run] = read_runs(write(tmp_path / "history.md", text))
    said = [(message.role, message.text) for message in run.messages()]
    assert said[2:] == [("user", "b"), ("assistant", "yes")]


def test_commands_read_it_and_choose_a_chat(tmp_path: Path) -> None:
    path = write(tmp_path / "history.md", TWO)
    shown = CliRunner().invoke(cli, ["show", f"{path}#2"])
    assert shown.exit_code == 0, shown.output
    assert "aider chat" in shown.output
    wrong = CliRunner().invoke(cli, ["count", f"{path}#3"])
    assert wrong.exit_code == 2
    assert "choose #0 (2026-03-04 09:15:00), #1 (2026-03-05" in wrong.output


@pytest.mark.parametrize("seed", range(40))
def test_damage_makes_no_more_than_an_error_of_ours(tmp_path: Path, seed: int) -> None:
    shuffled = random.Random(seed)
    lines = TWO.encode().splitlines(keepends=True)
    for _ in range(shuffled.randrange(1, 8)):
        at = shuffled.randrange(len(lines))
        lines[at] = shuffled.choice(
            (b"", b"```\n", b"> \n", b"#### \n", b"####\n", lines[at][:-3], b"> x\n", b"\xff\n")
        )
    path = tmp_path / "history.md"
    path.write_bytes(b"# aider chat started at nowhere\n" + b"".join(lines))
    with contextlib.suppress(TranscriptError):  # not UTF-8
        for run in read_runs(path):
            assert all(message.text for message in run.messages())


def test_what_is_long_is_read_in_linear_time() -> None:
    chat = ["#### go  ", *["```python", "> x", "````"] * 40_000]
    assert len(aider._read_chat(chat)[1]) >= 2
