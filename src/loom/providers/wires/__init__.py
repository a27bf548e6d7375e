"""How each wire answers: its responses, its streams and its errors, both ways."""

from loom.providers.wires import anthropic, openai, responses
from loom.providers.wires.folding import AnswerFold, Cutter, Json, Wire
from loom.providers.wires.sse import SseEvent, SseReader, write_event

WIRES: dict[str, Wire] = {wire.name: wire for wire in (openai.WIRE, responses.WIRE, anthropic.WIRE)}

__all__ = [
    "WIRES",
    "AnswerFold",
    "Cutter",
    "Json",
    "SseEvent",
    "SseReader",
    "Wire",
    "write_event",
]
