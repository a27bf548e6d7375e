"""What git tells of the last changes of a project."""

from pathlib import Path

from loom.project.index.git import git

_MAX_COMMITS = 300
_GIT_SECONDS = 2.0


def newest_commit(root: Path) -> str:
    """The commit that a project stands at; "" if there is none."""
    return (
        git(root, "rev-parse", "--verify", "--quiet", "HEAD", seconds=_GIT_SECONDS).decode().strip()
    )


def list_recent(root: Path, head: str) -> dict[str, int]:
    """The files that the last commits before and with this one touched: 0 for those of the newest,
    1 for those of the one before; no merges. Raises TimeoutError where git does not answer.
    """
    said = (
        "log",
        "-z",
        "--name-only",
        "--relative",
        "--no-renames",
        "--no-merges",
        f"-n{_MAX_COMMITS}",
        "--format=%x01%ct",
        head,
    )
    ranks: dict[str, int] = {}
    commit = -1
    answer = git(root, *said, seconds=_GIT_SECONDS)
    if not answer:
        raise TimeoutError
    for line in answer.split(b"\0"):
        line = line.removeprefix(b"\n")
        if line.startswith(b"\x01"):
            commit += 1
        elif line:
            ranks.setdefault(line.decode(errors="replace"), commit)
    return ranks
