"""How a counter counts, as data: the profiles of the five seeds, and the ones made for a model."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.media import Flat, MediaRule, media_rule
from loom.budget.tokenizers import encoding_for
from loom.errors import ChoiceError

# What of a message is counted. `content` is the text of the message and of its tool results.
Field = Literal["role", "author", "content", "reasoning", "call", "result_id", "opaque"]
EVERYTHING: tuple[Field, ...] = ("author", "content", "reasoning", "call", "result_id", "opaque")


class Exact(Struct, frozen=True, tag="exact"):
    """Counted by the tokenizer of this encoding."""

    encoding: str


class EstimatedText(Struct, frozen=True, tag="estimated"):
    """Estimated by script and shape, see `estimate.py`."""


class CountedBy(Struct, frozen=True, tag="function"):
    """Counted by a function of the caller."""

    function: Any  # from a text to its tokens


class Characters(Struct, frozen=True, tag="characters"):
    """`tokens` for every `characters` characters, rounded as said.

    `whole` sums all characters of a message before it divides; else each text is divided on its
    own. `graphemes` counts what a reader sees as one character, as Elixir does; else code points
    are counted.
    """

    tokens: int
    characters: int
    rounding: Literal["floor", "ceil", "at least one"] = "floor"
    whole: bool = False
    graphemes: bool = False


class Profile(Struct, frozen=True, kw_only=True):
    """`per_*` are tokens; `per_message_characters` and `per_tool_characters` join the characters
    before they are divided.
    """

    name: str
    text: Exact | EstimatedText | Characters | CountedBy
    fields: tuple[Field, ...] = EVERYTHING
    media: MediaRule = Flat(0)
    per_message: int = 0
    per_call: int = 0
    per_tool: int = 0
    per_list: int = 0
    per_message_characters: int = 0
    per_tool_characters: int = 0
    # A content that is a list of parts is wrapped in JSON on the wire; tools that measure requests
    # count that too. It is all by which the same words may differ as a text and as a list.
    per_listed_part: int = 0


SEEDS: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        # 000
        Profile(
            name="window", text=Characters(1, 4, graphemes=True), fields=("content",), per_message=4
        ),
        Profile(name="partitions", text=Characters(1, 4), fields=("content",)),  # 001
        Profile(  # 002
            name="turns",
            text=Characters(2, 5, whole=True),
            fields=("content", "reasoning", "call", "result_id"),
            media=Flat(256),
            per_message_characters=12,
            per_tool_characters=20,
        ),
        Profile(name="tree", text=Characters(1, 4, rounding="ceil"), fields=("content",)),  # 003
        Profile(  # 004, its three counters
            name="tasks",
            text=Characters(1, 4, rounding="at least one"),
            fields=("role", "content"),
            per_message=4,
        ),
        Profile(
            name="tasks-tiktoken",
            text=Exact("cl100k_base"),
            fields=("content",),
            per_message=3,
            per_list=3,
        ),
        Profile(name="tasks-anthropic", text=Characters(2, 7), fields=("content",), per_message=3),
    )
}

# encodings that are at hand, and a model that has each
ENCODINGS = {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4"}
COUNTERS = (*SEEDS, "estimate", *ENCODINGS)  # the names of all profiles


def profile_for(model: str | None) -> Profile:
    """The best there is for a model: its own tokenizer where one is at hand, the estimate
    elsewhere.
    """
    name = model or ""
    encoding = encoding_for(name)
    return Profile(
        name=encoding or "estimate",
        text=Exact(encoding) if encoding else EstimatedText(),
        media=media_rule(name),
        per_message=4,
        per_call=8,
        per_tool=8,
        per_list=3,
        per_listed_part=12,
    )


def profile(name: str) -> Profile:
    """A seed's profile by its policy's name, `estimate`, or an encoding such as `o200k_base`."""
    if name in SEEDS:
        return SEEDS[name]
    made = profile_for(ENCODINGS.get(name, name))
    if made.name == name:
        return made
    raise ChoiceError(f"no counter named {name!r}; choose one of {', '.join(COUNTERS)}")


def profile_of(function: Callable[[str], int]) -> Profile:
    """A profile that counts texts by a function, and all else as for a model that nobody knows. A
    function may say by attributes what a message and a list take beyond their texts.
    """
    usual = profile_for(None)
    return replace(
        usual,
        name=getattr(function, "__name__", "function"),
        text=CountedBy(function),
        per_message=getattr(function, "per_message", usual.per_message),
        per_list=getattr(function, "per_list", usual.per_list),
    )
