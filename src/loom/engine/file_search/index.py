"""The messages of transcript files as documents of a search."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from zlib import compress, decompress

import msgspec
import numpy as np

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Message
from loom.conversation.searchable import searchable_text
from loom.engine.file_search.database import IndexDatabase
from loom.recall.index import Document, Size

if TYPE_CHECKING:
    from loom.recall.embedder import Vector

MAX_AUTHORS = 300
MAX_COMPARED_VECTORS = 5000  # that a question is compared with, if it has many messages to choose
_ROUNDED_DIGITS = 6
_DOCUMENTS = """SELECT d.key, d.session, d.place, d.role, d.author, d.created, d.length, d.tokens
    FROM json_each(?) j JOIN documents d ON d.key = j.value"""


def encode_body(message: Message) -> bytes:
    return compress(to_json(message).encode(errors="surrogatepass"), 1)


def decode_body(data: bytes) -> Message:
    text = decompress(data).decode(errors="surrogatepass")
    return msgspec.convert(from_json(text), Message)


def encode_holders(ordinals: Sequence[int], counts: Sequence[int]) -> bytes:
    """Who has a term: the ordinals of messages in their file, and how often each has it."""
    return np.array(ordinals, "<u4").tobytes() + np.array(counts, "<u2").tobytes()


def decode_holders(data: bytes, documents: int) -> tuple["np.ndarray", "np.ndarray"]:
    ordinals = np.frombuffer(data, "<u4", documents)
    return ordinals, np.frombuffer(data, "<u2", documents, offset=4 * documents)


class FilesIndex:
    """An `Index` over the transcripts that are chosen in the database."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database

    def size(self) -> Size:
        [(documents, length)] = self._database.all(
            "SELECT sum(documents), sum(length) FROM files JOIN chosen ON file = key"
        )
        return Size(documents or 0, length or 0)

    def frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        found = self._database.all(
            """SELECT t.term, sum(t.documents) FROM json_each(?) j JOIN terms t ON t.term = j.value
                JOIN chosen c ON c.file = t.file GROUP BY t.term""",
            to_json(list(dict.fromkeys(terms))),
        )
        return dict(found)

    def find_holding(self, term: str, limit: int) -> Sequence[int]:
        keys = [key for each in self._holders([term]).values() for key in each]
        found = self._database.all(
            """SELECT d.key FROM json_each(?) j JOIN documents d ON d.key = j.value
                ORDER BY d.created DESC, d.key DESC LIMIT ?""",
            to_json(keys),
            limit,
        )
        return [key for (key,) in found]

    def find_newest(self, limit: int) -> Sequence[int]:
        found = self._database.all(
            """SELECT d.key FROM chosen c JOIN documents d ON d.file = c.file
                ORDER BY d.created DESC, d.key DESC LIMIT ?""",
            limit,
        )
        return [key for (key,) in found]

    def find_between(self, start: int, stop: int, limit: int) -> Sequence[int]:
        found = self._database.all(
            """SELECT d.key FROM chosen c JOIN documents d
                ON d.file = c.file AND d.created >= ? AND d.created < ?
                ORDER BY d.created DESC, d.key DESC LIMIT ?""",
            start,
            stop,
            limit,
        )
        return [key for (key,) in found]

    def read(self, keys: Sequence[int], terms: Sequence[str]) -> Sequence[Document]:
        counts = self._holders(terms)
        return [
            Document(
                key,
                str(session),
                place,
                role,
                author,
                created,
                length,
                tokens,
                {term: held[key] for term, held in counts.items() if key in held},
            )
            for key, session, place, role, author, created, length, tokens in self._database.all(
                _DOCUMENTS, to_json(list(keys))
            )
        ]

    def _holders(self, terms: Sequence[str]) -> dict[str, dict[int, int]]:
        """For each term the keys of the chosen messages that have it, and how often."""
        found: dict[str, dict[int, int]] = {}
        for term, documents, data, first in self._database.all(
            """SELECT t.term, t.documents, t.data, f.first FROM json_each(?) j
                JOIN terms t ON t.term = j.value JOIN chosen c ON c.file = t.file
                JOIN files f ON f.key = t.file""",
            to_json(list(dict.fromkeys(terms))),
        ):
            ordinals, counts = decode_holders(data, documents)
            keys = (ordinals.astype(np.int64) + first).tolist()
            found.setdefault(term, {}).update(zip(keys, counts.tolist(), strict=True))
        return found

    def find_near(self, keys: Sequence[int], distance: int) -> Mapping[int, Sequence[int]]:
        found: dict[int, list[int]] = {}
        for key, near in self._database.all(
            """SELECT d.key, n.key FROM json_each(?) j JOIN documents d ON d.key = j.value
                JOIN documents n ON n.session = d.session
                    AND n.place BETWEEN d.place - ? AND d.place + ?
                ORDER BY d.key, n.place""",
            to_json(list(keys)),
            distance,
            distance,
        ):
            found.setdefault(key, []).append(near)
        return found

    def texts(self, keys: Sequence[int]) -> Mapping[int, str]:
        return {key: searchable_text(message) for key, message in self.messages(keys).items()}

    def messages(self, keys: Sequence[int]) -> dict[int, Message]:
        """The messages of these keys."""
        found = self._database.all(
            "SELECT d.key, d.body FROM json_each(?) j JOIN documents d ON d.key = j.value",
            to_json(list(keys)),
        )
        return {key: decode_body(body) for key, body in found}

    def authors(self) -> Sequence[str]:
        names: dict[str, None] = {}
        for (authors,) in self._database.all(
            "SELECT authors FROM files JOIN chosen ON file = key WHERE authors <> '[]'"
        ):
            names.update(dict.fromkeys(from_json(authors)))
        return list(names)[:MAX_AUTHORS]

    def vectors(self, keys: Sequence[int], embedder: str) -> Mapping[int, "Vector"]:
        found = self._database.all(
            """SELECT v.key, v.data FROM json_each(?) j
                JOIN vectors v ON v.embedder = ? AND v.key = j.value""",
            to_json(list(keys)),
            embedder,
        )
        return {key: np.frombuffer(data, "<f2").astype(np.float32) for key, data in found}

    def find_nearest(self, vector: "Vector", embedder: str, limit: int) -> Sequence[int]:
        """Compares the newest messages, MAX_COMPARED_VECTORS of them at most."""
        newest = self.find_newest(MAX_COMPARED_VECTORS)
        found = self.vectors(newest, embedder)
        keys = [key for key in newest if key in found]
        if not keys:
            return []
        scores = np.stack([found[key] for key in keys]) @ vector
        order = np.argsort(-np.round(scores, _ROUNDED_DIGITS), kind="stable")[:limit]
        return [keys[at] for at in order.tolist()]
