"""A local server that answers by a script, so that the examples run without a key and a network.

It accepts OpenAI's chat completions and Anthropic's messages, and answers at once or as a stream of
events. It counts four characters as a token, and refuses a request that is larger than its window
with the words of the provider. `requests` contains what it was sent.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Call = tuple[str, str, Json]  # number, name, arguments
CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Say:
    """One answer: a text, tool calls (name and arguments), or both."""

    text: str = ""
    calls: tuple[tuple[str, Json], ...] = ()


Step = Say | Callable[[Json], Say]  # a function reads the request before it answers


@dataclass
class ScriptedServer:
    """`with ScriptedServer(steps) as server:`, then point the SDK's base_url at `server.openai_url`
    or `server.anthropic_url`.
    """

    steps: Iterable[Step]
    window: int = 1_000_000  # tokens
    # some providers use an id again
    answer_ids: Iterable[object] = field(default_factory=itertools.count)
    requests: list[Json] = field(default_factory=list)
    refused: list[Json] = field(default_factory=list)

    def __enter__(self) -> "ScriptedServer":
        self._script, self._answer_ids, self._call_ids = (
            iter(self.steps),
            iter(self.answer_ids),
            itertools.count(),
        )
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, kind, answer = server.answer(self.path, json.loads(body))
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Write nothing to the terminal."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def anthropic_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def openai_url(self) -> str:
        return f"{self.anthropic_url}/v1"

    def answer(self, path: str, request: Json) -> tuple[int, str, bytes]:
        """The status, content type and body for a request."""
        wire = AnthropicWire if path.endswith("/messages") else OpenAIWire
        tokens = (
            len(json.dumps([request["messages"], request.get("system"), request.get("tools")]))
            // CHARS_PER_TOKEN
        )
        if tokens > self.window:
            self.refused.append(request)
            return 400, "application/json", json.dumps(wire.refuse(tokens, self.window)).encode()
        self.requests.append(request)
        step = next(self._script, Say("My script has ended."))
        said = step(request) if callable(step) else step
        calls = [(str(next(self._call_ids)), name, arguments) for name, arguments in said.calls]
        whole = wire.say(
            said.text, calls, tokens, {"id": str(next(self._answer_ids)), "model": request["model"]}
        )
        if not request.get("stream"):
            return 200, "application/json", json.dumps(whole).encode()
        return 200, "text/event-stream", "".join(wire.stream(whole)).encode()


class OpenAIWire:
    """Chat completions."""

    @staticmethod
    def refuse(tokens: int, window: int) -> Json:
        words = (
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {tokens} tokens."
        )
        return {
            "error": {
                "message": words,
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        }

    @staticmethod
    def say(text: str, calls: list[Call], tokens: int, head: Json) -> Json:
        message: Json = {"role": "assistant", "content": text or None, "refusal": None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, name, arguments in calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if calls else "stop",
            "logprobs": None,
        }
        wrote = len(json.dumps(message)) // CHARS_PER_TOKEN
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": wrote,
            "total_tokens": tokens + wrote,
        }
        head = {**head, "id": f"chatcmpl-{head['id']}", "object": "chat.completion", "created": 1}
        return {**head, "choices": [choice], "usage": usage}

    @staticmethod
    def stream(whole: Json) -> Iterator[str]:
        choice = whole["choices"][0]
        message = choice["message"]
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in halves(message["content"] or "")]
        for index, call in enumerate(message.get("tool_calls", ())):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            deltas.append(
                {
                    "tool_calls": [
                        {**call, "index": index, "function": {"name": name, "arguments": ""}}
                    ]
                }
            )
            for piece in halves(arguments):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        head = {**whole, "object": "chat.completion.chunk", "usage": None}
        for delta in deltas:
            yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield event(
            {
                **head,
                "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}],
            }
        )
        yield event({**head, "choices": [], "usage": whole["usage"]})
        yield "data: [DONE]\n\n"


class AnthropicWire:
    """Messages."""

    @staticmethod
    def refuse(tokens: int, window: int) -> Json:
        words = f"prompt is too long: {tokens} tokens > {window} maximum"
        return {"type": "error", "error": {"type": "invalid_request_error", "message": words}}

    @staticmethod
    def say(text: str, calls: list[Call], tokens: int, head: Json) -> Json:
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        for number, name, arguments in calls:
            content.append(
                {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
            )
        usage = {
            "input_tokens": tokens,
            "output_tokens": len(json.dumps(content)) // CHARS_PER_TOKEN,
        }
        reason = "tool_use" if calls else "end_turn"
        head = {**head, "id": f"msg_{head['id']}", "type": "message", "role": "assistant"}
        return {
            **head,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    @staticmethod
    def stream(whole: Json) -> Iterator[str]:
        usage = {**whole["usage"], "output_tokens": 1}
        yield event(
            {
                "type": "message_start",
                "message": {**whole, "content": [], "stop_reason": None, "usage": usage},
            }
        )
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                begin = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
            else:
                begin = {**block, "input": {}}
                written = halves(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in written]
            yield event({"type": "content_block_start", "index": index, "content_block": begin})
            for delta in deltas:
                yield event({"type": "content_block_delta", "index": index, "delta": delta})
            yield event({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield event({"type": "message_delta", "delta": ending, "usage": whole["usage"]})
        yield event({"type": "message_stop"})


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def event(data: Json) -> str:
    """One server-sent event; Anthropic's have a name as well."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"
