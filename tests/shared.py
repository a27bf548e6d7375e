"""Where the shared test data and our own recordings are."""

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = Path(__file__).resolve().parent / "fixtures"
SHARED = (ROOT / os.environ.get("LOOM_SHARED", "../shared")).resolve()
AGENTS = SHARED / "data" / "agents"

needs_shared = pytest.mark.skipif(
    not AGENTS.is_dir(),
    reason=f"shared test data not found; set LOOM_SHARED (looked in {SHARED.name})",
)


class Package:
    """A package that is slow to import. It is imported when a test needs it, or that test is
    skipped; processes that run none of these tests are spared.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(pytest.importorskip(self._name), attribute)


EXAMPLES = int(os.environ.get("LOOM_FUZZ", "0"))


def examples(usual: int) -> int:
    """How many random cases to try: a third of the usual number, so that `make test` is quick, or
    what `make fuzz` asks for.
    """
    return EXAMPLES or max(4, usual // 3)
