"""`Loom.open`: a store, its sessions and its trees."""

import asyncio
import os
import time
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from operator import itemgetter
from os import PathLike, fspath, urandom
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec.structs import replace

from loom.config.settings import Configuration, resolve_configuration
from loom.conversation.agents import Agent
from loom.conversation.checked import (
    check_flag,
    check_number,
    checks_arguments,
    refuse_unknown,
    show_options,
)
from loom.conversation.handles import to_lines
from loom.conversation.message import Message, Tool
from loom.conversation.names import check_name
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.conversation.tree import Preferences, Tree, TreeHead
from loom.dialects.document import to_plain_text
from loom.engine.answers import AnswerOutcome
from loom.engine.commands import carry_out
from loom.engine.decisions import ProjectDecisions
from loom.engine.emitter import EventEmitter
from loom.engine.indexer import Indexer
from loom.engine.inputs import parse_head, parse_messages
from loom.engine.memory import ProjectMemory
from loom.engine.remembered import take_defaults
from loom.engine.search import check_search, search_project
from loom.engine.session_state import STATE_KINDS
from loom.engine.sessions import Session
from loom.engine.snapshots import Snapshots
from loom.engine.tasks import TaskEntry, add_task, find_task, find_task_at, list_tasks, update_task
from loom.engine.tree_exchange import export_tree, import_tree
from loom.engine.trees import LoomTree, make_tree
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, describe
from loom.providers.embedders import choose_embedder
from loom.providers.http import connect
from loom.providers.knowledge import KnowledgeBase
from loom.providers.models import Model
from loom.recall.hits import Hit
from loom.runtime import EventBus, Task, TaskStatus
from loom.runtime.threads import async_form, async_lines, async_value
from loom.stores import (
    ImportedSession,
    ListedTree,
    NewSession,
    Node,
    Scope,
    SessionRow,
    Store,
    export_all,
    export_session,
    folder_beside,
    import_lines,
)

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder
else:
    Embedder = Any  # it needs numpy, which only a search loads


def _find_model(given: Model | str | None) -> Model | None:
    if isinstance(given, str):
        return connect(given)
    return given


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _fresh_id() -> str:
    return b32encode(urandom(10)).decode().lower()


def _text_lines(lines: object) -> Iterable[str]:
    """The lines of an export, as a caller gives them."""
    if not isinstance(lines, Iterable) or isinstance(lines, str | bytes | Mapping):
        raise ChoiceError(
            f"an import takes lines of text, found {describe(lines)}; open the file, or split its "
            "text"
        )
    for line in lines:
        if not isinstance(line, str):
            raise ChoiceError(f"a line of an import must be a text, found {describe(line)}")
        yield line


class OpenOptions(TypedDict, total=False):
    """The options of `Loom.open`."""

    # Only what belongs to this tenant is visible (default: `default`).
    tenant: str
    # Only what belongs to this project is visible (default: `default`).
    project: str
    # With an agent, only the sessions of that agent are visible.
    agent: str
    # Folder whose configuration is used: its `.loom.toml`, your own file and the variables LOOM_…
    # (default: none is read, except LOOM_STORE).
    folder: str | PathLike[str] | None
    # Model that summarizes long sessions after their turns: anything with `answer`, or
    # `provider:model`. If it has a weak model, that one does it.
    model: Model | str | None
    # Folder for the files that a renewed window writes (default: next to the store).
    snapshots: str | PathLike[str] | None
    # Knowledge bases that every request asks: anything with `query`, or a list of them; True asks
    # the documents of the project (default: none).
    knowledge: KnowledgeBase | Sequence[KnowledgeBase] | bool | None
    # Seconds that all knowledge bases have together for one request (default: 0.1).
    knowledge_seconds: float | None
    # Makes vectors of messages, so that a search finds them by meaning, too: an embedder, `static`,
    # `minilm`, `none`, or `https://HOST/v1#MODEL` (default: that which made the vectors of the
    # store, else `static`).
    embedder: Embedder | str | None
    # Clock: milliseconds since 1970 (default: that of the system).
    now: Callable[[], int]
    # Makes the ids of sessions (default: random ones).
    fresh_id: Callable[[], str]


class Loom(Workspace):
    """A store, seen from one scope: tenant, project and agent.

    Close it, or use it in a `with` block. Each method has a form that begins with `a` for
    asynchronous programs.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        now: Callable[[], int],
        fresh_id: Callable[[], str],
        model: Model | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        super().__init__(store, scope, now, fresh_id, model, snapshots, carry_out=carry_out)
        # The configuration of the folder that it was opened for; None without a folder.
        self.configuration: Configuration | None = None

    @classmethod
    @checks_arguments
    @show_options
    def open(
        cls, url: "str | PathLike[str] | None" = None, **options: Unpack[OpenOptions]
    ) -> "Loom":
        """Open a store, and create it if there is none.

        `url` is a path, `sqlite:///PATH`, `:memory:` or `postgres://…`. Without it, the
        configuration of `folder` decides, or if there is none, the variable LOOM_STORE, or a file
        in the user's data folder.
        """
        refuse_unknown("open", options, OpenOptions)
        scope = Scope(
            options.get("tenant", "default"),
            options.get("project", "default"),
            options.get("agent", ""),
        )
        settings = None
        if (configured := options.get("folder")) is not None:
            settings = resolve_configuration(configured)
            url = settings.store if url is None else url
        store = Store(None if url is None else fspath(url), STATE_KINDS)
        snapshots = options.get("snapshots")
        beside = folder_beside(store.database)
        folder = Path(snapshots) if snapshots is not None else beside
        kept = None
        if folder:
            kept = Snapshots(folder, scope, alone=Path(os.path.realpath(folder)) == beside)
        made = cls(
            store,
            scope,
            options.get("now", _milliseconds),
            options.get("fresh_id", _fresh_id),
            _find_model(options.get("model")),
            kept,
        )
        if settings is not None:
            made.configuration, made.defaults = settings, take_defaults(settings)
        try:
            named = options.get("embedder")
            made.indexer = Indexer(store, scope, choose_embedder(named), named is not None)
            made.knowledge_lookup = made.knowledge_lookup.choose(
                options.get("knowledge"), options.get("knowledge_seconds"), lambda: made.knowledge
            )
        except BaseException:
            made.close()
            raise
        return made

    def new(
        self,
        title: str = "",
        *,
        model: str = "",
        system: str | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        origin: str = "",
    ) -> "Session":
        """Create a session. It has no messages yet."""
        head = replace(parse_head(system, tools), model=check_name("model", model))
        row = self.store.sessions.create(
            self.scope,
            NewSession(id=self.fresh_id(), title=title, head=head, origin=origin),
            now=self.now(),
        )
        return Session(self, row).emit("created", title=title)

    def session(self, name: str) -> "Session":
        """Find a session by its id, or by the first characters of its id."""
        return Session(self, self.store.sessions.get(self.scope, name))

    @checks_arguments
    def sessions(self, *, archived: bool = False, limit: int = 0) -> list[SessionRow]:
        """List the sessions in scope, the most recently used first. A `limit` of 0 means all."""
        return self.store.sessions.list_all(
            self.scope, ("archived",) if archived else ("active", "importing"), limit
        )

    def recognise(
        self, messages: Iterable[Message | Mapping[str, Any]]
    ) -> "tuple[Session | None, int]":
        """Find the session of a client that sends its whole history again.

        Returns the session, or None, and how many of the messages are stored. Leading system
        messages are not counted. If no session is at the last stored message, a new session is
        forked there.
        """
        said = list(
            dropwhile(lambda message: message.role in SYSTEM_ROLES, parse_messages(messages))
        )
        found = self.store.sessions.recognise(self.scope, said)
        if found[2] < len(said) and any(message.role in SYSTEM_ROLES for message in said):
            found = max(found, self._recognise_older(said), key=itemgetter(2))
        rows, node, count = found
        if node is None or not rows:
            return None, 0
        standing = next((row for row in rows if row.cursor == node.seq), None)
        return (
            Session(self, standing) if standing else Session(self, rows[0]).fork(at=node.id)
        ), count

    def _recognise_older(self, said: list[Message]) -> tuple[list[SessionRow], Node | None, int]:
        """The same of a session that an older version began: system messages are not on its path
        until a newer one wrote them.
        """
        spoken = [
            place for place, message in enumerate(said, 1) if message.role not in SYSTEM_ROLES
        ]
        without = [said[place - 1] for place in spoken]
        rows, node, count = self.store.sessions.recognise(self.scope, without)
        if not count:
            return rows, node, 0
        known = spoken[count - 1]
        rows, node, total = self.store.sessions.recognise(
            self.scope, [*without[:count], *said[known:]]
        )
        return rows, node, known + total - count

    # Trees

    def new_tree(
        self,
        title: str = "",
        *,
        head: TreeHead | Mapping[str, Any] | None = None,
        identity: str = "",
    ) -> LoomTree:
        """Create a tree. It has no nodes yet. Every agent of the project can use it."""
        return make_tree(self, title, TreeHead() if head is None else TreeHead.of(head), identity)

    def tree(self, name: str) -> LoomTree:
        """Find a tree by its id, or by the first characters of its id.

        The tree of a session has the id of the session, unless the session was forked.
        """
        return LoomTree(self, self.store.trees.get(self.scope, name))

    @checks_arguments
    def trees(self, limit: int = 0) -> list[ListedTree]:
        """List the trees in scope, the most recently used first. A `limit` of 0 means all."""
        return self.store.trees.list_all(self.scope, limit)

    def import_tree(self, tree: Tree) -> tuple[LoomTree, int]:
        """Import a tree.

        Returns the tree and how many nodes are new. A second import adds only what is new.
        """
        if not isinstance(tree, Tree):
            raise ChoiceError(
                f"import_tree takes a Tree, found {describe(tree)}; read_trees reads trees from "
                "files"
            )
        stored, made = import_tree(self, tree)
        return LoomTree(self, stored), made

    def export_tree(self, name: str) -> Tree:
        """Export a whole tree as a value."""
        return export_tree(self.store, self.store.trees.get(self.scope, name))

    def act(self, tree: str, answer: Any, *, agent: str | None = None) -> AnswerOutcome:
        """Take the answer of an agent on a tree, and run its commands, as `LoomTree.absorb`
        does.
        """
        return self.tree(tree).absorb(answer, agent=agent)

    def agent(self, name: str) -> Agent | None:
        """Find an agent of the project by its name."""
        return self.store.settings.agent(self.scope, name)

    def agents(self) -> list[Agent]:
        """List the agents of the project."""
        return self.store.settings.agents(self.scope)

    def keep_agent(self, agent: Agent | Mapping[str, Any]) -> Agent:
        """Create an agent of the project, or change it."""
        return self.store.settings.keep_agent(self.scope, agent, self.now())

    @property
    def preferences(self) -> Preferences:
        """How long trees of the project are shortened, unless a tree has preferences of its own."""
        return self.store.settings.preferences(self.scope).over(self.app_preferences)

    @property
    def app_preferences(self) -> Preferences:
        """How long trees of all projects are shortened, unless a project or a tree has preferences
        of its own.
        """
        return self.store.settings.app_preferences(self.scope)

    def prefer(
        self, preferences: Preferences | Mapping[str, Any], *, all_projects: bool = False
    ) -> None:
        """Set the preferences of the project, or with `all_projects` those of all projects of the
        tenant.
        """
        check_flag("all_projects", all_projects)
        self.store.settings.keep_preferences(self.scope, preferences, self.now(), all_projects)

    # Tasks and events

    @checks_arguments
    def publish_events(self, bus: EventBus | None = None) -> None:
        """Publish what happens to sessions from now on, as tasks with the action `session.KIND`.

        They are published in the background, on `bus`, or on the bus of the store.
        """
        emitter = EventEmitter(self, self.bus if bus is None else bus)
        self.emitters.append(emitter)
        self.listen(emitter)

    def add_task(self, task: Task | Mapping[str, Any]) -> TaskEntry:
        """Add a task to the session of its label, which is made when the label is first named.

        A task whose id is there already is found, and not written again; with other words it is
        refused. Its status, result and error are written if they are newer: an end is only
        replaced by a later end. The session belongs to the agent of this `Loom`.
        """
        return add_task(self, Task.of(task))

    @checks_arguments
    def task(self, task_id: str, *, session_id: str | None = None) -> TaskEntry | None:
        """Find a task by its id; None if there is none in scope.

        An id is known in each session by itself. If several sessions have it, `session_id` is the
        label of the one that is meant; else the newest is found.
        """
        return find_task(self, task_id, session_id)

    @checks_arguments
    def tasks(
        self, *, session_id: str | None = None, every_session: bool = False, limit: int = 50
    ) -> list[TaskEntry]:
        """List the newest tasks of a session, the newest first.

        `session_id` is the label of the session. None means the unnamed session. With
        `every_session`, tasks of all labels are listed.
        """
        return list_tasks(self, session_id, every_session, check_number("limit", limit))

    @checks_arguments
    def task_at(self, session: str, node: str) -> TaskEntry | None:
        """Find the task at a node of a session, such as a hit of `search` names it."""
        return find_task_at(self, session, node)

    @checks_arguments
    def update_task(
        self,
        task_id: str,
        *,
        session_id: str | None = None,
        status: TaskStatus | None = None,
        result: Any = None,
        error: str | None = None,
    ) -> TaskEntry:
        """Set status, result or error of a task. What is None stays as it was.

        A task that completed has no error. One that is pending or running again has neither error
        nor result. If several sessions have a task of this id, `session_id` names the one.
        """
        return update_task(self, task_id, session_id, status, result, error)

    @property
    def memory(self) -> ProjectMemory:
        """What the project remembers. A session has a memory of its own: `Session.memory`."""
        return ProjectMemory(self)

    @property
    def decisions(self) -> ProjectDecisions:
        """The decisions of the project. A session has its own way to them: `Session.decisions`."""
        return ProjectDecisions(self)

    @checks_arguments
    def search(
        self,
        query: str,
        limit: int | None = None,
        *,
        tokens: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Search the messages of all sessions in scope, also of archived ones.

        Finds at most `limit` messages (default: 10), or with `tokens` as many as fit. `where` has
        values that the metadata must have. Each hit names its session, and has a handle to recall.
        """
        request = check_search(query, tokens, limit, where, self.now())
        self.indexer.catch_up()
        return search_project(self.store, self.scope, request, self.indexer.embedder)

    @checks_arguments
    def index(self, *, again: bool = False, progress: Callable[[int], None] | None = None) -> int:
        """Index all messages of the project that are not indexed yet, now rather than later.

        Returns how many were indexed. With `again`, the index is built from the beginning.
        `progress` is called with how many are done.
        """
        if again:
            self.store.search.drop(self.scope)
        return self.store.search.index_all(self.scope, self.indexer.embedder, progress)

    @checks_arguments
    def recall(self, handle: str, *, plain: bool = False) -> str:
        """Get back what was left out under this handle, in any session in scope.

        With `plain`, messages are a text to read, and not JSON lines.
        """
        write = to_plain_text if plain else to_lines
        text = self.store.views.recall_any(self.scope, handle, write)
        self.open_handle(handle)
        self.emit("recalled", "", "", handle=handle, characters=len(text))
        return text

    @checks_arguments
    def export(
        self,
        session: str | None = None,
        *,
        everywhere: bool = False,
        missed: list[str] | None = None,
    ) -> Iterator[str]:
        """Export the sessions in scope as JSON lines: all, one by its id, or with `everywhere`
        those of every tenant and project.

        Damaged parts are not exported. Their names are appended to `missed`; without that list, an
        error after the last line has them.
        """
        if session is not None:
            return export_session(
                self.store, *self.store.sessions.find(self.scope, session), missed
            )
        return export_all(self.store, self.scope, everywhere, missed)

    def import_lines(
        self,
        lines: Iterable[str],
        *,
        everywhere: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[ImportedSession]:
        """Import sessions from JSON lines, with the same ids.

        What is already stored is not written again.
        """
        check_flag("everywhere", everywhere)
        return import_lines(
            self.store, self.scope, _text_lines(lines), self.now(), everywhere, progress
        )

    # The same off the event loop (`loom.runtime.threads`)

    @classmethod
    async def aopen(cls, *args: Any, **options: Any) -> "Loom":
        """Open a store off the event loop; it takes what `open` takes."""
        return await asyncio.to_thread(cls.open, *args, **options)

    aact = async_form(act)
    aadd_task = async_form(add_task)
    aagent = async_form(agent)
    aagents = async_form(agents)
    aexport = async_lines(export)
    aexport_tree = async_form(export_tree)
    aimport_lines = async_form(import_lines)
    aindex = async_form(index)
    aimport_tree = async_form(import_tree)
    akeep_agent = async_form(keep_agent)
    anew = async_form(new)
    anew_tree = async_form(new_tree)
    aapp_preferences = async_value(app_preferences)
    aprefer = async_form(prefer)
    apreferences = async_value(preferences)
    arecall = async_form(recall)
    arecognise = async_form(recognise)
    asearch = async_form(search)
    asession = async_form(session)
    asessions = async_form(sessions)
    atask = async_form(task)
    atask_at = async_form(task_at)
    atasks = async_form(tasks)
    atree = async_form(tree)
    atrees = async_form(trees)
    aupdate_task = async_form(update_task)

    async def __aenter__(self) -> "Loom":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> "Loom":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
