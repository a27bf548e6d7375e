"""A run of another program's file becomes a session, a batch of messages at a time, and none
twice.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import islice

from msgspec.structs import replace

from loom.budget.counting import Counter, gate_counter
from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.conversation.tree import Tree
from loom.engine.inputs import first_line, title_of
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import StoreError
from loom.stores import (
    IMPORTED,
    Addition,
    Draft,
    ImportedSession,
    ImportOrigin,
    NewSession,
    SessionRow,
)
from loom.transcripts.branching import current_branch, current_node
from loom.transcripts.runs import Run

_MESSAGES = 1000  # in one transaction: between two of them other writers have their turn
_TOKENS = 1_000_000  # likewise: a few huge messages are as much as many small ones

Asides = list[tuple[int, Message]]


class Importer:
    """Imports the runs of files as sessions of a project, none of them twice.

    A run that was imported is known by its messages. If its file has grown since then, the session
    gets what is new, unless somebody continued it here.
    """

    def __init__(self, loom: Loom) -> None:
        self._loom = loom
        known = loom.store.states.in_scope(loom.scope, IMPORTED, ImportOrigin)
        self._by_digest = {origin.digest: session for session, origin in known.items()}
        self._by_file: dict[tuple[str, int], dict[str, ImportOrigin]] = {}
        for session, origin in known.items():
            self._by_file.setdefault((origin.file, origin.run), {})[session] = origin

    def import_run(
        self, run: Run, file: str, progress: Callable[[int], None] | None = None
    ) -> ImportedSession | None:
        """Import a run of the file of this name; None if the run has no message."""
        origins = self._by_file.get((file, run.number), {})
        digests = _digest_messages(run, {origin.messages for origin in origins.values()})
        if not digests:
            return None
        messages = max(digests)
        if session := self._by_digest.get(digests[messages]):
            return ImportedSession(session, messages, 0)
        for name, origin in origins.items():
            if digests.get(origin.messages) == origin.digest and self._is_untouched(name, origin):
                self._continue(name, run, origin.messages, progress)
                return self._keep(name, run, file, digests)
        made: list[ImportedSession] = []
        import_run(
            self._loom,
            run,
            progress,
            lambda row: made.append(self._keep(row.id, run, file, digests)),
        )
        return made[0]

    def _is_untouched(self, session: str, origin: ImportOrigin) -> bool:
        """Whether a session is still where its import ended."""
        cursor = self._loom.session(session).cursor
        return (cursor.id if cursor else "") == origin.end

    def _continue(
        self, name: str, run: Run, done: int, progress: Callable[[int], None] | None
    ) -> None:
        session = self._loom.session(name)
        write_batches(self._loom, session.row, islice(run.dated_messages(), done, None), progress)

    def _keep(self, name: str, run: Run, file: str, digests: Mapping[int, str]) -> ImportedSession:
        """Remember what was imported as this session."""
        messages = max(digests)
        session = self._loom.session(name)
        before = self._by_file.setdefault((file, run.number), {}).get(name)
        end = session.cursor
        origin = ImportOrigin(file, run.number, messages, digests[messages], end.id if end else "")
        self._loom.store.states.put(
            session.row.key, IMPORTED, {"": to_json(origin)}, self._loom.now()
        )
        self._by_file[(file, run.number)][name] = origin
        self._by_digest[origin.digest] = name
        return ImportedSession(name, messages, messages - (before.messages if before else 0))

    def import_tree(self, tree: Tree) -> ImportedSession | None:
        """Import a conversation with all its branches; None if it has no message. What is here
        already is found again by its ids.
        """
        if not tree.nodes:
            return None
        stored, new = self._loom.import_tree(replace(tree, current=current_node(tree)))
        session = stored.session("")
        if not session.row.title:
            session.change(title=title_of(node.message for node in current_branch(tree)))
        return ImportedSession(session.id, len(tree.nodes), new)


def _digest_messages(run: Run, counts: Collection[int]) -> dict[int, str]:
    """The digest of the first messages of a run, for each of these counts and for all; nothing if
    there are none.
    """
    digest, number, found = blake2b(digest_size=20), 0, dict[int, str]()
    for number, message in enumerate(run.messages(), 1):
        digest.update(to_json(message).encode() + b"\n")
        if number in counts:
            found[number] = digest.hexdigest()
    if number:
        found[number] = digest.hexdigest()
    return found


def import_run(
    loom: Loom,
    run: Run,
    progress: Callable[[int], None] | None = None,
    settle: Callable[[SessionRow], None] | None = None,
) -> Session:
    """Write a run as a session of its own; `progress` is told how many messages are in. Until all
    are, and `settle` was called, its status is `importing`.

    Where the run cannot be read to its end, nothing of it stays.
    """
    sessions = loom.store.sessions
    title = first_line(run.name)
    row = sessions.create(
        loom.scope,
        NewSession(id=loom.fresh_id(), title=title, head=run.head, status="importing"),
        now=loom.now(),
    )
    try:
        row, done = write_batches(loom, row, run.dated_messages(), progress)
        if settle:
            settle(row)
        row = sessions.change(row, now=loom.now(), status="active")
    except BaseException:
        # the first error is the one to hear of; `loom doctor` finds what could not be taken back
        with suppress(StoreError):
            sessions.discard(row.tree.key)
        raise
    return Session(loom, row).emit("created", title=row.title, messages=done)


def write_batches(
    loom: Loom,
    row: SessionRow,
    messages: Iterable[tuple[Message, int]],
    progress: Callable[[int], None] | None = None,
) -> tuple[SessionRow, int]:
    """Append messages to a session, a batch in each transaction; how many they were. Each comes
    with when it was said.
    """
    end, done = Session(loom, row).cursor, 0
    leading = end is None
    for drafts, asides in _batches(messages, leading):
        title = title_of(draft.message for draft in drafts)
        added = Addition(title=title, asides=asides)
        row, made = loom.store.sessions.append(
            row, end, drafts, now=loom.now(), added=added, importing=True
        )
        end = made[-1] if made else end
        done += len(drafts) + len(asides)
        if progress:
            progress(done)
    return row, done


def _batches(
    messages: Iterable[tuple[Message, int]], leading: bool
) -> Iterator[tuple[list[Draft], Asides]]:
    """The messages as they are written, and apart from them the system messages before the first of
    all; `leading` says that nothing was written before.
    """
    # A counter that forgets: the usual one would remember more messages than a long run should hold
    # at once.
    count = Counter(gate_counter(None).profile, remember=_MESSAGES).count_message
    drafts, asides, tokens = list[Draft](), Asides(), 0
    for message, created in messages:
        leading = leading and message.role in SYSTEM_ROLES
        if leading:
            asides.append((0, message))
        else:
            drafts.append(Draft(message, count(message), created=created))
            tokens += drafts[-1].tokens
        if len(drafts) + len(asides) >= _MESSAGES or tokens >= _TOKENS:
            yield drafts, asides
            drafts, asides, tokens = [], [], 0
    if drafts or asides:
        yield drafts, asides
