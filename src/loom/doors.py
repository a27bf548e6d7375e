"""A door of a package: the names that others may import from it. A name's module is loaded when the
name is first used.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def open_door(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that exports the names of its modules.

    `homes` are the names by the module that defines them; modules are named below the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    exported = sorted(home_of)

    def fetch(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return fetch, exported.copy, exported
