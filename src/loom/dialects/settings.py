"""What a request says besides its messages, carried from one wire to another by name.

A setting is kept as its own wire spells it. A row below names the same setting on each wire; what
has no row, or no name on the target, is reported as lost. So is every setting from or to a wire
that has no column.
"""

from typing import Any

from loom.conversation.message import Carried
from loom.dialects.wire import Json, Loss, carried_fields, carried_form

# (openai, responses, anthropic); a dot leads into an object.
SAME = (
    ("temperature", "temperature", "temperature"),
    ("top_p", "top_p", "top_p"),
    ("stream", "stream", "stream"),
    ("user", "user", "metadata.user_id"),
    ("metadata", "metadata", ""),
    ("store", "store", ""),
    ("service_tier", "service_tier", ""),
    ("parallel_tool_calls", "parallel_tool_calls", ""),
    ("prompt_cache_key", "prompt_cache_key", ""),
    ("prompt_cache_retention", "prompt_cache_retention", ""),
    ("safety_identifier", "safety_identifier", ""),
    ("top_logprobs", "top_logprobs", ""),
    ("reasoning_effort", "reasoning.effort", ""),
    ("verbosity", "text.verbosity", ""),
)
_COLUMN = {"openai": 0, "responses": 1, "anthropic": 2}


def translate_settings(
    settings: Carried | None, target: str, losses: list[Loss]
) -> tuple[Json, tuple[str, ...]]:
    """The settings as `target` names them, and the form in which its own were spelt."""
    if settings is None or settings.wire == target:
        return carried_fields(settings, target), carried_form(settings, target)
    left = carried_fields(settings, settings.wire)
    wire: Json = {}
    if settings.wire in _COLUMN and target in _COLUMN:
        _translate_rows(left, wire, settings.wire, target)
        _translate_stop(left, wire, settings.wire, target)
        _translate_choice(left, wire, settings.wire, target)
        _translate_format(left, wire, settings.wire, target)
    losses += [
        Loss(key, f"the setting {key}")
        for key, value in left.items()
        if value not in (None, [], {})
    ]
    return wire, ()


def _translate_rows(left: Json, wire: Json, source: str, target: str) -> None:
    for row in SAME:
        name, goal = row[_COLUMN[source]], row[_COLUMN[target]]
        if name and goal and (value := _take(left, name)) is not None:
            _put(wire, goal, value)


def thinking_tokens(settings: Carried | None) -> int:
    """How much of an answer may be thought before it begins, where a request says so in tokens."""
    if settings is None or settings.wire != "anthropic" or '"budget_tokens"' not in settings.fields:
        return 0
    thinking = carried_fields(settings, "anthropic").get("thinking")
    budget = None
    if isinstance(thinking, dict):
        budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and budget > 0:
        return budget
    return 0


def _translate_stop(left: Json, wire: Json, source: str, target: str) -> None:
    if source == "openai" and target == "anthropic" and left.get("stop"):
        stop = left.pop("stop")
        if isinstance(stop, str):
            wire["stop_sequences"] = [stop]
        else:
            wire["stop_sequences"] = stop
    elif source == "anthropic" and target == "openai" and left.get("stop_sequences"):
        wire["stop"] = left.pop("stop_sequences")


def _translate_choice(left: Json, wire: Json, source: str, target: str) -> None:
    """Whether and which tool must be called; on Anthropic's wire, whether several may be called at
    once stands with it.
    """
    if source == "anthropic":
        _translate_choice_of_anthropic(left, wire, target)
        return
    choice = left.pop("tool_choice", None)
    if target == "anthropic":
        made = _anthropic_choice(choice)
    else:
        made = _openai_choice(choice, target)
    if made is not None:
        wire["tool_choice"] = made
    elif choice is not None:
        left["tool_choice"] = choice
    if target == "anthropic" and left.pop("parallel_tool_calls", None) is False:
        chosen = wire.setdefault("tool_choice", {"type": "auto"})
        if chosen["type"] != "none":
            chosen["disable_parallel_tool_use"] = True


def _translate_choice_of_anthropic(left: Json, wire: Json, target: str) -> None:
    choice = left.pop("tool_choice", None)
    several = None
    if isinstance(choice, dict):
        several = choice.get("disable_parallel_tool_use")
        choice = _OPENAI_CHOICES.get(str(choice.get("type"))) or choice.get("name")
        if choice not in (None, *_OPENAI_CHOICES.values()):
            choice = _choose_function(choice, target)
    if choice is not None:
        wire["tool_choice"] = choice
    if isinstance(several, bool):
        wire["parallel_tool_calls"] = not several


# by what Anthropic's wire calls them
_OPENAI_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_ANTHROPIC_CHOICES = {name: kind for kind, name in _OPENAI_CHOICES.items()}


def _openai_choice(choice: Any, target: str) -> Any:
    """A choice of one OpenAI wire on the other; None if that has no form for it."""
    name = _chosen_function(choice)
    if name is not None:
        return _choose_function(name, target)
    if isinstance(choice, str):
        return choice
    return None


def _anthropic_choice(choice: Any) -> Json | None:
    if isinstance(choice, str) and choice in _ANTHROPIC_CHOICES:
        return {"type": _ANTHROPIC_CHOICES[choice]}
    name = _chosen_function(choice)
    if name is None:
        return None
    return {"type": "tool", "name": name}


def _chosen_function(choice: Any) -> Any:
    """The name of the function that must be called, on either OpenAI wire."""
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return None
    inner = choice.get("function")
    if isinstance(inner, dict):
        return inner.get("name")
    return choice.get("name")


def _choose_function(name: Any, target: str) -> Json:
    if target == "responses":
        return {"type": "function", "name": name}
    return {"type": "function", "function": {"name": name}}


def _translate_format(left: Json, wire: Json, source: str, target: str) -> None:
    """The two OpenAI wires nest the answer's schema differently."""
    if (
        source == "openai"
        and target == "responses"
        and isinstance(left.get("response_format"), dict)
    ):
        given = left.pop("response_format")
        inner = given.get("json_schema")
        if isinstance(inner, dict):
            shape = {"type": "json_schema", **inner}
        else:
            shape = given
        wire.setdefault("text", {})["format"] = shape
    elif (
        source == "responses"
        and target == "openai"
        and isinstance(left.get("text"), dict)
        and "format" in left["text"]
    ):
        given = left["text"].pop("format")
        if isinstance(given, dict) and given.get("type") == "json_schema":
            given = {
                "type": "json_schema",
                "json_schema": {k: v for k, v in given.items() if k != "type"},
            }
        wire["response_format"] = given


def _take(fields: Json, path: str) -> Any:
    head, _, rest = path.partition(".")
    if not rest:
        return fields.pop(head, None)
    inner = fields.get(head)
    if isinstance(inner, dict):
        return inner.pop(rest, None)
    return None


def _put(fields: Json, path: str, value: Any) -> None:
    head, _, rest = path.partition(".")
    if rest:
        fields.setdefault(head, {})[rest] = value
    else:
        fields[head] = value
