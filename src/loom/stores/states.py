"""What a session may have at hand beside what was said, each kind with its type. Imports and the doctor prove it by this table.

Some kinds belong to one store: they are in no export, and a file that brings one along is read without it.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from loom.context.policy import Policy
from loom.context.renewal import Handoff
from loom.context.working import Working
from loom.conversation.canonical import from_json
from loom.conversation.identity import is_node_id
from loom.conversation.tree import Source
from loom.errors import ChoiceError
from loom.stores.purge import FOLDERS, PURGING

REQUEST = "request"
LOCAL = frozenset({FOLDERS, PURGING, REQUEST})  # kinds that never leave their store
_LARGEST = 2**53  # of whole numbers: what JSON holds everywhere, and databases after some sums


class Pin(Struct, frozen=True, omit_defaults=True):
    """What an agent keeps in view: a node, or a text with the nodes whose words it shows."""

    node: str = ""
    text: str = ""
    shows: tuple[str, ...] = ()


class Stash(Struct, frozen=True, omit_defaults=True):
    """A text that an agent put away, with the nodes whose words it shows; shown while it is recalled."""

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
    """The last request of a session: the node that it ends with ("" for none), its sources, its model and its tokens, uncorrected.

    `answer` is None until an answer comes, and then its digest, or "" of words that no provider sent. `choices` came of it.
    """

    node: str
    sources: tuple[Source, ...] = ()
    model: str = ""
    counted: int = 0
    answer: str | None = None
    choices: tuple[int, ...] = ()


class _Kind(Struct, frozen=True):
    """The type of a kind of state, what its name must be like, and which nodes it names."""

    held: Any
    named: Callable[[str], bool]
    nodes: Callable[[str, Any], tuple[str, ...]] = lambda name, value: ()


def _unnamed(name: str) -> bool:
    return not name


def _numbered(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 15


def _anything(name: str) -> bool:
    return bool(name) and "\0" not in name


_Number = Annotated[int, Meta(ge=0, le=_LARGEST)]
Digits = Annotated[str, Meta(pattern="^[0-9]{1,15}$")]
KINDS = {
    "working": _Kind(Working, _unnamed),
    "handoff": _Kind(Handoff, _unnamed),
    "handoff_hidden": _Kind(str, _unnamed),
    "overflow": _Kind(Annotated[int, Meta(ge=1, le=_LARGEST)], lambda name: "\0" not in name),
    "policy": _Kind(str | Policy, _unnamed),
    "recalled": _Kind(Annotated[int, Meta(ge=-1, le=_LARGEST)], is_node_id, lambda name, value: (name,)),
    "seen": _Kind(Digits, _unnamed),
    "joined": _Kind(bool, _unnamed),
    REQUEST: _Kind(Request, _unnamed, lambda name, value: (value.node,) if value.node else ()),
    "buffer": _Kind(str, _unnamed),
    "version": _Kind(str, is_node_id, lambda name, value: (value,)),
    "pin": _Kind(Pin, _anything, lambda name, value: (value.node,) if value.node else ()),
    "stash": _Kind(Stash, _anything),
    "result": _Kind(Result, _numbered),
    "action": _Kind(Action, _numbered),
}


def read_state(kind: str, name: str, data: str) -> tuple[Any, tuple[str, ...]]:
    """What a state holds, and the nodes that it names; raises ValueError where it is none."""
    about = KINDS.get(kind)
    if about is None:
        raise ValueError(f"there is no kind of state {kind!r}")
    if not about.named(name):
        raise ValueError(f"a state of the kind {kind} cannot be called {name!r}")
    value = from_json(data)
    for number in _numbers(value):
        if abs(number) > _LARGEST:
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
