"""Policies: which counter, budget, order and strategy make a request. They are data; a preset keeps its seed's numbers."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

from loom.errors import ChoiceError

Strategy = Literal["newest", "recent", "truncate_middle", "rolling_window", "stop_at_limit", "whole_turns", "ladder"]


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`counter` drives the strategy (`best`: the same counter as the gate); `history` says what the strategy may fill.

    rest: what everything else, measured, leaves of the window. zone: the zone that the fixed ones leave, as seed 000 has it.
    """

    name: str
    about: str
    strategy: Strategy
    counter: str = "best"
    history: Literal["rest", "zone"] = "rest"
    reserve: int = 4096
    # Kept free where the model's own tokenizer is not public and another one stands in.
    margin: float = 0.08
    # How full a new epoch may be, so that the next calls can append to it.
    refill: float = 0.7
    # Of what was left out, telling lines stand in its place: what a new cover may take of the room for history (0: none), what all
    # of them may take before they become one, and what stays verbatim behind them. `once` is for a call that is its own.
    cover: float = 0.0
    once: float = 0.55
    covers: float = 0.3
    verbatim: float = 0.2
    minimum_recent_nodes: int = 4
    # Neighbours of one author are one message; costs the cached prefix where somebody speaks twice.
    merge: bool = False
    warn_past_dropped: int = 50
    # Of the strategy `ladder`: rungs by name, and the pressure past which each is taken.
    ladder: dict[str, float] = {}
    zones: dict[str, int] = {}
    system: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    separator: str = "\n\n"
    marker: str = "[{count} left out here; recall {handle}]"

    def __post_init__(self) -> None:
        shares = (
            ("margin", self.margin, 0, 0.5),
            ("refill", self.refill, 0.1, 1),
            ("cover", self.cover, 0, 0.5),
            ("once", self.once, 0, 0.7),
            ("covers", self.covers, 0, 0.6),
            ("verbatim", self.verbatim, 0.1, 1),
        )
        for name, value, low, high in shares:
            if not low <= value <= high:
                raise ChoiceError(f"policy {self.name!r}: {name} is {value}; give a share from {low} to {high}")
        if (self.strategy == "ladder") != bool(self.ladder):
            raise ChoiceError(f"policy {self.name!r}: a [ladder] and the strategy 'ladder' need each other")
        if self.minimum_recent_nodes < 1 or self.reserve < 0:
            raise ChoiceError(f"policy {self.name!r}: minimum_recent_nodes must be at least 1 and reserve at least 0")
        try:
            told = self.marker.format(count="1 message", handle="~handle")
        except (KeyError, IndexError, ValueError) as error:
            raise ChoiceError(
                f"policy {self.name!r}: the marker may name {{count}} and {{handle}}, nothing else: {error!r}"
            ) from None
        if "recall ~handle" not in told:
            raise ChoiceError(f"policy {self.name!r}: the marker must say 'recall {{handle}}', or nothing left out could come back")


@cache
def policies() -> dict[str, Policy]:
    """Every policy that ships, by name."""
    return {name: read_policy(text) for name, text in _shipped().items()}


@cache
def _shipped() -> dict[str, str]:
    folder = files("loom.context").joinpath("policies")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in found}


def policy_text(name: str) -> str:
    """A policy that ships, as its TOML."""
    return _shipped()[policy(name).name]


def policy(given: "str | Policy") -> Policy:
    if isinstance(given, Policy):
        return given
    if given not in policies():
        raise ChoiceError(f"unknown policy {given!r}; choose one of {', '.join(policies())}")
    return policies()[given]


def read_policy(text: str) -> Policy:
    """A policy from TOML."""
    try:
        made = msgspec.convert(tomllib.loads(text), Policy)
    except tomllib.TOMLDecodeError as error:
        raise ChoiceError(f"the policy is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ChoiceError(f"the policy does not hold together: {error}") from None
    return made
