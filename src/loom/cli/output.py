"""Where a command writes what it makes: standard output, or a file that appears whole."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TextIO

from loom.errors import ChoiceError

STANDARD_OUTPUT = Path("-")


def open_output(path: Path | None) -> AbstractContextManager[TextIO]:
    """A file that appears whole, or standard output."""
    if path is None or path == STANDARD_OUTPUT:
        return nullcontext(sys.stdout)
    if not path.parent.is_dir():
        raise ChoiceError(
            f"{path.parent} is not a folder; create it, or choose another folder for {path.name}"
        )
    if path.exists() and not path.is_file():  # a pipe or a device takes what it is given
        return path.open("w", encoding="utf-8")
    return _whole_file(path.resolve())


@contextmanager
def _whole_file(path: Path) -> Iterator[TextIO]:
    """A file that appears only when all of it is written, with the rights it had."""
    if path.exists():
        mode = path.stat().st_mode & 0o777
    else:
        mode = 0o666 & ~_umask()
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as held:
        try:
            yield held  # type: ignore[misc]  # the wrapper has all of a text stream
            held.flush()
            os.fsync(held.fileno())
            os.chmod(held.name, mode)
            os.replace(held.name, path)
        except BaseException:
            os.unlink(held.name)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
