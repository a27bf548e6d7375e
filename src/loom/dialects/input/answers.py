"""What a provider answered: the messages, what they cost, and the answer as it came."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Message
from loom.dialects import anthropic, openai, responses
from loom.dialects.input.answer_fields import drop_answer_fields
from loom.dialects.input.plain import to_plain
from loom.errors import WireError


class Answer(Struct, frozen=True, kw_only=True):
    """`id` is the provider's name for it. `prompt` counts all that was read, of it `cached` from a
    cache, `written` to one.

    `choices` is how many the response holds; `messages` are those of one.
    """

    messages: tuple[Message, ...]
    id: str = ""
    model: str = ""
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    written: int = 0
    raw: str = ""
    choices: int = 1


def parse_answer(response: Any, choice: int = 0) -> Answer:
    """An answer of OpenAI (chat or responses) or Anthropic, as JSON or as an object of their SDKs;
    or a message of ours.
    """
    if isinstance(response, Message):
        if response.role != "assistant":
            raise WireError("response.role", "assistant", response.role)
        return Answer(messages=(response,))
    wire = _plain(response)
    try:
        return _parse_wire(wire, choice)
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError("response", "values that JSON can express", str(error)) from None


def _parse_wire(wire: dict[str, Any], choice: int) -> Answer:
    told = wire.get("usage")
    usage: dict[str, Any] = told if isinstance(told, dict) else {}
    if isinstance(wire.get("choices"), list):
        found = next(
            (
                c
                for n, c in enumerate(wire["choices"])
                if isinstance(c, dict) and c.get("index", n) == choice
            ),
            None,
        )
        if found is None:
            raise WireError("choices", f"a choice {choice}", wire["choices"])
        said = found.get("message")
        if not isinstance(said, dict):
            raise WireError(f"choices[{choice}].message", "a message", said)
        if said.get("role", "assistant") != "assistant":
            raise WireError(f"choices[{choice}].message.role", "assistant", said["role"])
        messages = [
            openai.parse_message({"role": "assistant"} | said, f"choices[{choice}].message")
        ]
        prompt, completion = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
        cached, written = _number(usage, "prompt_tokens_details", "cached_tokens"), 0
    elif isinstance(wire.get("output"), list):
        messages = list(responses.parse_messages(wire["output"]))
        prompt, completion = _number(usage, "input_tokens"), _number(usage, "output_tokens")
        cached, written = _number(usage, "input_tokens_details", "cached_tokens"), 0
    elif isinstance(wire.get("content"), list) and wire.get("role") == "assistant":
        messages = anthropic.parse_message(
            {"role": "assistant", "content": wire["content"]}, "content"
        )
        cached, written = (
            _number(usage, "cache_read_input_tokens"),
            _number(usage, "cache_creation_input_tokens"),
        )
        # Anthropic counts what its cache served, and what it took in, besides the input.
        prompt, completion = (
            _number(usage, "input_tokens") + cached + written,
            _number(usage, "output_tokens"),
        )
    else:
        expected = "an answer of OpenAI (choices or output) or Anthropic (content)"
        raise WireError("response", expected, wire.get("error") or wire)
    return Answer(
        messages=tuple(drop_answer_fields(message)[0] for message in messages),
        id=_text(wire.get("id")),
        model=_text(wire.get("model")),
        prompt=prompt,
        completion=completion,
        cached=cached,
        written=written,
        raw=to_json(wire),
        choices=len(wire["choices"]) if isinstance(wire.get("choices"), list) else 1,
    )


def check_kept_answer(raw: str, place: str) -> None:
    """Refuse a text that cannot be a provider's answer as it was kept."""
    try:
        wire = from_json(raw)
    except ValueError:
        wire = None
    if not isinstance(wire, dict):
        raise WireError(place, "the JSON text of a provider's answer", raw)
    choices = wire.get("choices")
    first = 0
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        first = choices[0].get("index", 0)
    try:
        parse_answer(wire, first)
    except WireError as error:
        raise WireError(f"{place}.{error.place}", error.expected, raw) from None


def _plain(response: Any) -> dict[str, Any]:
    try:
        made = to_plain(response)
    except RecursionError:
        made = None
    if not isinstance(made, dict):
        raise WireError(
            "response", "an answer as JSON, or an object of the openai or anthropic SDK", response
        )
    return made


def _number(usage: Mapping[str, Any], *names: str) -> int:
    value: Any = usage
    for name in names:
        if isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = None
    # More than any window can hold is a mistake, not a count.
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
        return value
    return 0


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
