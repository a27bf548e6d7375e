"""`loom demo` shows what Loom does, act by act, and ends by itself. All tests look at one run."""

import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def shown() -> str:
    command = [sys.executable, "-c", "from loom.cli.main import run; run()", "demo"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_shows_the_broken_and_the_mended_transcript(shown: str) -> None:
    for piece in ("unanswered-call", "orphan-result", "duplicate-result", "✓ no errors"):
        assert piece in shown


def test_it_weaves_a_long_session_under_a_shrinking_window(shown: str) -> None:
    for piece in ("128,000", "32,000", "8,000", "2,000", "✓ the same as the original"):
        assert piece in shown
    assert "\r" not in shown, "nothing moves where there is no terminal"
    woven = [line.split() for line in shown.splitlines() if line.endswith(" kept")]
    assert [line[-2:] for line in woven] == [["0", "kept"]] * 4, "no torn pairs, and the goal is in"


def test_it_keeps_a_session_through_a_restart(shown: str) -> None:
    for piece in (
        "the same, byte for byte",
        "messages, the same as the original",
        "the last one plus what is new",
        "nothing copied",
    ):
        assert piece in shown
    assert "✗ not" not in shown


def test_it_draws_a_tree_and_lets_an_agent_act_on_it(shown: str) -> None:
    assert "dialogue · 6 nodes · 2 branches · depth 4" in shown
    assert "✗ NOT_FOUND: there is no node 'nope'" in shown
    assert "✓ what the agent read before is unchanged" in shown


def test_it_maps_its_own_code(shown: str) -> None:
    assert "context/history/gate.py (relevance: high)" in shown
    assert "find_windows" in shown.split("A map of the code")[1]


def test_it_shows_an_agent_at_work(shown: str) -> None:
    assert shown.count("read_page") == 12
    assert "left out" in shown
    assert "Line 17 of page 3: paid 3017." in shown
