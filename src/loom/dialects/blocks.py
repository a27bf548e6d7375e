"""The types of content blocks and items that the wires have, and what becomes of a type that none
of them has.

A type that is one slip away from a known one is a mistake, and is refused with the right name. Any
other may be newer than this table: its own wire gets it back, other wires leave it out.
"""

from collections import Counter
from collections.abc import Iterable

from loom.conversation.canonical import from_json
from loom.conversation.checked import is_one_slip
from loom.conversation.message import WIRE_NAMES, Media, Message, Opaque
from loom.conversation.parts import walk_parts
from loom.dialects.wire import Json, carried_form, opaque
from loom.errors import WireError

_CHAT = {"text", "refusal", "image_url", "input_audio", "file", "audio_url", "video_url"}
_ANTHROPIC = {
    "text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use",
    "tool_result", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result", "tool_search_tool_result", "advisor_tool_result",
    "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing", "container_upload", "compaction",
    "fallback", "tool_addition", "tool_removal", "tool_reference", "browser_state",
}  # fmt: skip
_RESPONSES = {
    "input_text", "output_text", "input_image", "input_file", "input_audio", "summary_text",
    "reasoning_text", "computer_screenshot", "encrypted_content", "message", "reasoning",
    "item_reference", "compaction", "compaction_trigger", "function_call", "function_call_output",
    "custom_tool_call", "custom_tool_call_output", "local_shell_call", "local_shell_call_output",
    "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
    "computer_call", "computer_call_output", "tool_search_call", "tool_search_output",
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
    "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "program",
    "program_output", "additional_tools",
}  # fmt: skip
BLOCK_TYPES = frozenset(_CHAT | _ANTHROPIC | _RESPONSES)
_BY_LETTERS = {name.replace("_", ""): name for name in sorted(BLOCK_TYPES)}


def keep_other_block(wire: str, block: Json, place: str) -> Opaque:
    """A block that the dialect does not read, as it is; unless its type is a known one,
    misspelt.
    """
    check_block_type(block, place)
    return opaque(wire, block)


def check_block_type(block: Json, place: str) -> None:
    kind = block.get("type")
    if isinstance(kind, str) and kind not in BLOCK_TYPES and (right := nearest_type(kind)):
        raise WireError(f"{place}.type", f"the name of a block (the nearest is {right!r})", kind)


def nearest_type(kind: str) -> str:
    """The known type that this one is a slip of: spelt another way, or one letter wrong; "" if
    there is none.
    """
    letters = kind.lower().replace("_", "").replace("-", "").replace(" ", "")
    if letters in _BY_LETTERS:
        return _BY_LETTERS[letters]
    if any(letter.isdigit() for letter in kind):  # versions differ by a digit, and each is right
        return ""
    return next((name for name in sorted(BLOCK_TYPES) if is_one_slip(kind, name)), "")


def note_unknown_blocks(messages: Iterable[Message]) -> list[str]:
    """For each wire a line on the blocks that only it may know, so that other wires leave them
    out.
    """
    found: dict[str, Counter[str]] = {}
    for message in messages:
        for piece in walk_parts(message.parts):
            if isinstance(piece, Opaque) and (kind := _type_of(piece)) and kind not in BLOCK_TYPES:
                found.setdefault(piece.wire, Counter())[kind] += 1
    return [_note_kinds(wire, kinds) for wire, kinds in found.items()]


def note_result_media(messages: Iterable[Message]) -> list[str]:
    """A line on the images and files in results of tools that OpenAI chat has no place for."""
    kinds = Counter(
        part.kind
        for message in messages
        for result in message.results
        if "media" not in carried_form(result.carried, "openai")
        for part in walk_parts(result.parts)
        if isinstance(part, Media) and part.source != "text"
    )
    if not kinds:
        return []
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [
        f"{found} in results of tools: OpenAI chat has no place for them there, so on that wire "
        "the model reads a note instead; the responses wire carries them"
    ]


def _note_kinds(wire: str, kinds: Counter[str]) -> str:
    if kinds.total() == 1:
        blocks, them = "block", "it"
    else:
        blocks, them = "blocks", "them"
    names = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    who = "no wire gets what it cannot name"
    if wire in WIRE_NAMES:
        who = f"only the {wire} wire gets {them}"
    return f"{kinds.total()} {blocks} of a type that Loom does not know ({names}): {who}"


def _type_of(piece: Opaque) -> str:
    try:
        block = from_json(piece.json)
    except ValueError:  # what is wrong with it is said where it is written
        return ""
    if piece.form and isinstance(block, dict):
        inner = block.get("part", block)
    else:
        inner = block
    kind = inner.get("type") if isinstance(inner, dict) else None
    if isinstance(kind, str):
        return kind
    return ""
