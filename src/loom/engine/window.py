"""Seed 000's door: `ContextWindow`, thin over `weave`."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack, cast

from msgspec.structs import replace

from loom.budget.chat import as_message
from loom.budget.counting import Counter, graphemes
from loom.budget.models import Overrides, model_limit
from loom.budget.profiles import SEEDS
from loom.budget.zones import DEFAULTS, Budget, BudgetOptions, allocate_budget
from loom.context import (
    Context,
    Section,
    build,
    check_options,
    find_policy,
    make_conversation,
)
from loom.conversation.message import Conversation, Message, Text
from loom.engine.sources import draw_single_map

_SYSTEM = ("system", "developer")
MAX_PLACEHOLDER_CHARS = 200  # of the words of a summary that no model made
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


class BuildOptions(TypedDict, total=False):
    """The options of `ContextWindow.build_messages`: what goes in, and those of a budget."""

    model: str | None
    session_id: str | None  # names what decisions will be gathered from; until then give `sections`
    project_path: str | None  # folder whose map goes in, as large as `max_repo_map_tokens`
    sections: Iterable[Section | tuple[str, str]]
    max_tokens: int | None
    max_decision_tokens: int
    max_repo_map_tokens: int
    reserved_output: int
    tool_definitions: int
    window: int
    zones: Mapping[str, int]
    overrides: Overrides


_NOT_OF_BUDGET = ("model", "session_id", "project_path", "sections", "max_tokens")


class ContextWindow:
    """The names that seed 000 prints."""

    @staticmethod
    def build_messages(
        messages: Iterable[Message | Mapping[str, Any]],
        system_prompt: str,
        **options: Unpack[BuildOptions],
    ) -> BuiltMessages:
        """One system message and the newest messages that fit, as chat dictionaries; `recall` of
        the list brings back the others.

        System messages of the list become part of the one. `max_tokens` is the legacy limit: it
        stands for the window, and history gets what system text and answer leave of it.
        """
        model, max_tokens = options.get("model"), options.get("max_tokens")
        sizes = cast(
            "BudgetOptions",
            {name: value for name, value in options.items() if name not in _NOT_OF_BUDGET},
        )
        policy, budget = find_policy("window"), allocate_budget(model, **sizes)
        zones = {
            name: tokens
            for name, tokens in budget.items()
            if name not in ("history", "reserved_output")
        }
        window, reserve = budget.window, budget.reserved_output
        if max_tokens is not None:
            sizes["max_tokens"] = max_tokens
            window = allocate_budget(model, **sizes).window
            policy = replace(policy, history="rest")  # no zones are set aside
            # A reserve that nobody asked for must not take a small window.
            reserve = sizes.get("reserved_output", min(DEFAULTS["reserved_output"], window // 4))
        given, _ = make_conversation(messages, None, None)
        given = _with_one_system_text(given, system_prompt, policy.separator)
        wish = check_options(
            model=model,
            window=window,
            reserve_output=reserve,
            policy=policy,
            sections=options.get("sections", ()),
            zones=zones,
        )
        project_path = options.get("project_path")
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
        """How evicted messages begin, as seed 000 prints it; a session that has a model summarizes
        with it.
        """
        contents = [_content(as_message(message)) for message in messages]
        words = " ".join(contents)
        cut = MAX_PLACEHOLDER_CHARS
        most = min(len(words), 10 * MAX_PLACEHOLDER_CHARS)
        while cut < most and graphemes(words[: cut + 1]) <= MAX_PLACEHOLDER_CHARS:
            cut += 1
        return f"Summary of {len(contents)} earlier messages: {words[:cut]}..."

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


def _content(message: Message) -> str:
    inner = [
        part.text for result in message.results for part in result.parts if isinstance(part, Text)
    ]
    if message.results:
        return "\n".join(inner)
    return message.text
