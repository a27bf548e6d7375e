"""Options: what is asked of a request, as one value, with one checker.

A new option is a field of `Options`, with a line in `check_options` where its value can be wrong.
`AskedOptions` are those that a caller names; the engine sets the others.
"""

from collections.abc import Iterable, Mapping
from typing import TypedDict, Unpack

from msgspec import Struct

from loom.budget.models import Overrides
from loom.context.caches import SHARED, Caches
from loom.context.policy import Policy, find_policy
from loom.context.sections import Section, check_zone
from loom.conversation.checked import MAX_NUMBER, check_text
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
    caches: Caches = SHARED


class AskedOptions(TypedDict, total=False):
    """The options that a caller names."""

    policy: str | Policy
    model: str | None
    window: int | None
    reserve_output: int | None
    sections: Iterable[Section | tuple[str, str]]
    overrides: Overrides | None
    ratio: float
    zones: Mapping[str, int] | None


def check_options(**asked: Unpack[AskedOptions]) -> Options:
    """Options from what a caller asks for. A slip is named here rather than where it would hurt."""
    model, ratio, zones = asked.get("model"), asked.get("ratio", 1.0), asked.get("zones")
    reserve, overrides = asked.get("reserve_output"), asked.get("overrides")
    if model is not None and not isinstance(model, str):
        raise ChoiceError(f"model must be a name, found {describe(model)}")
    _check_tokens("window", asked.get("window"))
    _check_tokens("reserved_output", reserve)
    _check_ratio(ratio)
    policy = find_policy(asked.get("policy", "default"))
    if zones is not None and (
        not isinstance(zones, Mapping) or not zones.keys().isdisjoint(NOT_PLACED)
    ):
        raise ChoiceError(
            "zones must map names to tokens; history is what they leave, and reserve_output sets "
            "the reserve"
        )
    sections = _check_sections(asked.get("sections", ()), policy)
    _check_zones(zones or {}, policy)
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ChoiceError(
            f"overrides must be a mapping of models to figures, found {describe(overrides)}"
        )
    return Options(
        policy=policy,
        model=model,
        window=asked.get("window"),
        reserve_output=reserve,
        answer=reserve or None,
        sections=sections,
        overrides=overrides or {},
        ratio=ratio,
        zones=zones or {},
    )


def _check_tokens(name: str, tokens: object) -> None:
    if tokens is None:
        return
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= MAX_NUMBER:
        raise ChoiceError(f"{name} must be a number of tokens, 0 or more, found {describe(tokens)}")


def _check_ratio(ratio: object) -> None:
    if (
        not isinstance(ratio, int | float)
        or isinstance(ratio, bool)
        or not MIN_RATIO <= ratio <= MAX_RATIO
    ):
        raise ChoiceError(
            f"ratio must be a number from 0.25 to 4, found {describe(ratio)}; 1 leaves counts as "
            "they are"
        )


def _check_zones(zones: Mapping[str, int], policy: Policy) -> None:
    for zone in zones:
        check_zone("zones", check_text("the name of a zone", zone), policy)


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
