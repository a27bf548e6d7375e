"""The keys of the configuration: their names, what they mean, and which values are right."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal

from msgspec import Struct

from loom.conversation.checked import MAX_NUMBER
from loom.errors import describe, shorten

KeyKind = Literal["name", "tokens", "window", "percent", "policy", "store"]
MAX_NAME_CHARS = 200
MIN_HEADROOM_PCT = 10
ZONE_KEYS = "context.zones"
ZONE_VARIABLES = "LOOM_ZONE_"
RULES = "rules"
MAX_SHOWN_KEYS = 12  # in an error
_ZONE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Key(Struct, frozen=True):
    """A key of the configuration. `otherwise` says what holds if nobody sets it."""

    name: str
    variable: str
    kind: KeyKind
    about: str
    otherwise: str
    example: str


KEYS = (
    Key(
        "store",
        "LOOM_STORE",
        "store",
        "Store of the sessions. In this file: a path inside the project.",
        "a file in your data folder",
        '".loom/loom.db"',
    ),
    Key(
        "context.model",
        "LOOM_MODEL",
        "name",
        "Model that gets the requests. It decides the tokenizer and the window.",
        "the model that the session or the transcript names",
        '"anthropic:claude-sonnet-4-5"',
    ),
    Key(
        "context.weak_model",
        "LOOM_WEAK_MODEL",
        "name",
        "Cheaper model that writes the summaries of `loom chat` and `loom run`.",
        "none",
        '"anthropic:claude-haiku-4-5"',
    ),
    Key(
        "context.window",
        "LOOM_WINDOW",
        "window",
        "Size of the whole window in tokens.",
        "the window of the model",
        "200000",
    ),
    Key(
        "context.reserved_output_tokens",
        "LOOM_RESERVED_OUTPUT_TOKENS",
        "tokens",
        "Part of the window that is reserved for the answer.",
        "as the policy says",
        "4096",
    ),
    Key(
        "context.max_repo_map_tokens",
        "LOOM_MAX_REPO_MAP_TOKENS",
        "tokens",
        "Size of the zone `repo_map`, the map of the project.",
        "2048",
        "2048",
    ),
    Key(
        "context.max_decision_context_tokens",
        "LOOM_MAX_DECISION_CONTEXT_TOKENS",
        "tokens",
        "Size of the zone `decision_context`, the decisions of the project.",
        "1024",
        "1024",
    ),
    Key(
        "context.headroom_floor_pct",
        "LOOM_HEADROOM_FLOOR_PCT",
        "percent",
        "Summaries begin when history is this full or fuller, however small the window.",
        "as the policy says",
        "55",
    ),
    Key(
        "context.headroom_ceiling_pct",
        "LOOM_HEADROOM_CEILING_PCT",
        "percent",
        "Summaries begin when history is this full at the latest, however large the window.",
        "as the policy says",
        "93",
    ),
    Key(
        "context.policy",
        "LOOM_POLICY",
        "policy",
        "Policy: a name (see `loom policy list`), a TOML file in the project, or a table "
        "[context.policy] with `extends` and the fields that differ.",
        "default",
        '"default"',
    ),
)
KEYS_BY_NAME = {key.name: key for key in KEYS}
# The zones that a key of their own sizes, and that key.
ZONES_WITH_KEYS = {
    "repo_map": "max_repo_map_tokens",
    "decision_context": "max_decision_context_tokens",
    "reserved_output": "reserved_output_tokens",
}


def zone_key(zone: str) -> Key:
    """The key that sizes a zone."""
    return Key(
        f"{ZONE_KEYS}.{zone}",
        f"{ZONE_VARIABLES}{zone.upper()}",
        "tokens",
        f"Size of the zone `{zone}`.",
        "as the policy says",
        "2048",
    )


def find_zone_mistake(zone: str) -> str:
    """What is wrong with the name of a zone; "" if nothing is."""
    if zone in ZONES_WITH_KEYS:
        return f"the zone {zone!r} has a key of its own: set context.{ZONES_WITH_KEYS[zone]}"
    if zone == "history":
        return "history is what the other zones leave; set those, or the window"
    if not _ZONE_NAME.fullmatch(zone):
        return (
            f"{shorten(zone)!r} is not the name of a zone; use small letters, digits and _, 40 at "
            "most"
        )
    return ""


def find_mistake(key: Key, value: Any) -> str:
    """What is wrong with a value; "" if nothing is. Stores and policies are checked where they are
    looked for.
    """
    if key.kind in ("name", "store"):
        return _find_text_mistake(key, value)
    if key.kind == "policy":
        return "" if isinstance(value, dict) else _find_text_mistake(key, value)
    lowest, highest = _range(key.kind)
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
        return ""
    if key.kind == "percent":
        wanted = f"a whole number from {lowest} to {highest}"
    else:
        wanted = f"a whole number of tokens, {lowest} or more"
    return f"{key.name} must be {wanted}, found {describe(value)}"


def _range(kind: KeyKind) -> tuple[int, int]:
    if kind == "percent":
        return MIN_HEADROOM_PCT, 100
    return int(kind == "window"), MAX_NUMBER


def _find_text_mistake(key: Key, value: Any) -> str:
    if not isinstance(value, str):
        wanted = "a text or a table" if key.kind == "policy" else "a text"
        return f"{key.name} must be {wanted}, found {describe(value)}"
    if not value.strip() or (len(value) > MAX_NAME_CHARS and key.kind != "store"):
        return f"{key.name} must have 1 to {MAX_NAME_CHARS} characters, found {len(value)}"
    if _CONTROL.search(value):
        return f"{key.name} must not contain control characters"
    return ""


def name_nearest(wrong: str, right: Iterable[str]) -> str:
    """The end of an error about a wrong key: the nearest right one, or all of them."""
    names = sorted(right)
    last = {name.rpartition(".")[2]: name for name in reversed(names)}
    part = wrong.rpartition(".")[2]
    if part in last:
        return f"the nearest is {last[part]!r}"
    close = get_close_matches(wrong, names, 1, 0.7)
    close = close or [last[name] for name in get_close_matches(part, last, 1, 0.6)]
    if close:
        return f"the nearest is {close[0]!r}"
    shown = ", ".join(names[:MAX_SHOWN_KEYS])
    return f"the keys are {shown}"
