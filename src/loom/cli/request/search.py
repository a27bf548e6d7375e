"""`loom search`: stored sessions, or transcripts as they lie in their folders."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from os import fspath
from os import path as os_path
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from loom.cli.progress import Progress, ShareProgress
from loom.cli.request.hits import print_hits
from loom.cli.store.where import READS_AS_AGENT, Where, add_scope_options
from loom.cli.terminal import dim, fit_end, one_line, plural, say
from loom.conversation.canonical import from_json, to_json
from loom.engine.file_search.library import TranscriptLibrary, UnreadFile
from loom.engine.loom import Loom
from loom.errors import ChoiceError, EmbedderError, LoomError, StoreError, TranscriptError, shorten
from loom.providers.embedders import choose_embedder, find_local_choice
from loom.recall.choosing import Room
from loom.recall.hits import Hit
from loom.recall.search import DEFAULT_HITS, SearchRequest
from loom.transcripts import files
from loom.transcripts.folders import find_files

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder

EMBEDDER_VARIABLE, DEFAULT_EMBEDDER = "LOOM_EMBEDDER", "static"
EMBED_SECONDS = 10.0  # that one search spends on vectors of messages; the next one goes on


@click.command()
@click.argument("query", metavar="TEXT")
@click.argument("names", metavar="[FILE]...", nargs=-1)
@click.option("--session", "session", metavar="ID", help="Search one stored session.")
@click.option(
    "--all", "every", is_flag=True, help="Search all stored sessions of the project (the default)."
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show as many messages as fit into N tokens.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Show at most N messages (default: {DEFAULT_HITS}, or with --tokens all that fit).",
)
@click.option(
    "--where",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Search only messages whose metadata has this value. You can repeat it.",
)
@click.option(
    "--embedder",
    metavar="NAME",
    envvar=EMBEDDER_VARIABLE,
    help="What finds messages by meaning: `static`, `minilm`, an address https://HOST/v1#MODEL, or "
    f"`none` (default: ${EMBEDDER_VARIABLE}, or what made the vectors of the store, or `static`).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the messages as a JSON list.")
@partial(add_scope_options, agent=READS_AS_AGENT)
def search(where: Where, query: str, names: tuple[str, ...], **given: Any) -> None:
    """Search what was said, by words and by meaning.

    Without FILE, the stored sessions of the project are searched. With FILE, transcripts are
    searched as they are, in any format that Loom knows. FILE may be a folder: then every transcript
    in it is searched. The first search over files builds an index next to the store; after that,
    only new and changed files are read.

    TEXT is a question, or words. Quote "a phrase" to match it exactly.
    Each result shows the handle, the role, the position in its session, the day, the session and
    the passage that fits best. `loom recall HANDLE` prints the whole message.
    """
    options = _SearchOptions(**given)
    if bool(names) + (options.session is not None) + options.every > 1:
        raise ChoiceError("give FILEs, --session ID or --all, only one of them")
    if names and options.pairs:
        raise ChoiceError("--where works only with stored sessions: files have no metadata")
    if names:
        room = Room(tokens=options.tokens, limit=options.hits)
        now = time.time_ns() // 1_000_000
        embedder = _find_embedder(options.embedder or DEFAULT_EMBEDDER)
        hits = _search_files(where, names, SearchRequest(query, room, now=now), embedder)
        _print(hits, query, options.as_json, _short_path)
        return
    with where.open() as loom:
        loom.indexer.embedder = _find_embedder(options.embedder or _usual_embedder(loom))
        hits = _search_store(loom, query, options)
        _print(hits, query, options.as_json, _title_finder(loom))


class _SearchOptions(Struct, frozen=True):
    session: str | None
    every: bool
    tokens: int | None
    limit: int | None
    pairs: tuple[str, ...]
    embedder: str | None
    as_json: bool

    @property
    def hits(self) -> int | None:
        """The most messages to show; None if only the tokens count."""
        if self.limit is None and self.tokens is None:
            return DEFAULT_HITS
        return self.limit

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The values that metadata must have."""
        return dict(map(_read_pair, self.pairs)) or None


def _read_pair(given: str) -> tuple[str, Any]:
    """A key and its value: JSON, or else the text as it is."""
    key, mark, value = given.partition("=")
    if not key or not mark:
        raise ChoiceError(f"--where takes KEY=VALUE, found {shorten(given)!r}")
    try:
        return key, from_json(value)
    except ValueError:
        return key, value


def _search_store(loom: Loom, query: str, options: _SearchOptions) -> list[Hit]:
    with suppress(StoreError):  # what cannot be written is read
        _index_store(loom)
    limits = {"tokens": options.tokens, "limit": options.hits}
    if options.session is None:
        return loom.search(query, where=options.metadata, **limits)
    session = loom.session(options.session)
    return session.search(query, shown=True, where=options.metadata, **limits)


def _usual_embedder(loom: Loom) -> str:
    """The embedder of which the store has vectors: those of another one would replace them. An
    endpoint is asked only if it is named.
    """
    stored = loom.store.search.find_embedder_name(loom.scope)
    return find_local_choice(stored) if stored else DEFAULT_EMBEDDER


def _find_embedder(name: str) -> "Embedder | None":
    """The embedder of this name; if it cannot be loaded, messages are found by words alone."""
    try:
        return choose_embedder(name)
    except EmbedderError as error:
        _tell_failure(error)
        return None


def _tell_failure(error: EmbedderError) -> None:
    say(dim(f"searching by words alone: {error}"), err=True)


def _index_store(loom: Loom) -> None:
    """Index what was stored since the last search, and make vectors for a while."""
    index = loom.store.search
    with Progress() as progress:
        index.index_all(loom.scope, None, progress.tell)
    embedder, end = loom.indexer.embedder, time.monotonic() + EMBED_SECONDS
    try:
        while embedder is not None and index.embed_next(loom.scope, embedder):
            if time.monotonic() > end:
                break
    except EmbedderError as error:
        _tell_failure(error)


def _print(
    hits: list[Hit], query: str, as_json: bool, name_session: Callable[[str, int], str]
) -> None:
    if as_json:
        say(to_json(hits))
    elif not hits:
        say(dim(f"no message matches {shorten(query)!r}"))
    else:
        print_hits(hits, query, name_session)


def _title_finder(loom: Loom) -> Callable[[str, int], str]:
    @cache
    def find_title(session: str, columns: int) -> str:
        try:
            title = loom.session(session).row.title
        except LoomError:  # it was purged just now
            title = ""
        return one_line(f"{session}  {title}".rstrip(), columns)

    return find_title


def _short_path(session: str, columns: int) -> str:
    """A file as it is named from here; of a long name, the end."""
    here = os_path.relpath(session)
    return fit_end(min(session, here, key=len), columns)


def _search_files(
    where: Where, names: tuple[str, ...], request: SearchRequest, embedder: "Embedder | None"
) -> list[Hit]:
    paths, named = _choose(names)
    with _open_library(where, names, embedder) as library:
        with ShareProgress("indexing") as progress:
            unread = library.update(paths, progress.tell)
        _tell_unread(unread, named)
        try:
            with ShareProgress("embedding") as progress:
                library.embed(EMBED_SECONDS, progress.tell)
            return library.search(request)
        except EmbedderError as error:
            _tell_failure(error)
            library.drop_embedder()
            return library.search(request)


def _choose(names: tuple[str, ...]) -> tuple[list[Path], set[str]]:
    """The files to search, and which of them were named themselves."""
    paths: list[Path] = []
    named: set[str] = set()
    for name in names:
        path, run = files.locate(name)
        if run is not None:
            raise ChoiceError(f"a search reads whole files; omit #{run} of {name}")
        if path.is_dir():
            paths += find_files(path)
        else:
            paths.append(path)
            named.add(fspath(path))
    return paths, named


@contextmanager
def _open_library(
    where: Where, names: tuple[str, ...], embedder: "Embedder | None"
) -> Iterator[TranscriptLibrary]:
    """The index of transcripts next to the store; of standard input, one that is not kept."""
    if "-" not in names:
        with TranscriptLibrary(where.transcript_index(), embedder) as library:
            yield library
        return
    with (
        tempfile.TemporaryDirectory(prefix="loom-") as folder,
        TranscriptLibrary(Path(folder) / "index", embedder) as library,
    ):
        yield library


def _tell_unread(unread: list[UnreadFile], named: set[str]) -> None:
    """Say which files were not searched. A file that was named itself must be searched."""
    for each in unread:
        if each.path in named:
            raise TranscriptError(f"{each.path}: {each.reason}")
    damaged = [each for each in unread if not each.is_unknown]
    unknown = len(unread) - len(damaged)
    if unknown:
        what = plural(unknown, "file is not a transcript", "files are not transcripts")
        say(dim(f"{what}, and not searched"), err=True)
    for each in damaged:
        say(dim(f"not searched: {each.path}: {each.reason}"), err=True)
