"""Seed 000's door: `ContextWindow`, thin over `weave`."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.budget.models import model_limit
from loom.budget.profiles import SEEDS
from loom.budget.zones import Budget, allocate_budget
from loom.context.policy import policy as find_policy
from loom.context.sections import Section
from loom.context.summaries import summarize_old_messages
from loom.context.weave import check_wish, gather, weave
from loom.conversation.message import Message
from loom.engine.mapping import one_map

_estimate = Counter(SEEDS["window"], remember=1)


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
    ) -> list[dict[str, Any]]:
        """The system message and the newest messages that fit, as chat dictionaries.

        `max_tokens` is the legacy limit: it stands for the window. The map of the project at `project_path` goes in, as large as
        `max_repo_map_tokens`. `session_id` names what decisions will be gathered from; until then give `sections`.
        """
        del session_id
        policy, zones = find_policy("window"), {}
        if max_tokens is not None:
            budget = allocate_budget(model, max_tokens=max_tokens, **options)  # type: ignore[arg-type]
            policy = replace(policy, history="rest")  # no zones are set aside
            reserve = min(budget.reserved_output, budget.window // 4)
        else:
            budget = allocate_budget(model, **options)  # type: ignore[arg-type]
            zones = {zone.name: zone.tokens for zone in budget.zones if zone.name not in ("history", "reserved_output")}
            reserve = budget.reserved_output
        given, _ = gather(messages, None, None)
        if project_path is not None:
            wish = check_wish(model, budget.window, reserve, policy, (), None, 1.0, zones)
            sections = [*sections, *one_map(wish, given, project_path)]
        context = weave(
            given,
            model=model,
            system=system_prompt,
            window=budget.window,
            reserve_output=reserve,
            policy=policy,
            sections=sections,
            zones=zones,
        )
        wire: list[dict[str, Any]] = context.openai()["messages"]
        return wire

    @staticmethod
    def allocate_budget(model: str | None = None, **options: Any) -> Budget:
        return allocate_budget(model, **options)

    @staticmethod
    def model_limit(model: str | None) -> int:
        return model_limit(model)

    @staticmethod
    def summarize_old_messages(messages: Iterable[Message | Mapping[str, Any]]) -> str:
        """How evicted messages begin, as seed 000 prints it; a session that has a model sums up with it."""
        return summarize_old_messages(list(messages))

    @staticmethod
    def estimate_tokens(text: str) -> int:
        """Seed 000's estimate: four characters a token."""
        return _estimate.count_text(text)
