"""The plan of an architect: what it looks like, and how it is read from an answer."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from loom.conversation.canonical import to_json
from loom.conversation.checked import CheckedStruct
from loom.errors import ChoiceError, shorten
from loom.loop.lenient_json import ReadValue, read_lenient

MAX_STARTS = 40  # places in an answer where a plan is looked for
_FENCE = re.compile(r"```(?:json\w*)?[ \t]*\n")
_START = re.compile(r"[{\[]")
_ACTIONS = {
    "create": "create",
    "add": "create",
    "new": "create",
    "write": "create",
    "edit": "edit",
    "modify": "edit",
    "update": "edit",
    "change": "edit",
    "replace": "edit",
    "refactor": "edit",
    "delete": "delete",
    "remove": "delete",
}
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
    """What an architect plans. `is_cut`: the answer broke off, and the steps are those before."""

    summary: str
    plan: tuple[PlanStep, ...]
    is_cut: bool = False


def read_plan(text: str) -> WorkPlan:
    """The plan in an answer: JSON, alone, in a fence, or among other words. Of several, the last
    one that has steps. What models get wrong in JSON is repaired, and a step that was cut off is
    left out. Raises ChoiceError with what is wrong.
    """
    starts = [match.start() for match in _START.finditer(text)]
    fences = [match.end() for match in _FENCE.finditer(text)]
    in_fences = [start for start in starts if any(text[at:start].strip() == "" for at in fences)]
    wrong, no_json = "", "there is no JSON object in it"
    for places in (in_fences, starts):
        plans: list[WorkPlan] = []
        for found in _read_values(text, places):
            if isinstance(found, WorkPlan):
                plans.append(found)
            elif isinstance(found, ChoiceError):
                wrong = wrong or str(found)
            else:
                no_json = str(found)
        if plans:
            return next((plan for plan in reversed(plans) if plan.plan), plans[-1])
    wrong = wrong or no_json
    raise ChoiceError(f"the plan cannot be read: {shorten(wrong, 300)}; it must be {PLAN_FORM}")


def _read_values(text: str, starts: Iterable[int]) -> Iterator[WorkPlan | Exception]:
    """The plans that begin at these places, none of them in another one, and what is wrong with
    other values.
    """
    end = tries = 0
    for start in starts:
        if start < end:
            continue
        tries += 1
        if tries > MAX_STARTS:
            return
        for read in (_read_strictly, read_lenient):
            try:
                found = read(text, start)
                plan = _convert(found)
            except (ChoiceError, ValueError, RecursionError) as error:
                yield error
                continue
            yield plan
            end = found.end
            break


def _read_strictly(text: str, start: int) -> ReadValue:
    value, end = json.JSONDecoder().raw_decode(text, start)
    return ReadValue(value, True, end)


def _convert(found: ReadValue) -> WorkPlan:
    value = found.value
    if isinstance(value, list):
        value = {"plan": value}
    if not isinstance(value, dict):
        raise ChoiceError("it must be an object")
    steps = value.get("plan", value.get("steps"))
    if not found.is_whole and isinstance(steps, list) and steps and not _has_details(steps[-1]):
        steps = steps[:-1]  # it was cut off before them
    if not isinstance(steps, list) or not (steps or _is_empty_plan(found)):
        raise ChoiceError("`plan` must be a list of steps")
    plan = {
        "summary": _to_text(value.get("summary")),
        "plan": list(map(_convert_step, steps)),
        "is_cut": not found.is_whole,
    }
    try:
        return msgspec.convert(plan, WorkPlan)
    except msgspec.ValidationError as error:
        raise ChoiceError(str(error)) from None


def _is_empty_plan(found: ReadValue) -> bool:
    """Whether a plan says that there is nothing to do: an empty list by name, not cut off."""
    return found.is_whole and isinstance(found.value, dict)


def _has_details(step: Any) -> bool:
    return isinstance(step, dict) and "details" in step


def _convert_step(step: Any) -> Any:
    """A step with the words that are meant."""
    if not isinstance(step, dict):
        return step
    made = dict(step)
    if isinstance(action := made.get("action"), str):
        made["action"] = _ACTIONS.get(action.strip().lower(), action)
    for name in ("description", "details"):
        if name in made:
            made[name] = _to_text(made[name])
    return made


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value)
