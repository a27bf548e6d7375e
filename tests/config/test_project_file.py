"""`.loom.toml`: where it is found, and what is wrong with it."""

import os
from pathlib import Path

import pytest

from loom.config.project_file import PROJECT_FILE, read_project_file
from loom.config.toml_files import MAX_CONFIG_BYTES
from loom.errors import ChoiceError, ConfigError

RULES = '[context]\nwindow = 9\n\n[rules]\nstyle = "plain"\n"a b" = "c"\n'


def write(folder: Path, text: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PROJECT_FILE
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_an_empty_folder_has_no_file_and_no_problem(tmp_path: Path) -> None:
    found = read_project_file(tmp_path)
    assert (found.root, found.file, found.problem) == (tmp_path, None, None)
    assert (dict(found.rules), found.place("rules")) == ({}, "")
    assert read_project_file(tmp_path / "missing").file is None


def test_the_rules_are_read_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path, RULES)
    found = read_project_file(tmp_path)
    assert found.rules == {"style": "plain", "a b": "c"}
    assert found.place("rules", "a b") == f"{path}:6"
    error = found.error("too long", "rules", "style")
    assert (error.file, error.line, str(error)) == (str(path), 5, f"{path}:5: too long")
    assert isinstance(error, ChoiceError)


def test_rules_that_are_no_table_are_none(tmp_path: Path) -> None:
    write(tmp_path, "rules = 1")
    assert dict(read_project_file(tmp_path).rules) == {}


def test_it_is_looked_for_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, RULES)
    inner = tmp_path / "repository" / "deep" / "er"
    inner.mkdir(parents=True)
    assert read_project_file(inner).file is None, "outside a repository only the folder is searched"
    (tmp_path / "repository" / ".git").mkdir()
    assert read_project_file(inner).file is None, "nothing above a repository is searched"
    write(tmp_path / "repository", RULES)
    found = read_project_file(inner)
    assert found.root == tmp_path / "repository"
    assert found.rules["style"] == "plain"


def test_without_a_repository_it_is_looked_for_up_to_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, RULES)
    inner = tmp_path / "home" / "work"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert read_project_file(inner).file is None
    write(tmp_path / "home", RULES)
    assert read_project_file(inner).root == tmp_path / "home"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a = 1\nb = = 2\n", 2, "not valid TOML"),
        ("a = 1\n\na = 2\n", 3, "not valid TOML"),
        ("[t]\n[t]\n", 2, "not valid TOML"),
        ("[t]\nx = '''\nno end", 3, "at the end of the file"),
        ("a = 1\nb = " + "9" * 5000, 2, "too many digits"),
        ("a = 1\n" + "b." * 40 + "c = 1", 2, "parts"),
        ("\na = " + "[" * 40, 2, "levels"),
        (b"a = 1\nb = '\xff'", 2, "not UTF-8"),
        (b"a = '\x00'", 1, "not valid TOML"),
    ],
)
def test_what_is_wrong_names_file_and_line(
    tmp_path: Path, text: str | bytes, line: int, said: str
) -> None:
    path = write(tmp_path, text)
    found = read_project_file(tmp_path)
    assert found.problem is not None
    assert str(found.problem).startswith(f"{path}:{line}: ")
    assert said in str(found.problem)
    assert dict(found.table) == {}


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    write(tmp_path, b"\xef\xbb\xbf" + RULES.replace("\n", "\r\n").encode())
    found = read_project_file(tmp_path)
    assert found.place("rules", "style").endswith(":5")


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"#" * (MAX_CONFIG_BYTES + 1))
    problem = read_project_file(tmp_path).problem
    assert isinstance(problem, ConfigError)
    assert "64 KiB" in str(problem)


def test_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", RULES)
    inside = tmp_path / "project"
    inside.mkdir()
    (inside / PROJECT_FILE).symlink_to(outside)
    assert "outside" in str(read_project_file(inside).problem)
    (inside / PROJECT_FILE).unlink()
    (inside / "other.toml").write_text(RULES)
    (inside / PROJECT_FILE).symlink_to("other.toml")
    assert read_project_file(inside).rules


def test_what_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / PROJECT_FILE)
    assert "not a plain file" in str(read_project_file(tmp_path).problem)
    os.unlink(tmp_path / PROJECT_FILE)
    (tmp_path / PROJECT_FILE).mkdir()
    assert read_project_file(tmp_path).problem is not None
    (tmp_path / PROJECT_FILE).rmdir()
    (tmp_path / PROJECT_FILE).symlink_to("nowhere")
    assert read_project_file(tmp_path).problem is not None
