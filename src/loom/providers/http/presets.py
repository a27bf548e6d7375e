"""Providers by name: their addresses, wires, keys and habits."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from loom.budget.models import wire_name
from loom.errors import ChoiceError, shorten


class Preset(Struct, frozen=True, kw_only=True):
    """A provider."""

    name: str
    url: str
    wire: str = "openai"
    # The variable that has the key. Local servers need none.
    key_variable: str = ""
    needs_key: bool = True
    # The variable that has another URL.
    url_variable: str = ""
    # Whether the limit of an answer is `max_tokens`, not `max_completion_tokens`.
    has_max_tokens: bool = True
    # Whether the usage of a stream has to be asked for with `stream_options`.
    has_stream_options: bool = True
    # Fields that every request gets unless it has them.
    fields: Mapping[str, object] = {}


def _local(name: str, port: int, key_variable: str = "", url_variable: str = "") -> Preset:
    return Preset(
        name=name,
        url=f"http://127.0.0.1:{port}/v1",
        key_variable=key_variable,
        needs_key=False,
        url_variable=url_variable,
    )


_OPENAI = Preset(
    name="openai",
    url="https://api.openai.com/v1",
    key_variable="OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    has_max_tokens=False,
)
_ROWS = (
    Preset(
        name="anthropic",
        url="https://api.anthropic.com",
        wire="anthropic",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
    ),
    _OPENAI,
    Preset(
        name="openai-responses",
        url=_OPENAI.url,
        wire="responses",
        key_variable=_OPENAI.key_variable,
        url_variable=_OPENAI.url_variable,
    ),
    Preset(
        name="openrouter",
        url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        fields={"usage": {"include": True}},
    ),
    _local("ollama", 11434, "OLLAMA_API_KEY", "OLLAMA_BASE_URL"),
    _local("vllm", 8000, "VLLM_API_KEY", "VLLM_BASE_URL"),
    _local("llama.cpp", 8080, "LLAMA_API_KEY", "LLAMA_BASE_URL"),
    _local("lmstudio", 1234),
    Preset(name="groq", url="https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY"),
    Preset(name="deepseek", url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY"),
    Preset(
        name="mistral",
        url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        has_stream_options=False,
    ),
    Preset(name="together", url="https://api.together.xyz/v1", key_variable="TOGETHER_API_KEY"),
    Preset(name="xai", url="https://api.x.ai/v1", key_variable="XAI_API_KEY"),
    Preset(
        name="gemini",
        url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
    ),
)
PRESETS: Mapping[str, Preset] = {row.name: row for row in _ROWS}
_ALIASES = {"openai-chat": "openai", "llamacpp": "llama.cpp", "google": "gemini"}
# What bare names of models say of their provider.
_FAMILIES = (
    (re.compile(r"claude", re.I), "anthropic"),
    (re.compile(r"gpt-|o\d|chatgpt", re.I), "openai"),
)


def split_model(name: str) -> tuple[str, str]:
    """The provider and the model of `provider:model`; "" for what the name does not say."""
    own = wire_name(name)
    provider = name[: len(name) - len(own)].rstrip(":").strip().lower()
    if not provider and name.strip().lower() in (*PRESETS, *_ALIASES):
        return name.strip().lower(), ""
    if not provider:
        provider = next((family for start, family in _FAMILIES if start.match(own)), "")
    return provider, own


def find_preset(provider: str, base_url: str | None, model: str = "") -> Preset:
    """The preset of a provider; `model` is how the caller wrote it. Any other server at `base_url`
    is taken for one that is compatible with OpenAI's chat.
    """
    preset = PRESETS.get(_ALIASES.get(provider, provider))
    if preset is not None:
        return preset
    if base_url is None:
        raise ChoiceError(
            f"{shorten(provider or model)!r} is not the name of a provider; write provider:model "
            f"with one of {', '.join(PRESETS)}, or give base_url= for any server that is "
            "compatible with OpenAI"
        )
    return Preset(name=provider or "server", url=base_url, needs_key=False)


def check_url(url: str) -> str:
    """The base URL of a provider. The key is no part of it: addresses are shown."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ChoiceError(
            f"{shorten(url)!r} is not the address of a provider: give http://… or https://…"
        )
    if parts.username or parts.password or parts.query:
        raise ChoiceError("the address of a provider contains a password or a query: give key=")
    return url.rstrip("/")
