"""What the rules of a project allow while an agent works in it."""

import os
from os import PathLike
from pathlib import Path

from loom.config.project_file import list_folders_above
from loom.project.rules.operations import OperationVerdict
from loom.project.rules.project_rules import LOOM_FILES, ProjectRules
from loom.project.rules.reading import Signature, sign_settled_file


class WatchedRules:
    """The operations that the rules of a project allow, both as they were when the work began and
    as they are now.

    What is denied in the meantime is denied at once. What is no longer denied is allowed when the
    next work begins: an agent that may write files cannot lift what is denied to it.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        root = Path(os.path.realpath(os.path.expanduser(folder)))
        folders = [root, *list_folders_above(root)]
        self._places = [str(place / name) for place in folders for name in LOOM_FILES]
        self._folder = folder
        self._signatures = self._sign()
        self._first = self._now = ProjectRules.load(folder)

    def judge(self, category: str, operation: str) -> OperationVerdict:
        """Whether an operation is allowed, and why."""
        verdict = self._first.judge(category, operation)
        if not verdict.is_allowed:
            return verdict
        return self._read_again().judge(category, operation)

    def _read_again(self) -> ProjectRules:
        signatures = self._sign()
        if signatures != self._signatures or None in signatures:
            if not os.path.isdir(self._folder):
                return self._now
            self._now, self._signatures = ProjectRules.load(self._folder), signatures
        return self._now

    def _sign(self) -> list[Signature | tuple[()] | None]:
        """What tells whether each file changed: () if it is not there, None if nobody can tell."""
        return [
            sign_settled_file(place) if os.path.lexists(place) else () for place in self._places
        ]
