"""Transcripts on disk that are searched: what changed is read again, and nothing else."""

import os
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import fsencode, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.budget.counting import Counter, gate_counter
from loom.conversation.canonical import to_json
from loom.conversation.handles import mint
from loom.conversation.message import Message
from loom.conversation.searchable import asks_for_echo, is_echo, searchable_text
from loom.conversation.tree import Tree, TreeNode
from loom.conversation.words import split_terms_for_index
from loom.engine.file_search.database import IndexDatabase
from loom.engine.file_search.index import FilesIndex, decode_body, encode_body, encode_holders
from loom.errors import LoomError, TranscriptError, UnknownFormat
from loom.recall.hits import Hit, Match, Neighbour
from loom.recall.index import MAX_TEXT_CHARS
from loom.recall.search import SearchRequest, search
from loom.transcripts.branching import current_branch
from loom.transcripts.trees import read_trees

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder

MAX_FILE_BYTES = 256 * 2**20  # of one file, which is in memory while it is indexed
MAX_COUNT = 65_535  # of one term in one message
BRANCH_GAP = 100  # places between the current branch and the others: they are no neighbours
EMBEDDED_TOGETHER = 256  # texts
UNKNOWN = "it is not a transcript in a format that Loom knows"

_WITHOUT_VECTORS = """SELECT d.key FROM chosen c JOIN documents d ON d.file = c.file
    WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.embedder = ? AND v.key = d.key)
    ORDER BY d.created DESC, d.key DESC"""
_FileState = tuple[int, int]  # size in bytes, and the time of the last change in nanoseconds


class UnreadFile(Struct, frozen=True):
    """A file that is not searched, and why."""

    path: str
    reason: str
    is_unknown: bool  # it is not a transcript in any format that Loom knows


class _IndexedMessage(Struct, frozen=True):
    """A message of a transcript, and what the index says of it."""

    session: int  # its number in the file
    place: int
    message: Message
    author: str
    created: int
    tokens: int
    terms: Tally[str]
    length: int


class TranscriptLibrary:
    """An index of transcript files in a file of its own, which may be deleted at any time."""

    def __init__(self, path: Path, embedder: "Embedder | None" = None) -> None:
        self._database = IndexDatabase(path)
        self._embedder = embedder

    def __enter__(self) -> "TranscriptLibrary":
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    # Keeping up to date

    def update(
        self, paths: Sequence[Path], progress: Callable[[int, int], None] | None = None
    ) -> list[UnreadFile]:
        """Read what is new or changed of these files, and choose them for the next searches; which
        of them cannot be read. `progress` is told how many bytes of how many are read.
        """
        found = {fsencode(path.resolve()): path for path in paths}
        self._forget_missing()
        known = {
            name: (size, changed)
            for name, size, changed in self._database.all("SELECT path, size, changed FROM files")
        }
        states = {name: _state(path) for name, path in found.items()}
        stale = [name for name, state in states.items() if known.get(name) != state]
        total, done = sum(states[name][0] for name in stale), 0
        for name in stale:
            if progress:
                progress(done, total)
            self._read_again(name, found[name], states[name])
            done += states[name][0]
        if progress:
            progress(total, total)
        return self._choose(found)

    def _forget_missing(self) -> None:
        """Remove what the index says of files that are gone."""
        for (name,) in self._database.all("SELECT path FROM files"):
            if not os.path.exists(name):
                with self._database.write():
                    self._forget(name)

    def _choose(self, found: dict[bytes, Path]) -> list[UnreadFile]:
        """Choose files for the next searches; which of them cannot be read."""
        self._database.all("DELETE FROM chosen")
        chosen: list[tuple[int]] = []
        unread: list[UnreadFile] = []
        for key, name, reason, is_unknown in self._database.all(
            "SELECT key, path, reason, unknown FROM files"
        ):
            if name in found and reason:
                unread.append(UnreadFile(fspath(found[name]), reason, bool(is_unknown)))
            elif name in found:
                chosen.append((key,))
        self._database.run_many("INSERT INTO chosen VALUES (?)", chosen)
        return sorted(unread, key=lambda each: each.path)

    def _read_again(self, name: bytes, path: Path, state: _FileState) -> None:
        """Replace what the index says of a file."""
        reason, is_unknown = "", False
        messages, titles = list[_IndexedMessage](), list[str]()
        try:
            if state[0] > MAX_FILE_BYTES:
                raise TranscriptError(
                    f"it is larger than {MAX_FILE_BYTES // 2**20} MiB, the limit for a search over "
                    "files; import it with loom session import"
                )
            for number, tree in enumerate(read_trees(path)):
                titles.append(tree.title)
                messages += _read_tree(tree, number, max(state[1], 0) // 1_000_000)
            if not messages:
                reason = "no message in it"
        except (LoomError, OSError) as error:
            messages, titles = [], []
            is_unknown = isinstance(error, UnknownFormat)
            reason = UNKNOWN
            if not is_unknown:
                reason = str(error).removeprefix(f"{path}").lstrip(":, ")
        with self._database.write():
            self._forget(name)
            self._database.all(
                "INSERT INTO files (path, size, changed, reason, unknown, first, documents, "
                "length, authors) VALUES (?, ?, ?, ?, ?, 0, 0, 0, '[]')",
                name,
                *state,
                reason,
                is_unknown,
            )
            self._add(name, titles, messages)

    def _forget(self, name: bytes) -> None:
        for key, first, documents in self._database.all(
            "SELECT key, first, documents FROM files WHERE path = ?", name
        ):
            for table in ("documents", "terms", "sessions"):
                self._database.all(f"DELETE FROM {table} WHERE file = ?", key)
            self._database.all(
                "DELETE FROM vectors WHERE key >= ? AND key < ?", first, first + documents
            )
            self._database.all("DELETE FROM files WHERE key = ?", key)

    def _add(self, name: bytes, titles: list[str], messages: list[_IndexedMessage]) -> None:
        if not messages:
            return
        [(file,)] = self._database.all("SELECT key FROM files WHERE path = ?", name)
        [(first,)] = self._database.all("SELECT coalesce(max(key), 0) + 1 FROM documents")
        sessions = self._add_sessions(file, titles)
        place = fspath(os.fsdecode(name))
        self._database.run_many(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    first + ordinal,
                    file,
                    sessions[each.session],
                    each.place,
                    each.message.role,
                    each.author,
                    each.created,
                    each.length,
                    each.tokens,
                    mint(f"{place}#{each.session} {each.place}", to_json(each.message)),
                    encode_body(each.message),
                )
                for ordinal, each in enumerate(messages)
            ),
        )
        self._add_terms(file, messages)
        authors = list(dict.fromkeys(each.author for each in messages if each.author))
        self._database.all(
            "UPDATE files SET first = ?, documents = ?, length = ?, authors = ? WHERE key = ?",
            first,
            len(messages),
            sum(each.length for each in messages),
            to_json(authors),
            file,
        )

    def _add_sessions(self, file: int, titles: list[str]) -> list[int]:
        made: list[int] = []
        for number, title in enumerate(titles):
            [(key,)] = self._database.all(
                "INSERT INTO sessions (file, number, title, format) VALUES (?, ?, ?, '') "
                "RETURNING key",
                file,
                number,
                title,
            )
            made.append(key)
        return made

    def _add_terms(self, file: int, messages: list[_IndexedMessage]) -> None:
        holders: dict[str, tuple[list[int], list[int]]] = {}
        for ordinal, each in enumerate(messages):
            for term, count in each.terms.items():
                ordinals, counts = holders.setdefault(term, ([], []))
                ordinals.append(ordinal)
                counts.append(min(count, MAX_COUNT))
        self._database.run_many(
            "INSERT INTO terms VALUES (?, ?, ?, ?)",
            (
                (term, file, len(ordinals), encode_holders(ordinals, counts))
                for term, (ordinals, counts) in sorted(holders.items())
            ),
        )

    def embed(self, seconds: float, progress: Callable[[int, int], None] | None = None) -> None:
        """Make the vectors that the chosen messages lack, of the newest first, for so long."""
        if self._embedder is None:
            return
        end = time.monotonic() + seconds
        missing = self._database.all(_WITHOUT_VECTORS, self._embedder.name)
        for start in range(0, len(missing), EMBEDDED_TOGETHER):
            if time.monotonic() > end:
                break
            if progress:
                progress(start, len(missing))
            self._embed_some([key for (key,) in missing[start : start + EMBEDDED_TOGETHER]])

    def _embed_some(self, keys: list[int]) -> None:
        assert self._embedder is not None
        texts = FilesIndex(self._database).texts(keys)
        rows = self._embedder.embed([texts[key] for key in keys]).astype("<f2")
        with self._database.write():
            self._database.run_many(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                (
                    (self._embedder.name, key, row.tobytes())
                    for key, row in zip(keys, rows, strict=True)
                ),
            )

    def drop_embedder(self) -> None:
        """Go by words alone from now on."""
        self._embedder = None

    # Searching

    def search(self, asked: SearchRequest) -> list[Hit]:
        """The messages of the chosen files that answer a question, best first."""
        index = FilesIndex(self._database)
        matches = search(index, asked, self._embedder)
        keys = [key for each in matches for key in (*each.before, each.key, *each.after)]
        messages = index.messages(keys)
        about = self._describe(keys)
        return [_make_hit(match, messages, about) for match in matches]

    def _describe(self, keys: Sequence[int]) -> dict[int, "_FoundMessage"]:
        found = self._database.all(
            """SELECT d.key, f.path, s.number, d.place, d.created, d.handle
                FROM json_each(?) j JOIN documents d ON d.key = j.value
                JOIN sessions s ON s.key = d.session JOIN files f ON f.key = d.file""",
            to_json(list(keys)),
        )
        several = {
            file
            for (file,) in self._database.all(
                "SELECT f.path FROM sessions s JOIN files f ON f.key = s.file WHERE s.number = 1"
            )
        }
        return {
            key: _FoundMessage(
                os.fsdecode(path) + (f"#{number}" if path in several else ""),
                place,
                created,
                handle,
            )
            for key, path, number, place, created, handle in found
        }

    def recall(self, handle: str) -> Message | None:
        """The message that a search found under this handle; None if there is none."""
        found = self._database.all("SELECT body FROM documents WHERE handle = ?", handle)
        if not found:
            return None
        return decode_body(found[0][0])


class _FoundMessage(Struct, frozen=True):
    """Where a message is, and its handle."""

    session: str
    place: int
    created: int
    handle: str


def _make_hit(match: Match, messages: dict[int, Message], about: dict[int, _FoundMessage]) -> Hit:
    def neighbour(key: int) -> Neighbour:
        where = about[key]
        return Neighbour(where.handle, "", where.place, messages[key].role, messages[key])

    where, message = about[match.key], messages[match.key]
    start, stop = match.passage
    return Hit(
        handle=where.handle,
        node="",
        place=where.place,
        role=message.role,
        score=match.score,
        text=searchable_text(message)[start:stop],
        session=where.session,
        created=where.created,
        message=message,
        neighbours=tuple(map(neighbour, (*match.before, *match.after))),
        tokens=match.tokens,
        reason=match.reason,
    )


def _state(path: Path) -> _FileState:
    """The size of a file and when it changed, in nanoseconds; -1 if there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _read_tree(tree: Tree, number: int, changed: int) -> Iterator[_IndexedMessage]:
    """The messages of a conversation, the current branch first; without those that are hidden, that
    only repeat others, or that say nothing.
    """
    count = Counter(gate_counter(None).profile, remember=1000).count_message
    asked: frozenset[str] = frozenset()
    for place, node in _place_nodes(tree):
        asked |= asks_for_echo(node.message)
        text = searchable_text(node.message)
        if is_echo(node.message, asked) or not text.strip():
            continue
        terms = split_terms_for_index(text[:MAX_TEXT_CHARS])
        yield _IndexedMessage(
            number,
            place,
            node.message,
            node.message.author or node.author,
            node.created or tree.created or changed,
            count(node.message),
            Tally(terms),
            len(terms),
        )


def _place_nodes(tree: Tree) -> Iterable[tuple[int, TreeNode]]:
    branch = current_branch(tree)
    yield from enumerate(branch)
    here = {node.id for node in branch}
    others = (
        node
        for node in tree.nodes
        if node.id not in here and not (node.flags.excluded or node.flags.pruned)
    )
    yield from enumerate(others, len(branch) + BRANCH_GAP)
