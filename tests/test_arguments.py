"""Bad arguments: every public callable refuses what it cannot take by a typed error that names it,
or takes it.

The callables and their parameters are found by looking, so that a new one without a right value for
each fails here.
"""

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loom as public
from loom import (
    Agent,
    Conversation,
    Loom,
    LoomError,
    LoomTree,
    Message,
    Reasoning,
    Session,
    Text,
    Tool,
    ToolCall,
    Tree,
    dialect,
    weave,
)
from loom.context.state.working import Working
from loom.errors import ChoiceError

WRONG = (None, 5, -1, 2.5, "zzz", "x" * 300, [], [5], {"a": object()}, object())
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "hi"}}]}
USER = {"role": "user", "content": "hello"}
# Not for callers, or nothing to be wrong with.
INSIDE = {
    "take",
    "take_branch",
    "emit",
    "start",
    "run_off_loop",
    "close",
    "settle",
    "purge",
    "open_handle",
}
NO_CALLS = {
    "Context",
    "Event",
    "Model",
    "Loom",
    "Session",
    "LoomTree",
    "CannotFit",
    "Conflict",
    "LoomError",
    "StoreError",
}


class Rig:
    """A store with a session and a tree in it, and for every parameter a value that is right."""

    def __init__(self, folder: Path) -> None:
        self.loom = Loom.open(":memory:")
        self.session = self.loom.new("s")
        self.session.append("hello", Message("assistant", (Text("hi"),)))
        self.tree = self.loom.new_tree("t")
        self.node = self.tree.say("one")
        self.other = self.tree.say("two")
        self.folder = folder

    def on(self, cls: type) -> Any:
        return {Loom: self.loom, Session: self.session, LoomTree: self.tree}[cls]

    def right(self, cls: type, verb: str) -> dict[str, Any]:
        own = self.session.path[0].id if cls is Session else self.node.id
        return {
            "agent": Agent(name="coder") if verb == "keep_agent" else None,
            "answer": "hm",
            "at": None,
            "times": 1,
            "behind": None,
            "call": ToolCall("c", "bash", "{}"),
            "first": own,
            "handle": "~aaaaaaaaaaaa",
            "owner": "a run",
            "label": "a",
            "lines": [],
            "listener": lambda event: None,
            "message": Message("user", (Text("x"),)),
            "messages": [USER],
            "name": self.session.id
            if verb == "session"
            else "coder"
            if verb == "agent"
            else self.tree.id,
            "node": self.node if verb in ("below", "marks") else own,
            "other": self.other.id,
            "preferences": {},
            "query": "hello",
            "response": ANSWER,
            "seqs": [self.node.seq],
            "session": self.session.id,
            "target": self.other.id,
            "task": {"action": "execute"},
            "task_id": "task-1",
            "text": "words",
            "to": own,
            "tree": Tree(id="x", nodes=()) if verb == "import_tree" else self.tree.id,
            "version": own,
            "what": "said",
            "working": Working(),
        }

    def right_of_function(self) -> dict[str, Any]:
        return {
            "context_window": 1000,
            "conversation": Conversation(messages=()),
            "history": [Message("user", (Text("x"),))],
            "ids": {},
            "message": USER,
            "messages": [USER],
            "model": "ollama:llama3",
            "name": "openai",
            "root": self.folder,
            "spec": str(self.folder / "none.jsonl"),
            "target": 1,
            "tools": [],
            "trees": [],
        }


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.chdir(tmp_path)  # a path may be made of anything
    warnings.simplefilter("ignore")
    made = Rig(tmp_path)
    yield made
    made.loom.close()


def call(function: Callable[..., Any], several: list[Any], named: dict[str, Any]) -> None:
    """Call and use up what comes back; only typed errors may come out, each of one line."""
    refusal = "refused"
    try:
        made = function(*several, **named)
        if inspect.isawaitable(made):
            made = asyncio.run(made)  # type: ignore[arg-type]
        if inspect.isgenerator(made):
            list(made)
        if isinstance(made, Loom):
            made.close()
    except LoomError as error:
        refusal = str(error)
    assert refusal
    assert "\n" not in refusal


def try_each(function: Callable[..., Any], right: dict[str, Any]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    for wild in parameters:
        if wild.kind is wild.VAR_KEYWORD:
            continue
        for value in WRONG:
            named = {
                each.name: right[each.name]
                for each in parameters
                if each.default is each.empty
                and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
            }
            several = [value] if wild.kind is wild.VAR_POSITIONAL else []
            call(function, several, named if several else named | {wild.name: value})


def verbs_of(cls: type) -> list[str]:
    names = [
        name
        for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_") and name not in INSIDE
    ]
    return [name for name in names if not (name.startswith("a") and name[1:] in {*names, *INSIDE})]


VERBS = [(cls, verb) for cls in (Loom, Session, LoomTree) for verb in verbs_of(cls)]
FUNCTIONS = [
    name
    for name in dir(public)
    if not name.startswith("_") and name not in NO_CALLS and callable(getattr(public, name))
]


@pytest.mark.parametrize(
    ("cls", "verb"), VERBS, ids=[f"{cls.__name__}.{verb}" for cls, verb in VERBS]
)
def test_no_argument_of_a_verb_makes_an_error_that_is_not_typed(
    rig: Rig, cls: type, verb: str
) -> None:
    try_each(getattr(rig.on(cls), verb), rig.right(cls, verb))


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if not inspect.isclass(getattr(public, name))]
)
def test_no_argument_of_a_function_makes_an_error_that_is_not_typed(rig: Rig, name: str) -> None:
    try_each(getattr(public, name), rig.right_of_function())


async def prepare(session: Session, **options: Any) -> Any:
    return await session.prepare(**options)


def prepared(**options: Any) -> Callable[[Rig], Any]:
    return lambda rig: asyncio.run(prepare(rig.session, **options))


REFUSED: list[tuple[str, Callable[[Rig], Any], str]] = [
    ("pins", prepared(pins=5), "pins must be a list of node ids, found 5"),
    ("include", prepared(include=5), "include must be a list of node ids, found 5"),
    ("sources", prepared(sources=5), "sources must be a list of Reference values, found 5"),
    (
        "overrides",
        prepared(overrides=5),
        "overrides must be a mapping of models to figures, found 5",
    ),
    ("policy", prepared(policy={}), "unknown policy"),
    (
        "zones",
        prepared(zones={"memry": 5}),
        "zones: there is no zone 'memry'; the nearest is 'memory'",
    ),
    (
        "section",
        prepared(sections=[("workng", "x")]),
        r"sections\[0\].zone: there is no zone 'workng'; the nearest is 'working'",
    ),
    ("project", prepared(project="x" * 300), "is not a folder; give the root folder of a project"),
    ("recall", lambda rig: rig.session.recall([]), "handle must be a text, found a list of 0"),  # type: ignore[arg-type]
    (
        "limit",
        lambda rig: rig.session.search("x", limit="3"),
        "limit must be a whole number, found the text '3'",
    ),  # type: ignore[arg-type]
    (
        "summarize",
        lambda rig: asyncio.run(rig.session.summarize(5)),
        "model must be an object with answer, found 5",
    ),  # type: ignore[arg-type]
    ("listen", lambda rig: rig.loom.listen(5), "listener must be a function, found 5"),  # type: ignore[arg-type]
    (
        "model",
        lambda rig: Loom.open(":memory:", model=5),
        "model must be an object with answer or a text, found 5",
    ),  # type: ignore[arg-type]
    ("now", lambda rig: Loom.open(":memory:", now=5), "now must be a function, found 5"),  # type: ignore[arg-type]
    (
        "import_lines",
        lambda rig: rig.loom.import_lines(5),
        "an import takes lines of text, found 5",
    ),  # type: ignore[arg-type]
    (
        "import_tree",
        lambda rig: rig.loom.import_tree("x"),
        "import_tree takes a Tree, found the text 'x'",
    ),  # type: ignore[arg-type]
    ("keep_agent", lambda rig: rig.loom.keep_agent({}), "Agent needs name"),
    (
        "absorb",
        lambda rig: rig.session.absorb(ANSWER | {"x": object()}),
        "response: expected values that JSON can express",
    ),
    (
        "foreign field",
        lambda rig: weave([USER | {"x": object()}]),
        r"messages\[0\]: expected values that JSON can express",
    ),
    (
        "read_runs",
        lambda rig: public.read_runs(None),
        "spec must be a text or a path, found nothing",
    ),  # type: ignore[arg-type]
    ("dialect", lambda rig: dialect([]), "name must be a text, found a list of 0"),  # type: ignore[arg-type]
    ("model_limit", lambda rig: public.model_limit(5), "name must be a text, found 5"),  # type: ignore[arg-type]
    (
        "turns",
        lambda rig: public.turns("x"),
        "history must be a list in which each is a Message, found the text 'x'",
    ),  # type: ignore[arg-type]
    ("role", lambda rig: Message([], ()), "Message.role: expected one of"),  # type: ignore[arg-type]
    ("tool", lambda rig: Tool(""), "Tool.name: expected the name of a tool"),
    (
        "max_output",
        lambda rig: Conversation(messages=(), max_output=-1),
        "Conversation.max_output: expected a whole number from 1 on",
    ),
    ("origin", lambda rig: Reasoning("hm", "antropic"), "the nearest is anthropic"),
]


@pytest.mark.parametrize(
    ("make", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_bad_argument_is_named_with_what_was_given_and_what_is_right(
    rig: Rig, make: Callable[[Rig], Any], says: str
) -> None:
    with pytest.raises(LoomError, match=says):
        make(rig)


def test_a_zone_of_the_callers_own_is_taken_and_one_that_holds_nothing_is_noted() -> None:
    context = weave([USER], zones={"docs": 300, "wiki": 300}, sections=[("docs", "read this")])
    assert [note for note in context.report.notes if "zone" in note] == [
        "zone 'wiki' is not known and stays empty: no section names it"
    ]


@pytest.mark.parametrize("wire", ["openai", "anthropic", "responses"])
def test_a_request_with_a_limit_or_a_name_that_says_nothing_is_read_and_written_as_it_is(
    wire: str,
) -> None:
    tool = (
        {"type": "function", "name": " "}
        if wire == "responses"
        else {"type": "function", "function": {"name": ""}}
    )
    tool = {"name": "", "input_schema": {}} if wire == "anthropic" else tool
    key = {
        "openai": "max_completion_tokens",
        "anthropic": "max_tokens",
        "responses": "max_output_tokens",
    }[wire]
    request = {"input" if wire == "responses" else "messages": [USER], "tools": [tool], key: -1}
    assert dialect(wire).render(dialect(wire).parse(request)).wire == request


def test_a_path_may_be_given_as_an_object_wherever_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "user", "content": "hello"}]', encoding="utf-8")
    assert [len(list(run.messages())) for run in public.read_runs(file)] == [1]
    assert [len(tree.nodes) for tree in public.read_trees(file)] == [1]


def test_the_error_for_a_list_says_what_each_of_it_must_be() -> None:
    with pytest.raises(
        ChoiceError, match="history must be a list in which each is a Message, found a list of 1"
    ):
        public.exchanges([5])  # type: ignore[list-item]
