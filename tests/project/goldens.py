"""What the fixtures define, written down to be read: `python -m tests.project.goldens` writes it anew, for eyes to compare."""

from pathlib import Path

from loom.project.languages import parse
from loom.project.symbols import Parsed

FOLDER = Path(__file__).resolve().parent / "fixtures"
FIXTURES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".golden")


def golden(fixture: Path) -> Path:
    return fixture.with_name(fixture.name + ".golden")


def told(parsed: Parsed) -> str:
    """A line for each definition: its kind, path, signature and lines; then what is used and how often."""
    rows = [f"{one.kind} {one.path} | {one.signature} | {one.start}-{one.stop}" for one in parsed.definitions]
    uses = " ".join(f"{name}×{count}" for name, count in parsed.references.items())
    return "\n".join([f"language {parsed.language}", *rows, f"uses {uses}", ""])


if __name__ == "__main__":
    for each in FIXTURES:
        golden(each).write_text(told(parse(each.name, each.read_text())))
