"""What git answers about a folder: quickly, without changing anything, and whatever repository a
hook may have named.
"""

import os
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Self


class GitCall:
    """A question that git works on from now on, while others do something else."""

    def __init__(self, folder: str | os.PathLike[str], *arguments: str) -> None:
        # A hook sets the variables that say which repository is meant; here the folder says it.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        clean |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
        command = ["git", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError, ValueError):
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def answer(self, seconds: float) -> bytes:
        """What git answers; nothing where there is none, where it fails, or where it takes long."""
        if self._process is None:
            return b""
        try:
            answer, _ = self._process.communicate(timeout=seconds)
        except (OSError, ValueError, subprocess.SubprocessError):
            return b""
        return answer if self._process.returncode == 0 else b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Git need not go on: its answer is there, or nobody waits for it."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.communicate()


def git(folder: str | os.PathLike[str], *arguments: str, seconds: float) -> bytes:
    """What git answers; nothing where there is none, where it fails, or where it takes long."""
    with GitCall(folder, *arguments) as call:
        return call.answer(seconds)
