"""A model behind HTTP: one request of a wire out, one answer back, at once or as a stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from ssl import SSLError
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.request import getproxies, proxy_bypass

import msgspec

from loom.dialects.input import Answer, parse_answer
from loom.errors import BrokenAnswer, ChoiceError, ProviderError, ProviderTimeout, WireError
from loom.providers.http.bodies import Target, make_body, make_headers
from loom.providers.http.retrying import Clock, Patience
from loom.providers.models import (
    AnswerEnd,
    ChatModel,
    Model,
    ModelRequest,
    StreamEvent,
)
from loom.providers.partial import read_partial
from loom.providers.refusals import STATUS_BY_KIND, find_retry_after, make_refusal
from loom.providers.wires import WIRES, AnswerFold, Json, SseEvent, SseReader

if TYPE_CHECKING:
    import aiohttp

MAX_ANSWER_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10


class HttpModel(ChatModel):
    """A model of a provider. `loom.connect` makes it.

    `async with` keeps connections open between requests; without it, each request has its own. The
    key is in no error and in no text of this object.
    """

    def __init__(
        self, target: Target, key: str, patience: Patience, weak_model: Model | None = None
    ) -> None:
        self._target, self._key, self._patience = target, key, patience
        self._wire = WIRES[target.preset.wire]
        self.wire = self._wire.name
        self.weak_model = weak_model
        self._pool: aiohttp.ClientSession | None = None
        self._aiohttp = _load_aiohttp()

    def __repr__(self) -> str:
        return f"<HttpModel {self.name}>"

    @property
    def name(self) -> str:
        """`provider:model`, as `loom.connect` takes it."""
        preset, model = self._target.preset, self._target.model
        return f"{preset.name}:{model}" if model else preset.name

    @property
    def provider(self) -> str:
        return self._target.preset.name

    async def __aenter__(self) -> Self:
        self._pool = self._aiohttp.ClientSession(auto_decompress=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def answer(self, request: ModelRequest) -> Answer:
        """Send a request and wait for the whole answer."""
        body = make_body(self._target, request, streamed=False)
        clock = Clock(self.provider, self._patience)
        tries = 0
        while True:
            try:
                return await self._ask(body, clock)
            except ProviderError as error:
                wait = self._patience.wait_before(error, tries)
                if wait is None:
                    raise
            tries += 1
            await clock.sleep(wait)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send a request and hand out its answer in pieces. It is sent again only while nothing
        was handed out.
        """
        body = make_body(self._target, request, streamed=True)
        clock = Clock(self.provider, self._patience)
        tries, is_begun = 0, False
        while True:
            try:
                async with aclosing(self._ask_streamed(body, clock)) as events:
                    async for event in events:
                        is_begun = True
                        yield event
                return
            except ProviderError as error:
                wait = self._patience.wait_before(error, tries)
                if wait is None or is_begun:
                    raise
            tries += 1
            await clock.sleep(wait)

    async def _ask(self, body: Json, clock: Clock) -> Answer:
        async with self._post(body, clock) as response:
            read = response.content.readany
            content = await self._read_all(lambda: clock.wait_for(read()), MAX_ANSWER_BYTES)
        try:
            wire = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BrokenAnswer(
                f"{self.provider} sent an answer that is not JSON", provider=self.provider
            ) from None
        self._raise_error(wire)
        return self._parse(wire)

    async def _read_all(self, read: Callable[[], Awaitable[bytes]], limit: int) -> bytes:
        content = bytearray()
        try:
            while chunk := await read():
                content += chunk
                if len(content) > limit:
                    raise BrokenAnswer(
                        f"{self.provider} sent more than {limit >> 20} MiB", provider=self.provider
                    )
        except (self._aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise BrokenAnswer(
                f"{self.provider} broke off its answer", provider=self.provider, is_passing=True
            ) from None
        return bytes(content)

    async def _ask_streamed(self, body: Json, clock: Clock) -> AsyncGenerator[StreamEvent, None]:
        fold = self._wire.fold()
        async with (
            self._post(body, clock) as response,
            aclosing(self._events(response, clock, fold)) as events,
        ):
            async for event in events:
                data = self._read_data(event, fold)
                self._raise_error(data, fold)
                for piece in fold.feed(data):
                    yield piece
        if not fold.is_ended:
            self._break_off(fold, "broke off its answer")
        yield AnswerEnd(self._parse(fold.response()))

    async def _events(
        self, response: "aiohttp.ClientResponse", clock: Clock, fold: AnswerFold
    ) -> AsyncGenerator[SseEvent, None]:
        """The events of a stream, up to the one that ends it."""
        reader = SseReader()
        while True:
            try:
                content = await clock.wait_for(response.content.readany(), self._patience.chunk)
            except ProviderTimeout as error:
                self._break_off(fold, str(error).removeprefix(f"{self.provider} "), error)
            except (self._aiohttp.ClientError, OSError):
                return  # whether the answer is whole is known by what came
            if not content:
                return
            for event in reader.feed(content):
                if event.data == "[DONE]":
                    fold.is_ended = True
                    return
                yield event
            # After its last event, Anthropic's or OpenAI's server may keep the connection open. In
            # chat, the usage comes after what looks like the end.
            if fold.is_ended and self.wire != "openai":
                return

    def _read_data(self, event: SseEvent, fold: AnswerFold) -> Json:
        try:
            data = msgspec.json.decode(event.data)
        except msgspec.DecodeError:
            data = None
        if not isinstance(data, dict):
            self._break_off(fold, "sent an event that is not an object of JSON")
        return data

    def _break_off(
        self, fold: AnswerFold, why: str, cause: ProviderError | None = None
    ) -> NoReturn:
        """Raise what came of an answer that is not whole."""
        partial = read_partial(fold.response())
        if cause is not None and partial is None:
            raise cause
        raise BrokenAnswer(
            f"{self.provider} {why}", provider=self.provider, is_passing=True, partial=partial
        )

    def _raise_error(self, data: Any, fold: AnswerFold | None = None) -> None:
        """Raise the error that came where an answer should be."""
        error = find_error(data)
        if error is None:
            return
        said, status = self._mask(_describe_error(error)), _status_of(error)
        refusal = make_refusal(self.provider, status, said)
        partial = read_partial(fold.response()) if fold is not None else None
        if partial is None:
            raise refusal
        raise BrokenAnswer(
            str(refusal), provider=self.provider, status=status, is_passing=True, partial=partial
        )

    def _parse(self, wire: Json) -> Answer:
        try:
            return parse_answer(wire)
        except WireError as error:
            raise BrokenAnswer(
                f"{self.provider} sent an answer of another form: {self._mask(str(error))}",
                provider=self.provider,
            ) from None

    @asynccontextmanager
    async def _post(self, body: Json, clock: Clock) -> AsyncIterator["aiohttp.ClientResponse"]:
        """The response to a request that the provider accepts. However it is left, its connection
        is closed, unless all was read.
        """
        is_streamed = body.get("stream") is True
        headers = make_headers(self._target, self._key, body, is_streamed)
        url = self._target.url + self._wire.path
        timeout = self._aiohttp.ClientTimeout(
            total=None, sock_connect=self._patience.connect, connect=self._patience.connect
        )
        limit = self._patience.chunk if is_streamed else None
        async with self._connections() as session:
            try:
                response = await clock.wait_for(
                    session.post(
                        url,
                        data=msgspec.json.encode(body),
                        headers=headers,
                        timeout=timeout,
                        allow_redirects=False,  # the key is for this address only
                        proxy=_find_proxy(url),
                    ),
                    limit,
                )
            except (self._aiohttp.ClientError, OSError) as error:
                self._fail_to_connect(error)
            try:
                if response.status != 200:
                    await self._refuse(response, clock)
                yield response
            finally:
                if response.content.at_eof():
                    response.release()
                else:
                    response.close()

    @asynccontextmanager
    async def _connections(self) -> AsyncIterator["aiohttp.ClientSession"]:
        if self._pool is not None:
            yield self._pool
            return
        async with self._aiohttp.ClientSession(auto_decompress=True) as session:
            yield session

    def _fail_to_connect(self, error: Exception) -> NoReturn:
        if isinstance(error, ProviderTimeout):
            raise error
        if isinstance(error, TimeoutError):
            raise ProviderTimeout(
                f"{self.provider} did not accept a connection in "
                f"{self._patience.connect:g} seconds",
                provider=self.provider,
                is_passing=True,
            ) from None
        if isinstance(error, self._aiohttp.ClientSSLError | SSLError):
            reason, is_passing = "the connection is not safe", False
        else:
            reason, is_passing = "cannot be reached", True
        said = self._mask(str(error) or type(error).__name__)
        raise ProviderError(
            f"{self.provider} {reason}: {said}", provider=self.provider, is_passing=is_passing
        ) from None

    async def _refuse(self, response: "aiohttp.ClientResponse", clock: Clock) -> NoReturn:
        """Raise what a provider says in place of an answer."""
        try:
            read = response.content.read(MAX_ERROR_BYTES)
            content = await clock.wait_for(read, self._patience.chunk)
        except (self._aiohttp.ClientError, OSError):
            content = b""
        headers = {name.lower(): value for name, value in response.headers.items()}
        said = self._mask(_read_error(content) or str(response.reason or ""))
        wait = find_retry_after(headers)
        raise make_refusal(self.provider, response.status, said, wait) from None

    def _mask(self, said: str) -> str:
        """What somebody else said, without the key."""
        return said.replace(self._key, "…") if self._key else said


def find_error(data: Any) -> Any:
    """The error in a body or an event that has one in place of an answer; else None."""
    if not isinstance(data, dict):
        return None
    if data.get("type") == "response.failed" or data.get("status") == "failed":
        response = data.get("response", data)
        return (response.get("error") if isinstance(response, dict) else None) or "it failed"
    error = data.get("error")
    if data.get("type") == "error":
        return error or data
    has_answer = any(key in data for key in ("choices", "output", "content"))
    if isinstance(error, dict | str) and error and (not has_answer or not data.get("choices", 1)):
        return error
    return None


def _describe_error(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    kinds = [error.get(key) for key in ("type", "code")]
    named = [kind for kind in kinds if isinstance(kind, str) and kind and kind != "error"]
    said = error.get("message")
    if not isinstance(said, str):
        return msgspec.json.encode(error).decode()
    return f"{said} ({', '.join(named)})" if named else said


def _status_of(error: Any) -> int:
    if isinstance(error, dict):
        for key in ("status", "code", "type"):
            value = error.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
                return value
            if isinstance(value, str) and value in STATUS_BY_KIND:
                return STATUS_BY_KIND[value]
    return 500


def _read_error(content: bytes) -> str:
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return content.decode(errors="replace")
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    return _describe_error(error)


def _find_proxy(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    if proxy_bypass(host) or host.startswith(("127.", "localhost", "[::1]")):
        return None
    return getproxies().get(scheme)


def _load_aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError:
        raise ChoiceError(
            "providers are reached with aiohttp, which is not installed: "
            'pip install "loomwright[providers]"'
        ) from None
    return aiohttp
