"""The bench of evidence: it reads malformed ids, counts as it says, and asks all questions."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.shared import ROOT


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return import_module("evidence")


def test_a_conversation_is_read_and_measured(evidence: Any, tmp_path: Path) -> None:
    lines = ["Hello Bob", "Hi Ann", "I bought a red kite", "Where?", "At the fair"]
    turns = [
        {"speaker": ("Ann", "Bob")[n % 2], "dia_id": f"D1:{n + 1}", "text": text}
        for n, text in enumerate(lines)
    ]
    asked = [
        {"question": "What did Ann buy?", "evidence": ["D:1:03; D1:5"], "category": 1},
        {"question": "What did Bob sell?", "evidence": ["D1:1"], "category": 5},
        {"question": "Nothing answers this", "evidence": [], "category": 4},
    ]
    conversation = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    path = tmp_path / "talks.json"
    path.write_text(
        json.dumps([{"sample_id": "one", "conversation": conversation, "qa": asked}]), "utf-8"
    )
    [talk] = evidence.read_talks(path)
    assert [(one.text, one.evidence) for one in talk.questions] == [
        ("What did Ann buy?", frozenset({2, 4}))
    ]
    assert talk.entries[0].created == 1_683_554_160_000
    assert evidence.measure([talk], evidence.find_by_loom).shares("all") == [100.0] * 4
    assert evidence.fill(talk, range(5), 0) == []
