"""One request of HTTP and its response, read in bytes."""

from ssl import SSLError
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.request import getproxies, proxy_bypass

import msgspec
from msgspec import Struct

from loom.errors import BrokenAnswer, ChoiceError, ProviderError, ProviderTimeout
from loom.providers.http.retrying import Clock, Patience
from loom.providers.refusals import find_retry_after, make_refusal, mask, read_error
from loom.providers.wires import Json

if TYPE_CHECKING:
    import aiohttp

MAX_ERROR_BYTES = 64 * 2**10


class HttpCall(Struct, frozen=True):
    """What is sent, and where. The key is masked in what comes back as an error."""

    provider: str
    url: str
    headers: dict[str, str]
    body: Json
    key: str = ""

    def __repr__(self) -> str:
        return f"<HttpCall of {self.url}>"  # its headers hold the key


class Exchange:
    """A request and its response. However it is left, `close` closes its connection, unless all
    was read: then that is kept for the next request.
    """

    def __init__(
        self, call: HttpCall, patience: Patience, clock: Clock, pool: "aiohttp.ClientSession | None"
    ) -> None:
        self._call, self._patience, self._clock = call, patience, clock
        self._aiohttp = load_aiohttp()
        self._own: aiohttp.ClientSession | None = None
        self._session = pool
        self._response: aiohttp.ClientResponse | None = None

    async def open(self) -> None:
        """Send the request, and wait until the provider begins to answer."""
        call = self._call
        if self._session is None:
            self._session = self._own = self._aiohttp.ClientSession()
        assert self._session is not None
        timeout = self._aiohttp.ClientTimeout(total=None, sock_connect=self._patience.connect)
        sent = self._session.post(
            call.url,
            data=msgspec.json.encode(call.body),
            headers=call.headers,
            timeout=timeout,
            allow_redirects=False,  # the key is for this address only
            proxy=_find_proxy(call.url),
        )
        limit = self._patience.chunk if call.body.get("stream") is True else None
        try:
            response: aiohttp.ClientResponse = await self._clock.wait_for(sent, limit)
        except (self._aiohttp.ClientError, OSError) as error:
            self._fail_to_connect(error)
        self._response = response
        if response.status != 200:
            await self._refuse(response)

    async def read(self, limit: float | None = None) -> bytes:
        """The next bytes of the answer; none at its end."""
        assert self._response is not None
        try:
            return await self._clock.wait_for(self._response.content.readany(), limit)
        except ProviderTimeout:
            raise
        except (self._aiohttp.ClientError, OSError):
            raise BrokenAnswer(
                f"{self._call.provider} broke off its answer",
                provider=self._call.provider,
                is_passing=True,
            ) from None

    async def read_all(self, most: int) -> bytes:
        """All bytes of the answer."""
        content = bytearray()
        while chunk := await self.read():
            content += chunk
            if len(content) > most:
                raise BrokenAnswer(
                    f"{self._call.provider} sent more than {most >> 20} MiB",
                    provider=self._call.provider,
                )
        return bytes(content)

    async def close(self) -> None:
        response, self._response = self._response, None
        own, self._own = self._own, None
        if response is not None:
            if response.content.at_eof():
                response.release()
            else:
                response.close()
        if own is not None:
            await own.close()

    def _fail_to_connect(self, error: Exception) -> NoReturn:
        provider = self._call.provider
        if isinstance(error, ProviderTimeout):
            raise error
        if isinstance(error, TimeoutError):
            raise ProviderTimeout(
                f"{provider} did not accept a connection in {self._patience.connect:g} seconds",
                provider=provider,
                is_passing=True,
            ) from None
        if isinstance(error, self._aiohttp.ClientSSLError | SSLError):
            reason, is_passing = "the connection is not safe", False
        else:
            reason, is_passing = "cannot be reached", True
        said = mask(str(error) or type(error).__name__, self._call.key)
        raise ProviderError(
            f"{provider} {reason}: {said}", provider=provider, is_passing=is_passing
        ) from None

    async def _refuse(self, response: "aiohttp.ClientResponse") -> NoReturn:
        """Raise what a provider says in place of an answer."""
        try:
            read = response.content.read(MAX_ERROR_BYTES)
            content = await self._clock.wait_for(read, self._patience.chunk)
        except (self._aiohttp.ClientError, OSError):
            content = b""
        headers = {name.lower(): value for name, value in response.headers.items()}
        said = mask(read_error(content) or str(response.reason or ""), self._call.key)
        wait = find_retry_after(headers)
        raise make_refusal(self._call.provider, response.status, said, wait) from None


def _find_proxy(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    if host.startswith(("127.", "localhost", "[::1]")) or proxy_bypass(host):
        return None
    return getproxies().get(scheme)


def load_aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError:
        raise ChoiceError(
            "providers are reached with aiohttp, which is not installed: "
            'pip install "loomwright[providers]"'
        ) from None
    return aiohttp
