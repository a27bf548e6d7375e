"""What git answers about a folder: quickly, without changing anything, and whatever repository a
hook may have named.
"""

import os
import subprocess


def git(folder: str | os.PathLike[str], *arguments: str, seconds: float) -> bytes:
    """What git answers; nothing where there is none, where it fails, or where it takes long."""
    # A hook sets the variables that say which repository is meant; here the folder says it.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return b""
    return done.stdout
