"""The finished request: a conversation that fits, its report, and how each API writes it down."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.context.handles import Archive
from loom.context.report import Continuation, Report
from loom.context.shorten.markers import declares_recall, without_tool
from loom.context.tool_finder import answer_find_tools, finder_name
from loom.conversation.canonical import to_sendable
from loom.conversation.message import Carried, Conversation, Message, Text, ToolCall, ToolResult
from loom.dialects import dialect
from loom.dialects.input import parse_call
from loom.dialects.repair import has_marks, limit_unstreamed


class Context(Struct, frozen=True):
    """The finished request and its report. Render it with the method of the API that gets it."""

    # What the request says, as values.
    conversation: Conversation
    # What is in the request, what is not, and why.
    report: Report
    # What the next call needs to continue the epoch.
    continuation: Continuation
    # How many messages at the end belong to the tail, which is new in each request.
    tail: int = 0
    # Whether the request is one text instead of messages.
    is_document: bool = False
    # Whether the caller gave a limit for the answer. If not, the model and the window limit it.
    is_answer_limited: bool = False
    # Whether the reader writes commands in its text. `recall` is one of them then, not a tool.
    has_commands: bool = False
    # From and to which index of the messages sections are that stand before the current request.
    sections: tuple[int, int] = (0, 0)
    # From how many tokens on the provider is asked to compact: 0 if it must not, None if only the
    # settings of the request say so.
    compact_at: int | None = None

    def __post_init__(self) -> None:
        self.report.attach(self.continuation)

    @property
    def archive(self) -> Archive:
        """What was left out, by handle."""
        return self.continuation.archive

    def __repr__(self) -> str:
        # Not all that it holds: asyncio writes down what a task returned, and would take longer for
        # it than the weaving took.
        return (
            f"<Context of {self.report.input_tokens:,} tokens in "
            f"{len(self.conversation.messages):,} messages>"
        )

    def openai(self) -> dict[str, Any]:
        """The request for OpenAI chat completions."""
        return self._render("openai")

    def responses(self) -> dict[str, Any]:
        """The request for OpenAI responses."""
        return self._render("responses")

    def anthropic(self) -> dict[str, Any]:
        """The request for Anthropic messages, with cache marks."""
        conversation = _with_marks(_as_user(self.sent_conversation, self.sections), self.tail)
        if not self.is_answer_limited:
            conversation = limit_unstreamed(conversation)
        wire: dict[str, Any] = dialect("anthropic").render(conversation).wire
        _set_compaction(wire, "anthropic", self.compact_at)
        return wire

    def document(self) -> str:
        """The request as one text."""
        if self.is_document:
            return to_sendable(
                "\n\n".join(
                    message.text
                    for message in (
                        *self.sent_conversation.system,
                        *self.sent_conversation.messages,
                    )
                )
            )
        text: str = dialect("document").render(self.sent_conversation).wire
        return text

    def render(self, name: str) -> Any:
        """The request in the dialect of this name."""
        if name == "anthropic":
            return self.anthropic()
        if name == "document":
            return self.document()
        return self._render(name)

    def recall(self, handle: str) -> str:
        """What was left out under this handle: the text of a part, or messages as canonical JSON
        lines.
        """
        return self.archive.recall(handle)

    def use(self, call: Any) -> Message | None:
        """Answer a call of `find_tools`, the tool that lists and loads tools that this request
        leaves out.

        The call is a `ToolCall`, an object of an SDK, or JSON in any dialect. Append the message
        after the call: the next request has the tools that it loads. Returns None for a call of any
        other tool.
        """
        tools, made = self.continuation.all_tools, parse_call(call)
        if made.name != finder_name(tools):
            return None
        return answer_find_tools(tools, made)

    def _render(self, name: str) -> dict[str, Any]:
        wire: dict[str, Any] = dialect(name).render(self.sent_conversation).wire
        _set_compaction(wire, name, self.compact_at)
        return wire

    @property
    def sent_conversation(self) -> Conversation:
        """The conversation as it is sent: its markers name `recall` only where the request declares
        that tool.
        """
        if self.has_commands or declares_recall(self.conversation):
            return self.conversation
        return without_tool(
            self.conversation, {handle for item in self.report.lines for handle in item.handles}
        )


def _as_user(conversation: Conversation, sections: tuple[int, int]) -> Conversation:
    """The conversation with these messages as words of the user: not every model of Anthropic takes
    system messages between others.
    """
    start, stop = sections
    if start == stop:
        return conversation
    messages = list(conversation.messages)
    for n in range(start, stop):
        messages[n] = replace(messages[n], role="user")
    return replace(conversation, messages=tuple(messages))


MIN_COMPACTION_TOKENS = 50_000  # Anthropic accepts no smaller trigger


def _set_compaction(wire: dict[str, Any], name: str, compact_at: int | None) -> None:
    """Ask a provider to compact, or see to it that it is not asked. Other edits stay."""
    if compact_at is None or name not in ("anthropic", "responses"):
        return
    given = wire.pop("context_management", None)
    edits = given
    if name == "anthropic":
        edits = given.get("edits") if isinstance(given, dict) else None
    others = [edit for edit in edits or [] if not _is_compaction_edit(edit)]
    if name == "anthropic":
        trigger = {"type": "input_tokens", "value": max(compact_at, MIN_COMPACTION_TOKENS)}
        asked = [{"type": "compact_20260112", "trigger": trigger}] if compact_at else []
        if others or asked:
            wire["context_management"] = {**(given or {}), "edits": [*others, *asked]}
        return
    wished = [{"type": "compaction", "compact_threshold": compact_at}] if compact_at else []
    if others or wished:
        wire["context_management"] = [*others, *wished]


def _is_compaction_edit(edit: Any) -> bool:
    return isinstance(edit, dict) and str(edit.get("type", "")).startswith("compact")


_MARK = '{"cache_control":{"type":"ephemeral"}}'


def _with_marks(conversation: Conversation, tail: int) -> Conversation:
    """Cache marks at the stable boundaries: tools, system, the end of history and the last message
    but one before it.

    Where the caller set marks of their own, theirs stand.
    """
    if has_marks(conversation):
        return conversation
    tools, system, messages = (
        list(conversation.tools),
        list(conversation.system),
        list(conversation.messages),
    )
    if tools and tools[-1].carried is None:
        tools[-1] = replace(tools[-1], carried=Carried("anthropic", _MARK))
    if system:
        system[-1] = _mark_last(system[-1])
    stable = len(messages) - tail
    for index in {
        stable - 1,
        next((n for n in reversed(range(stable - 1)) if messages[n].role == "user"), stable - 1),
    }:
        if index >= 0:
            messages[index] = _mark_last(messages[index])
    return replace(conversation, tools=tuple(tools), system=tuple(system), messages=tuple(messages))


def _mark_last(message: Message) -> Message:
    for n in reversed(range(len(message.parts))):
        part = message.parts[n]
        if isinstance(part, Text | ToolCall | ToolResult) and part.carried is None:
            marked = replace(part, carried=Carried("anthropic", _MARK))
            return replace(message, parts=(*message.parts[:n], marked, *message.parts[n + 1 :]))
    return message
