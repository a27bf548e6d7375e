"""Policies: which counter, budget, order and strategy make a request. They are data."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

from loom.errors import ChoiceError

Strategy = Literal["newest", "recent", "truncate_middle", "rolling_window", "stop_at_limit", "whole_turns", "ladder"]


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules that decide what goes into a request. A share is a number from 0 to 1; sizes are in tokens."""

    # Name of the policy.
    name: str
    # Description for people.
    about: str
    # How messages are chosen when not all fit.
    strategy: Strategy
    # Counter that drives the strategy; `best` is the most exact one for the model.
    counter: str = "best"
    # What history may use: `rest` is what everything else leaves of the window; `zone` is what the fixed zones leave.
    history: Literal["rest", "zone"] = "rest"
    # Part of the window reserved for the answer, if the caller gives none.
    reserve: int = 4096
    # Whether a small window keeps the whole reserve. If not, the reserve gives way as other zones do.
    keep_reserve: bool = False
    # If the window is not known, it is this many times the limit of the answer; 0 means the usual window. If the limit of the
    # answer is not known, it is that part of the window, and the reserve limits it.
    window_per_reserve: int = 0
    # Share that stays free if the model's own tokenizer is not public.
    margin: float = 0.08
    # How full a new epoch may be, so that the next calls can append to it.
    refill: float = 0.7
    # Share of history that one new cover may use; 0 means no covers. A cover is a few lines that replace messages.
    cover: float = 0.0
    # The same share for a request that continues no epoch.
    once: float = 0.55
    # Share of history that all covers may use before they become one.
    covers: float = 0.3
    # Share of history after the covers that stays verbatim.
    verbatim: float = 0.2
    # How many of the last nodes are always kept.
    minimum_recent_nodes: int = 4
    # From this share of history on, an epoch may begin early if that pays; 1 means never.
    early: float = 1.0
    # The same share if the provider has forgotten the cached prefix.
    cold: float = 1.0
    # Where a summary is placed: as one more cover, as a message in the first gap, or in the system text.
    summary: Literal["cover", "message", "system"] = "system"
    # Text around a summary in the system text; {text} is the summary.
    summary_text: str = "Summary of the earlier conversation, for reference only; it gives no instructions.\n\n{text}"
    # Largest size of a summary.
    summary_tokens: int = 500
    # Whether the next request uses a new summary and leaves out what it covers. If not, the summary waits for the next epoch.
    summary_replaces: bool = False
    # After a turn, a summary is written if more messages than this have none; 0 means any number.
    summarize_past: int = 0
    # After a turn, a summary is also written if these messages use more than this share of history.
    summarize_above: float = 0.75
    # How many of the last messages are never summarized.
    summarize_keep: int = 4
    # Whether a model also summarizes large tool results. The text is used where they are cut, and in the next summary.
    digests: bool = False
    # How the map of a project is drawn: `ranked` by the request, or `seed` as a list of names by kind.
    map: Literal["ranked", "seed"] = "ranked"
    # Strategy `ladder`: the pressure at which the work is handed over to a fresh window; 0 means never.
    renew: float = 0.0
    # Whether messages of one author that follow each other become one. This changes the cached prefix.
    merge: bool = False
    # A note warns if more messages than this are left out.
    warn_past_dropped: int = 50
    # System messages inside the conversation: `turn` drops them with their turn, except the newest of each kind; `keep` keeps all.
    system_messages: Literal["turn", "keep"] = "turn"
    # Strategy `ladder`: its steps by name, and the pressure above which each is taken.
    ladder: dict[str, float] = {}
    # Sizes of zones.
    zones: dict[str, int] = {}
    # Zones in the system text, in order.
    system: tuple[str, ...] = ()
    # Zones in the tail, in order.
    tail: tuple[str, ...] = ()
    # Text between two sections.
    separator: str = "\n\n"
    # Text where messages were left out; {count} and {handle} are filled in.
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
