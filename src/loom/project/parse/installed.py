"""Whether grammars are installed. They are loaded elsewhere: a map of what did not change needs
none.
"""

from importlib.util import find_spec


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


# without the extra `map` code is read by how its lines begin
HAS_GRAMMARS = _is_installed("tree_sitter")
NO_GRAMMARS = (
    "code is read by how its lines begin, and so with less care; pip install "
    "'loomwright[map]' reads it with grammars"
)
