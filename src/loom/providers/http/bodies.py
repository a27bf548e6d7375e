"""A request as a provider gets it: the body, with the habits of the provider, and the headers."""

import re
from collections.abc import Mapping

from msgspec import Struct

from loom.budget.models import wire_name
from loom.context import Context
from loom.dialects import dialect
from loom.errors import ChoiceError
from loom.providers.http.presets import Preset
from loom.providers.models import ModelRequest, conversation_of
from loom.providers.wires import Json

ANTHROPIC_VERSION = "2023-06-01"
COMPACTION_BETA = "compact-2026-01-12"
EDITING_BETA = "context-management-2025-06-27"
# Their reasoning comes back encrypted, and has to be sent again with the calls that it led to.
_THINKING_MODELS = re.compile(r"(?:^|/)(?:o\d|gpt-5|codex)", re.I)


class Target(Struct, frozen=True):
    """Whom requests go to."""

    preset: Preset
    url: str
    model: str = ""
    headers: Mapping[str, str] = {}


def make_body(target: Target, request: ModelRequest, *, streamed: bool) -> Json:
    """The body of a request. The model is that of the target, without its provider."""
    conversation, wire = conversation_of(request), target.preset.wire
    body: Json
    if isinstance(request, Context):
        body = request.render(wire)
    else:
        body = dialect(wire).render(conversation).wire
    model = target.model or wire_name(conversation.model)
    if not model:
        raise ChoiceError(
            f"no model is named: connect to {target.preset.name}:MODEL, or name it in the request"
        )
    body = {**target.preset.fields, **body, "model": model}
    body.pop("stream", None)
    if streamed:
        body["stream"] = True
        if wire == "anthropic" and conversation.max_output:
            body["max_tokens"] = conversation.max_output  # the limit is for what is not streamed
    if wire == "openai":
        _apply_habits(target.preset, body, streamed)
    elif wire == "responses" and _THINKING_MODELS.search(model) and "store" not in body:
        body |= {"store": False, "include": body.get("include") or ["reasoning.encrypted_content"]}
    return body


def _apply_habits(preset: Preset, body: Json, streamed: bool) -> None:
    if streamed and preset.has_stream_options:
        body.setdefault("stream_options", {"include_usage": True})
    if preset.has_max_tokens:
        if "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        # only OpenAI itself knows this role
        body["messages"] = [
            message | {"role": "system"} if message.get("role") == "developer" else message
            for message in body["messages"]
        ]


def make_headers(target: Target, key: str, body: Json, streamed: bool) -> dict[str, str]:
    """The headers of a request."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream" if streamed else "application/json",
        "user-agent": "loom",
    }
    if target.preset.wire == "anthropic":
        headers["anthropic-version"] = ANTHROPIC_VERSION
        betas = _find_betas(body)
        if betas:
            headers["anthropic-beta"] = ",".join(betas)
    if key:
        if target.preset.wire == "anthropic":
            headers["x-api-key"] = key
        else:
            headers["authorization"] = f"Bearer {key}"
    for name, value in target.headers.items():
        lowered = name.lower()
        if lowered == "anthropic-beta" and lowered in headers:
            headers[lowered] += f",{value}"
        else:
            headers[lowered] = value
    return headers


def _find_betas(body: Json) -> list[str]:
    """The betas that a request makes use of."""
    management = body.get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    kinds = [str(edit.get("type", "")) for edit in edits or [] if isinstance(edit, dict)]
    blocks = (
        block
        for message in body.get("messages", [])
        if isinstance(message.get("content"), list)
        for block in message["content"]
    )
    betas = []
    if any(kind.startswith("compact_") for kind in kinds) or any(
        block.get("type") == "compaction" for block in blocks
    ):
        betas.append(COMPACTION_BETA)
    if any(kind.startswith("clear_") for kind in kinds):
        betas.append(EDITING_BETA)
    return betas
