"""What models can hold and what they cost: a snapshot of public figures, pinned where it must be,
overridden by the user.

Names may be bare (`gpt-4o`), `provider:model` or `provider/model`, with a date, a version or dots
where the table has none. A request carries the name that the provider knows.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from loom.budget.tokenizers import encoding_for
from loom.conversation.checked import checks_arguments
from loom.errors import ChoiceError, describe

# Seed 000's answer for a model nobody knows.
DEFAULT_WINDOW = 128_000

# The caller reads this variable or file, if there is one, and hands the text to `read_overrides`.
OVERRIDES_VARIABLE = "LOOM_MODELS"
OVERRIDES_FILE = "loom/models.toml"

# A date, a provider's version or an alias behind a name: -20250929, -2024-08-06, @20251001, -v1:0,
# -latest.
_SUFFIX = re.compile(
    r"(?:[-@]20\d\d-?\d\d-?\d\d|@\d{8}|-v\d+(?::\d+)?|:\d+|:free|-latest|@latest|@default)$"
)
# Who is named before the colon in the notation `provider:model`. What the provider itself calls the
# model stands behind it.
_PROVIDERS = frozenset(
    (
        *(
            "ai21",
            "alibaba",
            "anthropic",
            "azure",
            "bedrock",
            "cerebras",
            "cloudflare",
            "cohere",
            "databricks",
        ),
        *(
            "deepinfra",
            "deepseek",
            "fireworks",
            "fireworks-ai",
            "gateway",
            "gemini",
            "github",
            "google",
            "google-gla",
        ),
        *(
            "google-vertex",
            "grok",
            "groq",
            "huggingface",
            "litellm",
            "llama.cpp",
            "llamacpp",
            "lmstudio",
            "local",
            "minimax",
            "mistral",
        ),
        *(
            "moonshot",
            "moonshotai",
            "novita",
            "nvidia",
            "ollama",
            "openai",
            "openai-chat",
            "openai-responses",
        ),
        *(
            "openrouter",
            "perplexity",
            "replicate",
            "sambanova",
            "together",
            "togetherai",
            "vercel",
            "vertex",
        ),
        *("scripted", "vertexai", "vllm", "watsonx", "xai", "zai"),
    )
)
# Behind the colon of a local model stands a tag: mistral:7b-instruct, mistral:latest, mistral:v0.3.
_TAG = re.compile(
    r"(?:\d|v\d|q\d|latest$|instruct|text|chat$|base$|code$|fp\d|cloud$)", re.IGNORECASE
)
_TUNED = re.compile(r"(?:^|[:/])ft:([^:/]+)")  # ft:gpt-4o-2024-08-06:organisation:name:id
_VENDOR = re.compile(r"^(?:(?:us|eu|apac|au|jp|global)\.)?[a-z]+\.(?=[a-z])")


class Figures(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is known of a model; prices are dollars per million tokens."""

    window: int | None = None
    max_output: int | None = None
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


class ModelFacts(Struct, frozen=True, kw_only=True):
    """A model and its figures. `known` is false where nothing but the default window could be
    said.
    """

    name: str
    window: int
    max_output: int | None = None
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    encoding: str = ""
    known: bool = True


Overrides = Mapping[str, Figures]


def model(name: str | None, overrides: Overrides | None = None) -> ModelFacts:
    """The model of this name; the user's figures win over the pinned ones, and those over the
    snapshot's.
    """
    names = list(_spellings(name or ""))
    found = [
        figures
        for table in (overrides or {}, _pins(), _snapshot())
        if (figures := _first(table, names))
    ]
    merged: dict[str, Any] = {}
    for figures in reversed(found):
        merged |= {
            key: value for key, value in structs.asdict(figures).items() if value is not None
        }
    return ModelFacts(
        name=name or "unknown",
        encoding=encoding_for(name or ""),
        known=bool(found),
        **{"window": DEFAULT_WINDOW, **merged},
    )


def wire_name(name: str) -> str:
    """The name that a request carries: what the provider calls the model, without the provider of
    `provider:model`.

    A colon that belongs to the name stays: `llama3:8b`, `ft:gpt-4o:acme::id`, `mistral:7b`,
    `vendor/model:free`.
    """
    provider, colon, own = name.partition(":")
    is_notation = colon and own and provider.strip().lower() in _PROVIDERS and not _TAG.match(own)
    return own if is_notation else name


@checks_arguments
def model_limit(name: str | None, overrides: Overrides | None = None) -> int:
    """The window of a model in tokens; 128,000 where it is unknown."""
    return model(name, overrides).window


def cost(
    priced: ModelFacts, prompt: int, completion: int, cached: int = 0, written: int = 0
) -> float:
    """Dollars for an answer; `prompt` counts all tokens read, of which some came from a cache or
    were written to one.
    """
    plain = priced.input or 0.0
    read = plain if priced.cache_read is None else priced.cache_read
    write = plain if priced.cache_write is None else priced.cache_write
    fresh = max(prompt - cached - written, 0)
    return round(
        (fresh * plain + cached * read + written * write + completion * (priced.output or 0.0))
        / 1_000_000,
        9,
    )


def find(part: str = "", overrides: Overrides | None = None) -> tuple[str, ...]:
    """The names that contain a part, shortest first, so that a model stands before its hosts'
    copies of it.
    """
    wanted = part.lower().replace(":", "/")
    names = {*_snapshot(), *_pins(), *(overrides or {})}
    return tuple(
        sorted(
            (name for name in names if wanted in name),
            key=lambda name: (name.count("/"), len(name), name),
        )
    )


def read_overrides(text: str) -> dict[str, Figures]:
    """The user's own figures from TOML: a table per model, with the fields of `Figures`."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ChoiceError(
            f"the models file is not TOML: {error}; write ['name'] and window = 200000 below it"
        ) from None
    overrides: dict[str, Figures] = {}
    for name, table in tables.items():
        try:
            figures = msgspec.convert(table, Figures)
        except msgspec.ValidationError as error:
            raise ChoiceError(
                f"model {name!r}: {error}; write ['{name}'] with window = 200000 and the like"
            ) from None
        if (
            any(value is not None and value < 0 for value in structs.astuple(figures))
            or figures.window == 0
        ):
            raise ChoiceError(f"model {name!r}: figures must be positive, found {describe(table)}")
        overrides[name.lower().replace(":", "/")] = figures
    return overrides


def _first(table: Overrides, names: list[str]) -> Figures | None:
    return next((table[name] for name in names if name in table), None)


def _spellings(name: str) -> Iterator[str]:
    """The ways a table may spell a name, the most exact first."""
    full = name.strip().lower()
    seen: set[str] = set()
    # The first colon may part a provider from a model, a later one a version:
    # bedrock:anthropic.claude-v2:1.
    starts = [full, full.replace(":", "/", 1)]
    # it has figures of its own, or those of the model that it was made from
    if tuned := _TUNED.search(full):
        starts += [f"ft:{tuned.group(1)}", tuned.group(1)]
    for start in dict.fromkeys(starts):
        segments = start.split("/")
        for at in range(len(segments)):
            spelling = "/".join(segments[at:])
            while True:
                for one in (spelling, _VENDOR.sub("", spelling)):
                    for form in (one, re.sub(r"(?<=\d)\.(?=\d)", "-", one)):
                        if form and form not in seen:
                            seen.add(form)
                            yield form
                shorter = _SUFFIX.sub("", spelling)
                if shorter == spelling:
                    break
                spelling = shorter


@cache
def _snapshot() -> dict[str, Figures]:
    import gzip  # here, as below

    rows = msgspec.json.decode(gzip.decompress(_data("models.json.gz")), type=dict[str, list[Any]])
    return {name: Figures(*row) for name, row in rows.items()}


@cache
def _pins() -> dict[str, Figures]:
    return read_overrides(_data("pins.toml").decode())


def _data(name: str) -> bytes:
    from importlib.resources import files  # here: not all need it, and it takes long to load

    return files("loom.budget").joinpath("data", name).read_bytes()
