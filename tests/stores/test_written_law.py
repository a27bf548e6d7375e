"""What is written can be read: every public constructor and every writing verb, with right,
misspelt and wild values.

A value is refused with a typed error before anything is written, or every reader reads it back:
opening the store again, lists, requests, exports, the tree, the doctor. The verbs are found by
looking at the classes, so that a new one without a case fails here.
"""

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import loom as public
from loom import (
    Agent,
    Loom,
    LoomError,
    LoomTree,
    Media,
    Message,
    Preferences,
    Reasoning,
    Reference,
    Session,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Tree,
    TreeHead,
)
from loom.context.state.working import Dashboard, Evidence, Incident, Working
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Carried, Opaque
from loom.conversation.tree import Flags, Link, TreeNode
from loom.errors import CannotFit, Conflict, StoreError
from loom.runtime import Task
from loom.stores.health.doctor import examine
from loom.types import SessionDecisions, SessionMemory
from tests.shared import EXAMPLES, examples

# Wild values

MISSPELT = [
    "asistant",
    "modle",
    "dialog",
    "truncateMidle",
    "reference",
    "robot",
    "loom_awre",
    "urgentt",
    "",
    " ",
]
BREAKING = [
    "a\nb",
    "\r\n",
    "\0",
    "a\0b",
    "\ud800",
    "x\udfffy",
    "\u2028",
    "\x1b[31mred",
    "\x7f",
    "~aaaaaaaaaaaa",
    "/",
    "a/b",
    "%",
    "'",
    '"',
]
WRONG = [
    None,
    0,
    5,
    -1,
    2.5,
    float("nan"),
    float("inf"),
    True,
    b"bytes",
    [],
    ["a"],
    (),
    {},
    {"a": 1},
    {1: 2},
    object(),
    Text,
    10**30,
    2**63,
]
LARGE = ["x" * 300, "\U0001f9f5" * 250, "y" * 70_000]
junk: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(MISSPELT),
    st.sampled_from(BREAKING),
    st.sampled_from(WRONG),
    st.sampled_from(LARGE),
    st.text(max_size=8),
    st.text(st.characters(), max_size=3).map(lambda text: {"role": "user", "content": text}),
)


def told(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


# Constructors

texts = st.one_of(told("", "hello", "日本", "a\nb", "\0", "\ud800"), st.text(max_size=6))
carried = st.one_of(
    st.none(), told(Carried("openai", '{"x":1}'), Carried("anthropic", form=("list",)))
)
parts = told(
    Text("hello"),
    Media("image", "url", "https://example.org/a.png"),
    Reasoning("hm", "anthropic", "c2ln"),
    ToolCall("c1", "bash", "{}"),
    ToolResult("c1", (Text("ok"),)),
    Opaque("openai", '{"type":"x"}'),
)
message = Message("user", (Text("hello"),))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "role": told("user", "assistant", "system", "primary", "context"),
    "kind": told("function", "model", "human", "image", "file"),
    "source": told("url", "data"),
    "parts": st.lists(parts, max_size=2).map(tuple),
    "messages": told((), (message,)),
    "system": told((), (Message("system", (Text("be brief"),)),)),
    "tools": told((), (Tool("bash"),)),
    "carried": carried,
    "settings": carried,
    "schema": told("", '{"type":"object"}'),
    "arguments": told("{}", '{"a":', ""),
    "error": st.booleans(),
    "window": told(None, 1, 100_000),
    "max_output": told(None, 1),
    "permissions": told(None, (), ("loom_aware",), ["loomAware"]),
    "truncation_strategy": told(None, "truncateMiddle", "stop_at_limit"),
    "minimum_recent_nodes": told(None, 1, 9),
    "token_buffer": told(None, 0),
    "relevance": told(0, 0.5, 1.0),
    "mode": told("dialogue", "buffer"),
    "buffer_mode_system_context": st.booleans(),
    "preferences": told(Preferences(), Preferences("rollingWindow", 3, 7)),
    "nodes": told((), (TreeNode(id="n1", message=message),)),
    "links": told(()),
    "created": told(0, 1_700_000_000_000),
}
# Finished things that Loom hands out: nobody makes or stores them.
HANDED_OUT = {"Context", "Event", "Node", "ProjectRules", "Report"}
INNER = (TreeNode, Flags, Link, Carried, Opaque, Working, Dashboard, Incident, Evidence)


def public_values() -> list[type[msgspec.Struct]]:
    found = [getattr(public, name) for name in public.__all__ if name not in HANDED_OUT]
    return [each for each in found if isinstance(each, type) and issubclass(each, msgspec.Struct)]


@pytest.mark.parametrize("made", [*public_values(), *INNER], ids=lambda made: made.__name__)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_value_is_refused_or_can_be_written_and_read_back(
    made: type[msgspec.Struct], data: st.DataObject
) -> None:
    fields = msgspec.structs.fields(made)
    wild = data.draw(told("", *(field.name for field in fields)))
    given_fields = {}
    for field in fields:
        if field.name == wild:
            given_fields[field.name] = data.draw(junk)
        elif field.required or data.draw(st.booleans()):
            given_fields[field.name] = (
                data.draw(FIELDS.get(field.name, texts))
                if field.required or field.name in FIELDS
                else None
            )
            if given_fields[field.name] is None and not field.required and field.name not in FIELDS:
                del given_fields[field.name]
    try:
        value = made(**given_fields)
    except LoomError:
        return
    hash(value)
    assert msgspec.convert(from_json(to_json(value)), made) == value


# Verbs

ANSWER = {
    "id": "chatcmpl-1",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}
GIVEN = told(
    "hello",
    {"role": "user", "name": "ann\nb", "content": "hi"},
    {"role": "assistant", "content": "ok"},
    message,
)


class Rig:
    """A store with something in it: a session with messages, a tree in each mode, an agent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.loom = Loom.open(address)
        self.session = self.loom.new("a session", model="gpt-4o")
        self.nodes = self.session.append(
            "first", {"role": "assistant", "content": "second"}, "third"
        )
        self.loom.keep_agent(Agent(name="coder", permissions=("loom_aware", "loom_write")))
        self.tree = self.loom.new_tree("a tree", head=TreeHead(mode="dialogue"))
        self.first = self.tree.say("root")
        self.second = self.tree.say("more")
        self.other = self.tree.say("beside", after=self.first.id)
        self.loom.add_task(Task(action="execute", task_id="t"))
        self.buffer = self.loom.new_tree("a buffer", head=TreeHead(mode="buffer"))
        self.line = self.buffer.say("line ")
        self.note = self.session.memory.remember("the answer is 42", kind="fact")
        self.decision = self.session.decisions.log("use JWT", confidence=80)
        self.goal = self.session.decisions.log("ship it", kind="goal")

    def on(self, cls: type) -> Any:
        return {
            Session: self.session,
            LoomTree: self.tree,
            Loom: self.loom,
            SessionMemory: self.session.memory,
            SessionDecisions: self.session.decisions,
        }[cls]

    def values(self, cls: type, verb: str) -> dict[str, st.SearchStrategy[Any]]:
        """Right values by the name of a parameter."""
        nodes = (
            told(*(node.id for node in self.nodes))
            if cls is Session
            else told(self.first.id, self.second.short_id, self.other.id)
        )
        agents = told(None, "coder", "ann")
        flags = st.booleans()
        tree = Tree(
            id="elsewhere", nodes=(TreeNode(id="n1", message=message),), title="from elsewhere"
        )
        return {
            **dict.fromkeys(
                (
                    "node",
                    "after",
                    "to",
                    "other",
                    "into",
                    "at",
                    "first",
                    "version",
                    "target",
                ),
                nodes,
            ),
            **dict.fromkeys(
                ("title", "text", "label", "description", "system", "system_context", "generation"),
                texts,
            ),
            **dict.fromkeys(
                (
                    "on",
                    "choose",
                    "leave_digest",
                    "preview",
                    "archived",
                    "move",
                    "everywhere",
                ),
                flags,
            ),
            **dict.fromkeys(
                ("what", "request", "message"), GIVEN if verb != "append_at" else told(message)
            ),
            **dict.fromkeys(("model", "origin", "identity"), told("gpt-4o", "", "a-name")),
            **dict.fromkeys(("buffer_mode_system_context", "all_projects"), flags),
            "tools": told((), [Tool("bash")], [{"name": "read", "input_schema": {}}]),
            "preferences": told(Preferences("stopAtLimit"), {"minimumRecentNodes": 2}),
            "agent": agents
            if verb != "keep_agent"
            else told(Agent(name="new"), {"name": "new", "kind": "human"}),
            "owner": told("a run", "another"),
            "role": told(None, "user", "assistant"),
            "sources": st.lists(
                st.builds(
                    Reference, told(self.first.id, self.second.id), told("context", "primary")
                ),
                max_size=2,
            ),
            "seen": told(None, 0, 1_700_000_000_000),
            "tokens": told(None, 200),
            "choice": told(0),
            "response": told(ANSWER),
            "answer": told("said\n→ view " + self.first.short_id, ANSWER)
            if verb == "act"
            else told(ANSWER),
            "working": told(Working(plan=("one",)), Working(scratchpad="\ud800\0")),
            "call": told(
                ToolCall("c", "recall", '{"handle":"~aaaaaaaaaaaa"}'),
                ToolCall("c", "set_working_state", '{"plan":["a"]}'),
            ),
            "behind": told(self.nodes[-1]),
            "head": told(None, TreeHead(mode="buffer"), {"systemContext": "be brief"}),
            "tree": told(tree) if verb == "import_tree" else told(self.tree.id),
            "lines": told([]),
            "messages": told(["hello"], [{"role": "user", "content": "first"}]),
            "window": told(None, 8_000),
            "reserve_output": told(None, 500),
            "policy": told(None, "default", "turns"),
            "sections": told((), [("memory", "remember")]),
            "pins": told((), [self.nodes[0].id] if cls is Session else [self.first.id]),
            "overrides": told(None),
            "zones": told(None, {"memory": 100}),
            "include": told(()),
            "overflow": told(None),
            "metadata": told(None, {}, {"ticket": "T-1", "tags": ["a", None, 1.5]}),
            "knowledge": told(None, False),
            "knowledge_seconds": told(None, 0.05),
            "project": told(None),
            "skills": told((), []),
            "skill_folders": told((), []),
            "progress": told(None),
            "name": told(self.nodes[0].id, "~aaaaaaaaaaaa"),
            **(self.memory_values() if cls is SessionMemory else {}),
            **(self.decision_values() if cls is SessionDecisions else {}),
            "notes": flags,
            # What only the engine gives: not wild, but as it is by default.
            "records": told(()),
            "handles": told(()),
            **self.task_values(),
        }

    def task_values(self) -> dict[str, st.SearchStrategy[Any]]:
        given = Task(action="execute", parameters={"content": "do it \0"}, task_id="t")
        return {
            "task": told(given, {"action": "node.thinking", "session_id": "s"}, {"parameters": {}}),
            "task_id": told("t", "unknown"),
            "session_id": told(None, "", "s"),
            "status": told(None, "running", "failed"),
            "result": told(None, {"found": ["\ud800", 1]}),
            "error": told(None, "it broke"),
        }

    def memory_values(self) -> dict[str, st.SearchStrategy[Any]]:
        """Right values for what is remembered."""
        times = told(None, 0, 1_700_000_000_000, "2026-01-31", "2026-01-31T10:00+02:00")
        return {
            "about": told("", "home", "日本"),
            "always": st.booleans(),
            "by": told("user", "model"),
            "kind": told("note", "fact"),
            "name": told(self.note.id, self.note.id[:5], self.nodes[0].id),
            "scope": told("session", "project", "agent"),
            "sources": told((), [self.nodes[0].id]),
            "supersedes": told("", self.note.id),
            "valid_from": times,
            "valid_until": times,
        }

    def decision_values(self) -> dict[str, st.SearchStrategy[Any]]:
        """Right values for what is decided."""
        names = told(self.decision.id, self.decision.id[:4], self.goal.id)
        words = told("Use JWT", "日本", "a\nb", "ship it")
        return {
            **dict.fromkeys(("name", "old", "new", "source", "target"), names),
            **dict.fromkeys(("title", "observation", "new_approach"), words),
            **dict.fromkeys(("description", "rationale", "why"), told("", "because", "\ud800\0")),
            "commits": told((), ["4fd1c2e"]),
            "confidence": told(None, 0, 49, 100),
            "edge": told("leads_to", "supersedes", "requires"),
            "kind": told("goal", "decision", "blocks", "leads_to"),
            "metadata": told({}, {"a": [1, None, "日本"]}),
            "nodes": told((), [self.nodes[0].id]),
            "parent": told(None, self.goal.id),
            "weight": told(1.0, 0, 2.5),
        }


WRITES = {
    SessionMemory: {"forget", "purge", "remember"},
    SessionDecisions: {
        *("abandon", "attach", "link", "log", "pivot", "purge", "set_confidence", "supersede"),
    },
    Session: {
        *(
            "absorb",
            "append",
            "carry_on",
            "change",
            "choose",
            "commit",
            "draft",
            "fork",
            "append_at",
            "keep_working",
            "set_options",
            "pin",
            "prepare",
            "purge",
        ),
        *("claim_run", "release_run"),
        *("beat", "set_summary", "start_call", "stash", "switch", "undo", "use"),
    },
    LoomTree: {
        *(
            "absorb",
            "annotate",
            "bookmark",
            "change",
            "choose",
            "edit",
            "exclude",
            "link",
            "merge",
            "pin",
            "prepare",
            "prune",
        ),
        *("restore", "say", "session", "switch"),
    },
    Loom: {
        "act",
        "add_task",
        "import_lines",
        "import_tree",
        "keep_agent",
        "new",
        "new_tree",
        "prefer",
        "recognise",
        "update_task",
    },
}
READS = {
    SessionMemory: {"across", "important", "note", "notes", "recent", "summaries"},
    SessionDecisions: {
        *("active_goals", "decision", "edges", "folder", "folders", "graph", "list_all"),
        *("of_folder", "of_session", "own", "prior", "pulse", "rank", "recent", "revision"),
        *("mermaid", "scope", "search", "write_up"),
    },
    Session: {
        *(
            "conversation",
            "cursor",
            "draft_text",
            "export",
            "id",
            "policy",
            "recall",
            "recall_shown",
            "refresh",
            "remembered_options",
            "response",
            "resume",
        ),
        *(
            "decisions",
            "memory",
            "metadata",
            "path",
            "row",
            "search",
            "skills",
            "summary",
            "versions",
        ),
        "working",
    },
    LoomTree: {
        *(
            "below",
            "children",
            "ends",
            "head",
            "history",
            "id",
            "marks",
            "node",
            "path",
            "position",
            "preferences",
            "read",
        ),
        *("siblings", "title", "twigs"),
    },
    Loom: {
        *(
            "agent",
            "agents",
            "app_preferences",
            "close",
            "export",
            "export_tree",
            "open",
            "preferences",
            "recall",
            "session",
        ),
        *("index", "knowledge", "search", "sessions", "settle", "tree", "trees"),
        *("bus", "task", "task_at", "tasks"),
        *("index", "knowledge", "memory", "search", "sessions", "settle", "tree", "trees"),
        "decisions",
    },
}
# Parts of other verbs, for the engine; and what has no values of its own: a model that answers, a
# listener.
INSIDE = {
    SessionMemory: {"run_off_loop"},
    SessionDecisions: {"run_off_loop"},
    Session: {"take", "take_branch", "emit", "run_off_loop", "summarize"},
    LoomTree: {"continue_at", "run_off_loop", "settle"},
    Loom: {"can_start", "start", "listen", "emit", "open_handle", "publish_events", "run_off_loop"},
}
VERBS = [(cls, verb) for cls, verbs in WRITES.items() for verb in sorted(verbs)]
ENGINE_ONLY = {"records", "handles", "behind", "progress", "overrides"}


@pytest.mark.parametrize("cls", WRITES, ids=lambda cls: cls.__name__)
def test_every_public_verb_is_known_to_this_law(cls: type) -> None:
    names = {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}
    # the same verb, awaited
    names = {name for name in names if not (name.startswith("a") and name[1:] in names)}
    assert names == WRITES[cls] | READS[cls] | INSIDE[cls]


def draw_call(
    data: st.DataObject, method: Callable[..., Any], values: dict[str, st.SearchStrategy[Any]]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for a verb, of which one may be wild."""
    parameters = list(inspect.signature(method).parameters.values())
    assert {each.name for each in parameters} <= set(values), (
        f"no values for a parameter of {method.__name__}"
    )
    wild = data.draw(told("", *(each.name for each in parameters if each.name not in ENGINE_ONLY)))
    several, named = list[Any](), dict[str, Any]()
    for each in parameters:
        right = junk if each.name == wild else values[each.name]
        if each.kind is each.VAR_POSITIONAL:
            several = [data.draw(junk if each.name == wild else GIVEN)]
        elif each.name == wild or each.default is each.empty or data.draw(st.booleans()):
            named[each.name] = data.draw(right)
    return several, named


# An agent that comes to a tree gets a session there, and that is all that a verb may leave behind
# which is then refused.
TABLES = ("decision_edges", "decisions", "nodes", "notes", "records", "settings", "trees")
COUNTED = len(TABLES)


def stored(loom: Loom) -> list[str]:
    with loom.store.database.read() as reader:
        counted = [
            f"{table} {reader.first_row(f'SELECT count(*) FROM {table}')}" for table in TABLES
        ]
    return [
        *counted,
        *(line for line in loom.export(everywhere=True) if not line.startswith('{"line":"end"')),
    ]


def read_everything(address: str) -> None:
    """Open the store again, and read all that is in it by every door."""
    with Loom.open(address) as loom:
        assert [problem for problem in examine(loom.store) if not problem.note] == []
        assert isinstance(loom.preferences, Preferences)
        assert all(isinstance(agent, Agent) for agent in loom.agents())
        lines = list(loom.export(everywhere=True))
        loom.decisions.graph()
        loom.decisions.pulse()
        assert all(isinstance(entry.task, Task) for entry in loom.tasks(every_session=True))
        for row in [*loom.sessions(), *loom.sessions(archived=True)]:
            session = loom.session(row.id)
            session.conversation()
            assert (
                session.working,
                session.resume(),
                session.summary,
                session.versions(),
                session.draft_text,
            ) is not None
            list(session.export())
            session.memory.notes(history=True)
            session.memory.recent()
            session.memory.important()
            session.memory.summaries()
            session.decisions.own()
            if session.cursor is not None or session.draft_text:
                prepare(session, preview=True)
        for listed in loom.trees():
            read_tree(loom, loom.tree(listed.tree.row.id))
    with Loom.open(":memory:") as copy:
        copy.import_lines(lines, everywhere=True)


def read_tree(loom: Loom, tree: LoomTree) -> None:
    loom.export_tree(tree.id)
    assert (tree.head, tree.title, tree.preferences) is not None
    for twig in tree.twigs():
        node = tree.read([twig.key])[twig.key]
        tree.marks(node)
        tree.history(node.id)
    if loom.store.sessions.on_tree(tree.stored.row, "") is None:  # put away
        return
    tree.path()
    for agent in (None, "coder"):
        if tree.position(agent) is not None:
            prepare(tree, agent=agent, preview=True)


def prepare(of: Any, **options: Any) -> None:
    try:
        context = asyncio.run(of.prepare(window=30_000, **options))
    except CannotFit:
        return
    for wire in ("openai", "anthropic", "responses", "document"):
        to_json(context.render(wire))


CALLS = 3  # of a verb before all is read


def check_verb(rig: Rig, cls: type, verb: str, data: st.DataObject) -> None:
    method = getattr(rig.on(cls), verb)
    several, named = draw_call(data, method, rig.values(cls, verb))
    before, refusal = stored(rig.loom), None
    try:
        made = method(*several, **named)
        if inspect.isawaitable(made):
            made = asyncio.run(made)  # type: ignore[arg-type]
    except CannotFit:
        pass
    except LoomError as error:
        refusal = error
    if refusal is not None:
        assert isinstance(refusal, Conflict) or not isinstance(refusal, StoreError), refusal
        after = stored(rig.loom)
        assert after[:COUNTED] == before[:COUNTED], "what is refused writes nothing"
        assert set(before) <= set(after), "what is refused changes nothing"


@contextmanager
def fresh_rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(str(Path(folder) / "loom.db"))
        try:
            yield rig
        finally:
            rig.loom.close()


@pytest.mark.parametrize(
    ("cls", "verb"), VERBS, ids=[f"{cls.__name__}.{verb}" for cls, verb in VERBS]
)
@settings(max_examples=EXAMPLES or 2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_a_verb_writes_can_be_read(cls: type, verb: str, data: st.DataObject) -> None:
    with fresh_rig() as rig:
        for _ in range(CALLS):
            check_verb(rig, cls, verb, data)
        rig.loom.close()
        read_everything(rig.address)


@settings(max_examples=1, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data())
def test_texts_that_postgresql_cannot_hold_are_refused_or_read_back(
    server: Any, data: st.DataObject
) -> None:
    """No text of PostgreSQL holds a NUL, and none in UTF-8 holds half of a surrogate pair."""
    name = server.new_database()
    rig = Rig(server.url(name))
    try:
        for cls, verb in VERBS:
            method = getattr(rig.on(cls), verb)
            values = rig.values(cls, verb)
            parameters = inspect.signature(method).parameters.values()
            for wild in (
                each
                for each in parameters
                if each.name not in ENGINE_ONLY and verb not in ("purge", "carry_on")
            ):
                for text in ("\0", "a\ud800"):
                    needed = [
                        each
                        for each in parameters
                        if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
                    ]
                    named = {
                        each.name: data.draw(values[each.name])
                        for each in needed
                        if each.name != wild.name
                    }
                    several = [text] if wild.kind is wild.VAR_POSITIONAL else []
                    call_quietly(method, several, named if several else named | {wild.name: text})
        rig.loom.close()
        read_everything(rig.address)
    finally:
        rig.loom.close()
        server.run(f"DROP DATABASE {name} WITH (FORCE)")


def call_quietly(method: Callable[..., Any], several: list[Any], named: dict[str, Any]) -> None:
    """Call a verb that may refuse what it is given, by a typed error that is not the database's."""
    try:
        made = method(*several, **named)
        if inspect.isawaitable(made):
            asyncio.run(made)  # type: ignore[arg-type]
    except Conflict:
        pass
    except StoreError as error:
        raise AssertionError(f"{method.__qualname__} {named}") from error
    except LoomError:
        pass
