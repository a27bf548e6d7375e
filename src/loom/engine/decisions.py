"""The decision graph of a project: what was decided, why, and what came of it.

Nothing is logged by itself: only what a program, a person or a model logs is here. Nothing of
another tenant, project or folder is seen.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import from_json
from loom.conversation.checked import (
    check_text,
    checks_arguments,
    choose,
    refuse_unknown,
    show_options,
)
from loom.conversation.metadata import write_metadata
from loom.conversation.names import check_name
from loom.decisions.mermaid import draw_mermaid
from loom.decisions.pulse import MAX_LISTED, STALE_MS, Pulse, PulseList, compute_health
from loom.decisions.values import (
    EDGE_KINDS,
    KINDS,
    MAX_TITLE_CHARS,
    STATUSES,
    Confidence,
    Decision,
    DecisionBody,
    DecisionEdge,
    DecisionGraph,
    DecisionKind,
    DecisionStatus,
    EdgeKind,
    NewDecision,
    NewEdge,
    check_commits,
    check_nodes,
    to_title,
)
from loom.decisions.write_up import write_up
from loom.engine.notes import find_asked_terms
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, LoomError, describe
from loom.recall.importance import choose_candidates, score_match
from loom.recall.question import find_content_terms
from loom.runtime import Task
from loom.runtime.threads import async_form, async_value
from loom.stores import DecisionFilter, DecisionScope, GraphWriter, PulseCounts, SessionRow

if TYPE_CHECKING:
    from loom.stores import Cascade, StoredDecision

DEFAULT_LIMIT = 10
MAX_GRAPH = 500  # decisions of a graph that is read whole, unless more are asked for
MAX_DRAWN = 200  # decisions in a drawing, unless more are asked for
MAX_SCORED = 100  # decisions that are read to know how much of what they say is asked for
MAX_PULSES = 100  # graphs whose last pulse is kept
MAX_TERMS = 1000  # of a decision
UNCERTAIN_ACTION = "decision.uncertain"  # of the message to whoever logged what is uncertain now
REASON = "abandoned_because"  # in the metadata of what was abandoned
_T = TypeVar("_T")


class LogOptions(TypedDict, total=False):
    """The options of `log`."""

    # What it is: `goal`, `decision`, `option`, `action`, `outcome`, `observation` or `revisit`
    # (default: `decision`).
    kind: DecisionKind
    # More words than the title has.
    description: str
    # How sure one is, from 0 to 100 (default: it is not known).
    confidence: int | None
    # The decision that it comes from, by its id or the first characters of it.
    parent: str | None
    # The kind of the edge from the parent (default: `leads_to`).
    edge: EdgeKind
    # Why the edge is there.
    rationale: str
    # How much the edge matters (default: 1.0).
    weight: float
    # What a program wants to know of it: a JSON object.
    metadata: Mapping[str, Any]
    # Hashes of commits that carry it out.
    commits: Sequence[str]
    # Messages that it comes from: `TREE/ID`; in a session also ids of its nodes.
    nodes: Sequence[str]


class Pivot(Struct, frozen=True):
    """A decision that was replaced: what was observed, what was reconsidered, the new decision, and
    the edge by which it supersedes the old one.
    """

    observation: Decision
    revisit: Decision
    decision: Decision
    edge: DecisionEdge


class ConfidenceChange(Struct, frozen=True):
    """A decision whose confidence was set, and those that became uncertain with it, or certain
    again.
    """

    decision: Decision
    uncertain: tuple[Decision, ...] = ()
    certain: tuple[Decision, ...] = ()


class ProjectDecisions:
    """The decisions of a project, or of one of its folders."""

    def __init__(self, workspace: Workspace, folder: Callable[[], str] = str) -> None:
        """`folder` finds the folder whose decisions these are."""
        self._workspace, self._store, self._find_folder = workspace, workspace.store, folder

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on these decisions in a thread of the store."""
        return await self._workspace.run_off_loop(work)

    # Whose decisions these are

    @property
    def folder(self) -> str:
        """The folder that these decisions belong to; "" if they belong to no folder.

        In a session, it is the project that its requests named last.
        """
        return self._find_folder()

    @property
    def scope(self) -> DecisionScope:
        """Whose decisions these are."""
        scope = self._workspace.scope
        return DecisionScope(scope.tenant, scope.project, self.folder, self._session)

    @checks_arguments
    def of_folder(self, folder: "str | PathLike[str]") -> "ProjectDecisions":
        """The decisions of another folder of the project; "" means of no folder."""
        path = find_folder(folder)
        return ProjectDecisions(self._workspace, lambda: path)

    @property
    def _session(self) -> str:
        return ""

    @property
    def _agent(self) -> str:
        return self._workspace.scope.agent

    # Writing

    @checks_arguments
    @show_options
    def log(self, title: str, **options: Unpack[LogOptions]) -> Decision:
        """Log a goal, decision, option, action, outcome, observation or revisit.

        What is active and says the same is found and not logged again: a goal by its title in the
        whole project, anything else in its session and under its parent. It gets what is new of
        links and metadata, and the confidence.
        """
        refuse_unknown("log", options, LogOptions)
        new = self._make_new(title, options)
        edge = self._make_edge(
            options.get("edge", "leads_to"),
            options.get("weight", 1.0),
            options.get("rationale", ""),
        )
        found, cascades = self._spread(lambda graph: graph.log(new, edge), options.get("parent"))
        self._emit("logged", found.decision)
        self._notify_owners(cascades)
        return found.decision

    @checks_arguments
    def link(
        self,
        source: str,
        target: str,
        kind: EdgeKind = "leads_to",
        *,
        weight: float = 1.0,
        rationale: str = "",
    ) -> DecisionEdge:
        """Make an edge between two decisions, or change the weight and the rationale of one that is
        there.

        An edge of the kind `supersedes` does what `supersede` does.
        """
        edge = self._make_edge(kind, weight, rationale)
        made, cascades = self._spread(lambda graph: graph.link(source, target, edge), source)
        self._emit("linked", self.decision(made.source), target=made.target, edge=made.kind)
        self._notify_owners(cascades)
        return made

    @checks_arguments
    def attach(
        self,
        name: str,
        *,
        commits: Sequence[str] = (),
        nodes: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Link a decision to commits and messages, and add to its metadata."""
        added = _check_metadata(metadata)
        hashes, named = check_commits(commits), self._find_nodes(nodes)
        made = self._write(lambda graph: graph.attach(name, hashes, named, added), name).decision
        self._emit("attached", made)
        return made

    @checks_arguments
    def supersede(self, old: str, new: str, why: str = "") -> DecisionEdge:
        """Replace an active decision by another active one; `why` becomes the rationale.

        A `Conflict` is raised if the old one was superseded by another decision already.
        """
        edge = self._make_edge("supersedes", 1.0, why)
        made = self._write(lambda graph: graph.supersede(old, new, edge), old)
        self._emit("superseded", self.decision(made.source), by=made.target)
        return made

    @checks_arguments
    def pivot(
        self, old: str, observation: str, new_approach: str, *, confidence: int | None = None
    ) -> Pivot:
        """Replace an active decision because of something that was observed.

        The old decision leads to the observation, this to a revisit, and this to the new decision,
        which supersedes the old one. All of it is written, or nothing.
        """
        before = self.decision(old)
        reconsidered = f"Reconsidering: {before.title}"
        under = before.id  # in its graph
        seen = self._make_new(observation, {"kind": "observation", "parent": under})
        title = reconsidered[:MAX_TITLE_CHARS].rstrip()
        revisit = self._make_new(title, {"kind": "revisit", "parent": under})
        new = self._make_new(
            new_approach, {"kind": "decision", "confidence": confidence, "parent": under}
        )
        edge = self._make_edge("supersedes", 1.0, seen.body.title)
        chain = (seen, revisit, new)
        first, second, last, link = self._write(
            lambda graph: graph.pivot(before.id, chain, edge), before.id
        )
        self._emit("pivoted", before, by=last.decision.id)
        return Pivot(first.decision, second.decision, last.decision, link)

    @checks_arguments
    def abandon(self, name: str, why: str = "") -> Decision:
        """Give an active decision up. It stays, and is among the prior attempts."""
        reason = {REASON: check_text("why", why).strip()} if why.strip() else {}
        made = self._write(
            lambda graph: graph.abandon(name, _check_metadata(reason)), name
        ).decision
        self._emit("abandoned", made)
        return made

    @checks_arguments
    def set_confidence(self, name: str, confidence: int | None) -> ConfidenceChange:
        """Set how sure one is of a decision, from 0 to 100; None means that it is not known.

        Below 50, everything that it requires or blocks, over up to 5 edges, gets
        `upstream_uncertainty` in its metadata, and whoever logged that is notified on the bus of
        the project. The mark goes when nothing above is active and below 50 any more.
        """
        sure = _check_confidence(confidence)

        def change(graph: GraphWriter) -> "StoredDecision":
            made = graph.set_confidence(graph.find(name), sure)
            graph.count_change()
            return made

        found, cascades = self._spread(change, name)
        self._emit("confidence", found.decision, confidence=sure)
        self._notify_owners(cascades)
        return ConfidenceChange(
            found.decision,
            tuple(each for cascade in cascades for each in cascade.uncertain),
            tuple(each for cascade in cascades for each in cascade.certain),
        )

    @checks_arguments
    def purge(self, name: str) -> None:
        """Delete the words of a decision for good, and why its edges are there.

        Its id, kind, status and edges stay.
        """
        self._write(lambda graph: graph.purge(name), name)
        self._workspace.caches.clear()
        self._workspace.pulses.clear()
        self._store.decisions.shed()

    # Reading

    @checks_arguments
    def decision(self, name: str) -> Decision:
        """Find a decision by its id, or by the first characters of its id."""
        return self._store.decisions.find(self.scope, name)

    @checks_arguments
    def active_goals(self, limit: int = DEFAULT_LIMIT) -> list[Decision]:
        """List the active goals, the newest first."""
        return self._store.decisions.active_goals(self.scope, _check_limit(limit))

    @checks_arguments
    def recent(self, limit: int = DEFAULT_LIMIT) -> list[Decision]:
        """List the active decisions, options and actions, the newest first."""
        return self._store.decisions.recent(self.scope, _check_limit(limit))

    @checks_arguments
    def prior(self, limit: int = DEFAULT_LIMIT) -> list[Decision]:
        """List prior attempts: what was superseded or abandoned, and what has to be reconsidered,
        the newest first.
        """
        return self._store.decisions.prior(self.scope, _check_limit(limit))

    @checks_arguments
    def of_session(self, session: str, limit: int = DEFAULT_LIMIT) -> list[Decision]:
        """List the last decisions of a session by its id, the oldest of them first."""
        name = check_name("session", session)
        return self._store.decisions.of_session(self.scope, name, _check_limit(limit))

    @checks_arguments
    def list_all(
        self,
        *,
        kind: DecisionKind | None = None,
        status: DecisionStatus | None = None,
        session: str | None = None,
        commit: str | None = None,
        node: str | None = None,
        limit: int = 50,
    ) -> list[Decision]:
        """List decisions, the newest first: of one kind, of one status, of a session, of a commit
        by its first characters, or of a message.
        """
        wanted = DecisionFilter(
            kind=None if kind is None else choose("kind", kind, KINDS),
            status=None if status is None else choose("status", status, STATUSES),
            session=None if session is None else check_name("session", session),
            commit="" if commit is None else check_commits([commit])[0],
            node="" if node is None else self._find_nodes([node])[0],
            limit=_check_limit(limit),
        )
        return self._store.decisions.list_all(self.scope, wanted)

    @checks_arguments
    def search(
        self, query: str, limit: int = DEFAULT_LIMIT, *, status: DecisionStatus | None = None
    ) -> list[Decision]:
        """Find decisions by the words of their titles and descriptions, the best first. Of equals,
        what still holds comes first, then the newest.
        """
        if not check_text("a query", query).strip():
            raise ChoiceError("a search for decisions needs words to look for")
        found = [each for _, each in self.rank(query)]
        if status is not None:
            wanted = choose("status", status, STATUSES)
            found = [each for each in found if each.status == wanted]
        return found[: _check_limit(limit)]

    @checks_arguments
    def rank(self, query: str) -> list[tuple[float, Decision]]:
        """The decisions that say something of a text, each with how much it matters, from 0 to 1,
        the best first.
        """
        terms = find_asked_terms(query)
        matches = self._store.decisions.match(self.scope, terms)
        keys = choose_candidates(matches.holding, matches.decisions, MAX_SCORED, matches.counts)
        found = self._store.decisions.read(self.scope, keys)
        counts = {term: len(held) for term, held in matches.holding.items()}
        counts.update(matches.counts)
        scored: list[tuple[float, int, Decision]] = []
        for key, decision in found.items():
            said = find_content_terms(f"{decision.title}\n{decision.description}", MAX_TERMS)
            score = score_match(frozenset(said), terms, counts, matches.decisions)
            if score > 0:
                scored.append((score, key, decision))
        scored.sort(
            key=lambda each: (each[0], each[2].status == "active", each[2].created, each[1]),
            reverse=True,
        )
        return [(score, decision) for score, _, decision in scored]

    @checks_arguments
    def edges(self, name: str) -> list[DecisionEdge]:
        """List the edges from and to a decision."""
        return self._store.decisions.edges_of(self.scope, [self.decision(name).id])

    @checks_arguments
    def graph(
        self, name: str | None = None, *, session: str | None = None, limit: int = MAX_GRAPH
    ) -> DecisionGraph:
        """Read decisions with the edges between them: the newest, those of a session, or a decision
        with everything that it leads to.
        """
        most = _check_limit(limit)
        if name is not None:
            return self._store.decisions.read_below(self.scope, name, most)
        whose = None if session is None else check_name("session", session)
        return self._store.decisions.read_newest(self.scope, whose, most)

    @checks_arguments
    def write_up(
        self, name: str | None = None, *, session: str | None = None, limit: int = MAX_GRAPH
    ) -> str:
        """Write decisions up as Markdown, for a pull request: goals, what was chosen and rejected
        and why, what was done, and what came of it. It takes what `graph` takes.
        """
        return write_up(self.graph(name, session=session, limit=limit))

    @checks_arguments
    def mermaid(
        self, name: str | None = None, *, session: str | None = None, limit: int = MAX_DRAWN
    ) -> str:
        """Draw decisions as a Mermaid flowchart. It takes what `graph` takes."""
        return draw_mermaid(self.graph(name, session=session, limit=limit))

    @property
    def revision(self) -> int:
        """How often these decisions changed: what was made from them holds until it is another
        number.
        """
        return self._store.decisions.revision(self.scope)

    def folders(self) -> dict[str, int]:
        """List the folders of the project in which something was logged, and how many decisions
        each has.
        """
        scope = self._workspace.scope
        return dict(self._store.decisions.folders(scope.tenant, scope.project))

    def pulse(self) -> Pulse:
        """Say how healthy the graph is: what has no action or outcome, no edges, low confidence, or
        did not change for 7 days. It is computed again only if something changed.
        """
        now, revision = self._workspace.now(), self.revision
        cached = self._workspace.pulses.get(self.scope)
        if cached is not None and cached[0] == revision and now < cached[1]:
            return cached[2]
        counts = self._store.decisions.count_pulse(self.scope, now - STALE_MS, MAX_LISTED)
        made = _make_pulse(counts)
        until = now + STALE_MS
        if counts.next_stale is not None:
            until = counts.next_stale + STALE_MS
        if len(self._workspace.pulses) >= MAX_PULSES:
            self._workspace.pulses.clear()
        self._workspace.pulses[self.scope] = (revision, until + 1, made)
        return made

    # What differs in a session

    def _find_node(self, name: str) -> str:
        """A message as `TREE/ID`; it must be there."""
        tree, _, node = check_nodes([name])[0].rpartition("/")
        held = self._store.trees.get(self._workspace.scope, tree).row
        return f"{held.id}/{self._store.trees.node(held.key, node).id}"

    # Helpers

    def _find_nodes(self, nodes: Sequence[str]) -> list[str]:
        if isinstance(nodes, str) or not all(isinstance(each, str) for each in nodes):
            raise ChoiceError(f"nodes must be a list of texts, found {describe(nodes)}")
        return list(dict.fromkeys(map(self._find_node, nodes)))

    def _write(self, work: Callable[[GraphWriter], _T], at: str | None = None) -> _T:
        """Change the graph; `at` names a decision, whose graph is meant."""
        return self._store.decisions.write(self._home_of(at), self._workspace.now(), work)

    def _spread(
        self, work: Callable[[GraphWriter], _T], at: str | None
    ) -> tuple[_T, "Sequence[Cascade]"]:
        """Change the graph; what that made uncertain, or certain again, comes with the result."""

        def run(graph: GraphWriter) -> tuple[_T, "Sequence[Cascade]"]:
            return work(graph), graph.cascades

        return self._write(run, at)

    def _home_of(self, name: str | None) -> DecisionScope:
        """The scope of the graph that has a decision: another one than that of the folder if this
        session logged it there.
        """
        scope = self.scope
        if name is not None and scope.session:
            return self._store.decisions.home_of(scope, name)
        return replace(scope, session="")

    def _make_new(self, title: str, options: LogOptions) -> NewDecision:
        body = DecisionBody(
            title=to_title(title),
            description=check_text("description", options.get("description", "")).strip(),
            metadata=_check_metadata(options.get("metadata")),
            commits=tuple(dict.fromkeys(check_commits(options.get("commits", ())))),
            nodes=tuple(self._find_nodes(options.get("nodes", ()))),
        )
        return NewDecision(
            body=body,
            kind=choose("kind", options.get("kind", "decision"), KINDS),
            confidence=_check_confidence(options.get("confidence")),
            agent=self._agent,
            session=self._session,
            folder=self._home_of(options.get("parent")).folder,
            parent=check_text("parent", options.get("parent") or ""),
        )

    def _make_edge(self, kind: object, weight: float, rationale: object) -> NewEdge:
        return NewEdge(
            kind=choose("edge", kind, EDGE_KINDS),
            weight=weight,
            rationale=check_text("rationale", rationale).strip(),
            agent=self._agent,
            session=self._session,
        )

    def _emit(self, change: str, decision: Decision, **what: Any) -> None:
        self._workspace.emit(
            "decided",
            decision.session,
            "",
            change=change,
            decision=decision.id,
            decision_kind=decision.kind,
            **what,
        )

    def _notify_owners(self, cascades: "Sequence[Cascade]") -> None:
        for cascade in cascades:
            self._notify_of(cascade)

    def _notify_of(self, cascade: "Cascade") -> None:
        """Tell whoever logged them that decisions became uncertain: one message for each agent."""
        owners: dict[str, list[str]] = {}
        upstream = cascade.upstream
        for each in cascade.uncertain:
            self._emit("uncertain", each, upstream=upstream.id)
            if each.agent:
                owners.setdefault(each.agent, []).append(each.id)
        for agent, decisions in sorted(owners.items()):
            _notify_agent(
                self._workspace,
                agent,
                f"Decision {upstream.id} has a confidence of {upstream.confidence}%. What you "
                f"logged depends on it: {', '.join(decisions[:MAX_LISTED])}",
                {"upstream": upstream.id, "decisions": decisions[:MAX_LISTED]},
            )

    aabandon = async_form(abandon)
    aactive_goals = async_form(active_goals)
    aattach = async_form(attach)
    adecision = async_form(decision)
    aedges = async_form(edges)
    afolder = async_value(folder)
    afolders = async_form(folders)
    agraph = async_form(graph)
    alink = async_form(link)
    alist_all = async_form(list_all)
    alog = async_form(log)
    amermaid = async_form(mermaid)
    aof_session = async_form(of_session)
    apivot = async_form(pivot)
    aprior = async_form(prior)
    apulse = async_form(pulse)
    apurge = async_form(purge)
    arank = async_form(rank)
    arecent = async_form(recent)
    arevision = async_value(revision)
    ascope = async_value(scope)
    asearch = async_form(search)
    aset_confidence = async_form(set_confidence)
    asupersede = async_form(supersede)
    awrite_up = async_form(write_up)


class SessionDecisions(ProjectDecisions):
    """The decisions of the project of a session. What is logged here is logged in the session."""

    def __init__(
        self,
        workspace: Workspace,
        row: Callable[[], SessionRow],
        run: Callable[[Callable[[], Any]], Any],
        folder: Callable[[], str],
    ) -> None:
        """`row` reads the session. `run` runs work in the turn of the session. `folder` finds the
        folder that it works in.
        """
        super().__init__(workspace, folder)
        self._row, self._run = row, run

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on these decisions in a thread of the store, in the turn of the session."""
        made: _T = await self._run(work)
        return made

    @checks_arguments
    def of_folder(self, folder: "str | PathLike[str]") -> "SessionDecisions":
        """The decisions of another folder of the project; "" means of no folder."""
        path = find_folder(folder)
        return SessionDecisions(self._workspace, self._row, self._run, lambda: path)

    @checks_arguments
    def own(self, limit: int = DEFAULT_LIMIT) -> list[Decision]:
        """List the last decisions of this session, the oldest of them first."""
        return self.of_session(self._session, limit)

    @property
    def _session(self) -> str:
        return self._row().id

    @property
    def _agent(self) -> str:
        return self._row().agent

    def _find_node(self, name: str) -> str:
        if "/" in name:
            return super()._find_node(name)
        row = self._row()
        return f"{row.tree.id}/{self._store.sessions.node(row, name).id}"

    aown = async_form(own)


def _notify_agent(workspace: Workspace, agent: str, content: str, what: Mapping[str, Any]) -> None:
    """Send a direct message to an agent of the project, on the bus of the store."""
    task = Task(
        action=UNCERTAIN_ACTION,
        source_agent=workspace.scope.agent,
        target_agent=agent,
        parameters={"content": content, **what},
    )
    try:
        workspace.bus.publish(task)
    except LoomError as error:  # what happened has happened
        warnings.warn(f"{agent} was not notified: {error}", RuntimeWarning, stacklevel=2)


def find_folder(folder: "str | PathLike[str]") -> str:
    """The folder that is meant, as a path without links; "" if it is empty."""
    path = os.fspath(folder)
    if not isinstance(path, str) or "\0" in path:
        raise ChoiceError(f"folder must be the path of a folder, found {describe(folder)}")
    return os.path.realpath(os.path.expanduser(path)) if path else ""


def _make_pulse(counts: PulseCounts) -> Pulse:
    return Pulse(
        health=compute_health(counts.gaps[0], counts.orphans[0], counts.low_confidence[0]),
        gaps=PulseList(*counts.gaps),
        orphans=PulseList(*counts.orphans),
        stale=PulseList(*counts.stale),
        low_confidence=PulseList(*counts.low_confidence),
        by_kind=counts.by_kind,
        by_status=counts.by_status,
    )


def _check_confidence(confidence: object) -> Confidence | None:
    if confidence is None:
        return None
    if type(confidence) is not int or not 0 <= confidence <= 100:
        raise ChoiceError(
            f"confidence must be a whole number from 0 to 100, or None, found "
            f"{describe(confidence)}"
        )
    return confidence


def _check_metadata(given: object) -> dict[str, Any]:
    text = write_metadata(given)
    made: dict[str, Any] = from_json(text) if text else {}
    return made


def _check_limit(limit: int) -> int:
    if limit < 1:
        raise ChoiceError(f"the limit must be a whole number from 1, found {limit}")
    return limit
