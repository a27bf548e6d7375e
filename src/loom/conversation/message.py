"""The values everything else speaks of: a message, its parts, and a conversation.

A message is who spoke and what: a value without an id, place or time. What a wire says beyond what
these types name is carried with them as JSON text, so that a value stays immutable, hashable and
can be written back unchanged.

Every value checks its fields when it is made. Histories are made of many, so each looks first, in
one expression, whether all is as usual, and goes through its fields one by one only where it is
not.
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from loom.conversation.canonical import from_json
from loom.conversation.checked import CheckedStruct, check_fields, is_one_slip
from loom.errors import ChoiceError, describe

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
# Of the dialects that providers accept. A test compares them with `DIALECTS`, a room above.
WIRE_NAMES = ("openai", "responses", "anthropic")


class Carried(Struct, frozen=True, omit_defaults=True):
    """What one wire said beyond the common values: `fields` is a JSON object, `form` the spellings
    that were not the usual ones.
    """

    wire: str
    fields: str = ""
    form: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (
            not type(self.wire) is type(self.fields) is str
            or type(self.form) is not tuple
            or not _are_texts(map(type, self.form))
        ):
            check_fields(self)
        if self.fields and not (self.fields[0] == "{" and self.fields[-1] == "}"):
            raise ChoiceError(
                f"Carried.fields: expected the text of a JSON object, found {describe(self.fields)}"
            )


_are_texts = frozenset([str]).issuperset


class Text(Struct, frozen=True, tag="text", omit_defaults=True):
    text: str
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if type(self.text) is not str or (
            self.carried is not None and type(self.carried) is not Carried
        ):
            check_fields(self)


MediaKind = Literal["image", "audio", "file"]
MediaSource = Literal["data", "url", "id", "text"]
_MEDIA_KINDS, _MEDIA_SOURCES = frozenset(get_args(MediaKind)), frozenset(get_args(MediaSource))


class Media(Struct, frozen=True, tag="media", omit_defaults=True):
    """`value` is base64 data, a web address, the provider's name for an uploaded file, or plain
    text, as `source` says.
    """

    kind: MediaKind
    source: MediaSource
    value: str
    media_type: str = ""
    name: str = ""
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if (
            not type(self.value) is type(self.media_type) is type(self.name) is str
            or type(self.kind) is not str
            or type(self.source) is not str
            or self.kind not in _MEDIA_KINDS
            or self.source not in _MEDIA_SOURCES
            or (self.carried is not None and type(self.carried) is not Carried)
        ):
            check_fields(self)


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """`origin` is the wire that wrote it and the only one that accepts its signature or encrypted
    form back.
    """

    text: str
    origin: str
    signature: str = ""
    encrypted: str = ""
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if not type(self.text) is type(self.origin) is type(self.signature) is type(
            self.encrypted
        ) is str or (self.carried is not None and type(self.carried) is not Carried):
            check_fields(self)
        if self.origin not in WIRE_NAMES and (
            right := next((name for name in WIRE_NAMES if is_one_slip(self.origin, name)), "")
        ):
            raise ChoiceError(
                f"Reasoning.origin: expected the wire that wrote it (the nearest is {right}), "
                f"found {self.origin!r}"
            )


class ToolCall(Struct, frozen=True, tag="call", omit_defaults=True):
    """`arguments` is the text the model wrote: JSON for a function, anything for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: str = "function"
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if not type(self.id) is type(self.name) is type(self.arguments) is type(
            self.kind
        ) is str or (self.carried is not None and type(self.carried) is not Carried):
            check_fields(self)


class Opaque(Struct, frozen=True, tag="opaque", omit_defaults=True):
    """A piece that only its own wire understands. `call_id` pairs what a server's tool was asked
    with what it answered.
    """

    wire: str
    json: str
    call_id: str = ""
    answers: bool = False
    form: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (
            not type(self.wire) is type(self.json) is type(self.call_id) is str
            or type(self.answers) is not bool
            or type(self.form) is not tuple
            or not _are_texts(map(type, self.form))
        ):
            check_fields(self)


_are_result_parts = frozenset([Text, Media, Opaque]).issuperset


class ToolResult(Struct, frozen=True, tag="result", omit_defaults=True):
    call_id: str
    parts: tuple[Text | Media | Opaque, ...]
    error: bool = False
    name: str = ""
    kind: str = "function"
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if (
            not type(self.call_id) is type(self.name) is type(self.kind) is str
            or type(self.parts) is not tuple
            or not _are_result_parts(map(type, self.parts))
            or type(self.error) is not bool
            or (self.carried is not None and type(self.carried) is not Carried)
        ):
            check_fields(self)


Part = Text | Media | Reasoning | ToolCall | ToolResult | Opaque
_are_parts = frozenset([Text, Media, Reasoning, ToolCall, ToolResult, Opaque]).issuperset
_ROLES = frozenset(ROLES)


class Message(Struct, frozen=True, omit_defaults=True):
    """Who spoke, and what. Tool results stand only in messages of the role `tool`, calls and
    reasoning only in the assistant's.
    """

    role: Role
    parts: tuple[Part, ...]
    author: str = ""
    carried: Carried | None = None

    def __post_init__(self) -> None:
        if (
            type(self.role) is not str
            or self.role not in _ROLES
            or type(self.parts) is not tuple
            or not _are_parts(map(type, self.parts))
            or type(self.author) is not str
            or (self.carried is not None and type(self.carried) is not Carried)
        ):
            check_fields(self)

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


class Tool(CheckedStruct, frozen=True, omit_defaults=True):
    """What the model may call. `schema` is the JSON Schema of its arguments, as text; "" if it
    takes none.
    """

    name: str
    description: str = ""
    schema: str = ""
    kind: str = "function"
    carried: Carried | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.name.strip():
            raise ChoiceError("Tool.name: expected the name of a tool, found a blank text")
        if self.schema and not is_json(self.schema):
            raise ChoiceError(
                f"Tool.schema: expected the JSON text of a schema, found {describe(self.schema)}"
            )


class Conversation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request says: system text, tools, messages, and the settings its own wire knows.

    `system` holds the system messages that come before the first word of the conversation; later
    ones stay in their place.
    """

    messages: tuple[Message, ...]
    system: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    model: str = ""
    max_output: Annotated[int, Meta(ge=1)] | None = None
    settings: Carried | None = None

    def __post_init__(self) -> None:
        if (
            not type(self.messages) is type(self.system) is tuple
            or type(self.tools) is not tuple
            or not (
                _are_messages(map(type, self.messages)) and _are_messages(map(type, self.system))
            )
            or not _are_tools(map(type, self.tools))
            or type(self.model) is not str
            or self.max_output is not None
            or (self.settings is not None and type(self.settings) is not Carried)
        ):
            check_fields(self)


_are_messages, _are_tools = frozenset([Message]).issuperset, frozenset([Tool]).issuperset


def is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def check_carried(*messages: Message) -> None:
    """Refuse messages in which what is carried as JSON is not JSON: no wire could write them."""
    for message in messages:
        for holder in (
            message,
            *message.parts,
            *(inner for result in message.results for inner in result.parts),
        ):
            if isinstance(holder, Opaque):
                _check_object("Opaque.json", holder.json)
            elif holder.carried is not None and holder.carried.fields:
                _check_object("Carried.fields", holder.carried.fields)


def _check_object(what: str, text: str) -> None:
    try:
        found = from_json(text)
    except ValueError:
        found = text
    if not isinstance(found, dict):
        raise ChoiceError(f"{what}: expected the text of a JSON object, found {describe(found)}")
