"""Columns hold what entries hold, whatever was joined or left out, and whatever their file says."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.project.index.columns import (
    COLUMNS,
    Columns,
    Entries,
    drop_strings,
    make_columns,
    merge_columns,
)
from loom.project.index.columns_file import load_columns, save_columns
from loom.project.index.entries import Entry, ReadFile
from loom.project.index.files import digest_of
from loom.project.index.links import LinkedColumns, count_users, make_links
from loom.project.index.making import entry_of
from loom.project.index.project_index import MAX_UNFILED, ProjectIndex, open_index
from loom.project.index.strings import StoredStrings, StringTable
from loom.project.rank.ranking import MapRequest, rank_files
from tests.shared import examples

ABOUT = {"made_by": "this"}
LINES = (
    "def send_receipt(order):",
    "class Größe:",
    "    def peel(self, apple): return core(apple)",
    "    def core(self): pass",
    "def _kept(): return send_receipt(None)",
    "x = 'привет 設定 😀'",
    "    return Größe().peel(x)",
    "",
)
PATHS = ("a.py", "app/packages/x.py", "app/packages/__init__.py", "größe/ü.py", "z.md")

texts = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)
projects = st.dictionaries(st.sampled_from(PATHS), texts, max_size=5)


def read(files: dict[str, str]) -> list[ReadFile]:
    return [ReadFile(entry_of(path, text), digest_of(text)) for path, text in files.items()]


def whole(files: dict[str, str]) -> Columns:
    return make_columns(read(dict(sorted(files.items()))), StringTable())


def is_same(one: Columns, other: Columns) -> bool:
    """Whether they say the same; their strings may have other numbers."""
    same = list(Entries(one).items()) == list(Entries(other).items())
    return same and one["digest"].tobytes() == other["digest"].tobytes()


@settings(max_examples=examples(60))
@given(projects)
def test_an_entry_comes_back_as_it_was(files: dict[str, str]) -> None:
    entries: dict[str, Entry] = {one.entry.path: one.entry for one in read(files)}
    assert dict(Entries(make_columns(read(files), StringTable()))) == entries


@settings(max_examples=examples(100))
@given(st.lists(projects, min_size=1, max_size=4), st.sets(st.sampled_from(PATHS)))
def test_what_is_joined_piece_by_piece_is_what_is_made_at_once(
    pieces: list[dict[str, str]], gone: set[str]
) -> None:
    strings = StringTable()
    kept = make_columns((), strings)
    wanted: dict[str, str] = {}
    for files in pieces:
        wanted = {path: text for path, text in (wanted | files).items() if path not in gone}
        kept = merge_columns([kept, make_columns(read(files), strings)], sorted(wanted))
    fresh = whole(wanted)
    assert is_same(kept, fresh)
    assert {name: column.dtype for name, column in kept.arrays.items()} == {
        name: np.dtype(kind) for name, (_, kind) in COLUMNS.items()
    }
    old, new = make_links(kept), make_links(fresh)
    for name in new.__struct_fields__:
        assert getattr(old, name).tolist() == getattr(new, name).tolist()
    assert count_users(kept).tolist() == count_users(fresh).tolist()


def test_files_that_are_as_they_were_are_not_copied() -> None:
    columns = whole({"a.py": "def a(): pass", "b.py": ""})
    assert merge_columns([columns], ["a.py", "b.py"]) is columns


def test_strings_that_no_file_has_any_more_are_forgotten() -> None:
    strings = StringTable()
    kept = make_columns(read({"a.py": "def stays(): pass\n"}), strings)
    assert drop_strings(kept) is kept
    many = "\n".join(f"def word_{number}(): pass" for number in range(50))
    merge_columns([kept, make_columns(read({"b.py": many}), strings)], ["a.py", "b.py"])
    shorter = drop_strings(kept)
    assert is_same(shorter, kept)
    assert len(shorter.strings) < 15 < len(kept.strings)


# Strings


@settings(max_examples=examples(60))
@given(st.lists(st.text(max_size=5), unique=True), st.lists(st.text(max_size=5), unique=True))
def test_strings_have_one_number_each_stored_or_not(old: list[str], new: list[str]) -> None:
    first = StringTable()
    numbers = first.add_all(old).tolist()
    table = StringTable(first.store())
    assert table.add_all(old).tolist() == numbers == list(range(len(old)))
    added = dict(zip(new, table.add_all(new).tolist(), strict=True))
    assert all(added[text] == old.index(text) for text in new if text in old)
    assert len(table) == len({*old, *new})
    assert [table[table.find(text)] for text in (*old, *new)] == [*old, *new]
    assert [StringTable(table.store())[n] for n in range(len(table))] == [
        table[n] for n in range(len(table))
    ]


def test_strings_with_one_checksum_are_told_apart() -> None:
    stored = StoredStrings.of(["plumless", "other", "buckeroo"])
    assert stored.checksums[0] == stored.checksums[1] or stored.checksums[1] == stored.checksums[2]
    assert [stored.find(text) for text in ("plumless", "buckeroo", "none")] == [0, 2, -1]


# The file


def linked(files: dict[str, str]) -> LinkedColumns:
    columns = whole(files)
    return LinkedColumns(columns, make_links(columns))


SHOP = {
    "cart.py": "class Cart:\n    def total(self):\n        return tax(self)\n",
    "tax.py": "def tax(cart):\n    return 'größe'\n" + "\n".join(["word"] * 300),
    "empty.py": "",
}


def test_columns_come_back_from_their_file(tmp_path: Path) -> None:
    saved = linked(SHOP)
    save_columns(tmp_path / "c", saved, ABOUT)
    loaded = load_columns(tmp_path / "c", ABOUT)
    assert loaded is not None
    assert is_same(loaded.columns, saved.columns)
    assert loaded.links is not None
    assert saved.links is not None
    assert loaded.links.weights.tolist() == saved.links.weights.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600


def test_columns_of_another_version_are_not_used(tmp_path: Path) -> None:
    save_columns(tmp_path / "c", linked(SHOP), ABOUT)
    assert load_columns(tmp_path / "c", {"made_by": "another"}) is None
    assert load_columns(tmp_path / "none", ABOUT) is None


def test_no_damage_makes_columns_wrong(tmp_path: Path) -> None:
    saved = linked(SHOP)
    path = tmp_path / "c"
    save_columns(path, saved, ABOUT)
    data = path.read_bytes()
    dice = random.Random(5)
    for _ in range(examples(400)):
        broken = bytearray(data)
        for _ in range(dice.choice((1, 1, 10))):
            broken[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(broken)
        loaded = load_columns(path, ABOUT)
        assert loaded is None or is_same(loaded.columns, saved.columns)
    for size in range(0, len(data), 37):
        path.write_bytes(data[:size])
        assert load_columns(path, ABOUT) is None


# The index


def many(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"part{number:03}.py").write_text(f"def work_{number}(order):\n    pass\n")


def columns_file(cache: Path) -> Path:
    (path,) = cache.glob("*.columns")
    return path


def updated(root: Path, cache: Path) -> ProjectIndex:
    index = open_index(root, cache)
    index.update()
    return index


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def test_columns_are_written_when_many_files_are_new_and_not_for_each(
    root: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    many(root, MAX_UNFILED)
    updated(root, cache)
    assert not list(cache.glob("*.columns"))
    many(root, MAX_UNFILED + 10)
    updated(root, cache)
    before = columns_file(cache).stat().st_mtime_ns
    (root / "part003.py").write_text("def send_receipt(order):\n    pass\n")
    (root / "part004.py").unlink()
    changed = updated(root, cache)
    again = updated(root, cache)
    assert columns_file(cache).stat().st_mtime_ns == before
    assert is_same(changed.columns, again.columns)
    asked = MapRequest(query="send_receipt")
    assert rank_files(again, asked) == rank_files(changed, asked)
    assert rank_files(again, asked)[0].path == "part003.py"
    assert "part004.py" not in again.entries


@pytest.mark.parametrize("how", ["damaged", "gone", "a folder"])
def test_without_its_columns_an_index_is_the_same(root: Path, tmp_path: Path, how: str) -> None:
    cache = tmp_path / "cache"
    many(root, MAX_UNFILED + 1)
    index = updated(root, cache)
    path = columns_file(cache)
    if how == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        path.unlink()
    if how == "a folder":
        path.mkdir()
    again = open_index(root, cache)
    assert again.update() == 0
    assert is_same(again.columns, index.columns)
    assert path.is_file() == (how != "a folder")
    assert again.notes == ()
    assert sorted(one.suffix for one in cache.iterdir()) == [".columns", ".db"]
