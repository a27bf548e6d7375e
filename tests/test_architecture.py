"""Imports point down, pure rooms stay pure, types are strict, importing does nothing, and the
public names are these.
"""

import ast
import re
import subprocess
import sys
from importlib import import_module

import pytest

import loom
from tests.shared import ROOT

NAMES = [
    "Agent",
    "CannotFit",
    "ChoiceError",
    "Conflict",
    "Context",
    "ContextWindow",
    "Conversation",
    "Event",
    "Loom",
    "LoomError",
    "LoomTree",
    "Media",
    "Message",
    "Model",
    "Node",
    "Policy",
    "Preferences",
    "ProjectRules",
    "Reasoning",
    "Reference",
    "Report",
    "Rule",
    "Section",
    "Session",
    "StoreError",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Tree",
    "TreeHead",
    "WireError",
    "allocate_budget",
    "connect",
    "dialect",
    "estimate_message_tokens",
    "estimate_tool_defs_tokens",
    "exchanges",
    "find_safe_boundary",
    "is_over_context_budget",
    "model_limit",
    "parse_turn_boundaries",
    "project_map",
    "read_runs",
    "read_trees",
    "repair",
    "restore_ids",
    "tools",
    "turns",
    "weave",
    "write_trees",
]  # fmt: skip


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def test_imports_point_down_and_pure_rooms_do_no_input_or_output() -> None:
    checked = run(
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 broken" in checked.stdout


@pytest.mark.long  # `make lint` does the same
def test_types_are_strict() -> None:
    checked = run(sys.executable, "-m", "mypy")
    assert checked.returncode == 0, checked.stdout


def test_style_is_kept() -> None:
    for command in (("check", "."), ("format", "--check", ".")):
        checked = run(sys.executable, "-m", "ruff", *command)
        assert checked.returncode == 0, checked.stdout


def test_public_names_are_pinned_and_there() -> None:
    assert loom.__all__ == NAMES
    for name in NAMES:
        assert getattr(loom, name)


def test_importing_loom_does_no_work() -> None:
    code = (
        "import sys; import loom; print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('loom', 'msgspec', 'click')))"
    )
    checked = run(sys.executable, "-c", code)
    assert checked.stdout.strip() == "['loom', 'loom.doors']"
    assert checked.stderr == ""


@pytest.mark.parametrize("package", ["loom", "loom.context", "loom.stores"])
def test_a_door_gives_what_a_type_checker_reads_in_it(package: str) -> None:
    door = import_module(package)
    assert door.__file__ is not None
    with open(door.__file__, encoding="utf-8") as source:
        read = {
            alias.name: node.module
            for node in ast.walk(ast.parse(source.read()))
            if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "loom.doors")
            for alias in node.names
        }
    assert sorted(read) == door.__all__ == dir(door)
    for name, module in read.items():
        assert module is not None
        assert getattr(door, name) is getattr(import_module(module), name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        door.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("room", "name", "spared"),
    [
        ("context", "Policy", ("weaving", "history.gate", "state")),
        ("stores", "Node", ("transfer", "health", "views")),
    ],
)
def test_a_name_from_a_door_loads_its_own_module_and_not_the_room(
    room: str, name: str, spared: tuple[str, ...]
) -> None:
    code = f"import sys; from loom.{room} import {name}; print(*sys.modules)"
    loaded = run(sys.executable, "-c", code).stdout.split()
    assert f"loom.{room}" in loaded
    for module in spared:
        assert not any(each.startswith(f"loom.{room}.{module}") for each in loaded)


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Before Python 3.11.5 such a pattern may miss what it should match."""
    found = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")
    for source in sorted((ROOT / "src").rglob("*.py")):
        assert not found.search(source.read_text(encoding="utf-8")), source.name
