"""The page on events tells the truth."""

import re
from pathlib import Path

import pytest

from tests.shared import ROOT
from tests.test_docs import run_python

PAGE = (ROOT / "docs" / "events.md").read_text()


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert run_python("-c", program, cwd=tmp_path) == "planner Focus on the migration.\n"


def test_the_error_of_the_page_is_the_one_that_is_raised() -> None:
    from loom import ChoiceError
    from loom.runtime import Task

    with pytest.raises(ChoiceError) as caught:
        Task(
            action="node.message",
            source_agent="a",
            target_agent="b",
            parameters={"content": "x", "priority": 7},
        )
    assert str(caught.value) in PAGE
