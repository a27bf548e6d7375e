"""Whether a new epoch pays: tokens saved on the calls to come, against tokens that must be cached
anew.
"""

from msgspec import Struct

from loom.budget.models import ModelFacts

MAX_CALLS = 50  # calls ahead that anything is expected of


class Prices(Struct, frozen=True):
    """What a token costs that is written to a provider's cache, and one that is read from it."""

    write: float
    read: float


class Outlook(Struct, frozen=True, omit_defaults=True):
    """How many calls are expected, and what an epoch that began now would do for them; `pays` is
    whether that is worth it.
    """

    calls: int
    saved: int = 0
    recached: int = 0
    pays: bool = False


class Standing(Struct, frozen=True, kw_only=True):
    """Where an epoch stands: tokens now, those it would begin anew with, those of them that stand
    already, and how it grows.
    """

    now: int
    after: int
    shared: int
    room: int
    growth: int  # tokens that a call adds
    # the provider has forgotten the prefix, so all of it is written anew in any case
    cold: bool = False


def prices_of(model: ModelFacts) -> Prices | None:
    """None where nothing is known of what a model costs."""
    if not model.input:
        return None
    read = model.input if model.cache_read is None else model.cache_read
    write = model.input if model.cache_write is None else model.cache_write
    return Prices(write, read)


def calls_to_come(made: int) -> int:
    """As many as were made: seen at any moment of it, a conversation of unknown length is as likely
    to end before that as after.
    """
    return max(1, min(made, MAX_CALLS))


def weigh(standing: Standing, calls: int, prices: Prices | None) -> Outlook:
    """What an epoch now would bring. It helps only until the next one that must be, however many
    calls are to come.
    """
    saved, recached = standing.now - standing.after, max(standing.after - standing.shared, 0)
    if prices is None or saved <= 0:
        return Outlook(calls, max(saved, 0), recached)
    horizon = min(calls, max(standing.room - standing.now, 0) // max(standing.growth, 1) + 1)
    if standing.cold:
        gain, price = saved * (prices.write + prices.read * (horizon - 1)), 0.0
    else:
        gain, price = saved * prices.read * horizon, recached * (prices.write - prices.read)
    return Outlook(calls, saved, recached, gain > price)
