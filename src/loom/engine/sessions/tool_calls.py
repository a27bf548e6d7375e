"""Calls of tools: which are run here, which were run before, and which were begun."""

from collections.abc import Callable

from loom.context import answer_find_tools, finder_name
from loom.conversation.message import Message, ToolCall
from loom.engine.pressure import LAST_MESSAGES
from loom.engine.session_state import skills_values
from loom.engine.sessions.place import SessionPlace
from loom.engine.sessions.writing import append_given
from loom.engine.skills import note_result
from loom.engine.tools import RECALLED, is_own_call, loaded_skill
from loom.errors import ChoiceError, shorten
from loom.stores import Node


def use_tool(
    place: SessionPlace, call: ToolCall, run: Callable[[ToolCall], Message]
) -> Node | None:
    """Run a call of one of Loom's own tools once, and append its result; None for a call of any
    other tool.
    """
    tools = place.row.head.tools
    is_finder = call.name == finder_name(tools)
    if not is_finder and not is_own_call(call, tools):
        return None
    if answered := find_result(place, call):
        return answered
    if is_finder:
        [node] = append_given(place, [answer_find_tools(tools, call)])
        return node
    [node] = append_given(place, [run(call)])
    skill = loaded_skill(call)
    if call.name in RECALLED or skill:
        newest = place.store.views.epoch(place.row, place.path)
        place.keep_states(place.state.recalled_values(node.id, newest))
    if skill:
        place.keep_states(skills_values(note_result(place.state.skills, skill, node.id)))
    return node


def start_call(place: SessionPlace, call: ToolCall) -> bool:
    """Note that a call is about to run; False if it was started before."""
    if find_result(place, call) is not None:
        return False
    caller, _ = place.known_calls.find(place.path, call.id)
    if place.state.started_call(call.id) == caller:
        return False
    is_first = place.known_calls.started_by != caller
    place.keep_states(place.state.started_values(call.id, caller, forget=is_first))
    place.known_calls.started_by = caller
    return True


def find_result(place: SessionPlace, call: ToolCall) -> Node | None:
    """The node that answers the newest call of this id, if there is one yet; an error where no
    message makes the call.
    """
    place.read_row().check_alive()
    caller, result = place.known_calls.find(place.path, call.id)
    if not caller:
        raise ChoiceError(
            f"no call {shorten(call.id)!r} is among the last {LAST_MESSAGES} messages of session "
            f"{place.id}; "
            "absorb the answer that makes the call, then use it"
        )
    return place.node(result) if result else None
