"""What a provider answered: the messages, what they cost, and the answer as it came."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Message, ToolCall
from loom.dialects import anthropic, openai, responses
from loom.dialects.input.answer_fields import drop_answer_fields
from loom.dialects.input.plain import to_plain
from loom.errors import WireError

# Why a model stopped: it had finished; it waits for the results of its calls; its answer reached
# the limit, or the window its end; it wrote a text at which it was to stop; it refused, or a filter
# did; the provider paused and expects the same request with this answer. "" if nobody said.
StopReason = Literal["end", "calls", "length", "stop", "refusal", "pause", ""]
# By what the wires call them: Anthropic's messages, OpenAI's chat, and the reasons of OpenAI's
# responses for an answer that is not whole. No word has two meanings.
STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "refusal",
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refusal",
    "max_output_tokens": "length",
}


class Answer(Struct, frozen=True, kw_only=True):
    """What a provider answered. `content` and `tool_calls` are what most callers want of it."""

    # What was said. `messages` are those of one choice; the model's own is `message`.
    messages: tuple[Message, ...]
    # The provider's name for the answer.
    id: str = ""
    # The model that answered, by the provider's name.
    model: str = ""
    # Tokens: all that were read; of these, those from a cache, and those that were written to one.
    prompt: int = 0
    # Tokens that the model wrote, those of its reasoning included.
    completion: int = 0
    cached: int = 0
    written: int = 0
    # The response as it came, as JSON text.
    raw: str = ""
    # How many choices the response has.
    choices: int = 1
    # Why the model stopped.
    stop: StopReason = ""
    # Dollars, if the provider says what the answer cost; else None.
    cost: float | None = None

    @property
    def message(self) -> Message:
        """What the model said last; a message without parts if it said nothing."""
        spoken = [message for message in self.messages if message.role == "assistant"]
        return spoken[-1] if spoken else Message("assistant", ())

    @property
    def text(self) -> str:
        """The text parts of all messages of the model, joined by line breaks."""
        spoken = (message.text for message in self.messages if message.role == "assistant")
        return "\n".join(text for text in spoken if text)

    @property
    def content(self) -> str:
        """The same as `text`."""
        return self.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of all messages of the model."""
        return tuple(call for message in self.messages for call in message.calls)


def parse_answer(response: Any, choice: int = 0) -> Answer:
    """An answer of OpenAI (chat or responses) or Anthropic, as JSON or as an object of their SDKs;
    or a message or an answer of ours.
    """
    if isinstance(response, Answer):
        if choice == 0 or not response.raw:
            return response
        response = from_json(response.raw)
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
    reason: Any = None
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
        reason = found.get("finish_reason")
        prompt, completion = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
        cached, written = _number(usage, "prompt_tokens_details", "cached_tokens"), 0
    elif isinstance(wire.get("output"), list):
        messages = list(responses.parse_messages(wire["output"]))
        reason = _responses_reason(wire, messages)
        prompt, completion = _number(usage, "input_tokens"), _number(usage, "output_tokens")
        cached, written = _number(usage, "input_tokens_details", "cached_tokens"), 0
    elif isinstance(wire.get("content"), list) and wire.get("role") == "assistant":
        messages = anthropic.parse_message(
            {"role": "assistant", "content": wire["content"]}, "content"
        )
        reason = wire.get("stop_reason")
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
        stop=STOP_REASONS.get(_text(reason), ""),
        cost=_cost(usage),
    )


def _responses_reason(wire: Mapping[str, Any], messages: list[Message]) -> Any:
    """Why an answer of the responses wire ended. It names a reason only where one is not whole."""
    if wire.get("status") == "incomplete":
        details = wire.get("incomplete_details")
        return details.get("reason") if isinstance(details, Mapping) else None
    if wire.get("status", "completed") != "completed":
        return None
    return "tool_calls" if any(message.calls for message in messages) else "stop"


def _cost(usage: Mapping[str, Any]) -> float | None:
    """Dollars, as routers of many providers tell them with the usage."""
    value = usage.get("cost")
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6:
        return float(value)
    return None


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
