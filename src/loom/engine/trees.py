"""A branching conversation that is kept: written to at any node, marked, edited, merged, and read
along a path.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Context, Policy, find_policy
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.checked import (
    check_flag,
    check_number,
    check_text,
    checks_arguments,
    choose,
    refuse_unknown,
    show_options,
)
from loom.conversation.commands import MOST_CONTINUATIONS
from loom.conversation.identity import node_id
from loom.conversation.message import ROLES, Message, Role, Text
from loom.conversation.metadata import KIND as METADATA
from loom.conversation.metadata import write_metadata
from loom.conversation.names import check_name, flatten
from loom.conversation.outline import OutlineNode
from loom.conversation.tree import Preferences, Reference, TreeHead
from loom.dialects.input import Answer, parse_answer
from loom.engine.answers import AnswerOutcome, take_out_commands
from loom.engine.digest import MAX_DIGEST_TOKENS, MIN_DIGEST_TOKENS, digest
from loom.engine.inputs import Given, parse_one_message
from loom.engine.meter import CURRENT_METER
from loom.engine.options import PrepareOptions, TreePrepareOptions, check_sources
from loom.engine.sessions import Session
from loom.engine.summarize import check_model
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, describe
from loom.providers.models import Model
from loom.runtime.threads import async_form, async_value
from loom.stores import (
    EdgeMark,
    Flag,
    FlagMark,
    Insertion,
    LinkMark,
    Mark,
    Marks,
    NewSession,
    Node,
    Overlay,
    Path,
    SessionRow,
    StoredTree,
)

_T = TypeVar("_T")


class SayOptions(TypedDict, total=False):
    """The options of `LoomTree.say`."""

    # Nodes that the message is made from, besides the one before it.
    sources: Sequence[Reference]
    # Distinguishes messages that are otherwise identical.
    generation: str
    # When the agent last looked: if others continued there since, `Conflict` is raised.
    seen: int | None
    # What your program says of the message: an object of JSON. No provider gets it.
    metadata: Mapping[str, Any] | None


def make_tree(workspace: Workspace, title: str, head: TreeHead, identity: str = "") -> "LoomTree":
    """A tree that nothing is said in yet. Every agent of the project may come to it."""
    scope, name = (
        replace(workspace.scope, agent=""),
        check_name("tree's id", identity) or workspace.fresh_id(),
    )
    row = workspace.store.sessions.create(
        scope, NewSession(id=name, title=title), now=workspace.now(), about=head
    )
    workspace.emit("created", row.id, "", title=title)
    return LoomTree(workspace, workspace.store.trees.head(row.tree))


class Step(Struct, frozen=True):
    """A node on a path as it is read: what holds of it, why it is hidden if it is, and what it
    comes in as if not by itself.

    `tree` is named where the node is of another one.
    """

    node: Node
    marks: Marks
    hidden: str = ""
    beside: str = ""
    tree: str = ""


class LoomTree:
    """A tree in a store.

    Each agent has a session of its own on the tree; without an agent, the session of the tree is
    used.
    """

    def __init__(self, workspace: Workspace, stored: StoredTree) -> None:
        self._workspace, self._store, self.stored = workspace, workspace.store, stored
        self._order = threading.Lock()  # of those verbs that run in threads

    def __repr__(self) -> str:
        title = f" {self.title!r}" if self.title else ""
        return f"<{type(self).__name__} {self.id}{title}, {self.head.mode}>"

    @property
    def id(self) -> str:
        """The id of the tree."""
        return self.stored.row.id

    @property
    def title(self) -> str:
        """The title of the tree."""
        return self.stored.title

    @property
    def head(self) -> TreeHead:
        """What describes the tree: mode, system text, description, model and preferences."""
        return self.stored.head

    # Who stands where

    def session(self, agent: str | None = None) -> Session:
        """The session of an agent on this tree.

        A new one is created at the current node of the tree.

        Agents that are at the same node continue together: when one says something, the others move
        along.
        """
        if agent is None:
            name = self._workspace.scope.agent
        else:
            name = check_name("agent", agent)
        row = self._store.sessions.on_tree(self.stored.row, name)
        if row is not None:
            if self._store.sessions.takes_part(row):
                return Session(self._workspace, row, lasting=True)
            return self._join(row)
        own = self._store.sessions.on_tree(self.stored.row, "")
        if own is None and self._store.sessions.on_tree(self.stored.row, "", importing=True):
            raise ChoiceError(
                f"tree {self.id} is still being imported, or its import was cut short; import its "
                "file again"
            )
        if own is None:
            raise ChoiceError(
                f"tree {self.id} has no active session; loom session list --archived shows the "
                "archived ones"
            )
        scope, identity = replace(self._workspace.scope, agent=name), self._workspace.fresh_id()
        made = self._store.sessions.join_as(scope, own, identity, self._workspace.now())
        return Session(self._workspace, made, lasting=True).emit("forked", origin=own.id)

    def _join(self, row: SessionRow) -> Session:
        """Let a session take part that was made before anyone did; if the conversation has passed
        it by, it catches up.
        """
        session = Session(
            self._workspace, self._store.sessions.join(row, self._workspace.now()), lasting=True
        )
        own = None
        if row.agent:
            own = self._store.sessions.on_tree(self.stored.row, "")
        here, ahead = session.cursor, self._store.sessions.path(own) if own else None
        if (
            here
            and ahead
            and ahead.end
            and here.depth < ahead.end.depth
            and ahead.holds(here.seq, here.depth)
        ):
            session.switch(ahead.end.id)
        return session

    def _looking(self, agent: str | None) -> Session:
        """The session of an agent to look with; an agent that was never here looks from where the
        tree's own stands.
        """
        if agent is None:
            name = self._workspace.scope.agent
        else:
            name = check_name("agent", agent)
        row = None
        if name:
            row = self._store.sessions.on_tree(self.stored.row, name)
        if row is not None or not name:
            if row:
                return Session(self._workspace, row)
            return self.session("")
        self._store.settings.known_agent(self._workspace.scope, name)
        return Session(self._workspace, replace(self.session("").row, agent=name), guest=True)

    def position(self, agent: str | None = None) -> Node | None:
        """The current node of an agent. If it has none yet, the newest end of a branch."""
        return self._looking(agent).cursor or self._newest_node()

    def _newest_node(self) -> Node | None:
        for end in reversed(self.ends()):
            node = self._store.trees.read(self.stored.row.key, [end])[end]
            if node.message is not None:  # and was not purged
                return node
        return None

    def switch(self, to: str, *, agent: str | None = None, leave_digest: bool = False) -> Session:
        """Make another node the current node of an agent.

        With `leave_digest`, a digest of the branch that it leaves is written there.

        A version of a node on the agent's path is chosen, and the agent stays. Another version is
        chosen at its place.
        """
        node = self.node(to)
        check_flag("leave_digest", leave_digest)
        session = self.session(agent)
        session.commit()
        left = session.cursor
        if self.marks(node).edge_mark.edge == "version":
            node = self.choose(node.id, agent=agent)
            if session.path.holds(node.seq, node.depth):
                return session.emit("switched")
        self._check_live(node)
        if leave_digest and left is not None and not self._path(node).holds(left.seq, left.depth):
            self._merge(session, left, node, "left")
        else:
            session.switch(node.id)
        return session

    def choose(self, node: str, *, agent: str | None = None) -> Node:
        """Read a version instead of the node that it was edited from, or the node itself again.

        Returns that node.
        """
        found = self.node(node)
        if self.head.mode != "buffer":
            raise ChoiceError(
                f"tree {self.id} is in dialogue mode, where an edit is a branch; switch to it"
            )
        session = self.session(agent)
        first = self._first_version(found, self.marks(found))
        session.choose(first.id, found.id)
        return first

    # Writing

    def node(self, name: str) -> Node:
        """Find a node by its id, or by the first characters of its id."""
        return self._store.trees.node(self.stored.row.key, name)

    @show_options
    def say(
        self,
        what: Given,
        *,
        after: str | None = None,
        agent: str | None = None,
        role: Role | None = None,
        **options: Unpack[SayOptions],
    ) -> Node:
        """Write a message after a node ("": as a new root; default: the agent's current node), and
        make it the current node.

        Other agents at the same node move along. The draft of the agent becomes a node first.
        """
        refuse_unknown("say", options, SayOptions)
        seen = options.get("seen")
        if seen is not None:
            check_number("when the agent last looked", seen)
        generation = check_name("generation", options.get("generation", ""))
        said, metadata = what, write_metadata(options.get("metadata"))
        if not isinstance(what, str):
            said, metadata = parse_one_message(what, options.get("metadata"))
        if role is not None:
            role = choose("a role", role, ROLES)
        sources = options.get("sources", ())
        beside = []
        if sources != ():
            beside.append(("sources", to_json(self._checked_sources(sources))))
        if metadata:
            beside.append((METADATA, metadata))
        named = self.node(after) if after else None
        self._check_live(named)
        session = self.session(agent)
        message = self._message(said, session, role)
        session.commit()
        behind = self.position(agent) if after is None else named
        self._check_live(behind)
        return session.append_at(
            message, behind, beside, generation=generation, move=True, seen=seen
        )

    def absorb(
        self,
        response: Any,
        *,
        agent: str | None = None,
        choice: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> AnswerOutcome:
        """Take the answer of an agent: a text, the JSON of a provider, an object of an SDK, or a
        `Message`.

        The answer is written after the node that the agent's last request ended with, or after its
        current node if there was no request. If others continued there meanwhile, it becomes a
        branch next to theirs, and the agent stays with the conversation. The `→` commands of a
        loom-aware agent are run; if others continued meanwhile, the agent gets a conflict instead,
        and nothing is written. Each `choice` of an answer can be absorbed. `metadata` is what your
        program says of the answer, as in `say`.
        """
        if agent is None:
            whose = self._workspace.scope.agent
        else:
            whose = check_name("agent", agent)
        known = None
        if whose:
            known = self._store.settings.known_agent(self._workspace.scope, whose)
        parsed = None
        if not isinstance(response, str):
            parsed = parse_answer(response, choice)
        session = self.session(agent)
        if session.cursor is None and (newest := self._newest_node()):
            session.switch(newest.id)
        if parsed is None:
            said = Message(self._role(session) or "user", (Text(response),), whose)
            answer, choice = Answer(messages=(said,) if response.strip() else ()), 0
            # only a person speaks in plain words without a name
            known = known or Agent(name="", kind="human")
        else:
            answer = parsed
        if (
            answer.messages
            if known is None or not known.loom_aware
            else take_out_commands(answer.messages)[0]
        ):
            self._check_live(session.cursor)
        return session.take(answer, choice, known, metadata)

    def annotate(self, node: str, text: str, *, agent: str | None = None) -> Node:
        """Write an annotation on a node. Models do not read it unless it is included."""
        on = self.node(node)
        check_text("an annotation", text)
        session = self.session(agent)
        return session.append_at(
            self._message(text, session, None), on, [("edge", to_json(EdgeMark("annotation")))]
        )

    def edit(self, node: str, text: str, *, agent: str | None = None, choose: bool = True) -> Node:
        """Replace the text of a node: with a branch in a dialogue, with a version in a buffer,
        where what follows stays.

        With `choose`, this agent reads the version from now on, whatever is edited later.
        """
        old = self.node(node)
        if old.message is None:
            raise ChoiceError(
                f"message {old.short_id} was purged and cannot be edited; say something new"
            )
        if not check_text("what a node says", text).strip() and self.head.mode == "dialogue":
            raise ChoiceError("there is nothing to say: the text is blank")
        check_flag("choose", choose)
        session = self.session(agent)
        parent, marks = self._parent(old), self.marks(old)
        message = _rewritten(old, old.message, text, self._role(session), session.row.agent)
        if message.parts == old.message.parts:
            raise ChoiceError(f"message {old.short_id} already has this text; give another one")
        self._check_live(parent)
        session.commit()
        if self.head.mode == "dialogue" or marks.edge_mark.edge == "annotation":
            edge = marks.edge_mark.edge  # what was a remark stays one
            return session.append_at(
                message,
                parent,
                [("edge", to_json(EdgeMark(edge, old.id)))],
                move=edge == "continuation",
            )
        first = self._first_version(old, marks)
        generation = f"version of {first.short_id}"  # tells it from a branch that says the same
        edge_mark = EdgeMark("version", old.id, first.id if first.id != old.id else "")
        made = session.append_at(
            message, parent, [("edge", to_json(edge_mark))], generation=generation
        )
        if choose:
            session.choose(first.id, made.id)
        return made

    def merge(
        self,
        other: str,
        *,
        into: str | None = None,
        agent: str | None = None,
        tokens: int | None = None,
    ) -> Node:
        """Write a digest of another branch, with handles, and make it the current node of the
        agent.
        """
        if tokens is not None and check_number("the size of a digest", tokens) < MIN_DIGEST_TOKENS:
            raise ChoiceError(
                f"a digest takes at least {MIN_DIGEST_TOKENS} tokens, found {tokens}; give more, "
                f"or leave it out for {MAX_DIGEST_TOKENS}"
            )
        found, named = self.node(other), None if into is None else self.node(into)
        session = self.session(agent)
        session.commit()
        end = named or self.position(agent)
        if end is None:
            raise ChoiceError(f"tree {self.id} has no node to merge into yet")
        self._check_live(end)
        return self._merge(session, found, end, "merged", tokens)

    def _merge(
        self, session: Session, other: Node, end: Node, how: str, tokens: int | None = None
    ) -> Node:
        tree = self.stored.row
        shared = self._store.trees.count_shared(tree.key, end, other)
        if shared > other.depth:
            raise ChoiceError(
                f"node {other.short_id} is on the path to {end.short_id} already; name the end of "
                "another branch"
            )
        overlay = Overlay.read(self._path(other), tree, self.head.mode, session.versions())
        place = f"{end.id} {other.id}"
        text, handles = digest(overlay, shared, place, *([tokens] if tokens else []))
        lead = {
            "merged": "What another branch found:",
            "left": "What was found on the branch that was left:",
        }[how]
        if self.head.mode == "dialogue":
            text = f"{lead}\n{text}"
        else:
            text = f"\n{lead}\n{text}\n"
        message = self._message(text, session, None)
        # A handle is good where the node that names it stands, and that node's id is known before
        # it is written.
        at = node_id(tree.id, end.id, message)
        kept = [(handle, replace(stands_for, at=at)) for handle, stands_for in handles]
        return session.append_at(
            message, end, [("link", to_json(LinkMark(other.id, "", how)))], handles=kept, move=True
        )

    # Saying something about a node

    def bookmark(
        self, node: str, label: str = "", *, on: bool = True, agent: str | None = None
    ) -> bool:
        """Set or remove a bookmark, with a label of one line. Returns whether anything changed."""
        return self._turn(node, "bookmarked", on, agent, flatten(check_text("a label", label)))

    def pin(self, node: str, *, on: bool = True, agent: str | None = None) -> bool:
        """Keep a node in every request of its paths, or stop that.

        Returns whether anything changed.
        """
        return self._turn(node, "pinned", on, agent)

    def exclude(self, node: str, *, on: bool = True, agent: str | None = None) -> bool:
        """Leave a node out of every request, or stop that.

        What follows it stays. With `on=False`, an annotation is read.
        """
        found = self.node(node)
        if self.marks(found).edge_mark.edge == "annotation":
            changed = self._turn(node, "included", not on, agent)
            return self._turn(node, "excluded", False, agent) or changed
        return self._turn(node, "excluded", on, agent)

    def prune(self, node: str, *, agent: str | None = None) -> int:
        """Hide a node and everything after it.

        Returns how many nodes that are. Nothing is deleted.
        """
        self._turn(node, "pruned", True, agent)
        return len(self.below(self.node(node)))

    def restore(self, node: str, *, agent: str | None = None) -> int:
        """Bring back a pruned node and everything after it. Returns how many nodes that are."""
        found = self.node(node)
        above = self._pruned_at(self._parent(found))
        if above:
            raise ChoiceError(
                f"node {found.short_id} was pruned with {above}, which is above it; restore {above}"
            )
        self._turn(node, "pruned", False, agent)
        return len(self.below(found))

    def link(
        self, node: str, target: str, label: str = "", *, on: bool = True, agent: str | None = None
    ) -> None:
        """Link a node to NODE of this tree, or to TREE/NODE of another tree of the project; or
        remove the link.
        """
        label, found = flatten(check_text("a label", label)), self.node(node)
        tree, _, name = check_text("the target of a link", target).rpartition("/")
        if tree:
            other = LoomTree(self._workspace, self._store.trees.get(self._workspace.scope, tree))
        else:
            other = self
        end = other.node(name)
        if other.id == self.id and end.seq == found.seq:
            raise ChoiceError(
                f"node {found.short_id} cannot be linked to itself; name another node"
            )
        link = LinkMark(end.id, "" if other.id == self.id else other.id, label, on)
        self._mark(self.session(agent), found, link)

    def _turn(self, node: str, flag: Flag, on: bool, agent: str | None, label: str = "") -> bool:
        """Set a flag or take it back; whether that changed anything."""
        check_flag("on", on)
        found = self.node(node)
        session, flags = self.session(agent), self.marks(found).flags
        if getattr(flags, flag) == on and (flag != "bookmarked" or not on or flags.label == label):
            return False
        self._mark(session, found, FlagMark(flag, on, label))
        return True

    def _mark(self, session: Session, node: Node, mark: FlagMark | LinkMark) -> None:
        self._store.growth.mark(session.row, [(node.seq, mark)], self._workspace.now())
        session.emit("marked", marked=node.id)

    # Looking

    @checks_arguments
    def marks(self, node: Node) -> Marks:
        """The marks of a node that are valid now."""
        return self._store.trees.marks(self.stored.row.key, [node.seq]).get(node.seq, Marks())

    def history(self, node: str) -> list[Mark]:
        """All marks of a node, with who set them and when."""
        return self._store.trees.history(self.stored.row.key, self.node(node))

    def twigs(self) -> list[OutlineNode]:
        """The whole tree without what is said in it."""
        return self._store.trees.twigs(self.stored.row.key)

    @checks_arguments
    def read(self, seqs: Sequence[int]) -> dict[int, Node]:
        """Read nodes with their messages, by their numbers."""
        return self._store.trees.read(self.stored.row.key, seqs)

    def children(self, node: str | None = None) -> list[Node]:
        """The nodes that follow a node, in the order in which they were written.

        Without a node, the roots of the tree.
        """
        return self._continuing(self.node(node) if node else None)

    def siblings(self, node: str) -> list[Node]:
        """The other nodes that follow the same node."""
        found = self.node(node)
        return [other for other in self._continuing(self._parent(found)) if other.seq != found.seq]

    def _continuing(self, parent: Node | None) -> list[Node]:
        children = self._store.trees.children(self.stored.row.key, parent)
        marks = self._store.trees.marks(self.stored.row.key, [child.seq for child in children])
        return [
            child
            for child in children
            if marks.get(child.seq, Marks()).edge_mark.edge == "continuation"
        ]

    def ends(self) -> list[int]:
        """The last nodes of all branches that are not pruned, the newest last."""
        live = [twig for twig in self.twigs() if twig.edge == "continuation" and not twig.pruned]
        parents = {twig.parent for twig in live}
        return [twig.key for twig in live if twig.key not in parents]

    @checks_arguments
    def below(self, node: Node) -> list[int]:
        """A node and everything after it."""
        found = {node.seq}
        for twig in self.twigs():
            if twig.parent in found:
                found.add(twig.key)
        return sorted(found)

    @checks_arguments
    def path(
        self, at: str | None = None, *, agent: str | None = None, last: int = 50
    ) -> tuple[list[Step], int]:
        """The last steps of the path to a node, as a model reads it, and how many nodes the path
        has.
        """
        end = self.position(agent) if at is None else self.node(at)
        whole = self._store.trees.path(self.stored.row.key, end)
        overlay = Overlay.read(
            whole, self.stored.row, self.head.mode, self._looking(agent).versions()
        )
        entries = [
            (node, entry)
            for node in whole[max(0, len(whole) - last) :]
            for entry in overlay.entries(node.depth)
        ]
        shown = [
            node.seq if entry is None else entry.node.seq
            for node, entry in entries
            if entry is None or not entry.tree
        ]
        marks = self._store.trees.marks(self.stored.row.key, shown)
        return [_step(overlay, node, entry, marks) for node, entry in entries], len(whole)

    @show_options
    async def prepare(
        self, request: Given | None = None, **options: Unpack[TreePrepareOptions]
    ) -> Context:
        """Build the request for an agent at its current node, or for the node `at`; then nothing is
        stored.

        The options are those of `Session.prepare`, and `agent`. Without `policy`, the preferences
        of the tree decide.
        """
        refuse_unknown("prepare", options, TreePrepareOptions)
        agent, preview = options.pop("agent", None), options.get("preview", False)
        session, at = await self.run_off_loop(
            lambda: self._choose_session(options.get("at"), agent, preview)
        )
        policy = options.get("policy")
        if policy is None:
            policy = await self.run_off_loop(lambda: preferred_policy(self.preferences))
        asked = cast("PrepareOptions", {**options, "policy": policy, "at": at})
        return await session.prepare(request, **asked)

    def _choose_session(
        self, at: str | None, agent: str | None, preview: bool
    ) -> tuple[Session, str | None]:
        """Whose request it is, and at which node."""
        if at is None and not preview:
            session = self.session(agent)
        else:
            session = self._looking(agent)
        if at is None and session.cursor is None and (newest := self._newest_node()):
            at = newest.id
        return session, at

    async def continue_at(
        self,
        at: str | None = None,
        *,
        times: int = 1,
        agent: str | None = None,
        model: Model | None = None,
    ) -> list[Node]:
        """Let a model continue after a node, several times: each continuation is a branch.

        The node is that of `at`, or the agent's current one. The agent stays where it is, and `→`
        commands in the answers are not run. The model is that of the store, unless one is given. In
        a tool of a loop, the answers count in its run, and there are no more of them when its limit
        of tokens or cost is reached.
        """
        check_number("times", times)
        if not 1 <= times <= MOST_CONTINUATIONS:
            raise ChoiceError(
                f"times must be from 1 to {MOST_CONTINUATIONS}, found {describe(times)}"
            )
        check_model(model)
        answering = self._workspace.model if model is None else model
        if answering is None:
            raise ChoiceError("there is no model that could continue; open the store with one")
        session, node = await self.run_off_loop(lambda: self._find_end(at, agent))
        made: list[Node] = []
        meter = CURRENT_METER.get()
        for _ in range(times):
            if meter is not None and meter.is_used_up:
                break
            context = await self.prepare(at=node.id, agent=agent)
            answer = await answering.answer(context)
            if meter is not None:
                meter.add_answer(answer, context)
            made += await session.atake_branch(answer, node.id)
        return made

    async def settle(self) -> None:
        """Wait until the background work is done."""
        await self._workspace.settle()

    def _find_end(self, at: str | None, agent: str | None) -> tuple[Session, Node]:
        """The session of an agent, and the node that is continued."""
        session = self.session(agent)
        node = self.node(at) if at is not None else session.cursor or self._newest_node()
        if node is None:
            raise ChoiceError(f"tree {self.id} has no nodes yet; say something first")
        self._check_live(node)
        return session, node

    # What a tree says of itself

    @property
    def preferences(self) -> Preferences:
        """The preferences that apply to the tree: its own, then those of the project, then those of
        all projects.
        """
        head, settings, scope = (
            self._store.trees.head(self.stored.row).head,
            self._store.settings,
            self._workspace.scope,
        )
        return head.preferences.over(settings.preferences(scope)).over(
            settings.app_preferences(scope)
        )

    def change(
        self,
        *,
        title: str | None = None,
        description: str | None = None,
        system_context: str | None = None,
        buffer_mode_system_context: bool | None = None,
        preferences: Preferences | Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> "LoomTree":
        """Change the description of the tree.

        What is None stays as it is. The mode never changes.
        """
        given: Mapping[str, Any] = {
            "description": description,
            "system_context": system_context,
            "buffer_mode_system_context": buffer_mode_system_context,
            "preferences": preferences,
            "model": model,
        }
        before = self._store.trees.head(self.stored.row).head
        head = replace(
            before, **{name: value for name, value in given.items() if value is not None}
        )
        self.stored = self._store.trees.change(self.stored.row, title, head)
        return self

    # The same off the event loop (`loom.runtime.threads`)

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on this tree in a thread of the store.

        The work of one tree object runs in order.
        """
        return await self._workspace.run_off_loop(work, self._order)

    aabsorb = async_form(absorb)
    aannotate = async_form(annotate)
    abelow = async_form(below)
    abookmark = async_form(bookmark)
    achange = async_form(change)
    achildren = async_form(children)
    achoose = async_form(choose)
    aedit = async_form(edit)
    aends = async_form(ends)
    aexclude = async_form(exclude)
    ahistory = async_form(history)
    alink = async_form(link)
    amarks = async_form(marks)
    amerge = async_form(merge)
    anode = async_form(node)
    apath = async_form(path)
    apin = async_form(pin)
    aposition = async_form(position)
    apreferences = async_value(preferences)
    aprune = async_form(prune)
    aread = async_form(read)
    arestore = async_form(restore)
    asay = async_form(say)
    asession = async_form(session)
    asiblings = async_form(siblings)
    aswitch = async_form(switch)
    atwigs = async_form(twigs)

    # Below

    def _message(self, what: Given, session: Session, role: Role | None) -> Message:
        whose = session.row.agent
        if not isinstance(what, str):
            message, _ = parse_one_message(what)
            if message.author or not whose:
                return message
            return replace(message, author=whose)
        if not what.strip() and self.head.mode == "dialogue":
            raise ChoiceError("there is nothing to say: the text is blank")
        return Message(role or self._role(session) or "user", (Text(what),), whose)

    def _role(self, session: Session) -> Role | None:
        """The role in which an agent speaks; none of whoever has no name."""
        whose = session.row.agent
        if not whose:
            return None
        known = self._store.settings.agent(self._workspace.scope, whose)
        if known and known.kind == "human":
            return "user"
        return "assistant"

    def _checked_sources(self, sources: Sequence[Reference]) -> tuple[Reference, ...]:
        return tuple(map(self._find_reference, check_sources(sources)))

    def _find_reference(self, source: Reference) -> Reference:
        """A source that is there, by its whole id."""
        if source.tree in ("", self.id):
            return Reference(self.node(source.node).id, source.role)
        other = self._store.trees.get(self._workspace.scope, source.tree)
        return Reference(
            self._store.trees.node(other.row.key, source.node).id, source.role, other.row.id
        )

    def _first_version(self, node: Node, marks: Marks) -> Node:
        """The node that this one is a version of; itself where it is none."""
        if marks.edge_mark.first:
            return self.node(marks.edge_mark.first)
        passed = {node.id}
        while (
            marks.edge_mark.edge == "version" and marks.edge_mark.edited_from not in passed
        ):  # a tree from elsewhere may say anything
            passed.add(marks.edge_mark.edited_from)
            node = self.node(marks.edge_mark.edited_from)
            marks = self.marks(node)
            if marks.edge_mark.first:
                return self.node(marks.edge_mark.first)
        return node

    def _parent(self, node: Node) -> Node | None:
        if node.parent is None:
            return None
        return self.read([node.parent])[node.parent]

    def _path(self, end: Node) -> Path:
        return self._store.trees.path(self.stored.row.key, end)

    def _pruned_at(self, node: Node | None) -> str:
        """The name of the first node on the way to this one, or of itself, that is pruned; "" for
        none.
        """
        if node is None:
            return ""
        whole = self._path(node)
        live = Overlay.read(whole, self.stored.row, "dialogue", {}).path
        if len(live) < len(whole):
            return whole[len(live)].short_id
        return ""

    def _check_live(self, node: Node | None) -> None:
        """After what is pruned nothing is read, so nothing is said there."""
        if node is not None and (pruned := self._pruned_at(node)):
            told = "is pruned"
            if pruned != node.short_id:
                told = f"was pruned with {pruned}"
            raise ChoiceError(
                f"node {node.short_id} {told}, and nothing after it is read; restore {pruned}, or "
                "switch to another node"
            )


def write_at_end(document: LoomTree, message: Message) -> Node:
    """Write a message at the end of a document, where everybody reads it. Its draft stays one."""
    session, end = document.session(""), document.position("")
    document._check_live(end)
    return session.append_at(message, end, move=True)


def _step(
    overlay: Overlay, node: Node, entry: Insertion | None, marks: Mapping[int, Marks]
) -> Step:
    """What is read at the place of a node: the node itself, or what comes in there."""
    if node.depth >= len(overlay.path):
        hidden = "pruned"
    else:
        hidden = overlay.hidden.get(node.depth, "")
    if entry is None:
        return Step(node, marks.get(node.seq, Marks()), hidden)
    if entry.kind != "version":
        hidden = ""
    return Step(entry.node, marks.get(entry.node.seq, Marks()), hidden, entry.kind, entry.tree)


def preferred_policy(preferences: Preferences) -> Policy:
    """The policy `tree` with these preferences."""
    usual = find_policy("tree")
    made = replace(
        usual,
        strategy=preferences.truncation_strategy or usual.strategy,
        minimum_recent_nodes=preferences.minimum_recent_nodes or usual.minimum_recent_nodes,
        reserve=usual.reserve if preferences.token_buffer is None else preferences.token_buffer,
    )
    if made == usual:
        return usual
    return replace(made, name=f"tree {made.strategy} {made.minimum_recent_nodes} {made.reserve}")


def _rewritten(node: Node, old: Message, text: str, role: Role | None, author: str) -> Message:
    """A message that says something else; the result of a call stays its result."""
    if old.role == "tool":
        if len(old.results) != 1 or len(old.parts) != 1:
            raise ChoiceError(
                f"message {node.short_id} holds {len(old.results)} results and cannot be edited; "
                "edit what follows it"
            )
        return replace(
            old, parts=(replace(old.results[0], parts=(Text(text),), carried=None),), carried=None
        )
    if role and old.role in ("user", "assistant"):
        spoken = role
    else:
        spoken = old.role
    return replace(old, role=spoken, parts=(Text(text),), author=author, carried=None)
