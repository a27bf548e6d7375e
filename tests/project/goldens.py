"""What the fixtures define, and their maps, written down to be read: `python -m
tests.project.goldens` writes them anew.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from loom import project_map
from loom.project.parse.languages import parse
from loom.project.parse.symbols import ParsedFile

FOLDER = Path(__file__).resolve().parent / "fixtures"
MAP = 240  # tokens of a map, less than some fixtures would take
FIXTURES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".golden")


def golden(fixture: Path) -> Path:
    return fixture.with_name(fixture.name + ".golden")


def told(parsed: ParsedFile) -> str:
    """A line for each definition: its kind, path, signature and lines; then what is used and how
    often.
    """
    rows = [
        f"{one.kind} {one.path} | {one.signature} | {one.start}-{one.stop}"
        for one in parsed.definitions
    ]
    uses = " ".join(f"{name}×{count}" for name, count in parsed.references.items())
    return "\n".join([f"language {parsed.language}", *rows, f"uses {uses}", ""])


def golden_map(fixture: Path) -> Path:
    return fixture.with_name(fixture.name + ".map.golden")


def mapped(fixture: Path) -> str:
    """The map of a project that is this file alone."""
    with TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        shutil.copy(fixture, root)
        return project_map(root, tokens=MAP, cache=Path(folder) / "cache").text + "\n"


if __name__ == "__main__":
    for each in FIXTURES:
        golden(each).write_text(told(parse(each.name, each.read_text())))
        golden_map(each).write_text(mapped(each))
