"""An endpoint is asked in batches, and again where that helps; faults have a type and a name."""

import asyncio
import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from loom.errors import ChoiceError, EmbedderError
from loom.providers.embedders import endpoint
from loom.providers.embedders.endpoint import EndpointEmbedder
from loom.providers.knowledge import MemoryVectorStore, VectorKnowledgeBase

KEY = "sk-very-secret"
Reply = Callable[[dict[str, Any]], tuple[int, bytes, dict[str, str]]]


class Server:
    """A server on the loopback address. `replies` are used up one by one; the last one stays."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.replies: list[Reply] = [answer]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                outer.headers.append(dict(self.headers))
                outer.paths.append(self.path)
                replies = outer.replies
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                status, content, headers = reply(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that no longer waits is what some tests are about."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(endpoint.time, "sleep", seconds.append)
    return seconds


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, -2.0]


def answer(body: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
    data = [{"index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]
    return 200, json.dumps({"data": data, "model": body["model"]}).encode(), {}


def give(status: int, content: object = b"", **headers: str) -> Reply:
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: (status, content, named)


def test_texts_become_rows_of_length_one_in_their_order(server: Server) -> None:
    embedder = EndpointEmbedder(server.url, "small", KEY)
    rows = embedder.embed(["a", "bbbb"])
    assert rows.dtype == np.float32
    for row, text in zip(rows, ["a", "bbbb"], strict=True):
        assert row == pytest.approx(np.array(vector(text)) / np.linalg.norm(vector(text)))
    assert server.paths == ["/v1/embeddings"]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.bodies[0]["model"] == "small"
    assert embedder.dimensions == 3


def test_without_a_key_none_is_sent(server: Server) -> None:
    EndpointEmbedder(server.url, "small").embed(["a"])
    assert "Authorization" not in server.headers[0]


def test_the_name_tells_address_model_and_size_apart(server: Server) -> None:
    base = EndpointEmbedder(server.url, "small")
    named = [
        base,
        EndpointEmbedder(server.url, "large"),
        EndpointEmbedder(server.url, "small", dimensions=2),
        EndpointEmbedder(server.url + "/other", "small"),
    ]
    assert len({embedder.name for embedder in named}) == 4
    assert EndpointEmbedder(server.url + "/embeddings/", "small").name == base.name
    assert KEY not in EndpointEmbedder(server.url, "small", KEY).name
    assert EndpointEmbedder(f"{server.url}?token={KEY}", "small").name == base.name
    assert KEY not in repr(EndpointEmbedder(server.url, "small", KEY))


def test_many_texts_are_sent_in_batches(server: Server) -> None:
    texts = [f"text {number}" for number in range(10)]
    rows = EndpointEmbedder(server.url, "small", batch=4).embed(texts)
    assert [len(body["input"]) for body in server.bodies] == [4, 4, 2]
    assert [text for body in server.bodies for text in body["input"]] == texts
    assert rows.shape == (10, 3)


def test_long_texts_are_sent_apart_and_only_their_beginning(server: Server) -> None:
    EndpointEmbedder(server.url, "small").embed(["x" * 1_000_000] * 40)
    assert len(server.bodies) == 2
    assert all(len(text) == 8_000 for body in server.bodies for text in body["input"])


def test_texts_without_a_word_are_not_sent_and_have_zeros(server: Server) -> None:
    rows = EndpointEmbedder(server.url, "small").embed(["", "a", " \n"])
    assert server.bodies[0]["input"] == ["a"]
    assert rows[0].tolist() == rows[2].tolist() == [0, 0, 0]
    assert rows[1].any()


def test_only_empty_texts_still_have_the_size_of_the_model(server: Server) -> None:
    assert EndpointEmbedder(server.url, "small").embed([""]).shape == (1, 3)
    assert EndpointEmbedder(server.url, "small", dimensions=7).embed([""]).shape == (1, 7)
    assert EndpointEmbedder(server.url, "small").embed([]).shape[0] == 0


def test_half_a_surrogate_pair_is_replaced(server: Server) -> None:
    EndpointEmbedder(server.url, "small").embed(["a\ud800b"])
    assert server.bodies[0]["input"] == ["a?b"]


def test_a_size_that_is_asked_for_is_sent_and_checked(server: Server) -> None:
    with pytest.raises(EmbedderError, match="vectors of 3 numbers; expected 2"):
        EndpointEmbedder(server.url, "small", dimensions=2).embed(["a"])
    assert server.bodies[0]["dimensions"] == 2


def test_answers_in_another_order_and_in_base64_are_read(server: Server) -> None:
    def reply(body: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        data = [
            {"index": n, "embedding": base64.b64encode(struct.pack("<3f", *vector(text))).decode()}
            for n, text in enumerate(body["input"])
        ]
        return 200, json.dumps({"data": data[::-1]}).encode(), {}

    plain = EndpointEmbedder(server.url, "small").embed(["a", "bbbb"])
    server.replies = [reply]
    assert EndpointEmbedder(server.url, "small").embed(["a", "bbbb"]) == pytest.approx(plain)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_a_busy_server_is_asked_again(server: Server, waits: list[float], status: int) -> None:
    server.replies = [give(status), give(status), answer]
    assert EndpointEmbedder(server.url, "small").embed(["a"]).any()
    assert waits == [0.5, 1.0]


def test_the_wait_that_a_server_asks_for_is_kept_up_to_a_bound(
    server: Server, waits: list[float]
) -> None:
    server.replies = [
        give(429, Retry_After="3"),
        give(429, Retry_After="86400"),
        give(429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
        give(429, Retry_After="nan"),
        answer,
    ]
    EndpointEmbedder(server.url, "small", retries=4).embed(["a"])
    assert waits == [3, 10, 2, 4]


def test_tries_have_an_end_and_the_error_names_what_failed(
    server: Server, waits: list[float]
) -> None:
    server.replies = [give(503, {"error": "model is loading"})]
    with pytest.raises(EmbedderError) as raised:
        EndpointEmbedder(server.url, "small", KEY).embed(["a"])
    assert len(server.bodies) == 3
    for part in (f"{server.url}/embeddings", "'small'", "503", "model is loading", "2 more tries"):
        assert part in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_an_error_at_once(server: Server, waits: list[float], status: int) -> None:
    server.replies = [give(status, {"error": {"message": f"no, {KEY} is wrong"}})]
    with pytest.raises(EmbedderError, match=f"answered {status}.*is wrong") as raised:
        EndpointEmbedder(server.url, "small", KEY).embed(["a"])
    assert len(server.bodies) == 1
    assert waits == []
    assert KEY not in str(raised.value)


def test_a_key_does_not_follow_to_another_address(server: Server) -> None:
    server.replies = [give(307, Location=f"{server.url}/elsewhere")]
    with pytest.raises(EmbedderError, match="answered 307"):
        EndpointEmbedder(server.url, "small", KEY).embed(["a"])
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>hello</html>",
        b"[]",
        {"data": []},
        {"data": [{"embedding": []}]},
        {"data": [{"embedding": ["x"]}]},
        {"data": [{"embedding": "not base64!"}]},
        {"data": [{"embedding": "AAA="}]},
        {"data": [{"embedding": [1.0], "index": 5}]},
        {"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]},
        b'{"data": [{"embedding": [1e999, 0.0]}]}',
        b'{"data": [{"embedding": [NaN]}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_an_error_that_names_the_endpoint(
    server: Server, content: object
) -> None:
    server.replies = [give(200, content)]
    with pytest.raises(EmbedderError, match=r"the endpoint http://127\.0\.0\.1.*'small', gave"):
        EndpointEmbedder(server.url, "small").embed(["a"])


def test_vectors_of_zeros_stay_zeros(server: Server) -> None:
    server.replies = [give(200, {"data": [{"embedding": [0.0, 0.0]}]})]
    assert EndpointEmbedder(server.url, "small").embed(["a"]).tolist() == [[0, 0]]


def test_vectors_of_different_sizes_are_refused(server: Server) -> None:
    server.replies = [
        give(200, {"data": [{"embedding": [1.0]}]}),
        give(200, {"data": [{"embedding": [1.0, 2.0]}]}),
    ]
    embedder = EndpointEmbedder(server.url, "small")
    embedder.embed(["a"])
    with pytest.raises(EmbedderError, match="expected 1"):
        embedder.embed(["a"])


def test_nobody_there_is_an_error_after_the_tries(waits: list[float]) -> None:
    made = Server()
    made.close()
    with pytest.raises(EmbedderError, match="cannot be reached"):
        EndpointEmbedder(made.url, "small", retries=1).embed(["a"])
    assert len(waits) == 1


def test_a_server_that_hangs_costs_its_time_limit(server: Server, waits: list[float]) -> None:
    release = threading.Event()

    def hang(body: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return answer(body)

    server.replies = [hang]
    with pytest.raises(EmbedderError, match="timed out"):
        EndpointEmbedder(server.url, "small", timeout=0.2, retries=0).embed(["a"])
    release.set()


def test_an_answer_that_breaks_off_is_asked_for_again(server: Server, waits: list[float]) -> None:
    server.replies = [give(200, b'{"data"', Content_Length="1000"), answer]
    assert EndpointEmbedder(server.url, "small", retries=1).embed(["a"]).any()
    server.replies = [give(200, b'{"data"', Content_Length="1000")]
    with pytest.raises(EmbedderError, match="broke off"):
        EndpointEmbedder(server.url, "small", retries=0).embed(["a"])


def test_an_answer_without_end_is_bounded(
    server: Server, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_ANSWER_BYTES", 1 << 20)
    server.replies = [give(200, b" " * (2 << 20))]
    with pytest.raises(EmbedderError, match="more than 1 MiB"):
        EndpointEmbedder(server.url, "small", retries=0).embed(["a"])


@pytest.mark.parametrize("url", ["", "ftp://host/v1", "host/v1", "file:///etc/passwd", "https://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ChoiceError, match="not the address of an endpoint"):
        EndpointEmbedder(url, "small")


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ChoiceError, match="key=") as raised:
        EndpointEmbedder(f"https://user:{KEY}@host/v1", "small")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"retries": -1},
        {"dimensions": 0},
        {"batch": "4"},
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ChoiceError, match=next(iter(options))):
        EndpointEmbedder("https://host/v1", "small", **options)


def test_a_model_has_a_name() -> None:
    with pytest.raises(ChoiceError, match="name of the model"):
        EndpointEmbedder("https://host/v1", "")


def test_a_knowledge_base_asks_an_endpoint_only_for_its_texts(server: Server) -> None:
    base = VectorKnowledgeBase(EndpointEmbedder(server.url, "small"), MemoryVectorStore())
    base.add("a note", source="notes.md")
    [item] = asyncio.run(base.query("a query"))
    assert item.content == "a note"
    assert [body["input"] for body in server.bodies] == [["a note"], ["a query"]]
