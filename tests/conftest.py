"""Random tests are judged by what they find, not by the clock; the same cases each time, until
`make fuzz` asks for new ones.

A test that hangs ends its process, and one that breaks the interpreter does too. Where it stood is
said at the end of the run.
"""

import faulthandler
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import HealthCheck, Phase, settings

from loom.engine import recalling
from tests.shared import EXAMPLES, examples

settings.register_profile(
    "loom",
    deadline=None,
    max_examples=examples(75),
    derandomize=not EXAMPLES,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("loom")

recalling.MAX_SECONDS = 60.0  # a busy machine must not change what a request holds

HANGS_AFTER_SECONDS = 240
_STACKS = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    if "LOOM_TEST_STACKS" not in os.environ:  # workers have it from the process that began them
        os.environ["LOOM_TEST_STACKS"] = tempfile.mkdtemp(prefix="loom-stacks-")
    folder = os.environ["LOOM_TEST_STACKS"]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    config.stash[_STACKS] = open(Path(folder) / f"{worker}-{os.getpid()}.txt", "w")  # noqa: SIM115
    faulthandler.enable(config.stash[_STACKS])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    stacks = item.config.stash[_STACKS]
    faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True, file=stacks)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    folder = Path(os.environ["LOOM_TEST_STACKS"])
    for file in sorted(folder.glob("*.txt")):
        stacks = file.read_text(errors="replace").splitlines()
        ours = [line for line in stacks if "site-packages" not in line]
        if ours:
            terminalreporter.section(f"where {file.stem} stood when it ended")
            terminalreporter.line("\n".join(ours[:100]))
    shutil.rmtree(folder, ignore_errors=True)
