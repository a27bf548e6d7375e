"""A process that is killed in the middle of its tools loses none of them and repeats none."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from loom import Loom

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.long)])
def test_no_finished_tool_is_lost_or_repeated(tmp_path: Path, kills: int) -> None:
    store, file, steps = tmp_path / "loom.db", tmp_path / "lines.txt", 8 + 8 * kills
    command = [sys.executable, "-m", "tests.loop.killed_agent", str(store), str(file), str(steps)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    chance = random.Random(kills)
    for _ in range(kills):
        process = subprocess.Popen(command, env=environment, cwd=ROOT)
        seen = count_lines(file)
        while process.poll() is None and count_lines(file) < seen + 3:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, timeout=300)
    written = Counter(file.read_text().split())
    assert max(written.values()) == 1
    with Loom.open(store) as loom:
        session = loom.session(loom.sessions()[0].id)
        messages = session.conversation().messages
        assert not session.resume().pending
    calls = [call for message in messages for call in message.calls]
    answers = [result for message in messages for result in message.results]
    assert len(calls) == len({call.id for call in calls}) == steps
    assert sorted(call.id for call in calls) == sorted(answer.call_id for answer in answers)
    told = [answer for answer in answers if not answer.error]
    for answer in told:  # what is told as done was done
        assert written[answer.parts[0].text.removeprefix("wrote ")] == 1
    # Only calls that ran when the process was killed are not known.
    assert len(answers) - len(told) <= 2 * kills


def count_lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0
