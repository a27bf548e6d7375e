"""What is remembered: notes and facts, and the layers of what was said.

A layer is a question to the record that there is: no layer has copies. Nothing of another session,
agent, project or tenant is seen, but for what `across` is asked for: that goes through all sessions
in scope.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from loom.conversation.checked import (
    check_flag,
    check_number,
    check_text,
    checks_arguments,
    choose,
    refuse_unknown,
    show_options,
)
from loom.conversation.identity import is_node_id
from loom.conversation.names import check_name
from loom.conversation.repeats import normal_text
from loom.engine.layers import (
    LayerScope,
    MemoryItem,
    list_important,
    list_recent,
    list_summaries,
    search_important,
)
from loom.engine.notes import drop_repeats, rank_notes
from loom.engine.search import check_search, make_found_handle, search_project
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, describe, shorten
from loom.recall.hits import Hit
from loom.runtime.threads import async_form
from loom.stores import (
    MAX_NOTE_CHARS,
    MAX_SOURCES,
    HandleTarget,
    NewNote,
    Note,
    NoteBody,
    NoteFilter,
    NoteKind,
    NoteScope,
    NoteSpeaker,
    Overlay,
    Path,
    SessionRow,
)

_T = TypeVar("_T")
RememberScope = Literal["session", "agent", "project"]
DEFAULT_LIMIT = 10
MAX_SUMMARIES = 20
_CANDIDATES = 4  # messages for each that is listed, of which the most important are chosen
_LAST_MOMENT = 253_402_300_799_999  # milliseconds: the end of the year 9999


class RememberOptions(TypedDict, total=False):
    """The options of `remember`."""

    # A note, or a fact, which is a statement that holds (default: `note`).
    kind: NoteKind
    # What it is about, in a few words: a name, a topic.
    about: str
    # The id of a note that this one replaces. The older one can still be read as history.
    supersedes: str
    # When it begins and ends to hold: a `datetime` with its time zone, a date or time in ISO form
    # (UTC), or milliseconds since 1970 (default: always).
    valid_from: datetime | str | int | None
    valid_until: datetime | str | int | None
    # Where it comes from: handles; in a session also ids of nodes, which are stored as handles.
    sources: Sequence[str]
    # Who says so: `user` or `model` (default: `user`).
    by: NoteSpeaker
    # Show it in every request, and not only where it matters (default: False).
    always: bool
    # Who sees it: this `session`, all sessions of this `agent`, or the whole `project` (default:
    # the session, or the project if there is none).
    scope: RememberScope


class ProjectMemory:
    """What a project remembers."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._store = workspace, workspace.store

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on this memory in a thread of the store."""
        return await self._workspace.run_off_loop(work)

    @property
    def _scope(self) -> NoteScope:
        scope = self._workspace.scope
        return NoteScope(scope.tenant, scope.project, agent=scope.agent)

    @property
    def _id_scope(self) -> NoteScope:
        """Where a note is looked for by its id: in all sessions in scope."""
        return self._whole_scope

    @property
    def _whole_scope(self) -> NoteScope:
        scope = self._workspace.scope
        return NoteScope(scope.tenant, scope.project, agent=scope.agent, everyone=True)

    @checks_arguments
    @show_options
    def remember(self, text: str, **options: Unpack[RememberOptions]) -> Note:
        """Remember a note or a fact. The same words of the same speaker are remembered once."""
        refuse_unknown("remember", options, RememberOptions)
        new = check_note(text, options)
        session, agent = self._place_note(options.get("scope"))
        given = _check_sources(options.get("sources", ()))
        found = [self._find_source(each) for each in given]
        sources = tuple(dict.fromkeys(handle for handle, _ in found))
        nodes = tuple(dict.fromkeys(name for _, names in found for name in names))
        body = NoteBody(
            text=new.body.text,
            about=new.body.about,
            author=self._author,
            origin=self._scope.session,
            sources=sources,
            nodes=nodes[:MAX_SOURCES],
        )
        return self._store.notes.put(
            self._scope,
            NewNote(
                body=body,
                kind=new.kind,
                by=new.by,
                session=session,
                agent=agent,
                supersedes=new.supersedes,
                always=new.always,
                valid_from=new.valid_from,
                valid_until=new.valid_until,
            ),
            self._workspace.now(),
        )

    @checks_arguments
    def forget(self, name: str) -> None:
        """Show a note no longer, by its id or the first characters of it.

        A session forgets a note of its project or agent for itself only. It can also forget a
        message, by its handle or the id of its node: then it is not among those that are important.
        Nothing is deleted.
        """
        self._forget(name)

    @checks_arguments
    def purge(self, name: str) -> None:
        """Delete the words of a note for good. Its id stays."""
        self._store.notes.purge(self._id_scope, name, self._workspace.now())
        self._store.notes.shed()

    @checks_arguments
    def note(self, name: str) -> Note:
        """Find a note by its id, or by the first characters of its id, whatever its state."""
        note = self._store.notes.find(self._id_scope, name, self._workspace.now())
        self._workspace.uses.open_note(note.key)
        return note

    @checks_arguments
    def notes(
        self,
        query: str | None = None,
        limit: int | None = None,
        *,
        kind: NoteKind | None = None,
        about: str | None = None,
        history: bool = False,
        everyone: bool = False,
    ) -> list[Note]:
        """List the notes that hold now, the newest first; with a `query` those that say something
        of it, the best first.

        With `history`, also those that were forgotten or superseded, and those that do not hold
        now; their `state` says which. With `everyone`, those of all sessions in scope. Equal texts
        are listed once: what the user said, then the newest.
        """
        _check_limit(limit)
        wanted = NoteFilter(kind, about, history)
        now, scope = self._workspace.now(), self._whole_scope if everyone else self._scope
        if query is None:
            found = self._store.notes.list_all(scope, wanted, now)
            return found[:limit] if history else drop_repeats(found)[:limit]
        if not check_text("a query", query).strip():
            raise ChoiceError("a search for notes needs words to look for")
        ranked = rank_notes(self._store, scope, query, wanted, now)
        found = [note for _, note in ranked]
        return (found if history else drop_repeats(found))[: limit or DEFAULT_LIMIT]

    @checks_arguments
    def across(
        self,
        query: str,
        limit: int | None = None,
        *,
        tokens: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Search the messages of all sessions in scope, as `Loom.search` does; each text once."""
        workspace = self._workspace
        request = check_search(query, tokens, limit, where, workspace.now())
        workspace.indexer.catch_up()
        hits = search_project(self._store, workspace.scope, request, workspace.indexer.embedder)
        return list(
            {
                (hit.role, normal_text(hit.message.text) or hit.node): hit for hit in reversed(hits)
            }.values()
        )[::-1]

    # What differs in a session

    def _forget(self, name: str) -> None:
        self._store.notes.forget(self._id_scope, name, self._workspace.now())

    @property
    def _author(self) -> str:
        """The name of who remembers."""
        return self._workspace.scope.agent

    def _place_note(self, scope: RememberScope | None) -> tuple[str, str]:
        """The session and the agent that see a note."""
        agent = self._workspace.scope.agent
        match choose_scope(scope or "project"):
            case "session":
                raise ChoiceError(
                    "no session is meant here; remember it with the memory of a session, or for "
                    "the project"
                )
            case "agent":
                return "", _check_agent(agent)
            case _:
                return "", ""

    def _find_source(self, source: str) -> tuple[str, list[str]]:
        """The handle of what a note comes from, and the nodes at its ends, as `TREE/ID`."""
        found = self._store.views.targets_anywhere(self._workspace.scope, source)
        if not found:
            raise ChoiceError(
                f"{shorten(source)!r} is no handle here; a search shows the handles of its hits"
            )
        return source, [name for tree, target in found for name in name_nodes(tree, target)]

    aacross = async_form(across)
    aforget = async_form(forget)
    anote = async_form(note)
    anotes = async_form(notes)
    apurge = async_form(purge)
    aremember = async_form(remember)


class SessionMemory(ProjectMemory):
    """What a session remembers, and what its project remembers for it."""

    def __init__(
        self,
        workspace: Workspace,
        standing: Callable[[], tuple[SessionRow, Path]],
        overlay: Callable[[Path], Overlay],
        run: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """`standing` says where the session is, `overlay` what bears on a path. `run` runs work in
        the turn of the session.
        """
        super().__init__(workspace)
        self._standing, self._overlay, self._run = standing, overlay, run

    @checks_arguments
    def recent(self, limit: int = DEFAULT_LIMIT, *, repeats: bool = False) -> list[MemoryItem]:
        """L1: list the newest messages of the session, the newest first.

        A text that was said several times is listed once, unless `repeats` is True.
        """
        _check_limit(limit)
        return list_recent(self._stand(), limit, repeats)

    @checks_arguments
    def important(
        self, limit: int = DEFAULT_LIMIT, query: str | None = None, *, repeats: bool = False
    ) -> list[MemoryItem]:
        """L2: list the most important messages of the session, the most important first; with a
        `query`, of those that say something of it.

        Importance depends on kind and author, falls to a half in 7 days, and grows with use. Of
        equals the newer comes first. What was forgotten is not listed.
        """
        _check_limit(limit)
        workspace, where = self._workspace, self._stand()
        workspace.uses.flush()
        workspace.indexer.catch_up(where.row.tree.key)
        if query is None:
            return list_important(where, limit, repeats)
        request = check_search(query, None, limit * _CANDIDATES, None, where.now)
        return search_important(where, request, limit, workspace.indexer.embedder)

    @checks_arguments
    def summaries(self, limit: int = MAX_SUMMARIES) -> list[MemoryItem]:
        """L3: list the summaries of the session, the newest first."""
        _check_limit(limit)
        return list_summaries(self._stand(), limit)

    def _forget(self, name: str) -> None:
        row, path = self._standing()
        if name.startswith("~"):
            target = self._store.views.target(row, path, name)
            found = self._store.uses.find_nodes(row.tree.key, target)
        elif is_node_id(name):
            found = [self._store.sessions.node(row, name).seq]
        else:
            super()._forget(name)
            return
        if not found:
            raise ChoiceError(f"{shorten(name)!r} stands for no single message of this session")
        for seq in found:
            self._store.uses.forget(row, seq, True, self._workspace.now())

    def _stand(self) -> LayerScope:
        row, path = self._standing()
        row.check_alive()
        return LayerScope(self._store, row, self._overlay(path), self._workspace.now())

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on this memory in a thread of the store, in the turn of its session."""
        made: _T = await self._run(work)
        return made

    @property
    def _row(self) -> SessionRow:
        return self._standing()[0]

    @property
    def _scope(self) -> NoteScope:
        row = self._row
        return NoteScope(row.tree.tenant, row.tree.project, row.id, row.agent)

    @property
    def _id_scope(self) -> NoteScope:
        return self._scope

    @property
    def _author(self) -> str:
        return self._row.agent

    def _place_note(self, scope: RememberScope | None) -> tuple[str, str]:
        row = self._row
        match choose_scope(scope or "session"):
            case "session":
                return row.id, ""
            case "agent":
                return "", _check_agent(row.agent)
            case _:
                return "", ""

    def _find_source(self, source: str) -> tuple[str, list[str]]:
        row, path = self._standing()
        if source.startswith("~"):
            return source, name_nodes(row.tree.id, self._store.views.target(row, path, source))
        node = self._store.sessions.node(row, source)
        found = make_found_handle(node, "", row)
        self._store.views.keep_found([found], self._workspace.now())
        return found.handle, [f"{row.tree.id}/{node.id}"]

    aimportant = async_form(important)
    arecent = async_form(recent)
    asummaries = async_form(summaries)


# What is asked for


def check_note(text: object, options: RememberOptions) -> NewNote:
    """A note as a caller gives it, checked; without its place and its sources."""
    said = check_text("what is remembered", text).strip()
    if not said:
        raise ChoiceError("there is nothing to remember: the text is empty")
    if len(said) > MAX_NOTE_CHARS:
        raise ChoiceError(
            f"a note has at most {MAX_NOTE_CHARS:,} characters, found {len(said):,}; keep a "
            "longer text as a document of a knowledge base"
        )
    check_flag("always", options.get("always", False))
    start = to_moment("valid_from", options.get("valid_from"))
    stop = to_moment("valid_until", options.get("valid_until"))
    if start is not None and stop is not None and stop <= start:
        raise ChoiceError("valid_until must be later than valid_from")
    supersedes = options.get("supersedes") or ""
    return NewNote(
        body=NoteBody(text=said, about=check_name("topic", options.get("about", "")).strip()),
        kind=choose("kind", options.get("kind", "note"), ("note", "fact")),
        by=choose("by", options.get("by", "user"), ("user", "model")),
        supersedes=check_text("supersedes", supersedes),
        always=options.get("always", False),
        valid_from=start,
        valid_until=stop,
    )


def to_moment(what: str, given: object) -> int | None:
    """A time in milliseconds since 1970, from any form in which it may be given."""
    if given is None:
        return None
    if isinstance(given, str):
        given = _read_time(what, given)
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ChoiceError(f"{what} needs a time zone: use datetime(…, tzinfo=UTC)")
        given = int(given.timestamp() * 1000)
    moment = check_number(what, given)
    if moment > _LAST_MOMENT:
        raise ChoiceError(f"{what} must be before the year 10000, found {describe(given)}")
    return moment


def _read_time(what: str, text: str) -> datetime:
    """A time in ISO form; one without a time zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ChoiceError(
            f"{what} must be a date or a time such as 2026-01-31 or 2026-01-31T12:00Z, found "
            f"{shorten(text)!r}"
        ) from None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment


def choose_scope(scope: object) -> RememberScope:
    """The scope that is meant."""
    scopes: tuple[RememberScope, ...] = ("session", "agent", "project")
    return choose("scope", scope, scopes)


def _check_agent(agent: str) -> str:
    if not agent:
        raise ChoiceError(
            "no agent is meant here; open the store with agent=, or remember it for the project"
        )
    return agent


def _check_sources(sources: object) -> tuple[str, ...]:
    if isinstance(sources, str) or not isinstance(sources, Iterable):
        raise ChoiceError(f"sources must be a list of handles, found {describe(sources)}")
    found = tuple(dict.fromkeys(check_name("source", each) for each in sources))
    if len(found) > MAX_SOURCES:
        raise ChoiceError(f"a note has at most {MAX_SOURCES} sources, found {len(found):,}")
    return found


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ChoiceError(f"the limit must be a whole number from 1, found {limit}")


def name_nodes(tree: str, target: HandleTarget) -> list[str]:
    """The nodes at the ends of what a handle stands for, as `TREE/ID`."""
    names = [*(name for stretch in target.nodes for name in stretch), *target.shows]
    return [name if "/" in name else f"{tree}/{name}" for name in dict.fromkeys(names)]
