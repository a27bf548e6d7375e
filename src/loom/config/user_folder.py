"""Where the user's own files are."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def user_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder in which the user's configuration of all programs is."""
    environment = os.environ if environment is None else environment
    named = environment.get("XDG_CONFIG_HOME")
    if named:
        return Path(named)
    if sys.platform == "win32" and environment.get("APPDATA"):
        return Path(environment["APPDATA"])
    return Path(os.path.expanduser("~")) / ".config"
