"""The scripted model as a server on this machine, in the shapes of all three wires.

It needs nothing but the standard library. Clients are pointed at its addresses: the SDKs of the
providers, Loom's own models, or any other program.
"""

import math
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Conversation
from loom.dialects import dialect
from loom.dialects.input import Answer
from loom.errors import ChoiceError, LoomError, describe
from loom.providers.scripted.model import ScriptedModel, cut_text
from loom.providers.scripted.steps import (
    Refuse,
    Reply,
    Reset,
    Script,
    Step,
    TooLong,
    count_request,
)
from loom.providers.wires import WIRES, Json, SseEvent, Wire, write_event

MAX_BODY_BYTES = 64 * 2**20
_WIRE_OF_PATH = {wire.path.removeprefix("/v1"): wire for wire in WIRES.values()}
_OVERFLOWS = {
    "anthropic": "prompt is too long: {asked} tokens > {limit} maximum",
    "openai": "This model's maximum context length is {limit} tokens. However, your messages "
    "resulted in {asked} tokens. Please reduce the length of the messages.",
    "responses": "Your input exceeds the context window of this model. Its maximum context length "
    "is {limit} tokens. However, your input resulted in {asked} tokens.",
}


class ServedRequest(Struct, frozen=True):
    """A request that the server got: the path, the headers in small letters, and the body."""

    path: str
    headers: dict[str, str]
    body: Json


class ScriptedServer:
    """Serves a script on a free port of the loopback interface.

    Use it in a `with` block: it ends with the block. `is_strict`: a request that breaks a rule of
    its wire is refused, as the provider would. `window`: a longer request is refused. `key`: other
    keys are refused. A refusal of this kind uses no step.
    """

    def __init__(
        self,
        *steps: "Step | ScriptedModel",
        repeats: bool = False,
        window: int | None = None,
        is_strict: bool = True,
        key: str | None = None,
    ) -> None:
        models = [step for step in steps if isinstance(step, ScriptedModel)]
        self.script: Script
        if models and len(steps) == 1:
            self.script = models[0].script
        else:
            self.script = Script(steps, repeats=repeats)  # type: ignore[arg-type]  # it checks
        self.window, self.is_strict, self.key = window, is_strict, key
        self.received: list[ServedRequest] = []
        self._http: _Server | None = None
        self._thread: threading.Thread | None = None
        self.closing = threading.Event()

    @property
    def requests(self) -> list[Conversation]:
        """What the script answered, as values."""
        return self.script.requests

    @property
    def url(self) -> str:
        """The base URL for Anthropic's clients."""
        if self._http is None:
            raise ChoiceError("the server does not run; use it in a with block")
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's clients."""
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        self.closing.clear()
        self._http = _Server(self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.02,), name="scripted-server", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            self.script.check_finished()

    def close(self) -> None:
        """End the server. What it was sending breaks off."""
        self.closing.set()
        if self._http is not None and self._thread is not None:
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()
        self._http = self._thread = None

    def refuse(self, wire: Wire, request: Conversation, body: Json) -> Refuse | TooLong | None:
        """Why a provider would not answer a request, if so."""
        if self.is_strict:
            broken = [found for found in dialect(wire.name).check(body) if found.level == "error"]
            if broken:
                found = broken[0]
                return Refuse(400, f"{found.place}: {found.text} ({found.rule})")
        if self.window is not None and (asked := count_request(request)) > self.window:
            return TooLong(self.window, asked)
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: ScriptedServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without asking anybody for the name of this machine, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; one that is to be reset gets no polite ending."""
        try:
            is_reset = request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER) != 0
        except OSError:
            is_reset = True
        if is_reset:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # each event is sent at once
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to the terminal."""

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            model = {"id": "scripted", "object": "model", "type": "model", "owned_by": "scripted"}
            self._send(200, {"object": "list", "data": [model]})
        else:
            self._send(404, WIRES["openai"].render_error(404, "", f"no such page: {self.path}"))

    def do_POST(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/v1")
        wire = _WIRE_OF_PATH.get(path)
        content = self._read_body()
        if wire is None or content is None:
            status, why = (404, f"no such page: {path}") if content else (400, "no body")
            self._send(status, WIRES["openai"].render_error(status, "", why))
            return
        try:
            reply, streamed = self._reply(wire, content)
        except Exception as error:  # the test that runs the script has to see it
            reply, streamed = Reply(Refuse(500, f"{type(error).__name__}: {error}")), False
        self._wait(reply.wait)
        self._answer(wire, reply, streamed)

    def _read_body(self) -> bytes | None:
        size = self.headers.get("content-length", "")
        if not size.isdigit() or int(size) > MAX_BODY_BYTES:
            self.close_connection = True
            return None
        return self.rfile.read(int(size))

    def _reply(self, wire: Wire, content: bytes) -> tuple[Reply, bool]:
        """What is answered, and whether as a stream."""
        owner = self.server.owner
        if owner.key is not None and owner.key not in self._keys():
            return Reply(Refuse(401, "the key is not valid")), False
        try:
            body = from_json(content.decode())
            if not isinstance(body, dict):
                raise ChoiceError(f"the body of a request is an object, found {describe(body)}")
            request = dialect(wire.name).parse(body)
        except (ValueError, LoomError) as error:
            return Reply(Refuse(400, str(error))), False
        headers = {name.lower(): value for name, value in self.headers.items()}
        owner.received.append(ServedRequest(self.path, headers, body))
        refusal = owner.refuse(wire, request, body)
        if refusal is not None:
            return Reply(refusal), False
        return owner.script.take(request, wire.name), body.get("stream") is True

    def _keys(self) -> tuple[str, ...]:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer, self.headers.get("x-api-key", "")

    def _answer(self, wire: Wire, reply: Reply, streamed: bool) -> None:
        match reply.outcome:
            case Answer() as answer:
                response = from_json(answer.raw)
                if streamed:
                    self._stream(list(wire.unfold(response, cut_text)), reply)
                else:
                    self._send(200, response, half=reply.breaks_after is not None)
            case Refuse() as refusal:
                self._refuse(wire, refusal)
            case TooLong(limit, asked):
                said = _OVERFLOWS[wire.name].format(limit=limit, asked=asked)
                kind = "" if wire.name == "anthropic" else "invalid_request_error"
                error = wire.render_error(400, kind, said)
                if wire.name != "anthropic":
                    error["error"]["code"] = "context_length_exceeded"
                self._send(400, error)
            case Reset():
                self._reset()
            case BaseException() as error:
                self._refuse(wire, Refuse(500, f"{type(error).__name__}: {error}"))

    def _refuse(self, wire: Wire, refusal: Refuse) -> None:
        error = wire.render_error(refusal.status, refusal.kind, refusal.message)
        headers = {}
        if refusal.retry_after is not None:
            wait = refusal.retry_after
            if isinstance(wait, float) and not wait.is_integer():
                headers["retry-after-ms"] = f"{wait * 1000:g}"
                wait = math.ceil(wait)
            headers["retry-after"] = f"{wait:g}" if isinstance(wait, int | float) else wait
        self._send(refusal.status, error, headers)

    def _send(
        self, status: int, body: Json, headers: dict[str, str] | None = None, half: bool = False
    ) -> None:
        content = to_json(body).encode(errors="replace")
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("request-id", f"req_{len(self.server.owner.received)}")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if half:
            self.wfile.write(content[: len(content) // 2])
            self._reset()
        else:
            self.wfile.write(content)

    def _stream(self, events: list[SseEvent], reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events):
            if number == reply.breaks_after:
                self._reset()
                return
            if number:
                self._wait(reply.drip)
            content = write_event(event)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _wait(self, seconds: float) -> None:
        """Wait, unless the server ends meanwhile."""
        if seconds:
            self.server.owner.closing.wait(seconds)

    def _reset(self) -> None:
        """Close the connection in the way that the other side sees as a reset."""
        self.wfile.flush()
        time.sleep(0.01)  # a reset overtakes bytes that are still on their way
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
