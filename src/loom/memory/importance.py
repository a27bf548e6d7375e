"""How important a task is: as its metadata says, else by its action."""

from collections.abc import Mapping

from loom.errors import ChoiceError, describe
from loom.runtime import Task

MIN_IMPORTANCE = 0.6  # a task is important if it has more than this
ERROR_IMPORTANCE = 0.9
OTHER_IMPORTANCE = 0.5
BY_ACTION: Mapping[str, float] = {
    "node.error": ERROR_IMPORTANCE,
    "node.planning": 0.8,
    "execute": 0.78,  # what the user asks is above what a tool is asked
    "node.request": 0.78,
    "node.tool_result": 0.75,
    "node.tool_call": 0.7,
    "node.message": 0.65,
    "node.complete": 0.6,
    "node.thinking": 0.55,
}


def check_importance(task: Task) -> None:
    """Refuse an importance in the metadata of a task that is no number from 0 to 1."""
    given = task.notes.get("importance")
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise ChoiceError(
            f"importance in the metadata of a task must be a number from 0 to 1, found "
            f"{describe(given)}"
        )


def importance_of(task: Task) -> float:
    """The importance of a task, from 0 to 1."""
    given = task.notes.get("importance")
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1:
        return float(given)
    if task.error or task.status == "failed":
        return ERROR_IMPORTANCE
    return BY_ACTION.get(task.action, OTHER_IMPORTANCE)
