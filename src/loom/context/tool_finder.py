"""`find_tools`: the tool by which a model lists and loads the tools that its request leaves out.

It is answered by `answer_find_tools`, from the tools of the caller alone. What it loads is read
from the history: the calls are there. So a request that is made without a store has them, too.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Message, Text, Tool, ToolCall, ToolResult
from loom.conversation.stems import stem
from loom.conversation.words import split_terms
from loom.errors import shorten

FIND_TOOLS = "find_tools"
# where the caller has another tool of that name
_OTHER_NAMES = (FIND_TOOLS, "find_more_tools", "loom_find_tools")
HINT_TOKENS = 60  # for what the definition says of the tools that are left out
MAX_LISTED_TOOLS = 12
MAX_LOADS = 8  # tools that one call may load
_SENTENCE_CHARS = 160  # the most that is shown of a description
_LINE_CHARS = 120
_ABOUT = (
    "Find tools that are not in this list: {count} more exist. `query` lists matching tools; "
    "`load` adds tools by name to your next request, so name all that you need at once. It also "
    'loads the whole definition of a tool whose description ends with "…".'
)
_SCHEMA = to_json(
    {
        "type": "object",
        "properties": {
            "query": {
                "type": ["string", "null"],
                "description": "Words of what the tool should do.",
            },
            "load": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Names of tools to add.",
            },
        },
        "required": ["query", "load"],
        "additionalProperties": False,
    }
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


class _FindTools(Struct, frozen=True):
    query: str | None = None
    load: tuple[str, ...] | str | None = None


def is_finder(tool: Tool) -> bool:
    """Whether a tool is `find_tools` of Loom: by its name and by what it takes."""
    if tool.name not in _OTHER_NAMES or not tool.schema:
        return False
    schema = from_json(tool.schema)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and set(properties) == {"query", "load"}


def finder_name(tools: Sequence[Tool]) -> str:
    """The name of `find_tools` in a request with these tools: another one if it is taken."""
    taken = {tool.name for tool in tools if tool.name in _OTHER_NAMES and not is_finder(tool)}
    for name in _OTHER_NAMES:
        if name not in taken:
            return name
    return "_".join((*_OTHER_NAMES, "of_loom"))


def is_finder_call(call: ToolCall, tools: Sequence[Tool]) -> bool:
    """Whether a call in a history is one of Loom's `find_tools`: by its name and its arguments.
    Other programs may have a tool of that name.
    """
    if call.name not in _OTHER_NAMES or call.name != finder_name(tools):
        return False
    try:
        arguments = from_json(call.arguments)
    except ValueError:
        return False
    return isinstance(arguments, dict) and "load" in arguments and {*arguments} <= {"query", "load"}


def make_finder(
    tools: Sequence[Tool], left_out: Sequence[str], count: Callable[[Tool], int]
) -> Tool:
    """The definition of `find_tools`. It names families of tools that are left out, or some of
    them, as far as there is room.
    """
    bare = Tool(finder_name(tools), _ABOUT.format(count=len(left_out)), _SCHEMA)
    if not left_out:
        return bare
    made, most = bare, count(bare) + HINT_TOKENS
    named: list[str] = []
    for word in _list_subjects(left_out):
        longer = f"{bare.description} Among them: {', '.join((*named, word))}."
        tried = msgspec.structs.replace(bare, description=longer)
        if count(tried) > most:
            break
        named.append(word)
        made = tried
    return made


def _list_subjects(names: Sequence[str]) -> list[str]:
    """What tools are about: the words that most of their names have, the most frequent first."""
    words = Counter(
        word
        for name in names
        for word in dict.fromkeys(re.split(r"[^a-z0-9]+", name.lower()))
        if len(word) > 2 and not word.isdigit() and stem(word) not in _VERBS
    )
    return [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))[:16]]


# Words in names of tools that tell no subject.
_VERBS = frozenset(
    split_terms(
        "get list set create update delete add remove search find send fetch read write run make "
        "new mcp tool tools all and the for with from"
    )
)


def first_sentence(text: str) -> str:
    """The first sentence of a description, cut after a word if it is long."""
    sentence = _SENTENCE_END.split(text.strip(), maxsplit=1)[0].strip()
    if len(sentence) <= _SENTENCE_CHARS:
        return sentence
    return sentence[:_SENTENCE_CHARS].rsplit(" ", 1)[0].rstrip(" ,;:")


def read_loads(call: ToolCall) -> list[str]:
    """The tools that a call loads, by name."""
    try:
        asked = msgspec.convert(from_json(call.arguments.strip() or "{}"), _FindTools)
    except (ValueError, msgspec.ValidationError):
        return []
    return _split_loads(asked.load)[:MAX_LOADS]


def _split_loads(load: tuple[str, ...] | str | None) -> list[str]:
    if isinstance(load, str):
        return [name.strip() for name in load.split(",") if name.strip()]
    return [name.strip() for name in load or () if name.strip()]


def answer_find_tools(tools: Sequence[Tool], call: ToolCall) -> Message:
    """The message that answers a call of `find_tools`: tools that match, each with a line; and
    which tools the next request has.
    """
    try:
        asked = msgspec.convert(from_json(call.arguments.strip() or "{}"), _FindTools)
    except (ValueError, msgspec.ValidationError) as error:
        return _answer(
            call,
            f"{call.name} was called with {shorten(call.arguments, 80)}: {error}; it takes a JSON "
            "object with query (a text) or load (a list of names)",
            error=True,
        )
    known = [tool for tool in tools if not is_finder(tool)]
    loads, query = _split_loads(asked.load), (asked.query or "").strip()
    lines: list[str] = []
    found = [name for name in loads[:MAX_LOADS] if any(tool.name == name for tool in known)]
    if loads:
        lines += _tell_loads(known, loads, found)
    if query or not loads:
        lines += list_matches(known, query)
    return _answer(call, "\n".join(lines), error=bool(loads) and not found and not query)


def _tell_loads(known: Sequence[Tool], loads: Sequence[str], found: Sequence[str]) -> list[str]:
    lines = []
    if found:
        lines.append(f"Loaded, and in your next request: {', '.join(found)}.")
    for name in dict.fromkeys(loads[:MAX_LOADS]):
        if name not in found:
            near = _match(known, name)[:3]
            hint = f"; the nearest are {', '.join(tool.name for tool in near)}" if near else ""
            lines.append(f"There is no tool {shorten(name)!r}{hint}.")
    if len(loads) > MAX_LOADS:
        lines.append(f"One call loads at most {MAX_LOADS} tools; load the others in another call.")
    return lines


def list_matches(tools: Sequence[Tool], query: str) -> list[str]:
    """The tools that match a query, the best first, each with its name and a line; all of them, as
    names, if there is no query.
    """
    if not query:
        names = sorted(tool.name for tool in tools)
        return [f"There are {len(names):,} tools: {shorten(', '.join(names), 4_000)}"]
    found = _match(tools, query)
    if not found:
        return [f"No tool matches {shorten(query, 80)!r}. Try other words."]
    return [
        "The best match comes first. Load tools by their names.",
        *map(_write_line, found[:MAX_LISTED_TOOLS]),
    ]


def _write_line(tool: Tool) -> str:
    name = " ".join(tool.name.split())
    return f"- {name}: {shorten(first_sentence(tool.description), _LINE_CHARS)}"


def _match(tools: Sequence[Tool], query: str) -> list[Tool]:
    """The tools that have words of a query, those with most of the rare ones first."""
    wanted = set(split_terms(query))
    rows = [(set(split_terms(tool.name)), set(split_terms(tool.description))) for tool in tools]
    met = Counter(term for name, about in rows for term in (name | about) & wanted)
    scored = []
    for n, (name, about) in enumerate(rows):
        score = sum((2 if term in name else 1) / met[term] for term in (name | about) & wanted)
        if score:
            scored.append((-round(score, 6), n))
    return [tools[n] for _, n in sorted(scored)]


def _answer(call: ToolCall, text: str, *, error: bool = False) -> Message:
    return Message("tool", (ToolResult(call.id, (Text(text),), error, kind=call.kind),))
