"""The plan of an architect: what it looks like, and how it is read from an answer."""

import re
from typing import Any, Literal

import msgspec

from loom.conversation.canonical import from_json
from loom.conversation.checked import CheckedStruct
from loom.errors import ChoiceError, shorten

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
PLAN_FORM = (
    'a JSON object {"summary": TEXT, "plan": [{"file": PATH, "action": "create" | "edit" | '
    '"delete", "description": TEXT, "details": TEXT}]}'
)


class PlanStep(CheckedStruct, frozen=True):
    """One step of a plan: what is done to which file, and how."""

    file: str
    action: Literal["create", "edit", "delete"]
    description: str
    details: str = ""


class WorkPlan(CheckedStruct, frozen=True):
    """What an architect plans."""

    summary: str
    plan: tuple[PlanStep, ...]


def read_plan(text: str) -> WorkPlan:
    """The plan in an answer: JSON, alone, in a fence, or among other words. Commas that are too
    many are left out. Raises ChoiceError with what is wrong.
    """
    wrong = "there is no JSON object in it"
    for found in _candidates(text):
        try:
            value = _parse(found)
        except ValueError as error:
            wrong = str(error)
            continue
        try:
            return _convert(value)
        except ChoiceError as error:
            wrong = str(error)
    raise ChoiceError(f"the plan cannot be read: {shorten(wrong, 300)}; it must be {PLAN_FORM}")


def _candidates(text: str) -> list[str]:
    """Where in an answer the plan may be, the likeliest first."""
    found = [match[1] for match in _FENCE.finditer(text)]
    start, end = text.find("{"), text.rfind("}")
    if start >= 0:
        found.append(text[start : end + 1] if end > start else text[start:])
    return found


def _parse(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return from_json(_TRAILING_COMMA.sub(r"\1", text))


def _convert(value: Any) -> WorkPlan:
    if isinstance(value, dict):
        steps = value.get("plan")
        if not isinstance(steps, list) or not steps:
            raise ChoiceError("`plan` must be a list of at least one step")
        value = {"summary": value.get("summary") or "", "plan": steps}
    try:
        return msgspec.convert(value, WorkPlan)
    except msgspec.ValidationError as error:
        raise ChoiceError(str(error)) from None
