"""Whether a line of an exported file says what a store could have written. Each line is checked by
itself.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from loom.budget.calibration import MAX_RATIO, MIN_RATIO
from loom.conversation.canonical import from_json
from loom.conversation.identity import is_node_id, is_short_id, node_id
from loom.conversation.message import ROLES
from loom.conversation.names import check_name
from loom.errors import ChoiceError, TranscriptError, shorten
from loom.stores.sessions import Aside
from loom.stores.states import LOCAL, StateKinds, read_state
from loom.stores.transfer.lines import (
    REFUSED,
    NodeLine,
    RecordEntry,
    SessionLine,
    State,
)
from loom.stores.transfer.proof import (
    SPEAKERS,
    check_message,
)

_MAX_TOKENS = 2**53


def check_given_name(what: str, name: str) -> None:
    check_name(what, name)
    if not name and what in ("tree", "session"):
        raise ChoiceError(f"the {what} has no id")


def decode_data(number: int, what: str, data: str, kind: Any) -> object:
    """A thing from its JSON."""
    try:
        data.encode()  # half of a surrogate pair is held by neither database
        return msgspec.convert(from_json(data), kind)
    except REFUSED as error:
        raise TranscriptError(f"line {number}: {what} cannot be read: {error}") from None


def prove(number: int, what: str, check: Callable[..., None], *given: object) -> None:
    try:
        check(*given)
    except REFUSED as error:
        raise TranscriptError(f"line {number}: {what} cannot be read: {error}") from None


def check_session(number: int, line: SessionLine) -> None:
    """That a session is one that this store could have written."""
    head = line.head
    words = (
        line.states,
        line.asides,
        line.cursor,
        line.title,
        line.calibration,
        head.system,
        head.tools,
        head.settings,
    )
    if line.status == "purged" and any(words):
        raise TranscriptError(
            f"line {number}: session {line.id} was purged, but the file still has content of it"
        )
    if head.messages:
        raise TranscriptError(f"line {number}: session {line.id} has messages that are not nodes")
    if head.max_output is not None and not 0 < head.max_output <= _MAX_TOKENS:
        raise TranscriptError(
            f"line {number}: session {line.id} sets a largest answer of {head.max_output} tokens"
        )
    for aside in (*line.asides, *(Aside("", message) for message in head.system)):
        if aside.message.role in SPEAKERS:
            raise TranscriptError(
                f"line {number}: session {line.id} has system text of the role {aside.message.role}"
            )
        prove(number, "system text", check_message, aside.message)
    if not line.calibration:
        return
    for seen in line.calibration.models:
        if not MIN_RATIO <= seen.ratio <= MAX_RATIO or not 0 < seen.reports <= _MAX_TOKENS:
            raise TranscriptError(
                f"line {number}: session {line.id} has a calibration for "
                f"{shorten(seen.model)!r} that no usage can give"
            )


def check_states(
    kinds: StateKinds, number: int, line: SessionLine
) -> tuple[list[State], list[str]]:
    """What a session has at hand, and the nodes that it names. What belongs to one store only is
    left behind.
    """
    states = [state for state in line.states if state.kind not in LOCAL]
    if len({(state.kind, state.name) for state in states}) < len(states):
        raise TranscriptError(f"line {number}: session {line.id} has the same state twice")
    named: list[str] = []
    for state in states:
        try:
            # half of a surrogate pair is held by neither database
            (state.name + state.data).encode()
            named += read_state(kinds, state.kind, state.name, state.data)[1]
        except REFUSED as error:
            raise TranscriptError(
                f"line {number}: the {shorten(state.kind)} of session {line.id} cannot be "
                f"read: {error}"
            ) from None
    newest = max((int(state.data) for state in states if state.kind == "recalled"), default=0)
    return list(begin_epochs_anew(states, newest)), named


def begin_epochs_anew(states: Iterable[State], newest: int) -> Iterator[State]:
    """What a session has at hand where its epochs are counted again, for no view comes along.

    What was recalled in the newest epoch is in the next one too.
    """
    for state in states:
        if state.kind != "recalled":
            yield state
        elif int(state.data) >= newest:
            yield replace(state, data="-1")


def check_node(number: int, line: NodeLine, tree: str) -> None:
    """That a node is what its id says. The words of a tombstone are gone, so of that only the form
    can be looked at.
    """
    if (line.body.role if line.body else line.role) not in ROLES:
        raise TranscriptError(
            f"line {number}: neither a message nor the record of a purged message"
        )
    try:
        check_given_name("generation", line.generation)
    except ChoiceError as error:
        raise TranscriptError(f"line {number}: {error}") from None
    if line.body is not None:
        prove(number, f"node {shorten(line.short_id)}", check_message, line.body)
        identity = node_id(tree, line.after, line.body, line.generation)
        if identity != line.id:
            raise TranscriptError(
                f"line {number}: the content does not match its id {line.id}, but {identity}; "
                "it was changed"
            )
    elif (
        not is_node_id(line.id)
        or not line.role
        or any(_has_words(record) for record in line.records)
    ):
        raise TranscriptError(
            f"line {number}: neither a message nor the record of a purged message"
        )
    if not is_short_id(line.short_id, line.id):
        raise TranscriptError(
            f"line {number}: {line.short_id!r} cannot be a short name of {line.id}"
        )


def _has_words(record: RecordEntry) -> bool:
    """Whether something is left of a record that a purge would have taken; an edge is a place
    without words.
    """
    return record.data is not None and record.kind != "edge"
