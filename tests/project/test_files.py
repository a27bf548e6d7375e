"""Which files a project has: git's list or a walk like it, whatever lies in the folders; and what
is text, and of whose hand.
"""

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.project.index import files
from loom.project.index.files import MAX_FILE_BYTES, is_generated, list_files, read_text

NAMES = [
    "größe.py",
    "読む.py",
    "файл.py",
    "קובץ.py",
    "ไฟล์.py",
    "with space.py",
    "emoji 🎉.py",
    "quote'\".py",
    "new\nline.py",
]


def put(root: Path, name: str, text: str | bytes = "x = 1\n") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def git(root: Path, *command: str) -> None:
    who = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "protocol.file.allow=always",
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *who, *command], cwd=root, env=clean, check=True, capture_output=True)


def paths(root: Path) -> list[str]:
    return [found.path for found in list_files(root)]


@pytest.fixture(params=["git", "walk", "no git"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project: a repository, a plain folder, and a repository where git is not
    installed.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    if request.param != "walk":
        git(folder, "init")
    if request.param == "no git":
        monkeypatch.setenv("PATH", os.fspath(tmp_path / "nothing"))
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    return folder


def test_files_are_listed_sorted_with_size_and_time(root: Path) -> None:
    put(root, "b/c.py", "12345")
    put(root, "a.py", "1")
    os.utime(root / "a.py", ns=(5, 7_000_000_001))
    found = list_files(root)
    assert [(one.path, one.size) for one in found] == [("a.py", 1), ("b/c.py", 5)]
    assert found[0].changed == 7_000_000_001


def test_names_in_every_script_are_listed_and_read(root: Path) -> None:
    for name in NAMES:
        put(root, f"folder {name}/{name}", name)
    assert paths(root) == sorted(f"folder {name}/{name}" for name in NAMES)
    assert all(read_text(root, f"folder {name}/{name}") == name for name in NAMES)


def test_names_that_are_no_text_are_left_out(root: Path) -> None:
    put(root, "a.py")
    try:
        (root / os.fsdecode(b"bad\xff.py")).write_text("x")
    except OSError:
        pytest.skip("this file system has no such names")
    assert paths(root) == ["a.py"]


# What is ignored

IGNORED = {
    "a pattern without a folder": ("*.log", ["a.log", "d/b.log"], ["a.py", "d/log.py"]),
    "a folder": ("out/", ["out/a.py", "d/out/b.py"], ["out.py", "d/out.txt"]),
    "from the root only": ("/top.py", ["top.py"], ["d/top.py"]),
    "a path": ("d/e/*.py", ["d/e/a.py"], ["d/e/f/a.py", "x/d/e/a.py"]),
    "any depth": ("d/**/z.py", ["d/z.py", "d/a/b/z.py"], ["z.py"]),
    "all but one": ("*.py\n!keep.py", ["a.py", "d/b.py"], ["keep.py", "d/keep.py"]),
    "nothing below an ignored folder comes back": ("d/\n!d/keep.py", ["d/keep.py"], ["keep.py"]),
    "comments and blanks": ("# a.py\n\n   \nb.py   \n", ["b.py"], ["a.py"]),
    "an escaped sign": ("\\!odd.py\n\\#odd.py", ["!odd.py", "#odd.py"], ["odd.py"]),
    "sets": ("[ab].p?", ["a.py", "b.pl"], ["c.py"]),
    "windows lines": ("a.py\r\nb.py\r\n", ["a.py", "b.py"], ["c.py"]),
    "a broken line": ("[\n\\\na.py", ["a.py"], ["b.py"]),
}


@pytest.mark.parametrize("case", IGNORED, ids=str)
def test_ignored_files_are_left_out(root: Path, case: str) -> None:
    lines, out, kept = IGNORED[case]
    for name in (*out, *kept):
        put(root, name)
    put(root, ".gitignore", lines)
    assert [path for path in paths(root) if path != ".gitignore"] == sorted(kept)


def test_inner_files_of_rules_outrank_outer_ones(root: Path) -> None:
    for name in ("a.txt", "d/a.txt", "d/b.txt", "d/e/a.txt", "d/e/b.txt", "f/b.txt"):
        put(root, name)
    put(root, ".gitignore", "*.txt")
    put(root, "d/.gitignore", "!a.txt")
    put(root, "d/e/.gitignore", "!b.txt\na.txt")
    assert [path for path in paths(root) if path.endswith(".txt")] == ["d/a.txt", "d/e/b.txt"]


def test_what_a_repository_excludes_for_one_person_is_left_out(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repository, "a.py")
    put(repository, "mine.py")
    put(repository, ".git/info/exclude", "mine.py\n")
    assert paths(repository) == ["a.py"]
    monkeypatch.setenv("PATH", "")
    assert paths(repository) == ["a.py"]


def test_folders_of_tools_are_left_out_also_where_nobody_ignores_them(root: Path) -> None:
    put(root, "a.py")
    for folder in (
        "node_modules/x",
        "_build",
        "deps/y",
        ".venv/lib",
        "__pycache__",
        ".tox",
        "d/node_modules",
        "target",
        "dist",
    ):
        put(root, f"{folder}/made.py")
    assert paths(root) == ["a.py"]


def test_a_walk_leaves_hidden_files_out_but_a_few(tmp_path: Path) -> None:
    for name in (
        "a.py",
        ".hidden.py",
        ".secret/b.py",
        ".loom.toml",
        ".formatter.exs",
        ".github/workflows/ci.yml",
    ):
        put(tmp_path, name)
    assert paths(tmp_path) == [".formatter.exs", ".github/workflows/ci.yml", ".loom.toml", "a.py"]


# What git says


def test_git_lists_what_it_keeps_and_what_is_new_but_not_what_was_deleted(repository: Path) -> None:
    for name in ("kept.py", "gone.py", "build/kept.py", ".hidden.py"):
        put(repository, name)
    git(repository, "add", "-A", "-f")
    git(repository, "commit", "-m", "x")
    put(repository, "new.py")
    (repository / "gone.py").unlink()
    assert paths(repository) == [".hidden.py", "build/kept.py", "kept.py", "new.py"]


def test_a_folder_inside_a_repository_is_a_project_of_its_own(repository: Path) -> None:
    put(repository, "d/a.py")
    put(repository, "b.py")
    put(repository, ".gitignore", "*.log")
    put(repository, "d/x.log")
    assert paths(repository / "d") == ["a.py"]


def test_a_folder_that_its_repository_ignores_is_walked(repository: Path) -> None:
    put(repository, ".gitignore", "work/")
    put(repository, "work/a.py")
    assert paths(repository / "work") == ["a.py"]


def test_files_of_a_conflict_are_listed_once(repository: Path) -> None:
    put(repository, "a.py", "1")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "1")
    git(repository, "checkout", "-b", "other")
    put(repository, "a.py", "2")
    git(repository, "commit", "-am", "2")
    git(repository, "checkout", "main")
    put(repository, "a.py", "3")
    git(repository, "commit", "-am", "3")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    assert paths(repository) == ["a.py"]


def test_submodules_are_listed_and_other_repositories_inside_are_not(
    repository: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    put(other, "inner.py")
    git(other, "add", ".")
    git(other, "commit", "-m", "x")
    put(repository, "a.py")
    git(repository, "submodule", "add", os.fspath(other), "sub")
    git(repository, "clone", os.fspath(other), "stray")
    assert paths(repository) == [".gitmodules", "a.py", "sub/inner.py"]


def test_repositories_in_a_plain_folder_are_listed_by_git(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    (tmp_path / "one").mkdir()
    git(tmp_path / "one", "init")
    put(tmp_path, "one/.gitignore", "*.log")
    put(tmp_path, "one/b.py")
    put(tmp_path, "one/c.log")
    assert paths(tmp_path) == ["a.py", "one/.gitignore", "one/b.py"]


def test_a_hook_that_names_another_repository_is_not_heeded(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repository, "a.py")
    monkeypatch.setenv("GIT_DIR", os.fspath(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", os.fspath(tmp_path / "index"))
    assert paths(repository) == ["a.py"]


def test_a_git_that_fails_or_hangs_is_done_without(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repository, "a.py")
    monkeypatch.setattr(files, "_GIT_SECONDS", 0.2)
    for script in ("#!/bin/sh\nexit 3\n", "#!/bin/sh\nexec sleep 5\n"):
        put(tmp_path, "bin/git", script).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin{os.pathsep}/usr/bin")
        assert paths(repository) == ["a.py"]


# Links, and what cannot be read


def test_links_are_followed_to_files_inside_only(root: Path, tmp_path: Path) -> None:
    secret = put(tmp_path, "secret.py", "password")
    put(root, "d/a.py", "inside")
    (root / "inside.py").symlink_to("d/a.py")
    (root / "outside.py").symlink_to(secret)
    (root / "folder").symlink_to("d")
    (root / "loop").symlink_to("loop")
    (root / "d" / "up").symlink_to("..")
    (root / "gone.py").symlink_to("nowhere.py")
    assert paths(root) == ["d/a.py", "inside.py"]
    assert read_text(root, "inside.py") == "inside"
    assert read_text(root, "outside.py") is None
    assert read_text(root, "loop") is None


def test_a_root_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    put(root, "a.py", "inside")
    (root / "b.py").symlink_to("a.py")
    link = tmp_path / "link"
    link.symlink_to(root)
    assert paths(link) == ["a.py", "b.py"]
    assert read_text(link, "b.py") == "inside"


def test_pipes_and_sockets_are_no_files(root: Path) -> None:
    put(root, "a.py")
    os.mkfifo(root / "pipe.py")
    assert paths(root) == ["a.py"]
    assert read_text(root, "pipe.py") is None


def test_folders_that_cannot_be_read_are_left_out(root: Path) -> None:
    put(root, "a.py")
    put(root, "closed/b.py")
    (root / "closed").chmod(0)
    try:
        if os.access(root / "closed", os.R_OK):
            pytest.skip("nothing is closed to this user")
        assert paths(root) == ["a.py"]
    finally:
        (root / "closed").chmod(0o755)


def test_files_that_vanish_while_they_are_listed_are_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "b.py", "c.py"):
        put(root, name)
    (root / "link.py").symlink_to("b.py")
    real = os.lstat

    def lstat(path: str, **options: int | None) -> os.stat_result:
        (root / "b.py").unlink(missing_ok=True)
        return real(path, **options)

    class Entry:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.entry = entry.name, entry

        def is_dir(self, **_: bool) -> bool:
            return False

        def is_symlink(self) -> bool:
            return self.entry.is_symlink()

        def stat(self, **_: bool) -> os.stat_result:
            return lstat(self.entry.path)

    class Scan:
        def __init__(self, path: str) -> None:
            self.entries = [
                Entry(entry)
                for entry in sorted(real_scan(path), key=lambda entry: entry.name)
                if entry.name != ".git"
            ]

        def __enter__(self) -> list[Entry]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            return

    real_scan = os.scandir
    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.setattr(os, "scandir", Scan)
    assert paths(root) == ["a.py", "c.py"]


def test_a_root_that_is_gone_or_a_file_has_no_files(tmp_path: Path) -> None:
    assert list_files(tmp_path / "nowhere") == []
    assert list_files(put(tmp_path, "a.py")) == []


@pytest.mark.parametrize("folders", [20, pytest.param(100, marks=pytest.mark.long)])
def test_a_hundred_files_take_milliseconds(root: Path, folders: int) -> None:
    for folder in range(folders):
        (root / f"f{folder}").mkdir()
        for number in range(100):
            os.close(os.open(root / f"f{folder}" / f"{number}.py", os.O_CREAT))
    put(root, ".gitignore", "\n".join(f"*.x{n}" for n in range(50)))
    start = time.process_time()
    found = list_files(root)
    assert len([one for one in found if one.path.endswith(".py")]) == 100 * folders
    assert time.process_time() - start < 0.02 * folders


def test_a_walk_stops_where_there_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_WALKED_FILES", 5)
    for n in range(20):
        put(tmp_path, f"d{n}/a.py")
    assert len(list_files(tmp_path)) == 5


# What is text

TEXTS: dict[str, tuple[bytes, str | None]] = {
    "plain": (b"a\n", "a\n"),
    "empty": (b"", ""),
    "utf-8": ("größe 読む".encode(), "größe 読む"),
    "utf-8 with a mark": (b"\xef\xbb\xbfa", "a"),
    "utf-16 little": ("größe".encode("utf-16"), "größe"),
    "utf-16 big": (b"\xfe\xff" + "größe".encode("utf-16-be"), "größe"),
    "utf-16 cut": ("größe".encode("utf-16")[:-1], "größ\ufffd"),
    "utf-32": ("größe".encode("utf-32"), "größe"),
    "latin-1": ("größe".encode("latin-1"), "größe"),
    "windows lines": (b"a\r\nb\rc\n", "a\nb\nc\n"),
    "binary": (b"a\0b", None),
    "binary without zeros": (bytes(range(1, 256)) * 4, None),
    "as large as may be": (b"a" * MAX_FILE_BYTES, "a" * MAX_FILE_BYTES),
    "too large": (b"a" * (MAX_FILE_BYTES + 1), None),
    "a zero far behind": (b"a" * 10_000 + b"\0", "a" * 10_000 + "\0"),
}


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_text_is_read_and_other_things_are_not(tmp_path: Path, case: str) -> None:
    held, text = TEXTS[case]
    put(tmp_path, "a.py", held)
    assert read_text(tmp_path, "a.py") == text


def test_what_is_gone_or_no_file_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "d/a.py")
    put(tmp_path.parent, "secret.py")
    for name in (
        "nowhere.py",
        "d",
        "",
        "d/a.py/b",
        "zero\0.py",
        "x" * 5000,
        "half\ud800.py",
        "../secret.py",
        "d/../../secret.py",
    ):
        assert read_text(tmp_path, name) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_not_but_never_raise(held: bytes) -> None:
    text = files._decode_text(held)
    assert text is None or len(text) <= len(held)


GENERATED = {
    "web/app.min.js": "x",
    "package-lock.json": "{}",
    "deps/yarn.lock": "",
    "go.sum": "",
    "locale/de/messages.po": 'msgid "a"\n',
    "logo.svg": "<svg/>",
    "api/user_pb2.py": "",
    "api/user.pb.go": "",
    "a.go": "// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a\n",
    "b.py": "#!/usr/bin/env python\n# @generated by a tool\n",
    "c.cs": "// <auto-generated />\n",
    "d.js": "/* eslint-disable */\n/* This file is automatically generated. */\n",
    "e.js": "var a=1;" * 1000,
    "f.js": "a\n" * 5000 + "x" * 20_001,
    "g.h": "/* DO NOT EDIT! - this file is generated */\n",
}
WRITTEN = {
    "app.js": "const a = 1;\n" * 100,
    "lock.py": "def lock(): ...\n",
    "generate.py": '"""Writes files that say: Code generated, DO NOT EDIT."""\n',
    "readme.md": ("A long paragraph on one line. " * 30 + "\n\n") * 10,
    "short.json": '{"a": 1}' * 20,
    "late.go": "package a\n" * 300 + "// Code generated by x. DO NOT EDIT.\n",
    "migration.py": "# Generated by Django 4.2\n",
    "empty.py": "",
}


@pytest.mark.parametrize("path", GENERATED)
def test_what_a_program_wrote_is_told(path: str) -> None:
    assert is_generated(path, GENERATED[path])


@pytest.mark.parametrize("path", WRITTEN)
def test_what_a_person_wrote_is_told(path: str) -> None:
    assert not is_generated(path, WRITTEN[path])


def test_nothing_is_read_behind_a_folder_that_has_become_a_link(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "project"
    for folder in (outside, root / "a"):
        folder.mkdir(parents=True)
        (folder / "secret.py").write_text("def inside(): pass\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    (root / "a" / "secret.py").unlink()
    (root / "a").rmdir()
    (root / "a").symlink_to(outside)
    assert list_files(root) == []


def test_a_folder_in_the_place_of_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        assert list_files(tmp_path) == []
        assert read_text(tmp_path, ".gitignore") is None
    assert before in (0, len(os.listdir("/proc/self/fd")))


def test_times_that_a_program_sets_do_not_hide_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    os.utime(tmp_path / "a.py", (1e9, 1e9))
    [before] = list_files(tmp_path)
    time.sleep(0.02)
    (tmp_path / "a.py").write_text("two")
    os.utime(tmp_path / "a.py", (1e9, 1e9))
    [after] = list_files(tmp_path)
    assert (after.size, after.changed) == (before.size, before.changed)
    assert after != before
