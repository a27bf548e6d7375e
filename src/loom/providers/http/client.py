"""A model behind HTTP: one request of a wire out, one answer back, at once or as a stream."""

from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Self

import msgspec

from loom.dialects.input import Answer
from loom.errors import BrokenAnswer, ProviderError, ProviderTimeout
from loom.providers.http.bodies import Target, make_body, make_headers
from loom.providers.http.exchange import Exchange, HttpCall, load_aiohttp
from loom.providers.http.folding import (
    StreamFolding,
    find_refusal,
    parse_response,
    refuse_content,
)
from loom.providers.http.retrying import Clock, Patience
from loom.providers.models import AnswerEnd, ChatModel, Model, ModelRequest, StreamEvent
from loom.providers.wires import WIRES, Json

if TYPE_CHECKING:
    import aiohttp

MAX_ANSWER_BYTES = 64 * 2**20


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
        self._aiohttp = load_aiohttp()

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
                if wait is None or wait >= clock.left:
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
            # One generator, and no other inside of it: so it ends cleanly wherever its reader
            # leaves it.
            exchange, folding = self._begin(body, clock), StreamFolding(self.provider, self._wire)
            try:
                await exchange.open()
                while not folding.is_done:
                    for piece in await self._read_pieces(exchange, folding):
                        is_begun = True
                        yield piece
                yield AnswerEnd(folding.finish())
                return
            except ProviderError as error:
                wait = self._patience.wait_before(error, tries)
                if wait is None or is_begun or wait >= clock.left:
                    raise
            finally:
                await exchange.close()
            tries += 1
            await clock.sleep(wait)

    async def _ask(self, body: Json, clock: Clock) -> Answer:
        exchange = self._begin(body, clock)
        try:
            await exchange.open()
            content = await exchange.read_all(MAX_ANSWER_BYTES)
        finally:
            await exchange.close()
        try:
            wire = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise refuse_content(self.provider, content, self._key) from None
        refusal = find_refusal(self.provider, wire, self._key)
        if refusal is not None:
            raise refusal
        return parse_response(self.provider, wire)

    def _begin(self, body: Json, clock: Clock) -> Exchange:
        headers = make_headers(self._target, self._key, body, body.get("stream") is True)
        url = self._target.url + self._wire.path
        call = HttpCall(self.provider, url, headers, body, self._key)
        return Exchange(call, self._patience, clock, self._pool)

    async def _read_pieces(
        self, exchange: Exchange, folding: StreamFolding
    ) -> Iterator[StreamEvent]:
        """The pieces in the next bytes of a stream."""
        try:
            content = await exchange.read(self._patience.chunk)
        except ProviderTimeout as error:
            raise folding.break_off(str(error).removeprefix(f"{self.provider} "), error) from None
        except BrokenAnswer:
            content = b""  # whether the answer is whole is known by what came
        return folding.feed(content, self._key)
