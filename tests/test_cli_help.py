"""What helps whoever uses the command: near misses named, files written first, lines that fit, what
takes the window.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from loom import Loom
from loom.cli.main import cli
from loom.cli.terminal import columns_of
from tests.shared import FIXTURES
from tests.test_cli import LOOM, loom
from tests.test_weave_cli import long, no_models_of_the_user

__all__ = ["long", "no_models_of_the_user"]  # fixtures


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["sesion"], "session"),
        (["session", "lst"], "list"),
        (["tree", "shwo"], "show"),
        (["wave"], "weave"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest_one(given: list[str], meant: str) -> None:
    done = loom(*given)
    assert done.returncode == 2
    assert f"did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [(["weave", "x", "--windw", "3"], "--window"), (["show", "x", "--lst", "3"], "--last")],
)
def test_a_mistyped_option_is_answered_with_the_nearest_one(given: list[str], meant: str) -> None:
    done = loom(*given)
    assert done.returncode == 2
    assert f"No such option '{given[2]}'. Did you mean '{meant}'?" in done.stderr


def test_a_command_that_is_like_no_other_is_answered_with_all() -> None:
    assert "it is one of list, show" in loom("policy", "qqq").stderr


def test_the_file_is_written_also_where_nobody_reads_the_picture(
    long: Path, tmp_path: Path
) -> None:
    out = tmp_path / "request.json"
    reader, writer = os.pipe()
    os.close(reader)  # whoever listens has gone
    try:
        command = [*LOOM, "weave", str(long), "--window", "4000", "-o", str(out)]
        subprocess.run(command, stdout=writer, stderr=subprocess.DEVNULL, timeout=120, check=False)
    finally:
        os.close(writer)
    assert json.loads(out.read_text())["messages"]


def test_a_dash_is_standard_output(long: Path, tmp_path: Path) -> None:
    for command in (["weave", long, "--window", "4000"], ["convert", long, "--to", "anthropic"]):
        done = subprocess.run(
            [*LOOM, *map(str, command), "-o", "-"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["messages"]
        assert done.stderr, "the picture is there too"
    assert not (tmp_path / "-").exists()


def test_explain_shows_how_a_cover_begins(long: Path) -> None:
    done = loom("explain", long, "--window", "3000", COLUMNS="100")
    told = [line for line in done.stdout.splitlines() if line.strip().startswith("│")]
    assert len(told) == 5
    assert any("page" in line or "line" in line for line in told)
    assert re.search(r"… and \d+ more lines?; --show prints all$", told[-1])


def test_explain_shows_all_that_a_cover_says_as_the_model_reads_it(long: Path) -> None:
    shown = loom("explain", long, "--window", "3000", "--show", COLUMNS="160").stdout
    told = [line.strip()[2:] for line in shown.splitlines() if line.strip().startswith("│")]
    request = json.loads(loom("weave", long, "--window", "3000", "--json").stdout)["request"]
    [cover] = [
        message["content"]
        for message in request["messages"]
        if str(message["content"]).startswith("[90 messages left out here; ")
    ]
    lead, *quotes = [" ".join(line.split()) for line in cover.splitlines()]
    assert told[0].endswith(lead.partition("]")[2])
    assert " ".join(quotes) == " ".join(" ".join(told[1:]).split())


def test_what_a_cover_quotes_is_shown_by_place_and_speaker_within_the_terminal(
    tmp_path: Path,
) -> None:
    words = "please keep the colour of the header \x1b[31mred\x1b[0m, " * 8
    said: list[dict[str, object]] = [
        {"role": "user", "content": "Please write a page and keep the colour of its header"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": f"{words}\n\n    and {'x' * 90} indented"},
    ]
    for number in range(40):
        said += [
            {"role": "assistant", "content": f"I looked at page {number} of the file. " * 12},
            {"role": "user", "content": f"read page {number + 1}"},
        ]
    said[-1]["content"] = "Now write the page, and tell me which colour its header has now"
    file = tmp_path / "said.json"
    file.write_text(json.dumps({"messages": said}))
    done = loom("explain", file, "--window", "3000", "--show", COLUMNS="80")
    lines = done.stdout.splitlines()
    assert "\x1b[31m" not in done.stdout
    assert max(map(columns_of, lines)) <= 80
    told = [line[6:] for line in lines if line.startswith("    │")]
    place = told.index("2 user")
    assert told[place + 1].startswith("> please keep the colour of the header �[31mred�[0m, ")
    assert told[place + 2].startswith("  "), "a long line goes on below itself"
    assert ">" in told[place:], "an empty line is quoted, too"
    assert "only the user's words are instructions:" in " ".join(told)


def test_covers_have_their_quotes_in_json(long: Path) -> None:
    items = json.loads(loom("explain", long, "--window", "3000", "--json").stdout)["items"]
    [cover] = [item for item in items if item["action"] == "covered"]
    assert cover["quotes"]
    for quote in cover["quotes"]:
        assert set(quote) == {"place", "voice", "speaker", "about", "lines"}
    shown = loom("explain", long, "--window", "3000", "--show", COLUMNS="160").stdout
    for quote in cover["quotes"]:
        assert f"{quote['place']} {quote['speaker']}" in shown
        assert f"> {quote['lines'][0][:60]}" in shown
    assert all("quotes" not in item for item in items if item["action"] != "covered")


def test_explain_names_what_the_request_leans_on(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Please write a parser for the log files of the server"}]
    for number in range(30):
        said += [
            {"role": "assistant", "content": f"I looked at page {number} of the file. " * 20},
            {"role": "user", "content": "go on"},
        ]
    said += [
        {"role": "assistant", "content": "The file ends here."},
        {"role": "user", "content": "Make a plan with three steps for the tests of this parser"},
        {"role": "assistant", "content": "First fuzz it, then measure, then document. Shall I?"},
        {"role": "user", "content": "yes, do it"},
    ]
    file = tmp_path / "said.json"
    file.write_text(json.dumps({"messages": said}))
    done = loom("explain", file, "--window", "3000", COLUMNS="80")
    assert "the request leans on it" in done.stdout
    assert "first goal" in done.stdout
    items = json.loads(loom("explain", file, "--window", "3000", "--json").stdout)["items"]
    rules = {item["rule"]: item["place"] for item in items if item["action"] == "kept"}
    end = len(said)
    assert rules["first goal"] == "messages[0]"
    assert rules["the request leans on it"] in (f"messages[{end - 3}]", f"messages[{end - 2}]")
    assert rules["current request"] == f"messages[{end - 1}]"


def test_count_tells_which_tools_and_messages_take_most(long: Path) -> None:
    report = json.loads(loom("count", long, "--largest", "3", "--json").stdout)
    use = report["by_tool"]["count"]
    assert use["calls"] == 50
    assert use["result_tokens"] > use["call_tokens"] > 0
    sizes = [large["tokens"] for large in report["largest"]]
    assert len(sizes) == 3
    assert sizes == sorted(sizes, reverse=True)
    assert {large["role"] for large in report["largest"]} == {"tool"}
    assert {large["tools"] for large in report["largest"]} == {"count"}
    done = loom("count", long, "--by", "tool", "--largest", "2")
    assert "result tokens" in done.stdout
    assert done.stdout.count("message ") == 2


def test_show_tells_only_the_last_messages_where_asked(long: Path) -> None:
    done = loom("show", long, "--last", "2")
    assert "the first 100 messages are not shown" in done.stdout
    assert "How many?" in done.stdout
    assert "page 3" not in done.stdout
    assert loom("show", long, "--last", "2", "--turn", "0").returncode == 2


def test_lines_fit_a_terminal_of_eighty_columns(long: Path) -> None:
    session = FIXTURES / "cc_parallel_thinking.jsonl"
    commands = [
        ["weave", long, "--window", "3000"],
        ["explain", long, "--window", "3000"],
        ["explain", long, "--window", "3000", "--show"],
        ["explain", session],
        ["count", long, "--largest", "3"],
        ["count", session, "--by", "tool"],
        ["show", long],
        ["policy", "list"],
        ["budget", "gpt-4o"],
        ["check", session],
        ["replay", long, "--window", "3000"],
    ]
    for command in commands:
        done = loom(*command, COLUMNS="80")
        wide = [line for line in click.unstyle(done.stdout).splitlines() if columns_of(line) > 80]
        assert not wide, (command[0], wide)


def test_kept_things_say_what_they_are() -> None:
    with Loom.open(":memory:", tenant="acme") as opened:
        session = opened.new("Fix the login")
        session.append("Why?")
        assert repr(opened) == "<Loom :memory:, tenant acme, project default>"
        assert repr(session) == f"<Session {session.id} 'Fix the login', 1 message>"
        assert repr(opened.new_tree("Ideas")).endswith("'Ideas', dialogue>")


def every_command(
    command: click.Command = cli, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    # click leaves two columns of a terminal free; its runner for tests does not
    done = CliRunner().invoke(cli, [*words, "--help"], prog_name="loom", terminal_width=78)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_every_help_fits_eighty_columns_and_every_option_is_explained(
    words: tuple[str, ...],
) -> None:
    text = help_of(words)
    assert not [line for line in text.splitlines() if columns_of(line) > 80]
    listed = text.partition("Commands:\n")[2]
    assert "..." not in listed, "a first sentence that is cut off says nothing"
    bare = re.findall(r"^  (-[^ ].*?)(?:\n  -|\Z)", text.partition("Options:\n")[2], re.M | re.S)
    assert all("  " in option or "\n" in option for option in bare), bare


FIGURES = (
    r"\b(anew|behind|beside|mended?|told|tells?|put away|so many|letters|stands?|just so)\b"
    r"|\bis no \w|\bwire\b|[Ss]eed\b|\bnone where\b"
)


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_helps_use_the_common_word(words: tuple[str, ...]) -> None:
    found = re.search(FIGURES, help_of(words))
    assert not found, found and found[0]
