"""What a source file defines, and which names it uses."""

from typing import Literal, get_args

from msgspec import Struct

Kind = Literal["module", "class", "interface", "type", "function", "method", "macro", "constant"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Definition(Struct, frozen=True, gc=False):
    """Something that a file defines: its last name, the names around it, how it is declared, and
    its lines from 1 on.

    `signature` is the declaration on one line, without its body.
    """

    name: str
    kind: Kind
    signature: str
    start: int
    stop: int
    parent: str = ""

    @property
    def path(self) -> str:
        if self.parent:
            return f"{self.parent}.{self.name}"
        return self.name


class ParsedFile(Struct, frozen=True):
    """A file as it is indexed: its language ("" if none is known), what it defines in order,
    names it uses and how often.
    """

    language: str = ""
    definitions: tuple[Definition, ...] = ()
    references: dict[str, int] = {}
