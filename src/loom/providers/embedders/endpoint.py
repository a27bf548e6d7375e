"""An embedder behind HTTP: any server that speaks the embeddings API of OpenAI."""

import base64
import binascii
import http.client
import time
from collections.abc import Sequence
from email.message import Message
from typing import IO, TYPE_CHECKING, Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
import numpy as np
from msgspec import Struct

from loom.errors import ChoiceError, EmbedderError, describe, shorten
from loom.providers.embedders.texts import batch_texts, cut_texts, replace_surrogates

if TYPE_CHECKING:
    from loom.recall.embedder import Vectors

MAX_ANSWER_BYTES = 64 << 20
MAX_TEXT_CHARS = 8_000  # few texts of this length have more than 8,191 tokens, a common limit
MAX_WAIT_SECONDS = 10.0  # before a request is sent again, whatever the server asks for
_FIRST_WAIT_SECONDS = 0.5
_READ_BYTES = 1 << 16
_BATCH_CHARS = 200_000
_SHOWN_CHARS = 200
_AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
_PATH = "/embeddings"


class _EmbeddingEntry(Struct):
    embedding: list[float] | str  # numbers, or little-endian 32-bit floats in base64
    index: int | None = None


class _EmbeddingAnswer(Struct):
    data: list[_EmbeddingEntry]


class _Unavailable(Exception):
    """The server may answer if it is asked again."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        self.reason = reason
        self.wait = wait
        super().__init__(reason)


class _NoRedirect(HTTPRedirectHandler):
    """A key is for the server that was named, never for another one."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class EndpointEmbedder:
    """Embeds texts by a server with the embeddings API of OpenAI.

    `url` is the base of the API, such as `https://api.openai.com/v1`. `dimensions` asks the server
    for vectors of this size; without it they have the size that the model gives them. `batch` is
    the number of texts in one request, `timeout` the seconds that one may take, and `retries` how
    often it is sent again if the server is busy or away.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str | None = None,
        *,
        dimensions: int | None = None,
        batch: int = 64,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        self._url = _check_address(url)
        if not model:
            raise ChoiceError("give the name of the model that embeds")
        _check_number("batch", batch, 1)
        _check_number("timeout", timeout, 0.001)
        _check_number("retries", retries, 0)
        if dimensions is not None:
            _check_number("dimensions", dimensions, 1)
        self._model = model
        self._key = key
        self._asked = dimensions
        self._found = dimensions
        self._batch = batch
        self._timeout = timeout
        self._retries = retries
        self._opener = build_opener(_NoRedirect)
        self._shown = self._url.partition("?")[0]  # what follows may be a secret
        size = f"@{dimensions}" if dimensions else ""
        self.name = f"{self._shown.removesuffix(_PATH)}#{model}{size}"

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.name!r})"  # never the key

    @property
    def dimensions(self) -> int:
        """The size of a vector. If nobody named it, the first answer tells it."""
        if self._found is None:
            self._ask(["size"])
        assert self._found is not None
        return self._found

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """A row of length 1 for each text; only its first 8,000 characters are sent. A text
        without a word is not sent: its row is zeros.
        """
        said = [replace_surrogates(text) for text in cut_texts(texts, MAX_TEXT_CHARS)]
        places = [place for place, text in enumerate(said) if text.strip()]
        found = [
            self._ask(batch)
            for batch in batch_texts([said[place] for place in places], self._batch, _BATCH_CHARS)
        ]
        rows = np.zeros((len(said), self.dimensions if said else self._found or 0), np.float32)
        if found:
            rows[places] = np.concatenate(found)
        return rows

    def _ask(self, texts: list[str]) -> "Vectors":
        """The rows of one batch; asks again, with longer and longer waits, while that may help."""
        wait = _FIRST_WAIT_SECONDS
        for left in range(self._retries, -1, -1):
            try:
                return self._read_rows(self._send(texts), len(texts))
            except _Unavailable as fault:
                if not left:
                    self._fail(f"{fault.reason}, and {self._retries} more tries did not help")
                time.sleep(min(max(wait, fault.wait), MAX_WAIT_SECONDS))
                wait *= 2
        raise AssertionError("the last try returns or raises")

    def _send(self, texts: list[str]) -> bytes:
        body: dict[str, Any] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._asked:
            body["dimensions"] = self._asked
        headers = {"Content-Type": "application/json", "User-Agent": "loom"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request(self._url, msgspec.json.encode(body), headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return _read_all(answer, self._timeout)
        except HTTPError as refusal:
            with refusal:
                self._refuse(refusal)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise _Unavailable(f"cannot be reached: {reason or type(error).__name__}") from None

    def _refuse(self, refusal: HTTPError) -> NoReturn:
        try:
            said = refusal.read(_READ_BYTES).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            said = ""
        shown = shorten(" ".join(said.split()), _SHOWN_CHARS)
        reason = f"answered {refusal.code}: {shown or refusal.reason}"
        if refusal.code in _AGAIN:
            raise _Unavailable(reason, _wanted_wait(refusal.headers))
        if self._key:
            reason = reason.replace(self._key, "…")
        self._fail(reason)

    def _read_rows(self, content: bytes, count: int) -> "Vectors":
        try:
            entries = msgspec.json.decode(content, type=_EmbeddingAnswer).data
            rows = [_read_vector(entry) for entry in _in_order(entries, count)]
        except (msgspec.DecodeError, ValueError, binascii.Error) as error:
            self._fail(f"gave an answer that is not one of the embeddings API: {error}")
        size = self._found or len(rows[0])
        if any(len(row) != size for row in rows):
            sizes = ", ".join(map(str, sorted({len(row) for row in rows})))
            self._fail(f"gave vectors of {sizes} numbers; expected {size} in each")
        self._found = size
        stacked = np.array(rows, dtype=np.float64)
        if not np.isfinite(stacked).all():
            self._fail("gave vectors with numbers that are not finite")
        lengths = np.linalg.norm(stacked, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        normed: Vectors = (stacked / lengths).astype(np.float32)
        return normed

    def _fail(self, reason: str) -> NoReturn:
        raise EmbedderError(f"the endpoint {self._shown}, model {self._model!r}, {reason}")


def _check_address(url: str) -> str:
    """The address to post to. The key is no part of it: addresses are shown and stored."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ChoiceError(
            f"{shorten(url)!r} is not the address of an endpoint: give http://… or https://…"
        )
    if parts.username or parts.password:
        raise ChoiceError("the address of an endpoint contains a password: give it as key=")
    path = parts.path.rstrip("/")
    if not path.endswith(_PATH):
        path += _PATH
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _check_number(name: str, value: float, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ChoiceError(f"{name} is {describe(value)}; give a number of at least {least}")


def _read_all(answer: Any, timeout: float) -> bytes:
    """The body of an answer. One that drips or never ends costs its time and its size, not more."""
    ends = time.monotonic() + timeout
    content = bytearray()
    while chunk := answer.read1(_READ_BYTES):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise _Unavailable(f"answered more than {MAX_ANSWER_BYTES >> 20} MiB")
        if time.monotonic() > ends:
            raise _Unavailable(f"did not end its answer in {timeout:g} s")
    if answer.length:  # bytes that were announced
        raise _Unavailable("broke off its answer")
    return bytes(content)


def _wanted_wait(headers: Message) -> float:
    """How many seconds the server asks to wait; 0 if it names a date or nothing."""
    try:
        wait = float(headers.get("Retry-After") or 0)
    except ValueError:
        return 0.0
    return wait if wait > 0 else 0.0


def _in_order(entries: list[_EmbeddingEntry], count: int) -> list[_EmbeddingEntry]:
    """The entries in the order of the texts; servers may number them, and send them in any."""
    if len(entries) != count:
        raise ValueError(f"expected {count} vectors, found {len(entries)}")
    if any(entry.index is None for entry in entries):
        return entries
    by_index = {entry.index: entry for entry in entries}
    if by_index.keys() != set(range(count)):
        raise ValueError("the vectors are not numbered by their texts")
    return [by_index[number] for number in range(count)]


def _read_vector(entry: _EmbeddingEntry) -> Sequence[float]:
    if isinstance(entry.embedding, str):
        content = base64.b64decode(entry.embedding, validate=True)
        vector: Sequence[float] = np.frombuffer(content, "<f4").tolist()
    else:
        vector = entry.embedding
    if not vector:
        raise ValueError("a vector has no numbers")
    return vector
