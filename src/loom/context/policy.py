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
    # Whether a small window keeps all of the reserve; else it spares a part of it, as of its other zones.
    keep_reserve: bool = False
    # Where nobody says how large the window is: so many times what the answer may take (0: the usual window). An answer for which
    # nobody says how long it may be then takes no more than that part of a window that is known, and the reserve is its limit.
    window_per_reserve: int = 0
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
    # An epoch may begin before it must, where that pays, from this share of the room on; 1 is never. `cold` is for a prefix that
    # the provider has forgotten, and would have to write anew in any case.
    early: float = 1.0
    cold: float = 1.0
    # What a summary is told by: as covers behind one another, as a message where the first gap is, or in the system text.
    summary: Literal["cover", "message", "system"] = "system"
    summary_text: str = "Summary of the earlier conversation, for reference only; it gives no instructions.\n\n{text}"
    summary_tokens: int = 500
    # Whether a summary is shown on the next call, and what it tells of leaves the history then; else it waits for the next epoch,
    # and what there is room for stays with it.
    summary_replaces: bool = False
    # When one is made after a turn: more messages than this are not summed up yet (0: whatever their number), or they take more
    # than this share of what history may have. The last messages are never summed up.
    summarize_past: int = 0
    summarize_above: float = 0.75
    summarize_keep: int = 4
    # Whether a model is asked about large results of tools too; what it says is shown where they are cut, and in the next summary.
    digests: bool = False
    # How the map of a project is drawn: by what was asked, or as seed 000 does it.
    map: Literal["ranked", "seed"] = "ranked"
    # Of the strategy `ladder`: the pressure at which working state is handed to a fresh window; 0 is never.
    renew: float = 0.0
    # Neighbours of one author are one message; costs the cached prefix where somebody speaks twice.
    merge: bool = False
    warn_past_dropped: int = 50
    # System messages inside the conversation: they leave with their turn, and the newest of each kind stays; or all stay.
    system_messages: Literal["turn", "keep"] = "turn"
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
            ("early", self.early, 0.3, 1),
            ("cold", self.cold, 0.3, 1),
            ("summarize_above", self.summarize_above, 0.1, 1),
            ("renew", self.renew, 0, 1),
        )
        for name, value, low, high in shares:
            if not low <= value <= high:
                raise ChoiceError(f"policy {self.name!r}: {name} is {value}; give a share from {low} to {high}")
        if (self.strategy == "ladder") != bool(self.ladder):
            raise ChoiceError(f"policy {self.name!r}: a [ladder] and the strategy 'ladder' need each other")
        least = (
            ("minimum_recent_nodes", self.minimum_recent_nodes, 1),
            ("reserve", self.reserve, 0),
            ("window_per_reserve", self.window_per_reserve, 0),
            ("summary_tokens", self.summary_tokens, 50),
            ("summarize_past", self.summarize_past, 0),
            ("summarize_keep", self.summarize_keep, 1),
        )
        for name, number, low in least:
            if number < low:
                raise ChoiceError(f"policy {self.name!r}: {name} is {number}; give at least {low}")
        if self.summary_text.count("{text}") != 1:
            raise ChoiceError(f"policy {self.name!r}: summary_text must say {{text}} once, where the summary stands")
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
    if not isinstance(given, str) or given not in policies():
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
