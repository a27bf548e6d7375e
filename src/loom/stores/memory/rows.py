"""What is known of a note: as a caller gets it, as it is stored, and who may see it."""

import re
from base64 import b32encode
from hashlib import blake2b
from typing import Literal

from msgspec import Struct

from loom.conversation.canonical import to_sorted_json
from loom.conversation.checked import CheckedStruct
from loom.conversation.repeats import normal_text

NoteKind = Literal["note", "fact"]
NoteSpeaker = Literal["user", "model"]
NoteState = Literal["valid", "early", "ended", "superseded", "forgotten", "purged"]
MAX_NOTE_CHARS = 8000  # of a text; what is longer is a document
MAX_SOURCES = 100
ENDLESS = 2**62  # milliseconds: the end of what has no end
FORGOTTEN_NOTE = "forgotten_note"  # the state of a session that forgot a note of others
_ID_BYTES = 10
ID_CHARS = _ID_BYTES * 8 // 5
_ID = re.compile(f"[a-z2-7]{{{ID_CHARS}}}")


class Note(Struct, frozen=True, kw_only=True):
    """Something that was remembered: a note, or a fact, which holds for a time.

    `by` says who said it: the user or the model; `author` is the name of that agent. `session` and
    `agent` say where it is seen; empty means everywhere in the project. `origin` is the session in
    which it was remembered. `sources` are the handles or nodes that it comes from. It is valid from
    `valid_from` until before `valid_until` (milliseconds since 1970, UTC); None has no limit.
    `state` says whether it is shown now, and if not, why. `uses` counts how often it was opened or
    remembered again.
    """

    id: str
    text: str
    kind: NoteKind
    by: NoteSpeaker
    about: str
    author: str
    session: str
    agent: str
    origin: str
    sources: tuple[str, ...]
    supersedes: str
    valid_from: int | None
    valid_until: int | None
    always: bool
    created: int
    updated: int
    uses: int
    used: int
    state: NoteState
    key: int


class NoteBody(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The words of a note and where they come from: what a purge removes.

    `nodes` are those that it comes from, as `TREE/ID`.
    """

    text: str
    about: str = ""
    author: str = ""
    origin: str = ""
    sources: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class NewNote(Struct, frozen=True, kw_only=True):
    """A note that is remembered. Times that are None stay as they are if it is known already."""

    body: NoteBody
    kind: NoteKind = "note"
    by: NoteSpeaker = "user"
    session: str = ""
    agent: str = ""
    supersedes: str = ""
    always: bool = False
    valid_from: int | None = None
    valid_until: int | None = None


class NoteScope(Struct, frozen=True):
    """Who asks: in a project, the session and the agent whose notes are seen besides those that are
    for all.

    `everyone` means: those of all sessions and agents; with an agent, those of its sessions.
    """

    tenant: str
    project: str
    session: str = ""
    agent: str = ""
    everyone: bool = False


def is_note_id(name: str) -> bool:
    """Whether a text has the form of an id of a note."""
    return _ID.fullmatch(name) is not None


def note_id(new: NewNote) -> str:
    """The id of a note: made from its words, who said them, where it is seen and what it
    supersedes.
    """
    said = [
        new.session,
        new.agent,
        new.kind,
        new.by,
        normal_text(new.body.about),
        normal_text(new.body.text),
        new.supersedes,
    ]
    digest = blake2b(
        to_sorted_json(said).encode(errors="surrogatepass"), digest_size=_ID_BYTES, person=b"note"
    )
    return b32encode(digest.digest()).decode().lower()
