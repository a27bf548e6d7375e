"""Claude Code session files: a tree of lines, linked by parentUuid, of which the live branch is read, or all of it.

One line holds one block of a model message, so the lines of one message id are one message. Parallel calls hang on each
other and each result on its own call: walking up from the leaf alone would lose all calls but one. So what is read is the
way up from the leaf, the other lines of each message on it, and the results of every call made there.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.message import Conversation, Message, Part
from loom.conversation.tree import Flags, Tree
from loom.dialects import anthropic
from loom.errors import TranscriptError, WireError
from loom.transcripts import files
from loom.transcripts.linked import Record, grow, moment, piece, text_of
from loom.transcripts.runs import Run

FORMAT = "Claude Code session"
SUB_AGENT = "a sub-agent"
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
        isinstance(v, dict) and str(v.get("type")) in _TYPES and ("parentUuid" in v or "leafUuid" in v or "sessionId" in v)
        for v in sample
    )


class _FileIndex(Struct):
    """What the lines of a file say about each other, in numbers: a few dozen bytes a line whatever the lines hold."""

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
    return (
        int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest()) >> 1 if isinstance(text, str) and text else 0
    )


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records that are links of the tree, with their line numbers."""
    for number, record in files.lines(path):
        if isinstance(record, dict) and isinstance(record.get("uuid"), str):
            yield number, record


# ── the live branch ──────────────────────────────────────────────────────────


def runs(path: Path) -> list[Run]:
    index = _read_index(path)
    found: list[Run] = []
    for thread, lines in _lines_by_thread(index).items():
        chosen = _choose(index, lines)
        reader = _reader(path, chosen, _is_complete(index, chosen))
        if next(reader(), None) is not None:
            head = Conversation(messages=(), model=index.model)
            name = index.name if thread == 0 else SUB_AGENT
            found.append(Run(number=len(found), format=FORMAT, wire="anthropic", head=head, name=name, messages=reader))
    if not found:
        raise TranscriptError(f"{path}: a Claude Code session without a message")
    return found


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
    message = record.get("message")
    if not isinstance(message, dict):
        message = {}
    line = len(index.uuids)
    index.uuids.append(_number(record["uuid"]))
    index.parents.append(_number(record.get("parentUuid")) or _number(record.get("logicalParentUuid")))
    index.messages.append(_number(message.get("id")) if kind == "assistant" else 0)
    index.threads.append(_find_thread(index, record) if record.get("isSidechain") else 0)
    if kind in ("user", "assistant") and not record.get("isSidechain"):
        index.leaf = index.uuids[-1]  # the newest word is the live branch, unless the client says otherwise behind it
    if kind == "assistant" and not index.model and isinstance(message.get("model"), str) and message["model"] != "<synthetic>":
        index.model = message["model"]
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            index.calls[_number(block.get("id"))] = line
        elif isinstance(block, dict) and block.get("type") == "tool_result":
            index.answers.setdefault(line, []).append(_number(block.get("tool_use_id")))


def _find_thread(index: _FileIndex, record: dict[str, Any]) -> int:
    """The side thread of a line. Older clients do not name the sub-agent: a thread is then what goes back to one beginning."""
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
    """Which lines of a thread are read: the way up from the leaf, and what belongs to the messages on it."""
    chosen = bytearray(len(index.uuids))
    wanted = index.leaf if any(index.uuids[n] == index.leaf for n in mine) else index.uuids[mine[-1]]
    for n in reversed(mine):
        if index.uuids[n] == wanted:
            chosen[n] = 1
            wanted = index.parents[n]
    parts_of = {index.messages[n] for n in mine if chosen[n]} - {0}
    for n in mine:
        chosen[n] |= index.messages[n] in parts_of
    for n in mine:
        chosen[n] |= any(chosen[index.calls[call]] for call in index.answers.get(n, ()) if call in index.calls)
    return chosen


def _is_complete(index: _FileIndex, chosen: bytearray) -> bool:
    """Whether the way up reaches a beginning; after a compaction it may end at what another file holds."""
    return index.parents[chosen.index(1)] == 0


def _reader(path: Path, chosen: bytearray, complete: bool) -> Callable[[], Iterator[Message]]:
    def read() -> Iterator[Message]:
        written: list[Part] = []  # the parts of the model message being read
        answers: list[Message] = []  # results that came while it was still being written
        current = None
        for n, (number, record) in enumerate(_records(path)):
            wire = record.get("message")
            if not chosen[n] or record.get("type") not in ("user", "assistant") or not isinstance(wire, dict):
                continue
            # The client's own words in the model's name; and the text of a compaction, where all that it stands for is here.
            if wire.get("model") == "<synthetic>" or (record.get("isCompactSummary") and complete):
                continue
            try:
                parsed = anthropic.parse_message({"role": wire.get("role"), "content": wire.get("content")}, f"line {number}")
            except WireError as error:
                raise TranscriptError(f"{path}, {error}") from None
            if written and all(message.role == "tool" for message in parsed):
                answers += parsed
                continue
            if record["type"] == "assistant" and written and current is not None and wire.get("id") == current:
                written += parsed[0].parts
                continue
            if written:
                yield Message("assistant", tuple(written))
            yield from answers
            written, answers = [], []
            if record["type"] == "assistant":
                written, current = list(parsed[0].parts), wire.get("id")
            else:
                yield from parsed
        if written:
            yield Message("assistant", tuple(written))
        yield from answers

    return read


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
    """Results that came beside each other and are one row here."""

    last: int
    calls: set[str]


def trees(path: Path) -> list[Tree]:
    """The session with every branch; and a tree for each sub-agent whose first line hangs nowhere."""
    session = _read_session(path)
    lines = session.lines
    above = _above([line.parent for line in lines], [not line.said for line in lines])
    heads = _heads(lines)
    parents = _parents(lines, above, heads)
    blocks: dict[int, list[_IndexLine]] = {}  # the first line of a message -> all of them
    for n, line in enumerate(lines):
        if line.said:
            blocks.setdefault(heads[n], []).append(line)
    names: dict[int, str] = {}
    taken: set[str] = set()
    for head, held in blocks.items():
        uuid = held[-1].uuid
        names[head] = uuid if uuid not in taken else piece(uuid, 2, taken)
        taken.add(uuid)
    found: dict[str, list[Record]] = {}
    for head, tree in _divide_into_trees(blocks, parents, lines).items():
        found.setdefault(tree, []).append(_record(head, blocks[head], parents[head], lines, names))
    if not found:
        raise TranscriptError(f"{path}: a Claude Code session without a message")
    leaf = session.places.get(session.leaf, -1)
    leaf = leaf if leaf < 0 or lines[leaf].said else above[leaf]
    live = names[heads[leaf]] if leaf >= 0 else ""
    try:
        return [_tree(tree, records, session, live, path) for tree, records in found.items()]
    except WireError as error:
        raise TranscriptError(f"{path}, {error}") from None


def _read_session(path: Path) -> _Session:
    session = _Session()
    unseen: dict[int, str] = {}  # line -> the parent that it names and that no line before it has
    for number, record in files.lines(path):
        if not isinstance(record, dict):
            continue
        kind, uuid = record.get("type"), text_of(record.get("uuid"))
        if kind == "last-prompt":
            session.leaf = text_of(record.get("leafUuid")) or session.leaf
        title = record.get("summary") if kind == "summary" else record.get("customTitle") if kind == "custom-title" else ""
        session.title = text_of(title) or session.title
        if not uuid:
            continue
        above = text_of(record.get("parentUuid")) or text_of(record.get("logicalParentUuid"))
        parent = session.places.get(above, -1)
        whole = session.lines[parent].whole if parent >= 0 else not above
        line = _read_line(path, record, f"line {number}", parent, whole)
        session.id = session.id or text_of(record.get("sessionId"))
        if line.said and not line.side:
            session.leaf = uuid
        before = session.places.get(uuid, -1)
        if line.said and before >= 0 and session.lines[before].said == line.said:
            continue  # written twice: it stands where it stood first
        if above and parent < 0:
            unseen[len(session.lines)] = above
        session.places[uuid] = len(session.lines)
        session.lines.append(line)
    for n, above in unseen.items():
        session.lines[n].parent = session.places.get(above, -1)
    return session


def _read_line(path: Path, record: dict[str, Any], place: str, parent: int, whole: bool) -> _IndexLine:
    wire, uuid = record.get("message"), record["uuid"]
    model = text_of(wire.get("model")) if isinstance(wire, dict) else ""
    said: list[Message] = []
    if record.get("type") in ("user", "assistant") and isinstance(wire, dict) and not _is_clients(record, model, whole):
        try:
            said = anthropic.parse_message({"role": wire.get("role"), "content": wire.get("content")}, place)
        except WireError as error:
            raise TranscriptError(f"{path}, {error}") from None
        said = [message for message in said if message.parts]
    return _IndexLine(
        place,
        uuid,
        parent,
        whole,
        text_of(record.get("agentId")) or uuid if record.get("isSidechain") else "",
        text_of(wire.get("id")) if said and said[0].role == "assistant" and isinstance(wire, dict) else "",
        model,
        moment(record.get("timestamp")),
        said,
        {result.call_id for message in said for result in message.results},
    )


def _is_clients(record: dict[str, Any], model: str, whole: bool) -> bool:
    """The client's own words in the model's name; and the text of a compaction, where all that it stands for is here."""
    return model == "<synthetic>" or (bool(record.get("isCompactSummary")) and whole)


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
    spoken = _above([line.parent for line in lines], [not line.said or bool(line.answered) for line in lines])
    heads = list(range(len(lines)))
    for n, line in enumerate(lines):
        if line.message and 0 <= spoken[n] < n and lines[spoken[n]].message == line.message:
            heads[n] = heads[spoken[n]]
    return heads


def _parents(lines: list[_IndexLine], above: list[int], heads: list[int]) -> dict[int, int]:
    """For each line that says something the head of the message it follows. Results of one message follow each other."""
    rows: dict[int, _Answers] = {}  # line of results, or the head they answer -> the row
    parents: dict[int, int] = {}
    for n, line in enumerate(lines):
        if not line.answered:
            continue
        asked = heads[above[n]] if above[n] >= 0 else -1
        row = rows.get(asked)
        if row is None or row.calls & line.answered:  # the first, or another try at the same call: a branch
            parents[n] = row.last if row is not None and lines[asked].answered else asked
            row = rows[n] = _Answers(n, set(line.answered))
            if asked >= 0 and not lines[asked].answered:
                rows[asked] = row
        else:
            parents[n], row.last = row.last, n
            row.calls |= line.answered
            rows[n] = row
    for n, line in enumerate(lines):
        if line.said and not line.answered and heads[n] == n:
            base = heads[above[n]] if above[n] >= 0 else -1
            parents[n] = rows[base].last if base >= 0 and lines[base].answered else base
    return parents


def _divide_into_trees(heads: Iterable[int], parents: dict[int, int], lines: list[_IndexLine]) -> dict[int, str]:
    """For each message the tree it is in: "" for that of the session, else the sub-agent that it begins with."""
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


def _record(head: int, blocks: list[_IndexLine], parent: int, lines: list[_IndexLine], names: dict[int, str]) -> Record:
    first = lines[head]
    messages = first.said
    if messages[0].role == "assistant":
        messages = [Message("assistant", tuple(part for line in blocks for message in line.said for part in message.parts))]
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
