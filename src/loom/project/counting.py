"""Counting the tokens of a map in a process of its own.

Loading a tokenizer takes as long as all else that a map needs, and lets no other thread run. So a
command that is started for one map has another process load it meanwhile. Where none can be had,
or where a tokenizer is loaded already, tokens are counted here.
"""

import os
import struct
import subprocess
import sys
from contextlib import suppress
from select import select
from typing import IO

from loom.budget.tokenizers import replace_surrogates, tokenizer
from loom.project import count_tokens
from loom.project.count_tokens import NUMBER

ENCODING = "o200k_base"
MAX_WAIT_SECONDS = 10.0  # for an answer; it may have to start first


class CountingProcess:
    """A process that counts the tokens of texts, by `count`. It ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._to: IO[bytes] | None = None
        self._answers: IO[bytes] | None = None
        is_loaded = tokenizer.cache_info().currsize > 0
        if not is_loaded and sys.platform != "win32" and (os.cpu_count() or 1) > 1:
            with suppress(OSError, ValueError):
                self._start()

    def _start(self) -> None:
        # Not its standard output: whatever else runs when Python starts may print something.
        reading, writing = os.pipe()
        folders = [folder or os.getcwd() for folder in sys.path]
        asked = (count_tokens.__file__, ENCODING, str(writing))
        try:
            self._process = subprocess.Popen(
                # -P: a file next to the user must not pass for a module of Python's. -S: it is told
                # where modules are, and looking for them takes long.
                [sys.executable, "-P", "-S", *asked, *folders],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writing,),
                start_new_session=True,  # Ctrl-C is for this process, which then ends both
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._to, self._answers = self._process.stdin, os.fdopen(reading, "rb", 0)

    def count(self, text: str) -> int:
        """The tokens of a text."""
        if self._to and self._answers:
            try:
                data = replace_surrogates(text).encode()
                self._to.write(NUMBER.pack(len(data)) + data)
                self._to.flush()
                if select([self._answers], [], [], MAX_WAIT_SECONDS)[0]:
                    found: int = NUMBER.unpack(self._answers.read(NUMBER.size))[0]
                    return found
            except (OSError, struct.error):  # it ended, or never began
                pass
            self._end()
        return tokenizer(ENCODING)(text)

    def _end(self) -> None:
        """Ask the process for nothing more."""
        self._to = None
        if self._process:
            self._process.kill()
            self._process.wait()
