"""`connect`: a model of a provider by its name."""

import os
from collections.abc import Mapping
from typing import TypedDict, Unpack

from msgspec.structs import replace

from loom.conversation.checked import checks_arguments, choose, refuse_unknown, show_options
from loom.errors import ChoiceError, describe
from loom.providers.http.bodies import Target
from loom.providers.http.client import HttpModel
from loom.providers.http.presets import Preset, check_url, find_preset, split_model
from loom.providers.http.retrying import Patience
from loom.providers.models import Model
from loom.providers.wires import WIRES


class MissingKey(ChoiceError):
    """A provider needs a key, and there is none."""


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`."""

    # Address of the server, such as `http://127.0.0.1:8000/v1` (default: that of the provider, or
    # of its variable).
    base_url: str | None
    # Key of the provider (default: that of its variable).
    key: str | None
    # What the server speaks: `openai`, `responses` or `anthropic` (default: as the provider does).
    wire: str | None
    # Model that writes summaries, as `provider:model` or as an object (default: this model).
    weak_model: str | Model | None
    # Seconds for the whole answer, all tries together (default: 1200).
    timeout: float
    # Seconds until the connection is there (default: 10).
    connect_timeout: float
    # Seconds between two pieces of a stream (default: 300).
    chunk_timeout: float
    # How often a request is sent again after a passing error (default: 4).
    retries: int
    # Longest wait in seconds before that; if the provider asks for more, it fails (default: 60).
    longest_wait: float
    # Headers for every request.
    headers: Mapping[str, str]


_LIMITS = {
    "timeout": "whole",
    "connect_timeout": "connect",
    "chunk_timeout": "chunk",
    "longest_wait": "longest_wait",
}


@checks_arguments
@show_options
def connect(model: str, **options: Unpack[ConnectOptions]) -> HttpModel:
    """A model of a provider, by `provider:model`.

    Providers are `anthropic`, `openai` (chat), `openai-responses`, `openrouter`, `ollama`, `vllm`,
    `llama.cpp` and others; with `base_url`, any server that is compatible with OpenAI. Without a
    model, `connect("ollama")` asks for the model that a request names.
    """
    refuse_unknown("connect", options, ConnectOptions)
    provider, own = split_model(model)
    preset = find_preset(provider, options.get("base_url"), model)
    wire = options.get("wire")
    if wire is not None:
        preset = replace(preset, wire=choose("wire", wire, tuple(WIRES)))
    url = options.get("base_url") or os.environ.get(preset.url_variable) or preset.url
    url = check_url(url)
    if WIRES[preset.wire].path.startswith("/v1/"):  # people give the address with it, too
        url = url.removesuffix("/v1")
    target = Target(preset, url, own, dict(options.get("headers", {})))
    weak = options.get("weak_model")
    if isinstance(weak, str):
        weak = connect(weak)
    return HttpModel(target, _find_key(preset, options), _make_patience(options), weak)


def _find_key(preset: Preset, options: ConnectOptions) -> str:
    key = options.get("key")
    if key is None and preset.key_variable:
        key = os.environ.get(preset.key_variable)
    if not key and preset.needs_key and options.get("base_url") is None:
        raise MissingKey(f"{preset.name} needs a key: set {preset.key_variable}, or give key=")
    key = (key or "").strip()
    if not key.isascii() or any(mark.isspace() for mark in key):
        raise ChoiceError(f"the key of {preset.name} has characters that no key has")
    return key


def _make_patience(options: ConnectOptions) -> Patience:
    given = {
        field: float(_check_positive(name, options[name]))  # type: ignore[literal-required]
        for name, field in _LIMITS.items()
        if name in options
    }
    retries = options.get("retries", Patience().retries)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ChoiceError(f"retries is {describe(retries)}; give a whole number of at least 0")
    return Patience(**given, retries=retries)


def _check_positive(name: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value > 0:  # type: ignore[operator]
        raise ChoiceError(f"{name} is {describe(value)}; give seconds, more than 0")
    return float(value)  # type: ignore[arg-type]
