"""What a file is there for, as far as its path tells."""

import re
from collections.abc import Container
from functools import cache, lru_cache
from typing import Literal, get_args

Role = Literal["source", "test", "helper", "document", "example", "vendored", "generated", "data"]
ROLES: tuple[Role, ...] = get_args(Role)

# The first that fits. A `helper` is code for tests that a project may well offer as its own:
# `django/test/client.py`.
_ROLES: tuple[tuple[Role, str], ...] = (
    (
        "vendored",
        r"(?:^|/)(?i:_?vendor|_?vendored|third[_-]?party|3rd[_-]?party|externals?|extern"
        r"|node_modules|Pods)/",
    ),
    (
        "generated",
        r"(?:^|/)(?i:_?generated|dist)/|(?:^|/)zz_generated[^/]*$|[._](?:generated"
        r"|designer|g|freezed)\.\w+$",
    ),
    ("generated", r"\.min\.(?:js|css)$|\.pb\.(?:go|h|cc|swift)$|_pb2(?:_grpc)?\.pyi?$"),
    (
        "test",
        r"(?:^|/)(?i:tests|specs|__(?:tests|mocks|snapshots|fixtures)__|test[-_]?data"
        r"|(?:test[-_]?)?fixtures|e2e|cypress)/",
    ),
    (
        "test",
        r"^(?i:test|testing|spec|t)/|(?:^|/)src/test/|(?:[a-z\d.]|(?:^|/))(?:Tests"
        r"|Specs)(?:\.[\w.]+)?/|[a-z\d.]Test/",
    ),
    (
        "test",
        r"^(?i:packages|apps|crates|libs?|modules|plugins|services|projects)/[^/]+/(?i:test|spec)/",
    ),
    (
        "test",
        r"(?:^|/)(?:test_[^/]*|conftest|tests?)\.\w+$|[._-](?:tests?|specs?)\.\w+$"
        r"|[a-z\d](?:Tests?|TestCase|Specs?)\.\w+$",
    ),
    ("helper", r"(?:^|/)(?i:test|testing|spec)/"),
    ("document", r"(?:^|/)(?i:docs?|documentation|doc[-_]?src|changelogs?)/"),
    ("document", r"\.(?i:md|mdx|rst|txt|adoc|org|tex|[1-9]|ipynb)$"),
    (
        "document",
        r"(?:^|/)(?i:change(?:s|log)|history|news|readme|authors|contribut\w+|licen[cs]e"
        r"|copying|notice|todo)(?:\.\w+)?$",
    ),
    (
        "example",
        r"(?:^|/)(?i:examples?|samples?|demos?|tutorials?|playground"
        r"|(?:[a-z]+_)?bench(?:es|marks?)?)/",
    ),
    ("example", r"[a-z\d.](?:Examples?|Samples?|Demos?|Benchmarks?)(?:\.[\w.]+)?/"),
    (
        "data",
        r"\.(?i:json|ya?ml|toml|lock|csv|tsv|svg|xml|html?|css|s[ac]ss|less|ini|cfg|conf"
        r"|po|pot|snap|patch|diff|sum|mod)$",
    ),
)


@cache
def _patterns() -> tuple[tuple[Role, re.Pattern[str]], ...]:
    """Compiled when they are first used: a map of what did not change needs none."""
    return tuple((role, re.compile(pattern)) for role, pattern in _ROLES)


def is_copied(path: str, paths: Container[str]) -> bool:
    """Whether a file is in a package named `packages` inside of another, which is a copy of
    somebody's; a folder of packages is how a project may be laid out.
    """
    before, packages, _ = path.partition("/packages/")
    has_package = bool(packages) and path.endswith(".py")
    return has_package and f"{before}/packages/__init__.py" in paths


@lru_cache(maxsize=100_000)
def role_of_path(path: str) -> Role:
    """The role of a file as far as its own path tells."""
    return next((role for role, pattern in _patterns() if pattern.search(path)), "source")
