"""From the bytes of a stream to its pieces and its answer; and what is an error in place of one."""

from collections.abc import Iterator
from typing import Any

import msgspec

from loom.dialects.input import Answer, parse_answer
from loom.errors import BrokenAnswer, ProviderError, RequestTooLong, WireError, shorten
from loom.providers.models import StreamEvent, TextChunk
from loom.providers.partial import read_partial
from loom.providers.refusals import describe_error, find_error, make_refusal, mask, status_of
from loom.providers.wires import Json, SseEvent, SseReader, Wire
from loom.providers.wires.sse import MAX_EVENT_BYTES


class StreamFolding:
    """Folds one stream. `is_done`: nothing more is to be read.

    Some servers answer with one object in place of a stream, most of all if it is an error. It is
    read as such.
    """

    def __init__(self, provider: str, wire: Wire) -> None:
        self._provider, self._wire = provider, wire
        self._fold, self._reader = wire.fold(), SseReader()
        self._is_stream: bool | None = None  # None until something has come
        self._object = bytearray()
        self._answer: Answer | None = None
        self.is_done = False

    def feed(self, content: bytes, key: str = "") -> Iterator[StreamEvent]:
        """The pieces in the next bytes; no bytes are the end of the stream."""
        if not content:
            self.is_done = True
        if self._is_stream is None and content.strip():
            self._is_stream = not content.lstrip().startswith((b"{", b"<"))
        if self._is_stream is False:
            return self._feed_object(content, key)
        return self._feed_events(content, key)

    def _feed_object(self, content: bytes, key: str) -> Iterator[StreamEvent]:
        self._object += content
        if len(self._object) > MAX_EVENT_BYTES:
            raise self.break_off(f"sent more than {MAX_EVENT_BYTES >> 20} MiB")
        if content:
            return
        try:
            data = msgspec.json.decode(self._object)
        except msgspec.DecodeError:
            if self._object.lstrip().startswith(b"{"):
                return  # it broke off
            raise refuse_content(self._provider, bytes(self._object), key) from None
        error = find_refusal(self._provider, data, key)
        if error is not None:
            raise error
        self._answer = parse_response(self._provider, data)
        if self._answer.text:
            yield TextChunk(self._answer.text)

    def _feed_events(self, content: bytes, key: str) -> Iterator[StreamEvent]:
        for event in self._reader.feed(content):
            if event.data.strip() == "[DONE]":
                self._fold.is_ended = self.is_done = True
                return
            data = self._read_data(event)
            error = find_refusal(self._provider, data, key, is_error=event.name == "error")
            if error is not None:
                raise self._with_partial(error)
            yield from self._fold.feed(data)
        # After its last event a server may keep the connection open. In chat, the usage comes
        # after what looks like the end.
        if self._fold.is_ended and self._wire.name != "openai":
            self.is_done = True

    def finish(self) -> Answer:
        """The answer, if it is whole."""
        if self._answer is not None:
            return self._answer
        if not self._fold.is_ended:
            raise self.break_off("broke off its answer")
        return parse_response(self._provider, self._fold.response())

    def break_off(self, why: str, cause: ProviderError | None = None) -> ProviderError:
        """The error for an answer that is not whole; it carries what came."""
        partial = read_partial(self._fold.response())
        if cause is not None and partial is None:
            return cause
        return BrokenAnswer(
            f"{self._provider} {why}", provider=self._provider, is_passing=True, partial=partial
        )

    def _read_data(self, event: SseEvent) -> Json:
        try:
            data = msgspec.json.decode(event.data)
        except msgspec.DecodeError:
            data = None
        if not isinstance(data, dict):
            raise self.break_off("sent an event that is not an object of JSON")
        return data

    def _with_partial(self, error: ProviderError) -> ProviderError:
        partial = read_partial(self._fold.response())
        if partial is None or isinstance(error, RequestTooLong):
            return error
        return BrokenAnswer(
            str(error),
            provider=self._provider,
            status=error.status,
            is_passing=error.is_passing,
            partial=partial,
        )


def find_refusal(
    provider: str, data: Any, key: str, *, is_error: bool = False
) -> ProviderError | None:
    """The error that came where an answer should be, if one did. `is_error`: the server calls it
    so.
    """
    error = find_error(data)
    if error is None and is_error:
        error = data
    if error is None:
        return None
    return make_refusal(provider, status_of(error), mask(describe_error(error), key))


def refuse_content(provider: str, content: bytes, key: str) -> BrokenAnswer:
    """The error for an answer that is not JSON, such as a page of a web server."""
    said = mask(" ".join(content.decode(errors="replace").split()), key)
    return BrokenAnswer(
        f"{provider} sent an answer that is not JSON: {shorten(said, 200) or 'nothing'}",
        provider=provider,
    )


def parse_response(provider: str, wire: Json) -> Answer:
    """The answer in a response."""
    try:
        return parse_answer(wire)
    except WireError as error:
        raise BrokenAnswer(
            f"{provider} sent an answer of another form: {error}", provider=provider
        ) from None
