"""The division of a window into zones, as seed 000 draws it, and what flows between them once their
contents are measured.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TypedDict, Unpack

from msgspec import Struct, structs

from loom.budget.models import Overrides
from loom.budget.models import model as find_model
from loom.conversation.checked import checks_arguments
from loom.errors import ChoiceError, describe

# Seed 000's zones. What is left of the window is history.
DEFAULTS: dict[str, int] = {
    "system_prompt": 2048,
    "decision_context": 1024,
    "repo_map": 2048,
    "tool_definitions": 2048,
    "reserved_output": 4096,
}

# The options that set a zone, by the names the seed prints.
_OPTION_ZONES = {
    "system_prompt": "system_prompt",
    "max_decision_tokens": "decision_context",
    "max_repo_map_tokens": "repo_map",
    "tool_definitions": "tool_definitions",
    "reserved_output": "reserved_output",
}

# What must be sent whole, however large; history pays for what is beyond its zone.
_WHOLE = ("system_prompt", "tool_definitions")

# Seed 002: what an answer may take where the configuration says nothing, or zero; and the window
# where only that is known.
DEFAULT_MAX_TOKENS = 32_768
ZERO_MAX_TOKENS = 8_192
WINDOW_PER_MAX_TOKENS = 4

# Seed 000's average message.
MESSAGE_TOKENS = 125


class BudgetOptions(TypedDict, total=False):
    """Zone sizes in tokens, the window where it is not the model's, zones of the policy's own, and
    the legacy limit.
    """

    max_decision_tokens: int
    max_repo_map_tokens: int
    reserved_output: int
    system_prompt: int
    tool_definitions: int
    window: int
    zones: Mapping[str, int]
    overrides: Overrides
    max_tokens: int
    system_tokens: int


class Zone(Struct, frozen=True):
    """A named share of the window."""

    name: str
    tokens: int


class Budget(Struct, frozen=True, kw_only=True):
    """A window and its zones; together the zones are the window, unless a note says what does not
    fit.

    It is a mapping of zones to tokens (`budget["repo_map"]`, `dict(budget)`), and each zone is an
    attribute (`budget.repo_map`).
    """

    window: int
    zones: tuple[Zone, ...]
    notes: tuple[str, ...] = ()
    scaled: str = ""  # the one of them that says that zones were scaled to the window

    def __getitem__(self, name: str) -> int:
        for zone in self.zones:
            if zone.name == name:
                return zone.tokens
        raise ChoiceError(
            f"no zone named {name!r}; there are {', '.join(zone.name for zone in self.zones)}"
        )

    def __getattr__(self, name: str) -> int:
        for zone in self.zones if not name.startswith("_") else ():
            if zone.name == name:
                return zone.tokens
        raise AttributeError(f"a budget has no {name!r}; its zones are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (zone.name for zone in self.zones)

    def __len__(self) -> int:
        return len(self.zones)

    def __contains__(self, name: object) -> bool:
        return any(zone.name == name for zone in self.zones)

    def keys(self) -> KeysView[str]:
        return self._zones_by_name().keys()

    def values(self) -> ValuesView[int]:
        return self._zones_by_name().values()

    def items(self) -> ItemsView[str, int]:
        return self._zones_by_name().items()

    def get(self, name: str, default: int | None = None) -> int | None:
        return self._zones_by_name().get(name, default)

    def _zones_by_name(self) -> dict[str, int]:
        return {zone.name: zone.tokens for zone in self.zones}

    @property
    def history(self) -> int:
        return self["history"]

    @property
    def reserved_output(self) -> int:
        return self["reserved_output"]

    @property
    def usable(self) -> int:
        """What input may take: the window without the reserve."""
        return self.window - self.reserved_output

    def as_dict(self) -> dict[str, int]:
        """Zone → tokens, with the window as `total`."""
        return self._zones_by_name() | {"total": self.window}


Mapping.register(Budget)


@checks_arguments
def allocate_budget(model: str | None = None, **options: Unpack[BudgetOptions]) -> Budget:
    """Divide a model's window: fixed zones as set or by default, the rest to history.

    `max_tokens` is the seed's legacy limit: it stands for the window, no zones are set aside, and
    history gets what `system_tokens` and `reserved_output` leave.
    """
    known = BudgetOptions.__annotations__
    for name, value in options.items():
        if name not in known:
            raise ChoiceError(f"no budget option named {name!r}; there are {', '.join(known)}")
        if name not in ("zones", "overrides"):
            _check(name, value)
    sizes = dict(DEFAULTS)
    for option, zone in _OPTION_ZONES.items():
        if option in options:
            sizes[zone] = int(options[option])  # type: ignore[literal-required]
    for zone, cap in options.get("zones", {}).items():
        _check(f"zone {zone}", cap)
        if zone == "history":
            raise ChoiceError(
                "history gets what the other zones leave; lower those instead of setting history "
                f"to {cap}"
            )
        sizes[zone] = cap
    found = find_model(model, options.get("overrides"))
    window = options.get("window", found.window)
    if "max_tokens" in options:
        return _legacy(
            options["max_tokens"], options.get("system_tokens", 0), sizes["reserved_output"]
        )
    if window == 0:
        raise ChoiceError("a window of 0 tokens holds nothing; give a positive window")
    explicit = "reserved_output" in options
    if explicit and sizes["reserved_output"] >= window:
        raise ChoiceError(
            f"reserved_output {sizes['reserved_output']} leaves nothing of {window} tokens; lower "
            "it or choose a larger model"
        )
    budget = _divide(window, sizes, kept=("reserved_output",) if explicit else ())
    if found.known or "window" in options:
        return budget
    who = f"the model {model!r} is unknown" if model else "no model is named"
    note = f"{who}; a window of {window:,} tokens is assumed; give another one if that is wrong"
    return structs.replace(budget, notes=(note, *budget.notes))


def history_budget(
    *,
    max_tokens: int | None = None,
    context_window: int | None = None,
    system_prompt: int = 0,
    summary: int = 0,
    tool_definitions: int = 0,
) -> int:
    """Seed 002's formula: what the window leaves for history after everything else, the answer
    included; never below 0.
    """
    for name, value in (("max_tokens", max_tokens or 0), ("context_window", context_window or 0)):
        _check(name, value)
    if max_tokens is None:
        answer = DEFAULT_MAX_TOKENS
    else:
        answer = max_tokens or ZERO_MAX_TOKENS
    window = context_window or WINDOW_PER_MAX_TOKENS * answer
    return max(0, left_for_history(window, answer, system_prompt + summary, tool_definitions))


def left_for_history(window: int, answer: int, system: int, tools: int) -> int:
    """Seed 002's formula for numbers that are known; `system` holds the summary. Below 0: so much
    is missing.
    """
    return window - system - tools - answer


def flow(budget: Budget, needs: Mapping[str, int]) -> Budget:
    """The budget once needs are measured: what a zone does not need flows on.

    Decisions that are few leave their rest to the map, as far as it needs more; everything else
    goes to history. Zones not measured keep their size, measured ones get at most it; only the
    prompt and the tools, which are sent whole, may take more.
    """
    for name, need in needs.items():
        _check(f"the need of {name}", need)
    sizes = {zone.name: zone.tokens for zone in budget.zones if zone.name != "history"}
    notes = list(budget.notes)
    spare = 0
    for name, size in list(sizes.items()):
        if name not in needs or name == "reserved_output":
            continue
        need = needs[name]
        if name in _WHOLE:
            sizes[name] = need
            if need > size:
                notes.append(
                    f"{name} takes {need} tokens, {need - size} more than its zone of {size}; "
                    "history pays for them"
                )
        else:
            sizes[name] = min(need, size)
            if name == "decision_context":
                spare = size - sizes[name]
    if needs.get("repo_map", 0) > sizes.get("repo_map", 0):
        sizes["repo_map"] += min(spare, needs["repo_map"] - sizes["repo_map"])
    rest = budget.window - sum(sizes.values())
    if rest < 0:
        needed = budget.window - rest
        notes.append(
            f"zones need {needed} of {budget.window} tokens; shorten the prompt or choose a "
            "larger model"
        )
    return structs.replace(budget, zones=_zones(sizes, max(rest, 0)), notes=tuple(notes))


def messages_that_fit(budget: Budget, *, message_tokens: int = MESSAGE_TOKENS) -> int:
    """About how many messages history can hold."""
    if message_tokens <= 0:
        raise ChoiceError(f"message_tokens is {message_tokens}; give a positive average size")
    return budget.history // message_tokens


def _legacy(limit: int, system: int, reserved: int) -> Budget:
    sizes = {"system_prompt": system, "reserved_output": reserved}
    return Budget(window=limit, zones=_zones(sizes, max(limit - system - reserved, 0)))


def _divide(window: int, sizes: dict[str, int], kept: tuple[str, ...]) -> Budget:
    """History gets half of the window at least, or three quarters of what the zones leave that the
    caller insists on.
    """
    fixed = sum(sizes.values())
    insisted = sum(sizes[name] for name in kept)
    half = min(-(-window // 2), -(-3 * (window - insisted) // 4))
    if window - fixed >= half:
        return Budget(window=window, zones=_zones(sizes, window - fixed))
    room = window - half - insisted
    scaled = {
        name: size if name in kept else size * room // (fixed - insisted)
        for name, size in sizes.items()
    }
    note = (
        f"fixed zones of {fixed} tokens would leave history {max(window - fixed, 0)} of {window}; "
        "they were scaled to "
        f"{sum(scaled.values())}{f', {kept[0]} kept at {insisted}' if kept else ''}"
    )
    return Budget(
        window=window,
        zones=_zones(scaled, window - sum(scaled.values())),
        notes=(note,),
        scaled=note,
    )


def _zones(sizes: Mapping[str, int], history: int) -> tuple[Zone, ...]:
    return (*(Zone(name, size) for name, size in sizes.items()), Zone("history", history))


def _check(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ChoiceError(f"{name} must be a number of tokens, 0 or more, found {describe(value)}")
