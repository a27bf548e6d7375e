"""The documents of a project as a knowledge base: kept in its store, found by words and meaning."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.checked import check_text
from loom.errors import ChoiceError, DocumentError, StoreError, shorten
from loom.project.index.files import is_generated, list_files
from loom.providers.knowledge.asking import MAX_ITEMS
from loom.providers.knowledge.documents.reading import (
    Kind,
    ParsedDocument,
    decode_text,
    kind_by_name,
    parse_file,
    parse_text,
    read_bytes,
)
from loom.providers.knowledge.finding import find_best
from loom.providers.knowledge.items import MAX_SOURCE_CHARS, KnowledgeItem, one_line
from loom.recall.embedder import Embedder
from loom.stores import DocumentRow, Documents, NewChunk, NewDocument, Scope, StoredChunk

MAX_FILES = 20_000  # of one folder
TEXT_PATH = "text:"  # what the path of a text begins with that is not a file
EMBEDDED_AT_ONCE = 64
MAX_STOP_SECONDS = 10
_SPARE_HITS = 3  # that are looked at for each item that is wanted: some may say the same

Progress = Callable[[int, int], None]


class FailedDocument(Struct, frozen=True):
    """A file that could not be added, and why."""

    path: str
    reason: str


class AddedDocuments(Struct, frozen=True):
    """What came of adding files: the documents that are new or changed, the names of those that
    were removed because their files are gone, how many did not change, and what could not be read.
    """

    added: tuple[DocumentRow, ...] = ()
    changed: tuple[DocumentRow, ...] = ()
    unchanged: int = 0
    removed: tuple[str, ...] = ()
    failed: tuple[FailedDocument, ...] = ()
    notes: tuple[str, ...] = ()


class StoredKnowledgeBase:
    """The documents of a project. They are in its store, and nobody else's are ever found.

    A file that changed is replaced when it is added again. With an embedder, chunks are found by
    meaning too.
    """

    def __init__(
        self,
        documents: Documents,
        scope: Scope,
        now: Callable[[], int],
        embedder: Embedder | None = None,
    ) -> None:
        self._documents, self._scope, self._now = documents, scope, now
        self.embedder = embedder
        self.name = f"of project {scope.project}"
        self._embedding = threading.Lock()
        self._checked = ""  # the embedder whose vectors were last made or begun
        self._background: threading.Thread | None = None
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # What is in it

    def add(self, text: str, source: str = "", *, kind: Kind | None = None) -> DocumentRow:
        """Add a text. The same text of the same source is stored once."""
        source = one_line(check_text("source", source), MAX_SOURCE_CHARS) or "text"
        data = check_text("a text", text).encode(errors="replace")
        digest = _digest(source.encode(errors="replace") + b"\0" + data)
        parsed = parse_text(text, kind, source)
        row = self._put(f"{TEXT_PATH}{digest}", source, "", parsed, digest, len(data))
        self._try_to_embed()
        return row

    def add_path(
        self, path: "str | os.PathLike[str]", progress: Progress | None = None
    ) -> AddedDocuments:
        """Add a file, or all documents of a folder. What did not change is not read again, and
        what is gone from the folder is removed.

        `progress` is told how many files are done, and how many there are.
        """
        place = Path(os.path.realpath(path))
        if place.is_dir():
            added = self._add_folder(place, progress)
        elif place.exists():
            added = self._add_files([(place, "")], progress)
        else:
            raise ChoiceError(f"{shorten(str(path), 200)} does not exist")
        return replace(added, notes=self._try_to_embed())

    def list_all(self) -> list[DocumentRow]:
        """The documents of the project, by their sources."""
        return self._documents.list_all(self._scope)

    def remove(self, name: "str | os.PathLike[str]") -> int:
        """Remove documents by source, by file, or by the folder that they were added with; how
        many there were.
        """
        named = os.fspath(name)
        place = os.path.realpath(named)
        below = place.rstrip(os.sep) + os.sep
        found = [
            row.key
            for row in self.list_all()
            if named in (row.source, row.path)
            or place in (row.path, row.root)
            or row.path.startswith(below)
        ]
        if not found:
            raise ChoiceError(
                f"no document {shorten(named, 200)!r} in project {self._scope.project!r}; "
                "loom knowledge list shows them"
            )
        return self._documents.remove(self._scope, found)

    def purge(self) -> None:
        """Remove the words of what was removed from the files of the store too."""
        self._documents.shed()

    # Finding

    def query(
        self, text: str, limit: int = MAX_ITEMS, *, exact: bool = False
    ) -> list[KnowledgeItem]:
        """The items that fit a text best, the best first. If it is `exact`, phrases in quotes must
        occur as they are.
        """
        check_text("a query", text)
        self._embed_in_background()
        with self._documents.read_index(self._scope) as index:
            if index is None or limit < 1:
                return []
            wanted = limit * _SPARE_HITS
            try:
                found = find_best(index, text, wanted, self.embedder, exact)
            except StoreError:
                raise
            except Exception:  # an embedder that fails costs its part of the score
                found = find_best(index, text, wanted, None, exact)
        chunks = self._documents.read_chunks(self._scope, [key for key, _ in found])
        items: dict[str, KnowledgeItem] = {}
        for key, score in found:
            if key in chunks:
                items.setdefault(chunks[key].text, _to_item(chunks[key], score))
        return list(items.values())[:limit]

    def embed_missing(self, progress: Progress | None = None) -> int:
        """Make the vectors that are missing, also after the embedder changed; how many.

        `progress` is told how many are made, and how many are missing.
        """
        embedder = self.embedder
        if embedder is None:
            return 0
        self._checked, count = embedder.name, 0
        with self._embedding:
            total = 0
            if progress:
                total = self._documents.count_without_vector(self._scope, embedder.name)
            while not self._is_stopped:
                chunks = self._documents.find_without_vector(
                    self._scope, embedder.name, EMBEDDED_AT_ONCE
                )
                if not chunks:
                    break
                rows = embedder.embed([text for _, text in chunks])
                made = [
                    (key, row.astype("<f4").tobytes())
                    for (key, _), row in zip(chunks, rows, strict=True)
                ]
                self._documents.put_vectors(self._scope, embedder.name, made)
                count += len(chunks)
                if progress:
                    progress(count, total)
        return count

    def _try_to_embed(self) -> tuple[str, ...]:
        """Make the vectors of what was added. If that fails, what was added is found by its words,
        and by its meaning when it is tried again.
        """
        try:
            self.embed_missing()
        except Exception as error:
            said = shorten(" ".join(f"{type(error).__name__}: {error}".split()), 200)
            return (f"the embedder failed, so nothing is found by meaning yet: {said}",)
        return ()

    def _embed_in_background(self) -> None:
        """Begin to make the vectors of an embedder that is new here."""
        if self.embedder is None or self._checked == self.embedder.name:
            return
        self._checked = self.embedder.name
        self._background = threading.Thread(
            target=self._try_to_embed, name="loom-knowledge", daemon=True
        )
        self._background.start()

    def stop(self) -> None:
        """Stop what goes on in the background, before the store is closed."""
        self._is_stopped = True
        if self._background is not None:
            self._background.join(MAX_STOP_SECONDS)

    # The same in threads, for asynchronous programs

    async def aadd(self, text: str, source: str = "", *, kind: Kind | None = None) -> DocumentRow:
        """The same as `add`; this task waits, not the event loop."""
        return await asyncio.to_thread(self.add, text, source, kind=kind)

    async def aadd_path(
        self, path: "str | os.PathLike[str]", progress: Progress | None = None
    ) -> AddedDocuments:
        """The same as `add_path`; this task waits, not the event loop."""
        return await asyncio.to_thread(self.add_path, path, progress)

    async def aquery(
        self, text: str, limit: int = MAX_ITEMS, *, exact: bool = False
    ) -> list[KnowledgeItem]:
        """The same as `query`; this task waits, not the event loop."""
        return await asyncio.to_thread(self.query, text, limit, exact=exact)

    async def alist_all(self) -> list[DocumentRow]:
        """The same as `list_all`; this task waits, not the event loop."""
        return await asyncio.to_thread(self.list_all)

    async def aremove(self, name: "str | os.PathLike[str]") -> int:
        """The same as `remove`; this task waits, not the event loop."""
        return await asyncio.to_thread(self.remove, name)

    # Adding files

    def _add_folder(self, folder: Path, progress: Progress | None) -> AddedDocuments:
        root = str(folder)
        listed = [folder / found.path for found in list_files(folder) if kind_by_name(found.path)]
        if len(listed) > MAX_FILES:
            raise ChoiceError(
                f"{root} has {len(listed):,} documents, and the limit for a folder is "
                f"{MAX_FILES:,}; add folders in it one by one"
            )
        added = self._add_files([(place, root) for place in listed], progress)
        there = {str(place) for place in listed}
        gone = [row for row in self.list_all() if row.root == root and row.path not in there]
        self._documents.remove(self._scope, [row.key for row in gone])
        removed = (*added.removed, *(row.source for row in gone))
        return replace(added, removed=removed)

    def _add_files(
        self, files: Sequence[tuple[Path, str]], progress: Progress | None
    ) -> AddedDocuments:
        added, changed = list[DocumentRow](), list[DocumentRow]()
        failed, removed = list[FailedDocument](), list[str]()
        unchanged = 0
        for done, (place, root) in enumerate(files):
            if progress:
                progress(done, len(files))
            old = self._documents.find(self._scope, str(place))
            try:
                row = self._add_file(place, root, old)
            except (DocumentError, ChoiceError) as error:
                failed.append(FailedDocument(_label(place), str(error)))
                if old:  # what it said before is no longer there
                    self._documents.remove(self._scope, [old.key])
                    removed.append(old.source)
                continue
            if row is None:
                continue
            if old is None:
                added.append(row)
            elif row.digest != old.digest:
                changed.append(row)
            else:
                unchanged += 1
        if progress:
            progress(len(files), len(files))
        return AddedDocuments(
            tuple(added), tuple(changed), unchanged, tuple(removed), tuple(failed)
        )

    def _add_file(self, place: Path, root: str, old: DocumentRow | None) -> DocumentRow | None:
        """Add a file; None if it is in a folder and a program wrote it for programs."""
        data = read_bytes(place)
        digest = _digest(data)
        root = root or (old.root if old else "")
        if old and (old.digest, old.root) == (digest, root):
            return old
        may_be_generated = root and kind_by_name(str(place)) in ("code", "text")
        if may_be_generated and is_generated(str(place), decode_text(data)[0]):
            return None
        parsed = parse_file(place, data)
        source = old.source if old else _label(place)
        return self._put(str(place), source, root, parsed, digest, len(data))

    def _put(
        self, path: str, source: str, root: str, parsed: ParsedDocument, digest: str, size: int
    ) -> DocumentRow:
        new = NewDocument(
            path=path,
            source=source,
            root=root,
            kind=parsed.kind,
            title=parsed.title,
            digest=digest,
            size=size,
            notes=parsed.notes,
            chunks=tuple(
                NewChunk(chunk.text, chunk.headings, chunk.start, chunk.stop)
                for chunk in parsed.chunks
            ),
        )
        return self._documents.put(self._scope, new, self._now())


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _label(place: Path) -> str:
    """What a file is cited by: its path below the current folder, or all of it."""
    try:
        below = place.relative_to(os.path.realpath(os.getcwd()))
    except (ValueError, OSError):
        return one_line(place.as_posix(), MAX_SOURCE_CHARS)
    return one_line(below.as_posix(), MAX_SOURCE_CHARS)


def _to_item(chunk: StoredChunk, score: float) -> KnowledgeItem:
    """A chunk as an item: its source says where in the document it is."""
    headings, source = chunk.headings, chunk.source
    if chunk.start:
        source = f"{source}:{chunk.start}-{chunk.stop}"
    elif headings and headings[0].startswith("page "):
        source = f"{source}#{headings[0].replace(' ', '=')}"
        headings = headings[1:]
    if chunk.title and chunk.title not in headings:
        headings = (chunk.title, *headings)
    return KnowledgeItem(chunk.text, source, score, " › ".join(headings))
