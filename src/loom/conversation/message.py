"""The values everything else speaks of: a message, its parts, and a conversation.

A message is who spoke and what: a value without an id, place or time. What a wire says beyond what these types name is
carried beside them as JSON text, so that a value stays immutable, hashable and can be written back unchanged.
"""

from typing import Literal

from msgspec import Struct

Role = Literal["system", "developer", "user", "assistant", "tool"]
Wire = Literal["openai", "responses", "anthropic"]


class Carried(Struct, frozen=True, omit_defaults=True):
    """What one wire said beyond the common values: `fields` is a JSON object, `form` the spellings that were not the usual ones."""

    wire: str
    fields: str = ""
    form: tuple[str, ...] = ()


class Text(Struct, frozen=True, tag="text", omit_defaults=True):
    text: str
    carried: Carried | None = None


class Media(Struct, frozen=True, tag="media", omit_defaults=True):
    """`value` is base64 data, a web address, the provider's name for an uploaded file, or plain text, as `source` says."""

    kind: Literal["image", "audio", "file"]
    source: Literal["data", "url", "id", "text"]
    value: str
    media_type: str = ""
    name: str = ""
    carried: Carried | None = None


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """`origin` is the wire that wrote it and the only one that accepts its signature or encrypted form back."""

    text: str
    origin: str
    signature: str = ""
    encrypted: str = ""
    carried: Carried | None = None


class ToolCall(Struct, frozen=True, tag="call", omit_defaults=True):
    """`arguments` is the text the model wrote: JSON for a function, anything for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: str = "function"
    carried: Carried | None = None


class Opaque(Struct, frozen=True, tag="opaque", omit_defaults=True):
    """A piece that only its own wire understands. `call_id` pairs what a server's tool was asked with what it answered."""

    wire: str
    json: str
    call_id: str = ""
    answers: bool = False
    form: tuple[str, ...] = ()


class ToolResult(Struct, frozen=True, tag="result", omit_defaults=True):
    call_id: str
    parts: tuple[Text | Media | Opaque, ...]
    error: bool = False
    name: str = ""
    kind: str = "function"
    carried: Carried | None = None


Part = Text | Media | Reasoning | ToolCall | ToolResult | Opaque


class Message(Struct, frozen=True, omit_defaults=True):
    """Who spoke, and what. Tool results stand only in messages of the role `tool`, calls and reasoning only in the assistant's."""

    role: Role
    parts: tuple[Part, ...]
    author: str = ""
    carried: Carried | None = None

    @property
    def text(self) -> str:
        """The text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


class Tool(Struct, frozen=True, omit_defaults=True):
    """What the model may call. `schema` is the JSON Schema of its arguments, as text; "" where it takes none."""

    name: str
    description: str = ""
    schema: str = ""
    kind: str = "function"
    carried: Carried | None = None


class Conversation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request says: system text, tools, messages, and the settings its own wire knows.

    `system` holds the system messages that stand before the first word of the conversation; later ones stay in their place.
    """

    messages: tuple[Message, ...]
    system: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    model: str = ""
    max_output: int | None = None
    settings: Carried | None = None
