"""What changed in the rules of a project since an epoch began: the system text keeps what it said
then.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec import json as msgspec_json
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.project.rules.blocks import (
    MAX_COMPARED_CHARS,
    MarkdownBlock,
    SaidText,
    drop_repeats,
    join_blocks,
    normalize_lines,
    split_blocks,
)
from loom.project.rules.pieces import Count, RulesPiece, write_piece
from loom.project.rules.project_rules import ProjectRules, RulesSource, make_pieces
from loom.project.rules.reading import on_one_line

MAX_BLOCKS = 400  # of a file that are remembered; of a larger one only that it changed
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")
TOO_MANY = "*"  # stands for the blocks of a large file
UPDATE = (
    "Rules of the project changed since the text above was written. What is said here holds now:"
)


FOUND = "Rules of the project, which the text above does not have:"


class KnownFile(Struct, frozen=True, array_like=True):
    """A file as it was: its path, a digest of it, and one of each block."""

    path: str
    digest: str
    blocks: tuple[str, ...] = ()


def name_files(rules: ProjectRules) -> tuple[str, ...]:
    """The files as they are, to be compared with what they are later."""
    return tuple(to_json([*_name_file(source)]) for source in _readable(rules))


def is_same(names: Sequence[str], rules: ProjectRules) -> bool:
    """Whether all files are as they were, and no other is there."""
    known = {file.path: file.digest for file in read_names(names)}
    return known == {source.file.path: source.file.digest for source in _readable(rules)}


def read_names(names: Iterable[str]) -> list[KnownFile]:
    """What `name_files` made. What cannot be read is as if it had not been there."""
    found: list[KnownFile] = []
    for name in names:
        try:
            found.append(msgspec_json.decode(name, type=KnownFile))
        except (DecodeError, ValidationError):
            continue
    return found


class ShownTexts(Struct, frozen=True):
    """What a request says already: the rules that its epoch began with, and all else."""

    rules: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def write_changes(
    names: Sequence[str], rules: ProjectRules, shown: ShownTexts, tokens: int, count: Count
) -> str:
    """What is to be said of files that changed, in at most this many tokens; "" if none did."""
    known = {file.path: file for file in read_names(names)}
    current = {source.file.path: source for source in _readable(rules)}
    digests = {source.file.digest for source in current.values()}
    unread = {source.file.path for source in rules.sources if source.file.problem}
    gone = [
        path
        for path, file in known.items()
        if path not in current and path not in unread and file.digest not in digests
    ]
    lines = [
        f"{on_one_line(path)} is no longer among the rules: what only it said does not hold."
        for path in gone
    ]
    # What a file that is gone said is not said by it any more: another one may say it now.
    said = shown.others if gone else (*shown.others, *shown.rules)
    parts = _describe_files(known, rules, shown.rules, SaidText(said))
    if not lines and not parts:
        return ""
    head = UPDATE if known else FOUND
    return _join(head, lines, parts, tokens, count)


def _describe_files(
    known: Mapping[str, KnownFile], rules: ProjectRules, shown: Sequence[str], said: SaidText
) -> list[RulesPiece]:
    """A piece for each file that is new or changed, without what one before it says."""
    parts: list[RulesPiece] = []
    known_digests = {file.digest for file in known.values()}
    for source in _readable(rules):
        before = known.get(source.file.path)
        if source.file.digest in known_digests:  # the file is as it was, or was renamed
            continue
        known_digests.add(source.file.digest)
        made = make_pieces(rules, (), [source])[0]
        if before is not None:
            change = _describe_change(source, before, shown)
            made = [change] if change else []
        for piece in made:
            body = drop_repeats(piece.body, said)
            said.add(piece.body)
            if body or not piece.body:
                parts.append(replace(piece, body=body))
    return parts


def _join(
    head: str, lines: Sequence[str], parts: Sequence[RulesPiece], tokens: int, count: Count
) -> str:
    """The parts that fit, the last one of them cut; of the others only that there is news."""
    text = "\n".join((head, *lines))
    if count(text) > tokens:
        text = head
    for n, part in enumerate(parts):
        others = f"\n[also changed: {', '.join(each.path for each in parts[n + 1 :])}]"
        left = tokens - count(f"{text}\n\n") - (count(others) if n + 1 < len(parts) else 0)
        made = write_piece(part, max(left, 0), count)
        added = made.text or made.left_out
        if count(f"{text}\n\n{added}") > tokens:
            break
        text = f"{text}\n\n{added}"
    return text if count(text) <= tokens else ""


def _describe_change(
    source: RulesSource, before: KnownFile, shown: Sequence[str]
) -> RulesPiece | None:
    """What is new in a file, as a piece, and what is no longer in it; None if it says the same."""
    path = on_one_line(source.file.path)
    heading = f"{path} changed."
    now = _digest_blocks(source.file.text)
    if TOO_MANY in (*now, *before.blocks):
        return RulesPiece(path, heading, "Read the file for what it says now.", "")
    blocks = _split_sentences(source.file.text)
    new = [block for block, digest in zip(blocks, now, strict=True) if digest not in before.blocks]
    gone = set(before.blocks) - set(now)
    if not new and not gone:
        return None
    lost = [_begin_of(block) for block in _blocks_said(shown) if _digest(block) in gone]
    lead = ""
    if lost:
        lead = "No longer in it: " + "; ".join(f'"{each}"' for each in dict.fromkeys(lost[:6]))
    elif gone:
        lead = f"Paragraphs that are no longer in it: {len(gone)}."
    if new:
        lead = "\n".join(filter(None, (lead, "New in it, and to be kept to:")))
    return RulesPiece(path, heading, lead, join_blocks(new), weight=1)


def _blocks_said(said: Iterable[str]) -> Iterable[MarkdownBlock]:
    """The blocks of texts that were written from pieces, without their fences."""
    for text in said:
        lines = [line for line in text.split("\n") if not _is_outer_fence(line)]
        yield from _split_sentences("\n".join(lines))


def _split_sentences(text: str) -> list[MarkdownBlock]:
    """The blocks of a text; of a paragraph, the lines up to each that ends a sentence. So a line
    that changes takes none of its neighbours along.
    """
    made: list[MarkdownBlock] = []
    for block in split_blocks(text):
        if block.is_code:
            made.append(block)
            continue
        lines: list[str] = []
        for line in block.lines:
            lines.append(line)
            if line.rstrip().endswith(_SENTENCE_ENDS):
                made.append(replace(block, lines=tuple(lines)))
                lines = []
        if lines:
            made.append(replace(block, lines=tuple(lines)))
    return made


def _is_outer_fence(line: str) -> bool:
    return line.startswith("```") and line.strip("`") in ("", "markdown")


def _begin_of(block: MarkdownBlock) -> str:
    words = on_one_line(block.text)
    return words if len(words) <= 120 else f"{words[:120]}…"


def _digest(block: MarkdownBlock) -> str:
    return blake2b(normalize_lines(block.text).encode(), digest_size=4).hexdigest()


def _readable(rules: ProjectRules) -> list[RulesSource]:
    return [source for source in rules.sources if not source.file.problem]


def _name_file(source: RulesSource) -> tuple[Any, ...]:
    return source.file.path, source.file.digest, _digest_blocks(source.file.text)


def _digest_blocks(text: str) -> list[str]:
    blocks = _split_sentences(text) if len(text) <= MAX_COMPARED_CHARS else []
    if len(text) > MAX_COMPARED_CHARS or len(blocks) > MAX_BLOCKS:
        return [TOO_MANY]
    return [_digest(block) for block in blocks]
