"""Which tools a request declares, where the definitions of all of them do not fit.

A tool has a value to the request: what its definition shares with the request, the goal and the
latest exchanges; whether the agent used it, or tools like it; whether a text names it. Tools of
little value are shortened or left out. A tool that is in use never is left out. The tool
`find_tools` (`tool_finder.py`) lists and loads the rest.

The choice holds for an epoch: tools are ahead of all else in the cache of a provider.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log, sqrt
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.context.shorten.markers import RECALL
from loom.context.tool_finder import (
    HINT_TOKENS,
    first_sentence,
    is_finder,
    is_finder_call,
    make_finder,
)
from loom.context.tool_use import EpochTools
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Carried, Message, Text, Tool, ToolResult
from loom.conversation.words import split_terms

# tools of Loom that texts of Loom name: markers, and the list of skills
KEPT_TOOLS = (RECALL, "load_skill")
MAX_TEXT_CHARS = 4_000  # of one message, how much tells what is asked for: its ends
MAX_SYSTEM_CHARS = 40_000  # of the system text
RECENT_MESSAGES = 8  # the newest messages that tell what the next call may be
RECENT_DECAY = 0.75  # how much less each message before the newest one says
LIKE_TOOLS = 5  # the best tools, which others are compared with
SHORT_TOOLS = 24  # definitions that are short before what is left makes them whole
# of what the tools in use leave: the part for whole definitions; the rest is for short ones
WHOLE_SHARE = 0.25
_FINDER_TOKENS = 200  # about what `find_tools` takes

# How much each sign of a tool's value counts. Each sign is a number from 0 to 1.
WEIGHTS = {
    "request": 1.0,
    "goal": 0.3,
    "recent": 1.1,
    "system": 0.3,
    "named": 1.0,
    "used": 1.0,
    "follows": 1.0,
    "family": 0.4,
    "alike": 1.0,
    "general": 1.8,
}
# How much a term counts by where a definition has it.
NAME_WEIGHT, PARAMETER_WEIGHT, SENTENCE_WEIGHT, TEXT_WEIGHT = 3.0, 1.5, 1.5, 0.7
# Terms in the names of tools that agents use whatever the subject is.
GENERAL_TERMS = frozenset(
    split_terms(
        "think plan todo calculate calculator compute bash shell terminal exec execute run python "
        "interpreter read write edit open view file search grep find web browse page visit ask "
        "human agent handoff transfer to escalate finish final answer submit done memory remember "
        "note"
    )
)
# Words of requests that say nothing of a subject.
_EMPTY_TERMS = frozenset(
    split_terms(
        "a about also am an and any are as at be but by can could do does for from get give go had "
        "has have hello help hi how i if in into is it its just know let like make may me more my "
        "need no not now of ok okay on one only or other our out please should so some sure take "
        "tell thank thanks that the their them then there these they this those to up use used "
        "user using want was we were what when where which who why will with would yes you your"
    )
)
# Keys of a JSON schema under which are names with a schema each, one schema, or a list of schemas.
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
)
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_ANNOTATIONS = ("description", "title", "examples", "example", "$comment")


class ToolQuestion(Struct, frozen=True, kw_only=True):
    """What a choice is made from. `texts` are the system text and its sections; `must` names tools
    that are in use.
    """

    tools: tuple[Tool, ...]
    limit: int  # tokens that the definitions may take
    count: Callable[[Tool], int]
    messages: Sequence[Message] = ()
    texts: Sequence[str] = ()
    must: frozenset[str] = frozenset()
    usage: EpochTools = EpochTools()


class ToolChoice(Struct, frozen=True, kw_only=True):
    """The tools of a request as they are sent, and how each tool of the caller was treated, by its
    index: tools that are not in `shortened` or `left_out` are whole.
    """

    tools: tuple[Tool, ...]
    epoch: EpochTools = EpochTools()
    shortened: dict[int, Tool] = {}
    left_out: tuple[int, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


# The choice of an epoch that begins


def choose_tools(asked: ToolQuestion) -> ToolChoice:
    """The tools for an epoch that begins: all of them if they fit, else those of most value."""
    costs = [asked.count(tool) for tool in asked.tools]
    if sum(costs) <= asked.limit:
        return _choose_all(asked)
    shorts = [shorten_tool(tool) for tool in asked.tools]
    room = _Room(asked, costs, shorts)
    must = _find_must(asked)
    order = rank_tools(asked)
    for n in order:
        if asked.tools[n].name in must:
            room.take_whole(n)
    room.shorten_until_it_fits([n for n in reversed(order) if asked.tools[n].name in must])
    rest = [n for n in order if asked.tools[n].name not in must and not is_finder(asked.tools[n])]
    room.fill(rest)
    whole = frozenset(asked.tools[n].name for n in room.whole)
    short = frozenset(asked.tools[n].name for n in room.short) - whole
    chosen = replace(
        asked.usage,
        selects=True,
        whole=tuple(sorted(whole)),
        short=tuple(sorted(short)),
        order=tuple(dict.fromkeys(asked.tools[n].name for n in order)),
    )
    return apply_choice(asked.tools, chosen, asked.count)


def _choose_all(asked: ToolQuestion) -> ToolChoice:
    """All tools, as they are; with `find_tools` if the session has calls of it."""
    calls = (call for message in asked.messages for call in message.calls)
    if not any(is_finder_call(call, asked.tools) for call in calls):
        return ToolChoice(tools=asked.tools, epoch=asked.usage)
    every = tuple(dict.fromkeys(tool.name for tool in asked.tools))
    chosen = replace(asked.usage, selects=True, whole=every, order=every)
    return apply_choice(asked.tools, chosen, asked.count)


def apply_choice(
    tools: tuple[Tool, ...], chosen: EpochTools, count: Callable[[Tool], int]
) -> ToolChoice:
    """The tools of a request of an epoch, as they were chosen when it began."""
    if not chosen.selects:
        return ToolChoice(tools=tools, epoch=chosen)
    whole, short = frozenset(chosen.whole), frozenset(chosen.short)
    sent: list[Tool] = []
    shortened: dict[int, Tool] = {}
    left_out: list[int] = []
    for n, tool in enumerate(tools):
        if is_finder(tool):
            continue
        if tool.name in whole:
            sent.append(tool)
        elif tool.name in short:
            shortened[n] = shorten_tool(tool)
            sent.append(shortened[n])
        else:
            left_out.append(n)
    finder = make_finder(tools, [tools[n].name for n in left_out], count)
    return ToolChoice(
        tools=(*sent, finder),
        epoch=chosen,
        shortened=shortened,
        left_out=tuple(left_out),
    )


def find_needs(
    tools: Sequence[Tool], choice: ToolChoice, count: Callable[[Tool], int]
) -> dict[int, int]:
    """For each tool that is not whole, the tokens at which it is: with all before it, and with the
    tools after it that are short.
    """
    cut = {*choice.shortened, *choice.left_out}
    costs = [count(tool) for tool in tools]
    shorts = [min(count(shorten_tool(tool)), costs[n]) for n, tool in enumerate(tools)]
    ranks = {name: rank for rank, name in enumerate(choice.epoch.order)}
    order = sorted(cut, key=lambda n: (ranks.get(tools[n].name, len(ranks)), n))
    whole = sum(costs) - sum(costs[n] for n in order) + _FINDER_TOKENS
    needed: dict[int, int] = {}
    for place, n in enumerate(order, 1):
        whole += costs[n]
        after = sum(shorts[m] for m in order[place : place + SHORT_TOOLS])
        needed[n] = min(whole + after, sum(costs))
    return needed


def find_undeclared(
    tools: Sequence[Tool], chosen: EpochTools, messages: Iterable[Message]
) -> frozenset[str]:
    """The tools that these messages call, and that an epoch left out."""
    if not chosen.selects:
        return frozenset()
    left_out = {tool.name for tool in tools if not is_finder(tool)}
    left_out -= {*chosen.whole, *chosen.short}
    return frozenset(
        call.name for message in messages for call in message.calls if call.name in left_out
    )


def find_missing_loads(chosen: EpochTools, usage: EpochTools) -> list[str]:
    """The tools that were loaded since the last request, and that the epoch does not declare
    whole.
    """
    if not chosen.selects:
        return []
    return [name for name in usage.fresh if name not in chosen.whole]


def read_named_choice(settings: Carried | None) -> frozenset[str]:
    """The tools that the setting `tool_choice` of a request names."""
    if settings is None or "tool_choice" not in settings.fields:
        return frozenset()
    fields = from_json(settings.fields)
    if not isinstance(fields, dict):
        return frozenset()
    return frozenset(_find_names(fields.get("tool_choice")))


def _find_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "name" and isinstance(inner, str):
                yield inner
            else:
                yield from _find_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_names(inner)


def _find_must(asked: ToolQuestion) -> frozenset[str]:
    """The names of tools that are in use, loaded, run by the provider, or named by markers."""
    fixed = (
        tool.name for tool in asked.tools if tool.kind != "function" or tool.name in KEPT_TOOLS
    )
    return frozenset([*asked.must, *asked.usage.loaded, *fixed])


class _Room:
    """The tokens for definitions, and what was put there."""

    def __init__(self, asked: ToolQuestion, costs: Sequence[int], shorts: Sequence[Tool]) -> None:
        self._asked, self._costs = asked, costs
        self._short_costs = [
            min(asked.count(short), cost) for short, cost in zip(shorts, costs, strict=True)
        ]
        finder = make_finder(asked.tools, (), asked.count)
        self._fixed = asked.count(finder) + HINT_TOKENS
        self._left = asked.limit - self._fixed
        self.whole: dict[int, None] = {}
        self.short: dict[int, None] = {}

    def take_whole(self, n: int) -> None:
        self.whole[n] = None
        self._left -= self._costs[n]

    def shorten_until_it_fits(self, order: Iterable[int]) -> None:
        """Shorten what must be in, in this order, while there is no room for it."""
        for n in order:
            if self._left >= 0:
                return
            if n in self.whole and self._saves(n):
                del self.whole[n]
                self.short[n] = None
                self._left += self._saves(n)

    def fill(self, order: Sequence[int]) -> None:
        """Add the first of these whole, then a number of others short. What is left makes those
        whole, and then there are more of them.
        """
        share = self._left * (1 - WHOLE_SHARE)
        rest = []
        for n in order:
            if self._left - self._costs[n] >= share:
                self.take_whole(n)
            else:
                rest.append(n)
        while rest and (batch := self._add_short(rest)):
            self._make_whole(batch)
            rest = [n for n in rest if n not in batch]

    def _add_short(self, order: Sequence[int]) -> list[int]:
        """Add short definitions, a number of them at most. Returns what was added."""
        added: list[int] = []
        for n in order:
            if len(added) == SHORT_TOOLS:
                break
            if self._short_costs[n] <= self._left:
                self.short[n] = None
                self._left -= self._short_costs[n]
                added.append(n)
        return added

    def _make_whole(self, order: Iterable[int]) -> None:
        for n in order:
            if self._saves(n) <= self._left:
                del self.short[n]
                self.take_whole(n)
                self._left += self._short_costs[n]

    def _saves(self, n: int) -> int:
        return self._costs[n] - self._short_costs[n]


# Short definitions


def shorten_tool(tool: Tool) -> Tool:
    """A definition with the first sentence of its description, and a schema without descriptions.

    It takes the same arguments.
    """
    if tool.kind != "function":
        return tool
    sentence = first_sentence(tool.description)
    if sentence != tool.description.strip():
        sentence = f"{sentence} …"
    schema = tool.schema
    if schema:
        parsed = from_json(schema)
        plain = _drop_annotations(parsed)
        if plain != parsed:
            schema = to_json(plain)
    if (sentence, schema) == (tool.description.strip(), tool.schema):
        return tool
    return replace(tool, description=sentence, schema=schema)


def _drop_annotations(schema: Any) -> Any:
    """A schema without what only describes. Values that arguments are compared with stay."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ANNOTATIONS:
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            made[key] = {name: _drop_annotations(inner) for name, inner in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            made[key] = [_drop_annotations(inner) for inner in value]
        elif key in _SCHEMAS:
            made[key] = _drop_annotations(value)
        else:
            made[key] = value
    return made


# The value of a tool


def rank_tools(asked: ToolQuestion) -> list[int]:
    """The indexes of the tools, those of most value to the request first. Of equals, the first."""
    values = value_tools(asked)
    return sorted(range(len(asked.tools)), key=lambda n: (-round(values[n], 6), n))


def value_tools(asked: ToolQuestion) -> list[float]:
    """The value of each tool to the request."""
    signs = _find_signs(asked)
    return [
        sum(WEIGHTS[sign] * column[n] for sign, column in signs.items())
        for n in range(len(asked.tools))
    ]


def _find_signs(asked: ToolQuestion) -> dict[str, list[float]]:
    """For each sign of value, the figure of each tool."""
    vectors = _Vectors(asked.tools)
    texts: dict[str, Mapping[str, float]] = {
        "request": Counter(_terms(_request_text(asked.messages))),
        "goal": Counter(_terms(_goal_text(asked.messages))),
        "recent": _recent_terms(asked.messages),
        "system": Counter(_terms(_cut_ends("\n".join(asked.texts), MAX_SYSTEM_CHARS))),
    }
    signs = {name: _norm(vectors.compare(terms)) for name, terms in texts.items()}
    trail = [call for call in asked.usage.trail if call in vectors.places]
    signs["used"] = _score_use(asked.tools, trail)
    signs["follows"] = _score_followers(asked.tools, trail)
    signs["family"] = _score_families(asked.tools, trail, signs)
    signs["named"] = _score_named(asked)
    signs["general"] = [float(_is_general(tool)) for tool in asked.tools]
    signs["alike"] = _norm(_score_alike(vectors, asked.tools, trail, signs))
    return signs


class _Vectors:
    """The terms of each definition, with weights; rare ones count more."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.places = {tool.name: n for n, tool in enumerate(tools)}
        weighed = [_weigh_terms(tool) for tool in tools]
        found = Counter(term for terms in weighed for term in terms)
        total = len(tools)
        rare = {term: max(0.0, log((total + 1) / (count + 0.5))) for term, count in found.items()}
        self.rows = [_unit({t: w * rare[t] for t, w in terms.items()}) for terms in weighed]

    def compare(self, terms: Mapping[str, float]) -> list[float]:
        """How much of this each definition says."""
        damped = {term: 1 + log(count) if count > 1 else count for term, count in terms.items()}
        return [
            sum(weight * damped[term] for term, weight in row.items() if term in damped)
            for row in self.rows
        ]


def _weigh_terms(tool: Tool) -> dict[str, float]:
    sentence = first_sentence(tool.description)
    fields = (
        (NAME_WEIGHT, tool.name),
        (SENTENCE_WEIGHT, sentence),
        (PARAMETER_WEIGHT, " ".join(_parameter_names(tool))),
        (TEXT_WEIGHT, tool.description[len(sentence) :]),
    )
    weights: dict[str, float] = {}
    for weight, text in fields:
        for term in _terms(text):
            weights[term] = max(weights.get(term, 0.0), weight)
    return weights


def _parameter_names(tool: Tool) -> list[str]:
    schema = from_json(tool.schema) if tool.schema else {}
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        return list(schema["properties"])
    return []


def _unit(row: Mapping[str, float]) -> dict[str, float]:
    length = sqrt(sum(weight * weight for weight in row.values())) or 1.0
    return {term: weight / length for term, weight in row.items() if weight}


def _norm(column: Sequence[float]) -> list[float]:
    top = max(column, default=0.0)
    if top <= 0:
        return [0.0] * len(column)
    return [value / top for value in column]


def _terms(text: str) -> list[str]:
    return [
        term
        for term in split_terms(text)
        if len(term) > 1 and term not in _EMPTY_TERMS and not term.isdigit()
    ]


def _cut_ends(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    return f"{text[: chars // 2]}\n{text[-chars // 2 :]}"


def _request_text(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        if message.role == "user" and message.text.strip():
            return _cut_ends(message.text, MAX_TEXT_CHARS)
    return ""


def _goal_text(messages: Sequence[Message]) -> str:
    for message in messages:
        if message.role == "user" and message.text.strip():
            return _cut_ends(message.text, MAX_TEXT_CHARS)
    return ""


def _recent_terms(messages: Sequence[Message]) -> dict[str, float]:
    """The terms of the newest messages; older ones count less."""
    found: dict[str, float] = {}
    weight = 1.0
    for message in list(reversed(messages))[:RECENT_MESSAGES]:
        for term in set(_terms(_cut_ends(_words_of(message), MAX_TEXT_CHARS))):
            found[term] = found.get(term, 0.0) + weight
        weight *= RECENT_DECAY
    return found


def _words_of(message: Message) -> str:
    """What a message says: its text, and what tools returned."""
    said = [message.text]
    for part in message.parts:
        if isinstance(part, ToolResult):
            said += [inner.text for inner in part.parts if isinstance(inner, Text)]
    return "\n".join(said)


def _score_use(tools: Sequence[Tool], trail: Sequence[str]) -> list[float]:
    """How lately and how often each tool was called."""
    lately = {name: n for n, name in enumerate(dict.fromkeys(reversed(trail)))}
    often = Counter(trail)
    top = max(often.values(), default=1)
    return [
        0.5 / (1 + lately[tool.name]) + 0.5 * often[tool.name] / top if tool.name in lately else 0.0
        for tool in tools
    ]


def _score_followers(tools: Sequence[Tool], trail: Sequence[str]) -> list[float]:
    """How often each tool was called directly after the one that was called last."""
    if not trail:
        return [0.0] * len(tools)
    after = Counter(later for earlier, later in pairwise(trail) if earlier == trail[-1])
    total = sum(after.values()) or 1
    return [after[tool.name] / total for tool in tools]


def _score_families(
    tools: Sequence[Tool], trail: Sequence[str], signs: Mapping[str, Sequence[float]]
) -> list[float]:
    """How much each tool's family was used lately, and says of the request. A family has tools of
    one prefix, such as those of one server.
    """
    families = [find_family(tool.name) for tool in tools]
    sizes = Counter(family for family in families if family)
    used = Counter(find_family(name) for name in trail[-16:])
    said: dict[str, float] = {}
    for n, family in enumerate(families):
        about = max(signs["request"][n], signs["goal"][n], signs["recent"][n])
        said[family] = max(said.get(family, 0.0), about)
    top = max(used.values(), default=1)
    return [
        0.6 * used[family] / top + 0.4 * said[family] if family and sizes[family] > 1 else 0.0
        for family in families
    ]


def find_family(name: str) -> str:
    """The prefix that names of one server share: `mcp__server`, `server.`; "" if there is none."""
    for sign in ("__", ".", "/", ":"):
        head, found, _ = name.rpartition(sign)
        if found:
            return head
    return ""


def _score_named(asked: ToolQuestion) -> list[float]:
    """Whether a text names a tool: the request or a recent message, or the system text."""
    recent = asked.messages[-RECENT_MESSAGES:]
    said = {
        run for message in recent for run in _runs(_cut_ends(_words_of(message), MAX_TEXT_CHARS))
    }
    ruled = set(_runs(_cut_ends("\n".join(asked.texts), MAX_SYSTEM_CHARS)))
    figures = []
    for tool in asked.tools:
        name = tool.name.lower()
        figure = 0.0
        if name in said:
            figure = 1.0
        elif name in ruled:
            figure = 0.6
        if name.isalpha():  # a plain word need not mean the tool
            figure *= 0.3
        figures.append(figure)
    return figures


def _runs(text: str) -> list[str]:
    """The names in a text, with their signs."""
    return [run.strip("`'\".,;:()[]{}<>!?*").lower() for run in text.split()]


def _is_general(tool: Tool) -> bool:
    """Whether agents use such a tool whatever the subject is: by its name."""
    terms = split_terms(tool.name)
    parts = [term for term in terms if "_" not in term] or terms
    return bool(parts) and all(term in GENERAL_TERMS for term in parts)


def _score_alike(
    vectors: _Vectors,
    tools: Sequence[Tool],
    trail: Sequence[str],
    signs: Mapping[str, Sequence[float]],
) -> list[float]:
    """How much each definition shares with those of the tools that were used last, and with those
    that say most of the request: tools for one subject have words in common.
    """
    used = [vectors.places[name] for name in dict.fromkeys(reversed(trail[-16:]))]
    about = [
        signs["request"][n] + signs["goal"][n] + signs["recent"][n] + signs["system"][n]
        for n in range(len(tools))
    ]
    best = sorted(range(len(tools)), key=lambda n: (-round(about[n], 6), n))[:LIKE_TOOLS]
    best = [n for n in best if about[n] > 0]
    figures = [0.0] * len(tools)
    for model, weight in (*((n, 2.0) for n in used), *((n, 1.0) for n in best)):
        for n, figure in enumerate(vectors.compare(vectors.rows[model])):
            if n != model or model in used:
                figures[n] += weight * figure
    return figures


def name_tools(names: Collection[str]) -> str:
    """Names for a sentence: the first few, and how many more."""
    listed = sorted(names)
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return ", ".join(listed[:4]) + more
