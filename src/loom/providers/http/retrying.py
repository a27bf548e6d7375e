"""Time and tries of one request: how long is waited for what, and when it is sent again."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from loom.errors import ProviderError, ProviderTimeout

_T = TypeVar("_T")
FIRST_WAIT_SECONDS = 0.5


class Patience(Struct, frozen=True, kw_only=True):
    """How long a provider is waited for, in seconds, and how often it is asked again."""

    # Until the connection is there.
    connect: float = 10.0
    # Between two pieces of a stream, and until the first.
    chunk: float = 300.0
    # For the whole answer, all tries together. The time that the reader of a stream takes does not
    # count.
    whole: float = 1200.0
    # How often a request is sent again.
    retries: int = 4
    # Longest wait before a request is sent again. If the provider asks for more, it fails.
    longest_wait: float = 60.0

    def wait_before(
        self, error: ProviderError, tries: int, draw: Callable[[], float] = random.random
    ) -> float | None:
        """Seconds to wait after an error before the request is sent again; None if it is not.

        `draw` gives a number from 0 to 1, so that many clients do not come back at once.
        """
        if not error.is_passing or tries >= self.retries:
            return None
        if error.retry_after is not None:
            if error.retry_after > self.longest_wait:
                return None
            return error.retry_after * (1 + draw() / 10)
        longest = min(FIRST_WAIT_SECONDS * 2.0**tries, self.longest_wait)
        return longest * (1 + draw()) / 2


class Clock:
    """The time that is left for one answer."""

    def __init__(self, provider: str, patience: Patience) -> None:
        self._provider, self._patience = provider, patience
        self.left = patience.whole

    async def wait_for(self, work: Awaitable[_T], limit: float | None = None) -> _T:
        """Wait for work, no longer than a limit and than what is left of the whole."""
        begun = time.monotonic()
        seconds = self.left if limit is None else min(limit, self.left)
        try:
            return await asyncio.wait_for(work, max(seconds, 0.001))
        except TimeoutError as error:
            if type(error) is not TimeoutError:  # that of a client, which has a limit of its own
                raise
            if limit is not None and limit < self.left:
                text = f"{self._provider} sent nothing for {limit:g} seconds"
                raise ProviderTimeout(text, provider=self._provider, is_passing=True) from None
            raise self.out_of_time() from None
        finally:
            self.left -= time.monotonic() - begun

    async def sleep(self, seconds: float) -> None:
        """Wait before the next try."""
        self.left -= seconds
        await asyncio.sleep(seconds)

    def out_of_time(self) -> ProviderTimeout:
        text = f"{self._provider} did not finish its answer in {self._patience.whole:g} seconds"
        return ProviderTimeout(text, provider=self._provider)
