"""What a session may have at hand besides what was said, each kind with its type. Imports and the
doctor check it by a table.

STORE_KINDS are those whose types the store knows. Whoever opens a store adds kinds of the rooms
above. Some kinds belong to one store: they are in no export, and a file that brings one along is
read without it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from loom.conversation.canonical import from_json
from loom.conversation.identity import is_node_id
from loom.conversation.tree import Reference
from loom.errors import ChoiceError
from loom.stores.health.purge import FOLDERS, PURGING
from loom.stores.memory.rows import FORGOTTEN_NOTE, is_note_id

REQUEST, IMPORTED, LABEL, EVENTS = "request", "imported", "label", "events"
LOCAL = frozenset(
    {FOLDERS, IMPORTED, PURGING, REQUEST, EVENTS}
)  # kinds that never leave their store
_MAX_NUMBER = 2**53  # of whole numbers: what JSON holds everywhere, and databases after some sums


class Pin(Struct, frozen=True, omit_defaults=True):
    """What an agent keeps in view: a node, or a text with the nodes whose words it shows."""

    node: str = ""
    text: str = ""
    shows: tuple[str, ...] = ()


class Stash(Struct, frozen=True, omit_defaults=True):
    """A text that an agent stashed, with the nodes whose words it shows; shown while it is
    recalled.
    """

    text: str
    recalled: bool = False
    shows: tuple[str, ...] = ()


class Result(Struct, frozen=True, omit_defaults=True):
    """What came of a command, with the nodes whose words it shows: shown once."""

    command: str
    text: str
    failed: bool = False
    shows: tuple[str, ...] = ()


class Action(Struct, frozen=True, omit_defaults=True):
    """What an agent did, and when."""

    command: str
    at: int
    failed: bool = False


class Request(Struct, frozen=True, omit_defaults=True):
    """The last request of a session: the node that it ends with ("" for none), its sources, its
    model and its tokens, uncorrected.

    `answer` is None until an answer comes, and then its digest, or "" of words that no provider
    sent. `choices` came of it.
    """

    node: str
    sources: tuple[Reference, ...] = ()
    model: str = ""
    counted: int = 0
    answer: str | None = None
    choices: tuple[int, ...] = ()


class ImportOrigin(Struct, frozen=True):
    """What was imported as a session: the name of its file and the number of its run, how many
    messages that were and their digest, and the node of the last one.
    """

    file: str
    run: int
    messages: int
    digest: str
    end: str


class StateKind(Struct, frozen=True):
    """The type of a kind of state, what its name must be like, and which nodes it names."""

    held: Any
    named: Callable[[str], bool]
    nodes: Callable[[str, Any], tuple[str, ...]] = lambda name, value: ()


def is_unnamed(name: str) -> bool:
    """Whether a state is the only one of its kind."""
    return not name


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 15


def _anything(name: str) -> bool:
    return bool(name) and "\0" not in name


_Number = Annotated[int, Meta(ge=0, le=_MAX_NUMBER)]
Digits = Annotated[str, Meta(pattern="^[0-9]{1,15}$")]
StateKinds = Mapping[str, StateKind]
STORE_KINDS: StateKinds = {
    "handoff_hidden": StateKind(str, is_unnamed),
    EVENTS: StateKind(Digits, is_unnamed),
    LABEL: StateKind(bool, lambda name: "\0" not in name),
    IMPORTED: StateKind(
        ImportOrigin, is_unnamed, lambda name, value: (value.end,) if value.end else ()
    ),
    FORGOTTEN_NOTE: StateKind(bool, is_note_id),
    "overflow": StateKind(
        Annotated[int, Meta(ge=1, le=_MAX_NUMBER)], lambda name: "\0" not in name
    ),
    "recalled": StateKind(
        Annotated[int, Meta(ge=-1, le=_MAX_NUMBER)], is_node_id, lambda name, value: (name,)
    ),
    "seen": StateKind(Digits, is_unnamed),
    "joined": StateKind(bool, is_unnamed),
    REQUEST: StateKind(
        Request, is_unnamed, lambda name, value: (value.node,) if value.node else ()
    ),
    "buffer": StateKind(str, is_unnamed),
    "version": StateKind(str, is_node_id, lambda name, value: (value,)),
    "pin": StateKind(Pin, _anything, lambda name, value: (value.node,) if value.node else ()),
    "stash": StateKind(Stash, _anything),
    "started": StateKind(str, _anything, lambda name, value: (value,)),
    "result": StateKind(Result, _is_number),
    "action": StateKind(Action, _is_number),
}


def with_own_kinds(own: Mapping[str, Any]) -> StateKinds:
    """The kinds of the store, and kinds of the rooms above: by their types if there is one state of
    each, else as a `StateKind`.
    """
    made = {
        kind: held if isinstance(held, StateKind) else StateKind(held, is_unnamed)
        for kind, held in own.items()
    }
    return {**STORE_KINDS, **made}


def read_state(kinds: StateKinds, kind: str, name: str, data: str) -> tuple[Any, tuple[str, ...]]:
    """What a state holds, and the nodes that it names. Raises ValueError if it is not a state of
    one of these kinds.
    """
    about = kinds.get(kind)
    if about is None:
        raise ValueError(f"there is no kind of state {kind!r}")
    if not about.named(name):
        raise ValueError(f"a state of the kind {kind} cannot be called {name!r}")
    value = from_json(data)
    for number in _numbers(value):
        if abs(number) > _MAX_NUMBER:
            raise ValueError(f"the number {number!r:.40} is too large")
    try:
        held = msgspec.convert(value, about.held)
    except ChoiceError as error:  # a value that checks itself
        raise ValueError(str(error)) from None
    return held, about.nodes(name, held)


def _numbers(value: object) -> Iterator[int | float]:
    """All numbers in a JSON value."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case bool():
                pass
            case int() | float() as number:
                yield number
            case dict() as found:
                waiting += found.values()
            case list() as found:
                waiting += found
