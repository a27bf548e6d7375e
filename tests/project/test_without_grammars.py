"""Without the extra `map`: what needs no grammar works, and a map is made by lines and says what to
install.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import FIXTURES

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0].startswith('tree_sitter'):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from loom.cli.main import run
run()
"""


def loom(*arguments: str | Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, *map(str, arguments)]
    environment = {
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": ":".join(filter(None, sys.path)),
        "PATH": "",
    }
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "login.py").write_text(
        "class Login:\n    def check_password(self, word: str) -> bool:\n        return True\n"
    )
    (root / "login.go").write_text(
        "package main\n\nfunc CheckToken(token string) bool {\n\treturn true\n}\n"
    )
    return root


def test_a_map_without_grammars_is_made_by_lines_and_says_what_to_install(
    project: Path, tmp_path: Path
) -> None:
    done = loom(
        "map", project, "--query", "check the password and the token", cache=tmp_path / "cache"
    )
    assert done.returncode == 0, done.stderr
    assert "check_password" in done.stdout
    assert "CheckToken" in done.stdout
    assert "pip install 'loomwright[map]'" in done.stderr


def test_a_request_is_woven_without_grammars(project: Path, tmp_path: Path) -> None:
    session = FIXTURES / "cc_parallel_thinking.jsonl"
    assert loom("weave", session, "--json", cache=tmp_path / "cache").returncode == 0
    done = loom("weave", session, "--project", project, "--json", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert "check_password" in done.stdout
    assert "loomwright[map]" in done.stderr
