"""Run a command of the shell that can change files in some folders only (Linux, by Landlock).

This file is run by itself, and imports nothing of Loom: `python confine.py COMMAND FOLDER...`.
Reading and the network are not restricted. What the kernel does not know is not restricted either:
`can_confine` says whether it knows enough.
"""

import ctypes
import os
import sys

# See linux/landlock.h. Each right came with a version of the interface (ABI).
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))  # folders, files, links, sockets, devices
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on all processors
_VERSION_ONLY, _BELOW_PATH = 1, 1
_NO_NEW_PRIVILEGES = 38  # of prctl
_FILE_RIGHTS = _WRITE_FILE | _TRUNCATE
_MIN_ABI = 3  # before it, files could be emptied


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def can_confine() -> bool:
    """Whether this system can hold a command in folders."""
    if sys.platform != "linux":
        return False
    found: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION_ONLY)
    return found >= _MIN_ABI


def confine_writing(folders: list[str]) -> None:
    """Let this process, and all that it starts, change files only below these folders."""
    library = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        done: int = library.syscall(number, *arguments)
        if done < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"the command cannot be confined: {os.strerror(error)}")
        return done

    everything = _FILE_RIGHTS | _REFER | _REMOVE_AND_MAKE
    rules = _Ruleset(everything)
    ruleset = call(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    for folder in folders:
        try:
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        allowed = everything if os.path.isdir(folder) else _FILE_RIGHTS
        below = _PathRule(allowed, place)
        call(_ADD_RULE, ruleset, _BELOW_PATH, ctypes.byref(below), 0)
        os.close(place)
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


if __name__ == "__main__":
    command, *allowed_folders = sys.argv[1:]
    confine_writing(allowed_folders)
    os.execv("/bin/sh", ["sh", "-c", command])
