"""What loom-aware agents do: the `→` lines of an answer, carried out on the tree, with results that
are shown once.

Rules of this file:
- What was said besides the commands is written first, after what it answers. Then the commands run
  in order.
- A command that cannot be carried out is told so and keeps no other from being carried out.
- Commands are no messages: they are kept in the agent's action trace, and nowhere else.
- One writer at a time continues with a branch: where somebody continued since the agent looked, it
  is told and nothing is written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from msgspec import structs

from loom.budget.counting import gate_counter
from loom.context import shrink_text
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.commands import (
    SPECS,
    TREE_DEPTH,
    Code,
    Command,
    Mistake,
    Thought,
    describe_mistake,
    help_text,
    quote_word,
)
from loom.conversation.message import Message, Text
from loom.conversation.names import flatten
from loom.conversation.tree import TreeHead
from loom.engine.answers import Order
from loom.engine.aware import (
    Action,
    AgentMemory,
    Pin,
    Result,
    Stash,
    age,
    author_of,
    connections,
    header,
    memory_of,
    memory_text,
    still_shown,
)
from loom.engine.digest import digest, digest_nodes
from loom.engine.picture import picture, words
from loom.engine.reading import as_text, message_of
from loom.engine.search import check_search, search_tree
from loom.engine.sessions import MAX_STASH_CHARS, MAX_STASHES, Session
from loom.engine.trees import LoomTree, make_tree, write_at_end
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, Conflict, shorten
from loom.stores import Digits, HandleTarget, Kin, Marks, Node, Overlay, StoredTree, read_stored

MAX_INLINE_TOKENS = 1000  # tokens of a result; of more, head and tail are shown
PINS = 20  # that an agent may have
_FOUND = 20  # of a list or a search
NO_PASSAGES: Mapping[int, str] = MappingProxyType({})
_TRACE = 200  # actions that are kept
_WORDS = 80
_ERROR = 300  # characters of what a model failed with
_PIECE = 250  # characters: a longer line is read in pieces, each a line of its own


class _CommandRefused(Exception):
    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        self.mistake = Mistake(code, message, hint)


def carry_out(
    workspace: Workspace, session: Session, agent: Agent, order: Order
) -> tuple[Result, ...]:
    """Carry out the commands of an agent's answer, in their order; what came of each. An agent is
    told what was not written.
    """
    tree = LoomTree(workspace, workspace.store.trees.head(session.row.tree))
    hand = _Hand(workspace, tree, session, agent, order.at)
    try:
        unsaid = None
        if order.conflict:
            unsaid = hand.tell_unsaid(order.conflict)
        results = [hand.take(item) for item in order.commands]
    finally:
        hand.remember()
    return tuple(result for result in (unsaid, *results) if result)


class _Hand:
    """Carries out one answer's commands for an agent."""

    def __init__(
        self, workspace: Workspace, tree: LoomTree, session: Session, agent: Agent, at: str | None
    ) -> None:
        self._workspace, self._store, self._tree, self._session, self._agent = (
            workspace,
            workspace.store,
            tree,
            session,
            agent,
        )
        self._before = memory_of(workspace.store, session.row.key)  # as the agent saw it
        self._results: list[Result] = []
        # the nodes whose words the command that is carried out shows
        self._shows: dict[str, None] = {}
        self._actions: list[Action] = []
        seen = workspace.store.states.all(session.row.key, "seen").get("")
        self._seen = int(read_stored(seen, Digits, "when the agent last looked")) if seen else None
        self._at = at  # where the agent knows itself to stand

    def tell_unsaid(self, conflict: Conflict) -> Result:
        """Tell the agent that its words were not written: somebody else continued there since it
        looked.
        """
        return self._record_result(
            "(your answer)",
            describe_mistake(_went_on(conflict, "your answer was not written: ")),
            True,
        )

    def take(self, item: Command | Thought | Mistake) -> Result | None:
        match item:
            case Thought(text):
                self._actions.append(
                    Action(f"→ think ({len(text):,} characters)", self._workspace.now())
                )
                return None
            case Mistake():
                return self._record_result(item.source, describe_mistake(item), True)
            case Command():
                try:
                    return self._record_result(item.source, self._run(item), False)
                except _CommandRefused as refused:
                    return self._record_result(item.source, describe_mistake(refused.mistake), True)

    def _record_result(self, source: str, text: str, failed: bool) -> Result:
        command = shorten(" ".join(source.split()), _WORDS)
        shows, self._shows = tuple(self._shows), {}
        result = Result(command, self._inline(text, shows), failed, shows)
        self._results.append(result)
        self._actions.append(Action(command, self._workspace.now(), failed))
        return result

    def _add_late_result(self, mistake: Mistake) -> None:
        """Tell the agent in its next request what failed after its turn."""
        key, states = self._session.row.key, self._store.states
        number = int(next(reversed(states.all(key, "result")), "0")) + 1
        result = Result(
            shorten(" ".join(mistake.source.split()), _WORDS), describe_mistake(mistake), True
        )
        states.put(key, "result", {f"{number:03}": to_json(result)}, self._workspace.now())

    def remember(self) -> None:
        """Keep results for the next turn, and the trace; those of the turn before fade."""
        key, now, states = self._session.row.key, self._workspace.now(), self._store.states
        shown = {f"{number:03}": to_json(result) for number, result in enumerate(self._results, 1)}
        states.put(key, "result", dict.fromkeys(self._before.results, None) | shown, now)
        last = int(next(reversed(self._before.actions), "0"))
        done = {
            f"{last + number:09}": to_json(action) for number, action in enumerate(self._actions, 1)
        }
        old = list(self._before.actions)[: max(len(self._before.actions) + len(done) - _TRACE, 0)]
        states.put(key, "action", dict.fromkeys(old, None) | done, now)
        states.put(key, "seen", {"": to_json(str(now))}, now)

    # Which command is which

    def _run(self, command: Command) -> str:
        needed = SPECS[command.name].needs
        if needed not in self._agent.granted_permissions:
            message = f"{command.name} needs {needed}, which you do not have"
            raise _CommandRefused("PERMISSION_DENIED", message, "→ help lists what you may do")
        for given in (*command.words, *(value for _, value in command.options)):
            if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in given):
                raise _CommandRefused(
                    "INVALID_SYNTAX",
                    f"{shorten(given)!r} contains characters that cannot be stored",
                )
        try:
            return self._does[command.name](self, command)
        except Conflict as conflict:
            raise _CommandRefused(*structs.astuple(_went_on(conflict))[:3]) from None
        except ChoiceError as error:
            raise _CommandRefused("INVALID_SYNTAX", str(error)) from None

    def _view(self, command: Command) -> str:
        node = self._node(command.words[0])
        why = self._find_hidden([node]).get(node.seq)
        return self._make_header(node) + (f"({why})" if why else self._words(node))

    def _list(self, command: Command) -> str:
        what = command.words[0] if command.words else "continuations"
        match what:
            case "trees" | "documents":
                return _lines(self._trees_in_scope(documents=what == "documents"), what)
            case "bookmarks":
                return _lines(self._bookmarks(), what)
            case "branches":
                ends = self._tree.ends()
                return _lines(
                    self._describe_nodes(self._tree.read(ends[: _FOUND + 1]).values(), len(ends)),
                    what,
                )
            case "links":
                return _lines(self._links(), what)
        nodes = self._near(what)
        return _lines(self._describe_nodes(nodes, len(nodes)), what)

    def _trees_in_scope(self, documents: bool) -> list[str]:
        listed = self._store.trees.list_all(self._workspace.scope)
        listed = [each for each in listed if _is_document(each.tree) == documents]
        return [f'{each.tree.row.id} "{each.tree.title}", {each.nodes} nodes' for each in listed]

    def _bookmarks(self) -> list[str]:
        marked = [twig for twig in self._tree.twigs() if twig.flags.bookmarked]
        return [f"[{twig.short_id}] {flatten(twig.flags.label)}".strip() for twig in marked]

    def _links(self) -> list[str]:
        here = self._tree.position(self._session.row.agent)
        links = self._tree.marks(here).links if here else ()
        return [
            f'{link.tree and link.tree + "/"}{link.target} "{flatten(link.label)}"'
            for link in links
        ]

    def _near(self, what: str) -> list[Node]:
        """Continuations, annotations or siblings of where the agent stands."""
        here, tree = self._tree.position(self._session.row.agent), self._tree.stored.row.key
        if here is None:
            return []
        parent = self._parent(here) if what == "siblings" else here
        nodes = [node for node in self._store.trees.children(tree, parent) if node.seq != here.seq]
        marks = self._store.trees.marks(tree, [node.seq for node in nodes])
        edge = "continuation"
        if what == "annotations":
            edge = "annotation"
        return [node for node in nodes if marks.get(node.seq, Marks()).edge_mark.edge == edge]

    def _picture(self, command: Command) -> str:
        root = None
        if command.words:
            root = self._node(command.words[0])
        here = self._tree.position(self._session.row.agent)
        model = self._agent.kind == "model"
        text, shown = picture(
            self._tree, root, here, int(command.option("depth", str(TREE_DEPTH))), model
        )
        self._shows |= dict.fromkeys(shown)
        return text

    def _switch(self, command: Command) -> str:
        node = self._node(command.words[0])
        digests = command.option("digest") == "yes"
        self._stand(self._tree.switch(node.id, agent=self._session.row.agent, leave_digest=digests))
        here = self._session.cursor or node
        left = ""
        if digests and here.parent == node.seq:
            left = f", where [{here.short_id}] is a digest of the branch that you left"
        return f"you are at [{here.short_id}]{left}"

    def _search(self, command: Command) -> str:
        query = command.words[0]
        try:
            request = check_search(query, None, _FOUND + 1, None, self._workspace.now())
        except ChoiceError as error:
            raise _CommandRefused("INVALID_SYNTAX", str(error), '→ search "retry budget"') from None
        row = self._session.row
        self._workspace.indexer.catch_up(row.tree.key)
        embedder = self._workspace.indexer.embedder
        found = search_tree(self._store, row, request, self._agent.kind == "model", embedder)
        passages = {node.seq: flatten(passage) for node, passage in found}
        nodes = [node for node, _ in found]
        return _lines(
            self._describe_nodes(nodes, len(nodes), passages), f"nodes with {shorten(query)!r}"
        )

    # What an agent keeps

    def _pin(self, command: Command) -> str:
        memory = self._memory()
        if number := command.option("result"):
            shown = self._before.results.get(f"{int(number):03}")
            if shown is None:
                raise _CommandRefused(
                    "NOT_FOUND", f"there was no result {number} in your last turn"
                )
            turn = next(reversed(self._before.actions), "0").lstrip("0")
            name, pin = f"result:{turn}.{number}", Pin(text=shown.text, shows=shown.shows)
        elif label := command.option("stash"):
            stash = self._stash(label)
            name, pin = f"stash:{label}", Pin(text=stash.text, shows=stash.shows)
        else:
            node = self._node(command.words[0])
            name, pin = node.short_id, Pin(node=node.id)
        if len(memory.pins) >= PINS and name not in memory.pins:
            raise _CommandRefused(
                "LIMIT_EXCEEDED",
                f"you have {PINS} pins, which is all you may have",
                "→ drop pin:NAME",
            )
        self._keep("pin", name, pin)
        return f"pinned [{name}]"

    def _put_away(self, command: Command) -> str:
        label, memory = _check_name(command.words[0], "a stash"), self._memory()
        if label not in memory.stashes and len(memory.stashes) >= MAX_STASHES:
            raise _CommandRefused(
                "LIMIT_EXCEEDED",
                f"you have {MAX_STASHES} stashes, which is all you may have",
                '→ drop stash:"LABEL"',
            )
        if name := command.option("content-of"):
            node = self._node(name)
            if why := self._find_hidden([node]).get(node.seq):
                raise _CommandRefused(
                    "NOT_FOUND", f"what [{node.short_id}] says is {why} and hidden"
                )
            text = self._words(node)
        elif span := command.option("summary-of"):
            text = self._summary(*span.split("-"))
        else:
            text = command.words[1]
        if len(text) > MAX_STASH_CHARS:
            raise _CommandRefused(
                "LIMIT_EXCEEDED",
                f"a stash can have at most {MAX_STASH_CHARS:,} characters, found {len(text):,}",
                "stash a part of it",
            )
        self._keep("stash", label, Stash(text, shows=tuple(self._shows)))
        return f'stashed "{label}" ({len(text):,} characters)'

    def _summary(self, first: str, last: str) -> str:
        begin, end, tree = self._node(first), self._node(last), self._tree.stored.row
        path = self._store.trees.path(tree.key, end)
        if not path.holds(begin.seq, begin.depth):
            raise _CommandRefused(
                "NOT_FOUND",
                f"node {begin.short_id} is not on the path to {end.short_id}",
                "→ tree shows which node follows which",
            )
        overlay = Overlay.read(path, tree, self._tree.head.mode, {})
        text, handles = digest(overlay, begin.depth, f"{self._session.id} {begin.id} {end.id}")
        self._shows |= dict.fromkeys(digest_nodes(overlay, begin.depth))
        self._store.views.keep(self._session.row, handles, self._workspace.now())
        return text

    def _recall(self, command: Command) -> str:
        name = command.words[0]
        if name.startswith("~"):
            try:
                return self._cut_page(self._recall_text(name), command, f"→ recall {name}")
            except ChoiceError as error:
                raise _CommandRefused("NOT_FOUND", str(error)) from None
        stash = self._stash(name)
        self._keep("stash", name, Stash(stash.text, recalled=True, shows=stash.shows))
        return f'"{name}" is in your memory until you drop it'

    def _drop(self, command: Command) -> str:
        if name := command.option("pin"):
            if name not in self._memory().pins:
                raise _CommandRefused(
                    "NOT_FOUND", f"there is no pin {shorten(name)!r}", "→ memory shows your pins"
                )
            self._keep("pin", name, None)
            return f"dropped the pin [{name}]"
        label = command.option("stash")
        stash = self._stash(label)
        self._keep("stash", label, Stash(stash.text, shows=stash.shows) if stash.recalled else None)
        if stash.recalled:
            return f'"{label}" is stashed again, and not in your context'
        return f'"{label}" is gone'

    def _show_memory(self, command: Command) -> str:
        memory, now = self._memory(), self._workspace.now()
        match command.words:
            case ("trace",):
                done = (
                    f"{'✗ ' if a.failed else ''}{a.command} · {age(a.at, now)}"
                    for a in memory.actions.values()
                )
                return _lines(done, "actions")
            case ("stashed",):
                texts = {
                    label: still_shown(self._store, self._session.row, stash)
                    for label, stash in memory.stashes.items()
                }
                return _lines(
                    (
                        f'"{flatten(label)}": {shorten(text, _WORDS)}'
                        for label, text in texts.items()
                    ),
                    "stashes",
                )
        shown = AgentMemory(memory.pins, memory.stashes, {}, memory.actions)
        return memory_text(self._store, self._session.row, shown, now) or "(empty)"

    def _help(self, command: Command) -> str:
        return help_text(command.words[0] if command.words else "", self._agent.granted_permissions)

    # What an agent writes

    def _respond(self, command: Command) -> str:
        after = None
        if command.option("to"):
            after = self._node(command.option("to")).id
        if after is None:
            self._check_place()
        made = self._tree.say(
            command.words[0], after=after, agent=self._session.row.agent, seen=self._seen
        )
        self._stand(self._tree.session(self._session.row.agent))
        return f"wrote [{made.short_id}]; it is your current node"

    def _check_place(self) -> None:
        """Refuse to continue if the agent is no longer where it knows itself to stand."""
        session = self._tree.session(self._session.row.agent)
        here, known = session.cursor, self._at
        if here is not None and known is not None and here.id != known:
            raise Conflict(session.id, self._tree.node(known).short_id, here.short_id)

    def _annotate(self, command: Command) -> str:
        on = self._node(command.words[0])
        remark = self._tree.annotate(on.id, command.words[1], agent=self._session.row.agent)
        return f"annotated [{on.short_id}] with [{remark.short_id}]"

    def _link(self, command: Command) -> str:
        source, target = self._node(command.words[0]), command.words[1]
        label = command.words[2] if len(command.words) > 2 else ""
        tree = target.rpartition("/")[0]
        try:
            self._tree.link(source.id, target, label, agent=self._session.row.agent)
        except ChoiceError as error:
            code: Code = "NOT_FOUND"
            if tree and "there is no tree" in str(error):
                code = "CROSS_TREE"
            raise _CommandRefused(code, str(error)) from None
        return f"linked [{source.short_id}] to {target}"

    def _edit(self, command: Command) -> str:
        old = self._node(command.words[0])
        made = self._tree.edit(old.id, command.words[1], agent=self._session.row.agent)
        self._stand(self._tree.session(self._session.row.agent))
        how = "a branch next to"
        if self._tree.head.mode == "buffer":
            how = "a version of"
        return f"wrote [{made.short_id}], {how} [{old.short_id}]"

    def _bookmark(self, command: Command) -> str:
        node, on = self._node(command.words[0]), command.name == "bookmark"
        label = command.words[1] if len(command.words) > 1 else ""
        changed = self._tree.bookmark(node.id, label, on=on, agent=self._session.row.agent)
        return (
            f"{'' if changed else 'nothing to do: '}[{node.short_id}] is "
            f"{'' if on else 'not '}bookmarked"
        )

    def _prune(self, command: Command) -> str:
        node = self._node(command.words[0])
        count = (self._tree.prune if command.name == "prune" else self._tree.restore)(
            node.id, agent=self._session.row.agent
        )
        below = f" with {count - 1} below it" if count > 1 else ""
        return f"[{node.short_id}] is {'pruned' if command.name == 'prune' else 'back'}{below}"

    def _continue(self, command: Command) -> str:
        times = int(command.option("n", "1"))
        here = self._session.cursor
        if here is None or not self._workspace.can_start:
            raise _CommandRefused(
                "MODEL_ERROR",
                "there is no model that could continue",
                'write a continuation yourself: → respond "TEXT"',
            )
        name, noun = self._session.row.agent, "continuation" if times == 1 else "continuations"

        async def work() -> bool:
            written, failure = 0, None
            try:
                for _ in range(times):
                    written += bool(await self._tree.continue_at(here.id, agent=name))
            except Exception as error:
                failure = error
            if written < times:
                lead = f"{written} of {times} {noun} of [{here.short_id}] were written: "
                late = _explain_failure(failure, lead, command.source)
                await self._tree.run_off_loop(lambda: self._add_late_result(late))
            if failure is not None:
                raise failure
            return written > 0

        begun = self._workspace.start(f"{self._tree.id} {name} continue", work)
        if not begun:
            raise _CommandRefused(
                "MODEL_ERROR",
                "the model is still busy with your last continuations, or failed several times",
                f"look at what there is: → view {here.short_id}",
            )
        return (
            f"{times} {noun} of [{here.short_id}] will be written as branches; → view "
            f"{here.short_id} shows them"
        )

    # Documents: trees in buffer mode, by their titles

    def _read(self, command: Command) -> str:
        document = self._document(command.words[0])
        steps, _ = document.path(agent="", last=1_000_000)
        shown = [step.node for step in steps if not step.hidden]
        text = "".join(as_text(message_of(node)).text for node in shown)
        parts = ", ".join(f"[{node.short_id}]" for node in shown[:_FOUND]) + (
            " …" if len(shown) > _FOUND else ""
        )
        lead = (
            f'"{document.title}", {len(shown)} {"part" if len(shown) == 1 else "parts"}: '
            f"{parts}\n---\n"
        )
        return lead + self._cut_page(text, command, f"→ read {quote_word(command.words[0])}")

    def _write(self, command: Command) -> str:
        name, text = _check_name(command.words[0], "a document"), command.words[1]
        over = command.option("over")
        try:
            document = self._document(name)
        except _CommandRefused:
            if over:
                raise
            document = make_tree(self._workspace, name, TreeHead(mode="buffer"))
        if over:
            try:
                part = document.node(over)
            except ChoiceError as error:
                raise _CommandRefused("NOT_FOUND", str(error)) from None
            made = document.edit(part.id, text, agent="", choose=False)
            return f'wrote [{made.short_id}] over [{part.short_id}] of "{document.title}"'
        # Everybody reads the document along the path of its own session, so that continues; the
        # words are the agent's.
        said_by = Message(
            "assistant" if self._agent.kind == "model" else "user", (Text(text),), self._agent.name
        )
        try:
            made = write_at_end(document, said_by)
        except Conflict:
            raise _CommandRefused(
                "CONFLICT", f'somebody else wrote to "{document.title}" just now', "write it again"
            ) from None
        return f'wrote [{made.short_id}] at the end of "{document.title}"'

    def _document(self, name: str) -> LoomTree:
        found = [
            stored
            for stored in self._store.trees.find_titled(self._workspace.scope, name)
            if _is_document(stored)
        ]
        if not found:
            raise _CommandRefused(
                "NOT_FOUND", f"there is no document {shorten(name)!r}", "→ list documents"
            )
        return LoomTree(self._workspace, found[0])

    # Below

    def _stand(self, session: Session) -> None:
        """The agent has moved, and knows where it is."""
        self._session = session
        self._at = session.cursor.id if session.cursor else None

    def _node(self, name: str) -> Node:
        if "/" in name:
            raise _CommandRefused(
                "CROSS_TREE",
                f"{shorten(name)} is a node of another tree, and you act on this one",
                "→ link may name it",
            )
        try:
            return self._tree.node(name.strip("[]"))
        except ChoiceError as error:
            raise _CommandRefused(
                "NOT_FOUND", str(error), "→ tree, → list and → search name nodes"
            ) from None

    def _parent(self, node: Node | None) -> Node | None:
        if node and node.parent is not None:
            return self._tree.read([node.parent])[node.parent]
        return None

    def _make_header(self, node: Node) -> str:
        tree, now = self._tree.stored.row.key, self._workspace.now()
        marks, kin = (
            self._tree.marks(node),
            self._store.trees.kin(tree, [node.seq], now).get(node.seq, Kin()),
        )
        return header(node, marks, kin, self._store.trees.agents_of(tree), now)

    def _describe_nodes(
        self, nodes: Iterable[Node], count: int, passages: Mapping[int, str] = NO_PASSAGES
    ) -> list[str]:
        """A line for each node: who speaks, and a passage, or how the node begins."""
        found = list(nodes)
        hidden = self._find_hidden(found[:_FOUND])
        marks = self._store.trees.marks(self._tree.stored.row.key, [node.seq for node in found])
        agents = self._store.trees.agents_of(self._tree.stored.row.key)
        lines = []
        for node in found[:_FOUND]:
            mark = marks.get(node.seq, Marks())
            more = connections(mark, Kin())
            if node.seq in hidden:
                text = f"({hidden[node.seq]})"
            else:
                text = passages.get(node.seq) or words(message_of(node), _WORDS)
            self._shows |= {} if node.seq in hidden else {node.id: None}
            lines.append(
                f"[{node.short_id}] "
                f"{author_of(node, mark, agents)}{f' ({more})' if more else ''}: {text}"
            )
        if count > _FOUND:
            rest = count - _FOUND if count > _FOUND + 1 else "more"
            lines.append(f"and {rest} more")
        return lines

    def _words(self, node: Node) -> str:
        self._shows[node.id] = None
        return _text(message_of(node))

    def _find_hidden(self, nodes: Sequence[Node]) -> dict[int, str]:
        """Those of these nodes whose words this agent is not to see, and why; a person may see
        all.
        """
        if self._agent.kind == "model":
            return self._store.trees.kept_from_models(self._tree.stored.row.key, nodes)
        return {}

    def _recall_text(self, handle: str) -> str:
        if self._agent.kind != "model":
            return self._session.recall(handle, plain=True)
        return self._session.recall_shown(handle, plain=True)[0]

    def _memory(self) -> AgentMemory:
        return memory_of(self._store, self._session.row.key)

    def _stash(self, label: str) -> Stash:
        found = self._memory().stashes.get(label)
        if found is None:
            raise _CommandRefused(
                "NOT_FOUND", f"there is no stash {shorten(label)!r}", "→ memory stashed lists them"
            )
        return found

    def _keep(self, kind: str, name: str, value: Pin | Stash | None) -> None:
        self._store.states.put(
            self._session.row.key,
            kind,
            {name: None if value is None else to_json(value)},
            self._workspace.now(),
        )

    def _cut_page(self, text: str, command: Command, again: str) -> str:
        """As many lines of a text as a result may hold, from the line that is asked for."""
        lines = [
            line[at : at + _PIECE]
            for line in text.splitlines()
            for at in range(0, len(line) or 1, _PIECE)
        ]
        count = gate_counter(None).count_text
        start = int(command.option("from", "1")) - 1
        if start >= len(lines) and start:
            raise _CommandRefused(
                "LIMIT_EXCEEDED",
                f"there are {len(lines)} lines, and none at {start + 1}",
                f"{again} from:1",
            )
        used, end = 0, start
        while end < len(lines) and used + count(lines[end]) + 1 <= MAX_INLINE_TOKENS * 4 // 5:
            used += count(lines[end]) + 1
            end += 1
        if end == len(lines) and not start:
            return text
        more = ""
        if end < len(lines):
            more = f"; {again} from:{end + 1}"
        return "\n".join((*lines[start:end], f"(lines {start + 1} to {end} of {len(lines)}{more})"))

    def _inline(self, text: str, shows: Sequence[str]) -> str:
        """A result as it is shown: whole, or its head and tail with a handle."""
        count = gate_counter(None).count_text
        if count(text) <= MAX_INLINE_TOKENS:
            return text
        handle, kept = HandleTarget.of_text(f"result {self._session.id}", text, shows)
        self._store.views.keep(self._session.row, [(handle, kept)], self._workspace.now())
        return shrink_text(text, MAX_INLINE_TOKENS, count, handle)

    _does: ClassVar[dict[str, Callable[["_Hand", Command], str]]] = {
        "view": _view,
        "list": _list,
        "tree": _picture,
        "switch": _switch,
        "search": _search,
        "pin": _pin,
        "stash": _put_away,
        "recall": _recall,
        "drop": _drop,
        "memory": _show_memory,
        "help": _help,
        "respond": _respond,
        "annotate": _annotate,
        "link": _link,
        "edit": _edit,
        "bookmark": _bookmark,
        "unbookmark": _bookmark,
        "prune": _prune,
        "restore": _prune,
        "continue": _continue,
        "read": _read,
        "write": _write,
    }


def _explain_failure(failure: Exception | None, lead: str, source: str) -> Mistake:
    """What an agent is told when the model did not write all continuations."""
    why = "the model said nothing, or a limit of tokens or cost is reached"
    if failure is not None:
        why = shorten(" ".join((str(failure) or repr(failure)).split()), _ERROR)
    hint = 'repeat it, or write a continuation yourself: → respond "TEXT"'
    return Mistake("MODEL_ERROR", f"{lead}{why}", hint, source)


def _went_on(conflict: Conflict, what: str = "") -> Mistake:
    message = (
        f"{what}somebody continued after {conflict.expected} with {conflict.found} since you looked"
    )
    return Mistake("CONFLICT", message, f"→ view {conflict.found}")


def _check_name(name: str, what: str) -> str:
    if not name.strip():
        raise _CommandRefused("INVALID_SYNTAX", f"{what} must have a name")
    return name


def _is_document(tree: StoredTree) -> bool:
    return tree.head.mode == "buffer"


def _lines(lines: Iterable[str], what: str) -> str:
    return "\n".join(lines) or f"(no {what})"


def _text(message: Message) -> str:
    calls = "".join(f"\n→ {call.name} {call.arguments}" for call in message.calls)
    results = "".join(
        f"\n{as_text(Message('tool', result.parts)).text}" for result in message.results
    )
    return (as_text(message).text + calls + results).strip("\n") or "(no words)"
