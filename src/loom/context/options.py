"""Options: what is asked of a request, as one value, with one checker.

A new option of every verb is a field of `RequestOptions`, with its meaning, a field of `Options`,
and a line in `check_options`. What a caller does not name, the engine sets.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, cast

from msgspec import Struct

from loom.budget.models import Overrides
from loom.context.caches import SHARED, Caches
from loom.context.policy import Policy, find_policy
from loom.context.report import Report
from loom.context.request import Context
from loom.context.sections import Section, check_zone
from loom.conversation.checked import MAX_NUMBER, check_text, refuse_unknown
from loom.conversation.message import Tool
from loom.errors import ChoiceError, describe

MIN_RATIO, MAX_RATIO = 0.25, 4  # by what counts may be corrected
# zones that hold no sections, and whose size is what others leave
NOT_PLACED = ("history", "reserved_output")


class Options(Struct, frozen=True, kw_only=True):
    """What is asked of a request, checked."""

    policy: Policy
    model: str | None = None
    window: int | None = None
    reserve_output: int | None = None
    sections: tuple[Section, ...] = ()
    overrides: Overrides = {}
    ratio: float = 1.0
    zones: Mapping[str, int] = {}
    # What the caller said the answer may take: the reserve, where it was given.
    answer: int | None = None
    asked_window: int | None = None  # where a provider took less than the window: the window itself
    # A document: texts without roles, one after the other, and the text not yet committed at its
    # end.
    document: bool = False
    ending: str = ""
    # Whether a provider has forgotten the last request, and whether a call is in flight; None: as
    # the messages say.
    cold: bool = False
    busy: bool | None = None
    digests: Mapping[str, str] = {}  # what a model said of large texts, by the text
    taken: frozenset[str] = frozenset()  # handles that stand for something else in the store
    bare: bool = False  # whether system text alone is a request
    # zones that have some of what was free in the window, and their tokens
    widened: Mapping[str, int] = {}
    # tokens that an epoch leaves free when it begins, for what its tail will say later
    ahead: int = 0
    notes: tuple[str, ...] = ()  # what sources say in the report
    caches: Caches = SHARED


class RequestOptions(TypedDict, total=False):
    """The options of every verb that makes a request."""

    # Name of the model. It decides the tokenizer and the window.
    model: str | None
    # Size of the whole window in tokens (default: the model's window).
    window: int | None
    # Part of the window that is reserved for the answer (default: as the policy says).
    reserve_output: int | None
    # Other pieces of context, each for a zone.
    sections: Iterable[Section | tuple[str, str]]
    # Sizes of zones in tokens.
    zones: Mapping[str, int] | None
    # Your own figures for models.
    overrides: Overrides | None


class WeaveOptions(RequestOptions, total=False):
    """The options of `weave`."""

    # Name of a policy, or a `Policy` (default: `default`).
    policy: str | Policy
    # Text before the system text of the conversation.
    system: str | None
    # Tools that replace those of the conversation.
    tools: Iterable[Tool | Mapping[str, Any]] | None
    # Indexes of messages that must stay.
    pins: Sequence[int]
    # Report or context of the last call: the new request continues its epoch, so that it begins
    # as the last one did.
    previous: Report | Context | None
    # Corrects the counter by the usage that the provider reported (default: 1).
    ratio: float


def select_request_options(options: RequestOptions) -> RequestOptions:
    """Those of the options of a verb that every verb has."""
    shared = RequestOptions.__annotations__
    named = {name: value for name, value in options.items() if name in shared}
    return cast("RequestOptions", named)


def check_options(**asked: Unpack[WeaveOptions]) -> Options:
    """Options from what a caller asks for. A slip is named here rather than where it would hurt."""
    refuse_unknown("weave", asked, WeaveOptions)
    policy = find_policy(asked.get("policy", "default"))
    reserve = _check_tokens("reserved_output", asked.get("reserve_output"))
    return Options(
        model=_check_model(asked.get("model")),
        window=_check_tokens("window", asked.get("window")),
        reserve_output=reserve,
        answer=reserve or None,
        ratio=_check_ratio(asked.get("ratio", 1.0)),
        policy=policy,
        zones=_check_zones(asked.get("zones"), policy),
        sections=_check_sections(asked.get("sections", ()), policy),
        overrides=_check_overrides(asked.get("overrides")),
    )


def _check_model(model: Any) -> str | None:
    if model is not None and not isinstance(model, str):
        raise ChoiceError(f"model must be a name, found {describe(model)}")
    return model


def _check_tokens(name: str, tokens: Any) -> int | None:
    if tokens is None:
        return None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= MAX_NUMBER:
        raise ChoiceError(f"{name} must be a number of tokens, 0 or more, found {describe(tokens)}")
    return tokens


def _check_ratio(ratio: Any) -> float:
    if (
        not isinstance(ratio, int | float)
        or isinstance(ratio, bool)
        or not MIN_RATIO <= ratio <= MAX_RATIO
    ):
        raise ChoiceError(
            f"ratio must be a number from 0.25 to 4, found {describe(ratio)}; 1 leaves counts as "
            "they are"
        )
    return ratio


def _check_zones(zones: Any, policy: Policy) -> Mapping[str, int]:
    if zones is None:
        return {}
    if not isinstance(zones, Mapping) or not zones.keys().isdisjoint(NOT_PLACED):
        raise ChoiceError(
            "zones must map names to tokens; history is what they leave, and reserve_output sets "
            "the reserve"
        )
    for zone in zones:
        check_zone("zones", check_text("the name of a zone", zone), policy)
    return zones


def _check_overrides(overrides: Any) -> Overrides:
    if overrides is None:
        return {}
    if not isinstance(overrides, Mapping):
        raise ChoiceError(
            f"overrides must be a mapping of models to figures, found {describe(overrides)}"
        )
    return overrides


def _check_sections(given: object, policy: Policy) -> tuple[Section, ...]:
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise ChoiceError(
            f"sections must be a list of Section or (zone, text), found {describe(given)}"
        )
    sections = tuple(_check_section(f"sections[{n}]", each) for n, each in enumerate(given))
    for n, section in enumerate(sections):
        if section.zone in NOT_PLACED:
            raise ChoiceError(
                f"sections[{n}]: nothing can be placed in {section.zone}; give messages, or "
                "another zone"
            )
        check_zone(f"sections[{n}].zone", section.zone, policy)
    return sections


def _check_section(place: str, given: object) -> Section:
    match given:
        case Section(str(), str()):
            return given
        case (str(zone), str(text)):
            return Section(zone, text)
    raise ChoiceError(f"{place} must be a Section or (zone, text), found {describe(given)}")
