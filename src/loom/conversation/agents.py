"""Agents: who speaks in a tree, and what they may do there beside speaking."""

from typing import Literal, get_args

from loom.conversation.checked import CheckedStruct, check_fields
from loom.errors import ChoiceError

Permission = Literal["loom_aware", "loom_write", "loom_generate", "doc_read", "doc_write"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
REQUIRES: dict[Permission, Permission] = {
    "loom_write": "loom_aware",
    "loom_generate": "loom_aware",
    "doc_write": "doc_read",
}


class Agent(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A person or a model. `window` is how many tokens it is given at most, where that is not its
    model's own limit.

    Without `permissions` a human has all of them and a model none.
    """

    name: str
    kind: Literal["human", "model"] = "model"
    system_prompt: str = ""
    model: str = ""
    window: int | None = None
    permissions: tuple[Permission, ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.window is not None and self.window < 1:
            raise ChoiceError(
                f"agent {self.name!r}: window is {self.window}; give a number of tokens, or leave "
                "it out"
            )
        granted = self.permissions or ()
        for permission in granted:
            if granted.count(permission) > 1:
                raise ChoiceError(
                    f"agent {self.name!r}: {permission} is granted {granted.count(permission)} "
                    "times; grant it once"
                )
            needed = REQUIRES.get(permission)
            if needed and needed not in granted:
                raise ChoiceError(
                    f"agent {self.name!r}: {permission} requires {needed}, which is missing; "
                    "grant both or neither"
                )

    @property
    def granted_permissions(self) -> frozenset[Permission]:
        if self.permissions is None:
            return frozenset(PERMISSIONS if self.kind == "human" else ())
        return frozenset(self.permissions)

    @property
    def loom_aware(self) -> bool:
        """Whether it is told where it is in the tree, and may give commands."""
        return "loom_aware" in self.granted_permissions
