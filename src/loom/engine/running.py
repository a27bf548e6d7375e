"""Who is at work in a session, or on a task in it: one run of an agent at a time, so that no tool
runs twice.
"""

import os
import platform
from pathlib import Path

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.errors import Conflict, shorten
from loom.stores import read_stored

RUN_SECONDS = 60  # without a sign of life, after which a run counts as over


class Runner(Struct, frozen=True):
    """A run of an agent, the process that it is in, and when it gave the last sign of life."""

    owner: str
    host: str
    pid: int
    at: int

    def is_over(self, now: int) -> bool:
        """Whether the run is over, as far as anybody can know here."""
        if abs(now - self.at) > RUN_SECONDS * 1000:
            return True
        return self.host == platform.node() and not _is_alive(self.pid)


class RunClaim(Struct, frozen=True):
    """That a run works in a session; or on one task of it, if `task` is its id."""

    session: str
    owner: str
    task: str = ""

    def take(self, stored: str | None, now: int) -> str:
        """What is stored once the run is at work; an error if another one is."""
        found = read_runner(stored)
        if found is not None and found.owner != self.owner and not found.is_over(now):
            seconds = max(now - found.at, 0) // 1000
            raise Conflict(
                self.session,
                self.owner,
                found.owner,
                f"another run works {self.place} (process {found.pid} on {found.host}, last "
                f"sign of life {seconds} s ago); wait until it ends. A run that gives no sign for "
                f"{RUN_SECONDS} s counts as over",
            )
        return to_json(Runner(self.owner, platform.node(), os.getpid(), now))

    @property
    def place(self) -> str:
        return f"on task {shorten(self.task)}" if self.task else f"in session {self.session}"


def read_runner(stored: str | None) -> Runner | None:
    if stored is None:
        return None
    return read_stored(stored, Runner, "the run that is at work in the session")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # a system without it
        return True
    return status.rpartition(")")[2].split()[:1] != ["Z"]  # one that only waits to be counted
