"""A table for a terminal: columns as wide as they must be, one of them cut so that a line fits."""

from collections.abc import Sequence

from loom.cli import terminal
from loom.cli.terminal import clean, columns_of, dim, fit_columns, say, style

_GAP = 2
_LEAST = 12  # columns of what is cut
_SHORT = 8  # characters of an id that a list shows, if they are enough


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], cut: int, right: Sequence[int] = ()
) -> None:
    """Rows under their names; the first column is what a row is called by, `cut` the one that
    gives way, `right` are numbers.
    """
    wide = [max(map(columns_of, cells)) for cells in zip(names, *rows, strict=True)]
    others = sum(wide) - wide[cut] + _GAP * (len(names) - 1)
    wide[cut] = min(wide[cut], max(_LEAST, terminal.width() - others))

    def line(cells: Sequence[str]) -> list[str]:
        return [
            f"{clean(c):>{w}}" if n in right else fit_columns(c, w)
            for n, (c, w) in enumerate(zip(cells, wide, strict=True))
        ]

    say(dim((" " * _GAP).join(line(names)).rstrip()))
    for cells in rows:
        first, *rest = line(cells)
        say((" " * _GAP).join((style(first, fg="blue"), *rest)).rstrip())


def short_ids(ids: Sequence[str]) -> list[str]:
    """The beginnings of these ids that tell them apart."""
    letters = _SHORT
    while len({identity[:letters] for identity in ids}) < len(set(ids)):
        letters += 1
    return [identity[:letters] for identity in ids]
