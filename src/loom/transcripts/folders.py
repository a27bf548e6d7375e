"""The files of a folder, and of the folders in it."""

import os
from collections.abc import Iterator
from pathlib import Path

# Folders that hold no transcripts of their own, and often very many files.
PASSED_OVER = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules"})


def find_files(folder: Path) -> Iterator[Path]:
    """All files of a folder, in order of their names. Links to folders are not followed, and what
    is not a file, such as a pipe, is left out.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file():
                yield path
