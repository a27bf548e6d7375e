"""Trees in a store in memory, with a clock that a test can read."""

import itertools
from collections.abc import Iterator

import pytest

from loom import Loom

START = 1_700_000_000_000


@pytest.fixture
def loom() -> Iterator[Loom]:
    ticks, ids = itertools.count(START, 1000), itertools.count()
    opened = Loom.open(":memory:", now=lambda: next(ticks), fresh_id=lambda: f"id{next(ids):06}")
    yield opened
    opened.close()
