"""Wire JSON both ways, and the rules of each wire."""

import re

from loom.conversation.checked import checks_arguments
from loom.dialects import anthropic, document, openai, responses
from loom.dialects.wire import Dialect
from loom.errors import ChoiceError

DIALECTS: dict[str, Dialect] = {
    d.name: d for d in (openai.DIALECT, responses.DIALECT, anthropic.DIALECT, document.DIALECT)
}
WIRES: tuple[Dialect, ...] = tuple(d for d in DIALECTS.values() if d.name != "document")


@checks_arguments
def dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise ChoiceError(f"unknown dialect {name!r}; choose one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def dialect_of_model(model: str) -> str:
    """The dialect that the API of a model speaks; the most common one for a name that says
    nothing.
    """
    lowered = model.lower()
    return next(
        (each.name for each in WIRES if any(word in lowered for word in each.model_words)),
        openai.NAME,
    )


_OPENAI_MODELS = re.compile(r"(?:^|[/:.])(?:gpt-|o\d|codex|chatgpt)")
# Providers that requests are sent to on the wire of OpenAI chat.
_CHAT_PROVIDERS = re.compile(
    r"(?:openai|openai-chat|openrouter|ollama|vllm|llama\.?cpp|lmstudio|groq|deepseek|mistral"
    r"|together|xai|gemini|google):"
)


def is_for_chat(model: str) -> bool:
    """Whether requests for a model go on the wire of OpenAI chat, as far as its name says."""
    lowered = model.lower()
    if _CHAT_PROVIDERS.match(lowered):
        return True
    return not lowered.startswith("openai-responses:") and dialect_of_model(model) == openai.NAME


def compaction_wires(model: str) -> tuple[str, ...]:
    """The wires whose compactions the provider of a model can read; all of them if no model is
    named. A name with a provider says which wire it is sent on: `openai:gpt-5` on that of chat.
    """
    if not model:
        return (anthropic.NAME, responses.NAME)
    if _CHAT_PROVIDERS.match(model.lower()):
        return ()
    if dialect_of_model(model) == anthropic.NAME:
        return (anthropic.NAME,)
    if _OPENAI_MODELS.search(model.lower()):
        return (responses.NAME,)
    return ()


def dialect_choices() -> str:
    """The names of all dialects, for a sentence."""
    *names, last = DIALECTS
    return f"{', '.join(names)} or {last}"
