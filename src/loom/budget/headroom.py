"""How full a window may be before something is done about it, by the size of the window."""

from math import log

SMALL_WINDOW, LARGE_WINDOW = 32_000, 1_000_000  # tokens
SMALL_PCT, LARGE_PCT = 55, 93  # how full these may be


def headroom_pct(window: int, floor: int, ceiling: int) -> int:
    """How full a window may be, in percent: a large one may be fuller than a small one. It is at
    least `floor` and at most `ceiling`.
    """
    growth = log(max(window, 1) / SMALL_WINDOW) / log(LARGE_WINDOW / SMALL_WINDOW)
    usual = round(SMALL_PCT + growth * (LARGE_PCT - SMALL_PCT))
    return max(floor, min(ceiling, usual))
