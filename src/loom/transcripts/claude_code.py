"""Claude Code session files: a tree of lines, linked by parentUuid, of which the live branch is
read, or all of it.

One line holds one block of a model message, so the lines of one message id are one message.
Parallel calls are attached to each other and each result on its own call: walking up from the leaf
alone would lose all calls but one. So what is read is the way up from the leaf, the other lines of
each message on it, and the results of every call made there.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.message import Conversation, Message, Part
from loom.conversation.tree import Flags, Tree
from loom.dialects import anthropic
from loom.errors import TranscriptError, WireError
from loom.transcripts import files
from loom.transcripts.linked import Record, grow, list_of, moment, object_of, piece, text_of
from loom.transcripts.runs import Run

FORMAT = "Claude Code session"
SUB_AGENT = "a sub-agent"
SYNTHETIC = "<synthetic>"  # the model of words that the client wrote itself
_TYPES = {
    "user",
    "assistant",
    "system",
    "attachment",
    "summary",
    "queue-operation",
    "last-prompt",
    "mode",
    "file-history-snapshot",
    "progress",
}


def matches(sample: list[Any]) -> bool:
    return any(
        isinstance(v, dict)
        and str(v.get("type")) in _TYPES
        and ("parentUuid" in v or "leafUuid" in v or "sessionId" in v)
        for v in sample
    )


class _FileIndex(Struct):
    """What the lines of a file say about each other, in numbers: a few dozen bytes a line whatever
    the lines hold.
    """

    uuids: "array[int]"
    parents: "array[int]"
    messages: "array[int]"
    threads: "array[int]"  # 0: the main thread; else the side thread a line belongs to
    calls: dict[int, int]  # call -> the line that makes it
    answers: dict[int, list[int]]  # line -> the calls it answers
    sides: dict[int, int]  # a line of a side thread, by its uuid -> the thread
    leaf: int = 0
    model: str = ""
    name: str = ""


def _number(text: Any) -> int:
    """A text as 63 bits; 0 for none."""
    if not isinstance(text, str) or not text:
        return 0
    return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest()) >> 1


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records that are links of the tree, with their line numbers."""
    for number, record in files.lines(path):
        if isinstance(record, dict) and isinstance(record.get("uuid"), str):
            yield number, record


# ── the live branch ──────────────────────────────────────────────────────────


def runs(path: Path, _sample: list[Any]) -> list[Run]:
    index = _read_index(path)
    found: list[Run] = []
    for thread, lines in _lines_by_thread(index).items():
        chosen = _choose(index, lines)
        reader = _reader(path, chosen, _is_complete(index, chosen))
        if next(reader(), None) is not None:
            head = Conversation(messages=(), model=index.model)
            name = index.name if thread == 0 else SUB_AGENT
            found.append(
                Run(
                    number=len(found),
                    format=FORMAT,
                    wire="anthropic",
                    head=head,
                    name=name,
                    messages=partial(_read_messages, reader),
                    timed=reader,
                )
            )
    if not found:
        raise TranscriptError(f"{path}: a Claude Code session without a message")
    return found


def _read_messages(timed: Callable[[], Iterator[tuple[Message, int]]]) -> Iterator[Message]:
    return (message for message, _ in timed())


def _read_index(path: Path) -> _FileIndex:
    index = _FileIndex(array("q"), array("q"), array("q"), array("q"), {}, {}, {})
    for _, record in files.lines(path):
        if not isinstance(record, dict):
            continue
        kind = record.get("type")
        if kind == "summary" and isinstance(record.get("summary"), str):
            index.name = record["summary"]
        if kind == "last-prompt":
            index.leaf = _number(record.get("leafUuid")) or index.leaf
        if isinstance(record.get("uuid"), str):
            _add(index, record, kind)
    return index


def _add(index: _FileIndex, record: dict[str, Any], kind: Any) -> None:
    message, is_side = object_of(record.get("message")), bool(record.get("isSidechain"))
    line = len(index.uuids)
    index.uuids.append(_number(record["uuid"]))
    index.parents.append(
        _number(record.get("parentUuid")) or _number(record.get("logicalParentUuid"))
    )
    index.messages.append(_number(message.get("id")) if kind == "assistant" else 0)
    index.threads.append(_find_thread(index, record) if is_side else 0)
    if kind in ("user", "assistant") and not is_side:
        # the newest word is the live branch, unless the client says otherwise after it
        index.leaf = index.uuids[-1]
    if kind == "assistant" and not index.model and text_of(message.get("model")) != SYNTHETIC:
        index.model = text_of(message.get("model"))
    _add_calls(index, line, list_of(message.get("content")))


def _add_calls(index: _FileIndex, line: int, blocks: list[Any]) -> None:
    """Note the calls that a line makes, and those that it answers."""
    for block in blocks:
        match block:
            case {"type": "tool_use"}:
                index.calls[_number(block.get("id"))] = line
            case {"type": "tool_result"}:
                index.answers.setdefault(line, []).append(_number(block.get("tool_use_id")))


def _find_thread(index: _FileIndex, record: dict[str, Any]) -> int:
    """The side thread of a line. Older clients do not name the sub-agent: a thread is then what
    goes back to one beginning.
    """
    uuid, parent = index.uuids[-1], index.parents[-1]
    thread = _number(record.get("agentId")) or index.sides.get(parent, uuid)
    index.sides[uuid] = thread
    return thread


def _lines_by_thread(index: _FileIndex) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for n, thread in enumerate(index.threads):
        found.setdefault(thread, []).append(n)
    return found


def _choose(index: _FileIndex, mine: list[int]) -> bytearray:
    """Which lines of a thread are read: the way up from the leaf, and what belongs to the messages
    on it.
    """
    chosen = bytearray(len(index.uuids))
    wanted = index.uuids[mine[-1]]
    if any(index.uuids[n] == index.leaf for n in mine):
        wanted = index.leaf
    for n in reversed(mine):
        if index.uuids[n] == wanted:
            chosen[n] = 1
            wanted = index.parents[n]
    parts_of = {index.messages[n] for n in mine if chosen[n]} - {0}
    for n in mine:
        chosen[n] |= index.messages[n] in parts_of
    for n in mine:
        chosen[n] |= any(
            chosen[index.calls[call]] for call in index.answers.get(n, ()) if call in index.calls
        )
    return chosen


def _is_complete(index: _FileIndex, chosen: bytearray) -> bool:
    """Whether the way up reaches a beginning; after a compaction it may end at what another file
    holds.
    """
    return index.parents[chosen.index(1)] == 0


def _reader(
    path: Path, chosen: bytearray, complete: bool
) -> Callable[[], Iterator[tuple[Message, int]]]:
    """What reads the messages, each with when it was said."""

    def read() -> Iterator[tuple[Message, int]]:
        writing = _OpenMessage()
        for record, parsed in _parse_chosen(path, chosen, complete):
            if writing.take(record, parsed):
                continue
            yield from writing.close()
            if record["type"] == "assistant":
                writing.begin(record, parsed[0].parts)
            else:
                time = moment(record.get("timestamp"))
                yield from ((message, time) for message in parsed)
        yield from writing.close()

    return read


def _parse_chosen(
    path: Path, chosen: bytearray, complete: bool
) -> Iterator[tuple[dict[str, Any], list[Message]]]:
    """The chosen records that say something, each with its messages."""
    for n, (number, record) in enumerate(_records(path)):
        wire = record.get("message")
        if (
            not chosen[n]
            or record.get("type") not in ("user", "assistant")
            or not isinstance(wire, dict)
        ):
            continue
        if _is_clients(record, text_of(wire.get("model")), complete):
            continue
        yield record, _parse_message(path, wire, f"line {number}")


def _parse_message(path: Path, wire: dict[str, Any], place: str) -> list[Message]:
    try:
        return anthropic.parse_message(
            {"role": wire.get("role"), "content": wire.get("content")}, place
        )
    except WireError as error:
        raise TranscriptError(f"{path}, {error}") from None


class _OpenMessage:
    """The model message that is being read, a block a line, and the results that came before its
    last block.
    """

    def __init__(self) -> None:
        self._id: Any = None
        self._time = 0
        self._parts: list[Part] = []
        self._answers: list[tuple[Message, int]] = []

    def begin(self, record: dict[str, Any], parts: Sequence[Part]) -> None:
        self._id, self._parts = record["message"].get("id"), list(parts)
        self._time = moment(record.get("timestamp"))

    def take(self, record: dict[str, Any], parsed: list[Message]) -> bool:
        """Whether a record belongs to this message. It is taken then."""
        if not self._parts:
            return False
        if all(message.role == "tool" for message in parsed):
            time = moment(record.get("timestamp"))
            self._answers += ((message, time) for message in parsed)
            return True
        if (
            record["type"] != "assistant"
            or self._id is None
            or record["message"].get("id") != self._id
        ):
            return False
        self._parts += parsed[0].parts
        return True

    def close(self) -> Iterator[tuple[Message, int]]:
        """The message and its results. What comes next begins another one."""
        if self._parts:
            yield Message("assistant", tuple(self._parts)), self._time
        yield from self._answers
        self._parts, self._answers = [], []


# ── the whole tree ───────────────────────────────────────────────────────────


class _IndexLine(Struct):
    """A link of the tree, and what was said there: nothing, in most of the client's own lines."""

    place: str
    uuid: str
    parent: int  # the line above; -1 where there is none in this file
    whole: bool  # whether all that is above is in this file
    side: str  # the sub-agent whose line it is
    message: str  # the message that it is a block of
    model: str
    created: int
    said: list[Message]
    answered: set[str]  # the calls that it has results of


class _Session(Struct):
    lines: list[_IndexLine] = []
    places: dict[str, int] = {}  # uuid -> the newest line that has it
    id: str = ""
    title: str = ""
    leaf: str = ""


class _Answers(Struct):
    """Results that came next to each other and are one row here."""

    last: int
    calls: set[str]


def trees(path: Path) -> list[Tree]:
    """The session with every branch; and a tree for each sub-agent whose first line hangs
    nowhere.
    """
    session = _read_session(path)
    lines = session.lines
    above = _above([line.parent for line in lines], [not line.said for line in lines])
    heads = _heads(lines)
    parents = _parents(lines, above, heads)
    blocks: dict[int, list[_IndexLine]] = {}  # the first line of a message -> all of them
    for n, line in enumerate(lines):
        if line.said:
            blocks.setdefault(heads[n], []).append(line)
    names = _name_messages(blocks)
    found: dict[str, list[Record]] = {}
    for head, tree in _divide_into_trees(blocks, parents, lines).items():
        found.setdefault(tree, []).append(_record(head, blocks[head], parents[head], lines, names))
    if not found:
        raise TranscriptError(f"{path}: a Claude Code session without a message")
    leaf = session.places.get(session.leaf, -1)
    if leaf >= 0 and not lines[leaf].said:
        leaf = above[leaf]
    live = ""
    if leaf >= 0:
        live = names[heads[leaf]]
    try:
        return [_tree(tree, records, session, live, path) for tree, records in found.items()]
    except WireError as error:
        raise TranscriptError(f"{path}, {error}") from None


def _name_messages(blocks: dict[int, list[_IndexLine]]) -> dict[int, str]:
    """A name for each message: the uuid of its last line, or one like it that is free."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for head, held in blocks.items():
        uuid = names[head] = held[-1].uuid
        if uuid in taken:
            names[head] = piece(uuid, 2, taken)
        taken.add(uuid)
    return names


def _read_session(path: Path) -> _Session:
    session = _Session()
    unseen: dict[int, str] = {}  # line -> the parent that it names and that no line before it has
    for number, record in files.lines(path):
        if not isinstance(record, dict):
            continue
        _note_session(session, record)
        uuid = text_of(record.get("uuid"))
        if not uuid:
            continue
        above = text_of(record.get("parentUuid")) or text_of(record.get("logicalParentUuid"))
        parent = session.places.get(above, -1)
        if parent >= 0:
            whole = session.lines[parent].whole
        else:
            whole = not above
        line = _read_line(path, record, f"line {number}", parent, whole)
        if line.said and not line.side:
            session.leaf = uuid
        if _is_repeated(session, uuid, line):
            continue  # written twice: it stays where it was first
        if above and parent < 0:
            unseen[len(session.lines)] = above
        session.places[uuid] = len(session.lines)
        session.lines.append(line)
    for n, above in unseen.items():
        session.lines[n].parent = session.places.get(above, -1)
    return session


def _note_session(session: _Session, record: dict[str, Any]) -> None:
    """What a record says of the session: its id, its title, and its newest line."""
    match record.get("type"):
        case "last-prompt":
            session.leaf = text_of(record.get("leafUuid")) or session.leaf
        case "summary":
            session.title = text_of(record.get("summary")) or session.title
        case "custom-title":
            session.title = text_of(record.get("customTitle")) or session.title
    if text_of(record.get("uuid")):
        session.id = session.id or text_of(record.get("sessionId"))


def _is_repeated(session: _Session, uuid: str, line: _IndexLine) -> bool:
    before = session.places.get(uuid, -1)
    return bool(line.said) and before >= 0 and session.lines[before].said == line.said


def _read_line(
    path: Path, record: dict[str, Any], place: str, parent: int, whole: bool
) -> _IndexLine:
    wire = object_of(record.get("message"))
    model = text_of(wire.get("model"))
    said: list[Message] = []
    if (
        record.get("type") in ("user", "assistant")
        and isinstance(record.get("message"), dict)
        and not _is_clients(record, model, whole)
    ):
        said = [message for message in _parse_message(path, wire, place) if message.parts]
    side = message_id = ""
    if record.get("isSidechain"):
        side = text_of(record.get("agentId")) or record["uuid"]
    if said and said[0].role == "assistant":
        message_id = text_of(wire.get("id"))
    return _IndexLine(
        place,
        record["uuid"],
        parent,
        whole,
        side,
        message_id,
        model,
        moment(record.get("timestamp")),
        said,
        {result.call_id for message in said for result in message.results},
    )


def _is_clients(record: dict[str, Any], model: str, whole: bool) -> bool:
    """The client's own words in the model's name; and the text of a compaction, where all that it
    stands for is here.
    """
    return model == SYNTHETIC or (bool(record.get("isCompactSummary")) and whole)


def _above(parents: Sequence[int], passed: Sequence[bool]) -> list[int]:
    """For each line the nearest above that is not passed over; -1 for none."""
    unknown = -2
    found = [unknown] * len(parents)
    for n in range(len(parents)):
        way, at, end = [], n, -1
        while found[at] == unknown:
            found[at] = -1  # lines in a ring that all are passed over have nothing above them
            way.append(at)
            if parents[at] < 0 or not passed[parents[at]]:
                end = parents[at]
                break
            at = parents[at]
        else:
            end = found[at]
        for line in way:
            found[line] = end
    return found


def _heads(lines: list[_IndexLine]) -> list[int]:
    """For each line the first one of the message that it is a block of."""
    spoken = _above(
        [line.parent for line in lines], [not line.said or bool(line.answered) for line in lines]
    )
    heads = list(range(len(lines)))
    for n, line in enumerate(lines):
        if line.message and 0 <= spoken[n] < n and lines[spoken[n]].message == line.message:
            heads[n] = heads[spoken[n]]
    return heads


def _parents(lines: list[_IndexLine], above: list[int], heads: list[int]) -> dict[int, int]:
    """For each line that says something the head of the message it follows. Results of one message
    follow each other.
    """
    bases = [heads[over] if over >= 0 else -1 for over in above]
    rows: dict[int, _Answers] = {}  # line of results, or the head they answer -> the row
    parents: dict[int, int] = {}
    for n, line in enumerate(lines):
        if line.answered:
            parents[n] = _join_row(rows, lines, n, bases[n])
    for n, line in enumerate(lines):
        if line.said and not line.answered and heads[n] == n:
            base = bases[n]
            if base >= 0 and lines[base].answered:
                parents[n] = rows[base].last
            else:
                parents[n] = base
    return parents


def _join_row(rows: dict[int, _Answers], lines: list[_IndexLine], n: int, asked: int) -> int:
    """Put a line of results into the row of those that answer the same message. The line that it
    follows.
    """
    answered, row = lines[n].answered, rows.get(asked)
    if row is not None and not row.calls & answered:
        before, row.last = row.last, n
        row.calls |= answered
        rows[n] = row
        return before
    # The first results, or another try at the same call: a branch.
    before = asked
    if row is not None and lines[asked].answered:
        before = row.last
    rows[n] = fresh = _Answers(n, set(answered))
    if asked >= 0 and not lines[asked].answered:
        rows[asked] = fresh
    return before


def _divide_into_trees(
    heads: Iterable[int], parents: dict[int, int], lines: list[_IndexLine]
) -> dict[int, str]:
    """For each message the tree it is in: "" for that of the session, else the sub-agent that it
    begins with.
    """
    trees: dict[int, str] = {}
    heads = list(heads)
    for head in heads:
        way, at = [], head
        while at not in trees:
            trees[at] = ""  # where it goes round in a ring, growing the tree says so
            way.append(at)
            if parents[at] < 0:
                tree = lines[at].side
                break
            at = parents[at]
        else:
            tree = trees[at]
        for line in way:
            trees[line] = tree
    return {head: trees[head] for head in heads}


def _record(
    head: int, blocks: list[_IndexLine], parent: int, lines: list[_IndexLine], names: dict[int, str]
) -> Record:
    first = lines[head]
    messages = first.said
    if messages[0].role == "assistant":
        messages = [
            Message(
                "assistant",
                tuple(part for line in blocks for message in line.said for part in message.parts),
            )
        ]
    branches_off = first.side and parent >= 0 and not lines[parent].side
    return Record(
        id=names[head],
        place=first.place,
        messages=tuple(messages),
        parent=names.get(parent, ""),
        author=first.model if messages[0].role == "assistant" else "",
        flags=Flags(label=SUB_AGENT if branches_off else ""),
        created=first.created,
    )


def _tree(agent: str, records: list[Record], session: _Session, live: str, path: Path) -> Tree:
    nodes, ends = grow(records)
    return Tree(
        id=agent or session.id or path.stem,
        nodes=nodes,
        title=SUB_AGENT if agent else session.title,
        current=ends.get(records[-1].id if agent else live, ""),
        model=next((record.author for record in records if record.author), ""),
        created=next((record.created for record in records if record.created), 0),
    )
