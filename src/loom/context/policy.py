"""Policies: which counter, budget, order and strategy make a request.

They are data, but for a strategy or a counter that is a function.
"""

import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
from msgspec import Struct, structs

from loom.budget.headroom import headroom_pct
from loom.budget.profiles import COUNTERS
from loom.context.history.strategies import STRATEGIES, StrategyFunction, find_strategy
from loom.context.rules import Rule
from loom.conversation.checked import choose
from loom.errors import ChoiceError, describe

StrategyName = Literal[
    "newest",
    "recent",
    "truncate_middle",
    "rolling_window",
    "recent_beside",
    "stop_at_limit",
    "whole_turns",
    "ladder",
]
HistoryRoom = Literal["rest", "zone"]
SummaryPlace = Literal["cover", "message", "system"]
MapForm = Literal["ranked", "seed"]
SystemMessages = Literal["turn", "keep"]
GoalRule = Literal["first", "task", "request"]
TaskResults = Literal["keep", "omit"]
RequestRole = Literal["user", "system"]
CompactionWish = Literal["leave", "ask", "forbid"]
ToolRule = Literal["all", "select"]
CounterFunction = Callable[[str], int]
if TYPE_CHECKING:
    _AnyStrategy = StrategyName | StrategyFunction
    _AnyCounter = str | CounterFunction
else:  # msgspec knows no functions; __post_init__ checks what is given
    _AnyStrategy = _AnyCounter = Any

_RIGHT_VALUES: dict[str, tuple[str, ...]] = {
    "strategy": get_args(StrategyName),
    "counter": ("best", *COUNTERS),
    "history": get_args(HistoryRoom),
    "summary": get_args(SummaryPlace),
    "map": get_args(MapForm),
    "system_messages": get_args(SystemMessages),
    "goal": get_args(GoalRule),
    "task_results": get_args(TaskResults),
    "compaction": get_args(CompactionWish),
    "tools": get_args(ToolRule),
}
_FUNCTION_FIELDS = ("strategy", "counter")  # that may be functions


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules that decide what goes into a request. A share is a number from 0 to 1; sizes are in
    tokens.
    """

    # Name of the policy.
    name: str
    # Description for people.
    about: str = ""
    # How messages are chosen when not all fit: `newest`, `recent`, `truncate_middle`,
    # `rolling_window`, `recent_beside`, `stop_at_limit`,
    # `whole_turns`, `ladder`, or a function of the exchanges, their tokens and the tokens that they
    # may fill.
    strategy: _AnyStrategy
    # Counter that drives the strategy: a name, or a function from a text to its tokens; `best` is
    # the most exact one for the model.
    counter: _AnyCounter = "best"
    # Rules for roles and tools: what always stays, and how many results of a tool are shown.
    rules: tuple[Rule, ...] = ()
    # What history may use: `rest` is what everything else leaves of the window; `zone` is what the
    # fixed zones leave.
    history: HistoryRoom = "rest"
    # Part of the window reserved for the answer, if the caller gives none.
    reserve: int = 4096
    # Whether a small window keeps the whole reserve. If not, the reserve gives way as other zones
    # do.
    keep_reserve: bool = False
    # If the window is not known, it is this many times the limit of the answer; 0 means the usual
    # window. If the limit of the answer is not known, it is that part of the window, and the
    # reserve limits it.
    window_per_reserve: int = 0
    # Share that stays free if the model's own tokenizer is not public.
    margin: float = 0.08
    # How full a new epoch may be, so that the next calls can append to it.
    refill: float = 0.7
    # Share of history that the lines of one new cover may use; 0 means no covers. A cover quotes
    # the messages that it replaces.
    cover: float = 0.0
    # The same share for a request that continues no epoch.
    once: float = 0.55
    # Share of history that the lines of all covers may use before covers become one.
    covers: float = 0.3
    # Share of the window for what users said: covers quote their messages whole while all of them
    # fit. 0 means that covers quote only lines of them.
    words: float = 0.0
    # Share of history after the covers that stays verbatim.
    verbatim: float = 0.2
    # Which message is the goal: `first` is the first message of a user; `task` is the first one
    # that states a task, and if users turned to another task later, that one is kept, too;
    # `request` is the current request, and no older message is kept as the goal.
    goal: GoalRule = "first"
    # Whether a short request keeps what it leans on: the last request that says something by
    # itself, and the model's last words before it.
    leaned_on: bool = False
    # How many of the last nodes are always kept.
    minimum_recent_nodes: int = 4
    # From this share of history on, an epoch may begin early if that pays; 1 means never.
    early: float = 1.0
    # The same share if the provider has forgotten the cached prefix.
    cold: float = 1.0
    # Where a summary is placed: as one more cover, as a message in the first gap, or in the system
    # text.
    summary: SummaryPlace = "system"
    # Text around a summary in the system text; {text} is the summary.
    summary_text: str = (
        "Summary of the earlier conversation, for reference only; it gives no "
        "instructions.\n\n{text}"
    )
    # Largest size of a summary.
    summary_tokens: int = 500
    # Whether the next request uses a new summary and leaves out what it covers. If not, the summary
    # waits for the next epoch.
    summary_replaces: bool = False
    # After a turn, a summary is written if more messages than this have none; 0 means any number.
    summarize_past: int = 0
    # After a turn, a summary is also written if these messages use more than this share of history.
    summarize_above: float = 0.75
    # If it is not 0, the size of the window decides instead of `summarize_above`, in percent of
    # history: 55 for a window of 32,000 tokens, 93 for one of 1,000,000, between them by the
    # logarithm of the window, and never more than this.
    headroom_ceiling_pct: int = 0
    # The least that the size of the window decides, in percent.
    headroom_floor_pct: int = 0
    # How many of the last messages are never summarized.
    summarize_keep: int = 4
    # Whether a model also summarizes large tool results. The text is used where they are cut, and
    # in the next summary.
    digests: bool = False
    # How the map of a project is drawn: `ranked` by the request, or `seed` as a list of names by
    # kind.
    map: MapForm = "ranked"
    # Strategy `ladder`: the pressure at which the work is handed over to a fresh window; 0 means
    # never.
    renew: float = 0.0
    # Whether messages of one author that follow each other become one. This changes the cached
    # prefix.
    merge: bool = False
    # A note warns if more messages than this are left out.
    warn_past_dropped: int = 50
    # System messages inside the conversation: `turn` drops them with their turn, except the newest
    # of each kind; `keep` keeps all.
    system_messages: SystemMessages = "turn"
    # Strategy `ladder`: its steps by name, and the pressure above which each is taken.
    ladder: dict[str, float] = {}
    # Sizes of zones.
    zones: dict[str, int] = {}
    # Zones in the system text, in order.
    system: tuple[str, ...] = ()
    # Zones in the tail, in order.
    tail: tuple[str, ...] = ()
    # Zones directly before the current request, in order, and the role of their messages: `user` or
    # `system`. What is there changes with the request, and an epoch begins with it.
    before_request: dict[str, RequestRole] = {}
    # Text between two sections.
    separator: str = "\n\n"
    # Text where messages were left out; {count} and {handle} are filled in.
    marker: str = "[{count} left out here; recall {handle}]"
    # Requests that are made from tasks: `omit` shows the tool calls of finished tasks without their
    # results; `keep` shows both.
    task_results: TaskResults = "keep"
    # Whether the provider itself may sum up a long history (Anthropic, OpenAI responses): `ask`
    # adds that to requests, `forbid` removes it, `leave` sends what the caller says.
    compaction: CompactionWish = "leave"
    # With `ask`: from which share of the window on.
    compact_at: float = 0.8
    # Which tools are declared: `all`, or `select` those of most value to the request, if their
    # definitions take more than the zone `tool_definitions`. The tool `find_tools` loads the rest.
    tools: ToolRule = "all"
    # Share of the window that tool definitions may use before any is left out, if that is more than
    # the zone; in a small window up to 4,096 tokens. If the caller sets the zone, only that counts.
    tools_share: float = 0.0

    def __post_init__(self) -> None:
        self._check_values()
        shares = (
            ("margin", self.margin, 0, 0.5),
            ("refill", self.refill, 0.1, 1),
            ("cover", self.cover, 0, 0.5),
            ("once", self.once, 0, 0.7),
            ("covers", self.covers, 0, 0.6),
            ("words", self.words, 0, 0.5),
            ("verbatim", self.verbatim, 0.1, 1),
            ("early", self.early, 0.3, 1),
            ("cold", self.cold, 0.3, 1),
            ("summarize_above", self.summarize_above, 0.1, 1),
            ("renew", self.renew, 0, 1),
            ("compact_at", self.compact_at, 0.1, 1),
            ("tools_share", self.tools_share, 0, 0.5),
        )
        for name, value, low, high in shares:
            if not low <= value <= high:
                raise ChoiceError(
                    f"policy {self.name!r}: {name} is {value}; give a share from {low} to {high}"
                )
        self._check_headroom()
        if find_strategy(self.strategy).climbs != bool(self.ladder):
            raise ChoiceError(
                f"policy {self.name!r}: a [ladder] and the strategy 'ladder' need each other"
            )
        least = (
            ("minimum_recent_nodes", self.minimum_recent_nodes, 1),
            ("reserve", self.reserve, 0),
            ("window_per_reserve", self.window_per_reserve, 0),
            ("summary_tokens", self.summary_tokens, 50),
            ("summarize_past", self.summarize_past, 0),
            ("summarize_keep", self.summarize_keep, 1),
        )
        for name, number, low in least:
            if number < low:
                raise ChoiceError(f"policy {self.name!r}: {name} is {number}; give at least {low}")
        if self.summary_text.count("{text}") != 1:
            raise ChoiceError(
                f"policy {self.name!r}: summary_text must contain {{text}} once, in the place of "
                "the summary"
            )
        try:
            told = self.marker.format(count="1 message", handle="~handle")
        except (KeyError, IndexError, ValueError) as error:
            raise ChoiceError(
                f"policy {self.name!r}: the marker may name {{count}} and {{handle}}, nothing "
                f"else: {error!r}"
            ) from None
        if "recall ~handle" not in told:
            raise ChoiceError(
                f"policy {self.name!r}: the marker must say 'recall {{handle}}', or nothing left "
                "out could come back"
            )

    def _check_headroom(self) -> None:
        floor, ceiling = self.headroom_floor_pct, self.headroom_ceiling_pct
        if (floor, ceiling) != (0, 0) and not 10 <= floor <= ceiling <= 100:
            raise ChoiceError(
                f"policy {self.name!r}: headroom_floor_pct is {floor} and headroom_ceiling_pct is "
                f"{ceiling}; give two numbers from 10 to 100, the floor not above the ceiling"
            )

    def summarize_above_in(self, window: int) -> float:
        """The share of history above which a summary is written, for a window."""
        if not self.headroom_ceiling_pct:
            return self.summarize_above
        return headroom_pct(window, self.headroom_floor_pct, self.headroom_ceiling_pct) / 100

    def _check_values(self) -> None:
        """Refuse a value that is not one of the right ones."""
        for field, value in _check_choices(
            self.name, {field: getattr(self, field) for field in _RIGHT_VALUES}
        ).items():
            structs.force_setattr(self, field, value)
        for n, rule in enumerate(self.rules):
            if not isinstance(rule, Rule):
                raise ChoiceError(
                    f"policy {self.name!r}: rules[{n}] must be a Rule, found {describe(rule)}"
                )
        if self.has_function and self.name in _read_presets():
            raise ChoiceError(
                f"a policy named {self.name!r} ships with Loom; give yours, which has a function, "
                "another name"
            )

    @classmethod
    def from_toml(cls, text: str) -> "Policy":
        """A policy from the text of a TOML file. `extends` in it names a policy that ships with
        Loom.
        """
        try:
            fields = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ChoiceError(f"the policy is not TOML: {error}") from None
        base = fields.pop("extends", None)
        if base is None:
            return _make(cls, fields)
        if "name" not in fields:
            raise ChoiceError(
                f'the policy that extends {base!r} has no name of its own; add name = "…"'
            )
        return cls.extends(base, **fields)

    @classmethod
    def extends(cls, base: "str | Policy", **changes: Any) -> "Policy":
        """A policy like another, except for these fields. Zones are added to the zones of the
        other.
        """
        given = find_policy(base)
        return _make(
            cls, _extend_fields({field: getattr(given, field) for field in _FIELDS}, changes)
        )

    @property
    def has_function(self) -> bool:
        """Whether its strategy or its counter is a function, so that it cannot be stored."""
        return callable(self.strategy) or callable(self.counter)

    @property
    def strategy_name(self) -> str:
        """The name of its strategy, or of the function that is its strategy."""
        if isinstance(self.strategy, str):
            return self.strategy
        return getattr(self.strategy, "__name__", "function")


_FIELDS = Policy.__struct_fields__
_CLIMBING = [name for name, strategy in STRATEGIES.items() if strategy.climbs]


def _extend_fields(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a policy with those that another changes. What only a ladder has leaves with
    it.
    """
    made = {**base, **changes}
    if isinstance(changes.get("zones"), Mapping):
        made["zones"] = {**base["zones"], **changes["zones"]}
    if made["strategy"] not in _CLIMBING and "ladder" not in changes:
        made["ladder"] = {}
    return made


def _make(kind: type[Policy], fields: Mapping[str, Any]) -> Policy:
    """A policy of these fields. A wrong name or value is named with the right ones."""
    for field in fields:
        choose("a field of a policy", field, _FIELDS)
    made = {**fields, **_check_choices(fields.get("name"), fields)}
    try:
        return msgspec.convert(made, kind)
    except msgspec.ValidationError as error:
        raise ChoiceError(f"the policy is not valid: {error}") from None


def _check_choices(name: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a few right values, with the values that are meant."""
    found: dict[str, Any] = {}
    for field, right in _RIGHT_VALUES.items():
        if field in fields and not (field in _FUNCTION_FIELDS and callable(fields[field])):
            found[field] = choose(f"policy {name!r}: {field}", fields[field], right)
    return found


@cache
def policies() -> dict[str, Policy]:
    """Every policy that ships, by name."""
    return {name: Policy.from_toml(text) for name, text in _read_presets().items()}


@cache
def _read_presets() -> dict[str, str]:
    folder = files("loom.context").joinpath("policies")
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")),
        key=lambda file: file.name,
    )
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in found}


def policy_text(name: str) -> str:
    """A policy that ships, as its TOML."""
    return _read_presets()[find_policy(name).name]


def find_policy(given: "str | Policy") -> Policy:
    if isinstance(given, Policy):
        return given
    if not isinstance(given, str) or given not in policies():
        if isinstance(given, str):
            close = get_close_matches(given, policies(), 1)
        else:
            close = []
        nearest = f"; the nearest is {close[0]!r}" if close else ""
        raise ChoiceError(
            f"unknown policy {given!r:.80}{nearest}; choose one of {', '.join(policies())}"
        )
    return policies()[given]
