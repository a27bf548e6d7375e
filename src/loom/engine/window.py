"""Seed 000's door: `ContextWindow`, thin over `weave`."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.budget.models import model_limit
from loom.budget.profiles import SEEDS
from loom.budget.zones import DEFAULTS, Budget, allocate_budget
from loom.context import (
    Context,
    Section,
    build,
    check_options,
    find_policy,
    make_conversation,
    summarize_old_messages,
)
from loom.conversation.message import Conversation, Message, Text
from loom.engine.sources import draw_single_map

_SYSTEM = ("system", "developer")
_estimate = Counter(SEEDS["window"], remember=1)


class BuiltMessages(list[dict[str, Any]]):
    """Chat messages, with the context that they were made from: its report, and the way back to
    what was left out.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context.openai()["messages"])
        self.context = context

    def recall(self, handle: str) -> str:
        """What was left out under this handle."""
        return self.context.recall(handle)


class ContextWindow:
    """The names that seed 000 prints."""

    @staticmethod
    def build_messages(
        messages: Iterable[Message | Mapping[str, Any]],
        system_prompt: str,
        *,
        model: str | None = None,
        session_id: str | None = None,
        project_path: str | None = None,
        max_tokens: int | None = None,
        sections: Iterable[Section | tuple[str, str]] = (),
        **options: int,
    ) -> BuiltMessages:
        """One system message and the newest messages that fit, as chat dictionaries; `recall` of
        the list brings back the others.

        System messages of the list become part of the one. `max_tokens` is the legacy limit: it
        stands for the window, and history gets what system text and answer leave of it. The map of
        the project at `project_path` goes in, as large as `max_repo_map_tokens`. `session_id` names
        what decisions will be gathered from; until then give `sections`.
        """
        del session_id
        policy, budget = find_policy("window"), allocate_budget(model, **options)  # type: ignore[arg-type]
        zones = {
            name: tokens
            for name, tokens in budget.items()
            if name not in ("history", "reserved_output")
        }
        window, reserve = budget.window, budget.reserved_output
        if max_tokens is not None:
            window = allocate_budget(model, max_tokens=max_tokens, **options).window  # type: ignore[arg-type]
            policy = replace(policy, history="rest")  # no zones are set aside
            # A reserve that nobody asked for must not take a small window.
            reserve = options.get("reserved_output", min(DEFAULTS["reserved_output"], window // 4))
        given, _ = make_conversation(messages, None, None)
        given = _with_one_system_text(given, system_prompt, policy.separator)
        wish = check_options(
            model=model,
            window=window,
            reserve_output=reserve,
            policy=policy,
            sections=sections,
            zones=zones,
        )
        if project_path is not None:
            wish = replace(
                wish, sections=(*wish.sections, *draw_single_map(wish, given, project_path))
            )
        return BuiltMessages(build(given, replace(wish, bare=True), (), None))

    @staticmethod
    def allocate_budget(model: str | None = None, **options: Any) -> Budget:
        return allocate_budget(model, **options)

    @staticmethod
    def model_limit(model: str | None) -> int:
        return model_limit(model)

    @staticmethod
    def summarize_old_messages(messages: Iterable[Message | Mapping[str, Any]]) -> str:
        """How evicted messages begin, as seed 000 prints it; a session that has a model sums up
        with it.
        """
        return summarize_old_messages(list(messages))

    @staticmethod
    def estimate_tokens(text: str) -> int:
        """Seed 000's estimate: four characters a token."""
        return _estimate.count_text(text)


def _with_one_system_text(given: Conversation, prompt: str, separator: str) -> Conversation:
    """The conversation with the prompt and the texts of all its system messages as one, ahead of
    it: providers refuse several.
    """
    told = [*given.system, *(message for message in given.messages if message.role in _SYSTEM)]
    text = separator.join(filter(None, (prompt, *(message.text for message in told))))
    return replace(
        given,
        system=(Message("system", (Text(text),)),) if text else (),
        messages=tuple(message for message in given.messages if message.role not in _SYSTEM),
    )
