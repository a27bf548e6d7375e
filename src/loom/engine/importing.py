"""A run of another program's file becomes a session, a batch of messages at a time."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from loom.budget.counting import Counter, gate_counter
from loom.conversation.message import Message
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.engine.inputs import first_line, title_of
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import StoreError
from loom.stores import Addition, Draft, NewSession
from loom.transcripts.runs import Run

_MESSAGES = 1000  # in one transaction: between two of them other writers have their turn
_TOKENS = 1_000_000  # likewise: a few huge messages are as much as many small ones

Asides = list[tuple[int, Message]]


def import_run(loom: Loom, run: Run, progress: Callable[[int], None] | None = None) -> Session:
    """Write a run as a session of its own; `progress` is told how many messages are in. Until all
    are, its status is `importing`.

    Where the run cannot be read to its end, nothing of it stays.
    """
    sessions = loom.store.sessions
    title = first_line(run.name)
    row = sessions.create(
        loom.scope,
        NewSession(id=loom.fresh_id(), title=title, head=run.head, status="importing"),
        now=loom.now(),
    )
    end, done = None, 0
    try:
        for drafts, asides in _batches(run.messages()):
            title = title_of(draft.message for draft in drafts)
            added = Addition(title=title, asides=asides)
            row, made = sessions.append(
                row, end, drafts, now=loom.now(), added=added, importing=True
            )
            end = made[-1] if made else end
            done += len(drafts) + len(asides)
            if progress:
                progress(done)
        row = sessions.change(row, now=loom.now(), status="active")
    except BaseException:
        # the first error is the one to hear of; `loom doctor` finds what could not be taken back
        with suppress(StoreError):
            sessions.discard(row.tree.key)
        raise
    return Session(loom, row).emit("created", title=row.title, messages=done)


def _batches(messages: Iterable[Message]) -> Iterator[tuple[list[Draft], Asides]]:
    """The messages as they are written, and apart from them the system messages before the first of
    all.
    """
    # A counter that forgets: the usual one would remember more messages than a long run should hold
    # at once.
    count = Counter(gate_counter(None).profile, remember=_MESSAGES).count_message
    drafts, asides, tokens = list[Draft](), Asides(), 0
    leading = True
    for message in messages:
        leading = leading and message.role in SYSTEM_ROLES
        if leading:
            asides.append((0, message))
        else:
            drafts.append(Draft(message, count(message)))
            tokens += drafts[-1].tokens
        if len(drafts) + len(asides) >= _MESSAGES or tokens >= _TOKENS:
            yield drafts, asides
            drafts, asides, tokens = [], [], 0
    if drafts or asides:
        yield drafts, asides
