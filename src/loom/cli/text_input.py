"""Read the text that a command gets as an argument or on standard input, and its sources."""

import sys
from typing import get_args

from loom.conversation.tree import Reference, ReferenceRole
from loom.engine.loom import Loom
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError, shorten


def read_text(given: str | None, verb: str, blank: bool = False) -> str:
    """The text, or standard input for `-` and for none, without its last line break.

    It says something, unless `blank` will do.
    """
    if given is None and sys.stdin.isatty():
        raise ChoiceError(f"there is nothing to {verb}; give TEXT, or - for standard input")
    if given in (None, "-"):
        try:
            given = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ChoiceError(
                f"standard input is not UTF-8: byte {error.start}; save it as UTF-8"
            ) from None
        given = given.removesuffix("\n").removesuffix("\r")  # which shells and editors add
    if not blank and (not given or not given.strip()):
        raise ChoiceError(f"there is nothing to {verb}: the text is blank")
    text = given or ""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ChoiceError("the text is not UTF-8; give it on standard input, saved as UTF-8")
    return text


def parse_source(loom: Loom, tree: LoomTree, given: str) -> Reference:
    """`ROLE:NODE` or `ROLE:TREE/NODE` as a source that is there, by its whole ids."""
    role, _, name = given.partition(":")
    known: tuple[ReferenceRole, ...] = get_args(ReferenceRole)
    found = next((each for each in known if each == role), None)
    if found is None or not name:
        raise ChoiceError(
            "--source takes ROLE:NODE or ROLE:TREE/NODE, where ROLE is one of "
            f"{', '.join(known)}; found {shorten(given)!r}"
        )
    where, _, node = name.rpartition("/")
    other = loom.tree(where) if where else tree
    return Reference(other.node(node).id, found, other.id if other.id != tree.id else "")
