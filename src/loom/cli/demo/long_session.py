"""A long agent session made up for the demo: the same words on every machine, every time."""

from random import Random

from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation, Message, Text, Tool, ToolCall, ToolResult

GOAL = (
    "Our payment service sometimes charges twice when a request is retried. Find out why, fix it, "
    "and prove it with a test. "
    "Do not change the public interface."
)
REQUEST = "Good. Before you finish: which files did you change, and does the whole suite pass?"
EXCHANGES = 146
_FILES = (
    "retry",
    "ledger",
    "gateway",
    "invoice",
    "session",
    "webhook",
    "currency",
    "refund",
    "audit",
    "queue",
)
_VERBS = (
    "load",
    "store",
    "charge",
    "confirm",
    "cancel",
    "lock",
    "release",
    "match",
    "count",
    "replay",
)
_THINGS = (
    "order",
    "attempt",
    "receipt",
    "token",
    "amount",
    "customer",
    "timeout",
    "deadline",
    "key",
    "event",
)
_TOOLS = {"read_file": "path", "search": "words", "run_tests": "path", "edit_file": "path"}


def long_session() -> Conversation:
    """A goal, some 146 exchanges with a tool call each, a word of the user now and then, and a
    last request.
    """
    words = Random(1)
    messages = [_make_message("user", GOAL)]
    for n in range(EXCHANGES):
        if n % 24 == 23:
            messages.append(
                _make_message("user", f"Go on, and look at {words.choice(_FILES)}.py as well.")
            )
        last = n == EXCHANGES - 1  # ends with the log of the whole suite, which is long
        tool = "run_tests" if last else words.choice(list(_TOOLS))
        name = words.choice(_FILES)
        call = ToolCall(f"call_{n:03}", tool, to_json({_TOOLS[tool]: f"src/payments/{name}.py"}))
        result = ToolResult(
            call.id,
            (Text(_result(words, tool, name, 150 if last else words.randint(4, 17))),),
            name=tool,
        )
        messages += [
            Message("assistant", (Text(_comment(words, name)), call)),
            Message("tool", (result,)),
        ]
    messages.append(_make_message("user", REQUEST))
    system = _make_message(
        "system", "You are a careful engineer. Read before you write, and test what you change."
    )
    tools = tuple(
        Tool(
            tool,
            f"{tool.replace('_', ' ').capitalize()}.",
            to_json({"type": "object", "properties": {key: {"type": "string"}}}),
        )
        for tool, key in _TOOLS.items()
    )
    return Conversation(messages=tuple(messages), system=(system,), tools=tools, model="gpt-4o")


def _make_message(role: str, text: str) -> Message:
    return Message(role, (Text(text),))  # type: ignore[arg-type]


def _comment(words: Random, name: str) -> str:
    verb, thing = words.choice(_VERBS), words.choice(_THINGS)
    return words.choice(
        (
            f"The {thing} may be lost between {verb} and {words.choice(_VERBS)}; {name}.py should "
            "tell.",
            f"If {name}.py does not {verb} the {thing} first, a retry would charge again. I look "
            "there next.",
            f"That rules out the {thing}. Now {name}.py, where we {verb} it.",
        )
    )


def _result(words: Random, tool: str, name: str, length: int) -> str:
    lines = []
    for n in range(length):
        verb, thing, other = words.choice(_VERBS), words.choice(_THINGS), words.choice(_THINGS)
        match tool:
            case "run_tests":
                lines.append(
                    f"tests/test_{name}.py::test_{verb}_{thing}_{n} "
                    f"{words.choice(('PASSED', 'PASSED', 'FAILED'))}"
                )
            case "search":
                lines.append(
                    f"src/payments/{words.choice(_FILES)}.py:{words.randint(1, 400)}: {thing} = "
                    f"{verb}_{other}({thing})"
                )
            case "edit_file":
                lines.append(
                    f"{words.choice('+- ')}    {thing} = self.{verb}_{other}({other}, "
                    "attempt=attempt)"
                )
            case _:
                lines.append(
                    f"{n + 1:>4}  def {verb}_{thing}(self, {other}): return "
                    f"self.{words.choice(_FILES)}.{verb}({other})"
                )
    return "\n".join(lines)
