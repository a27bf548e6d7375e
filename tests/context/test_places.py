"""Where messages stand: what was not read is never walked through."""

from loom.context.history.places import Places, Spot


def test_a_stretch_that_was_not_read_is_counted_without_walking_through_it() -> None:
    """Walking through this one would not end within a year."""
    stretch = Spot(1, 10**15, (("1:first", "1:last"),), tokens=5)
    places = Places((Spot(0, 1, (("1:goal", "1:goal"),)), stretch), frozenset({0}))
    assert places.count(1) == 10**15 - 1


def test_what_is_hidden_is_not_counted_where_it_was_read() -> None:
    merged = Spot(4, 9, (("1:first", "1:last"),))
    assert Places((merged,), frozenset({5, 6, 20})).count(0) == 3
    assert Places().count(0) == 1
