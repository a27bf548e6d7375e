"""What changed in the rules of a project since an epoch began: the system text keeps what it said
then.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec import json as msgspec_json

from loom.conversation.canonical import to_json
from loom.project.rules.blocks import MarkdownBlock, join_blocks, normalize_lines, split_blocks
from loom.project.rules.pieces import Count, RulesPiece, write_piece
from loom.project.rules.project_rules import ProjectRules, RulesSource, make_pieces
from loom.project.rules.reading import on_one_line

MAX_BLOCKS = 400  # of a file that are remembered; of a longer one only that it changed
UPDATE = (
    "Rules of the project changed since the text above was written. What is said here holds now:"
)


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


def write_changes(
    names: Sequence[str], rules: ProjectRules, said: Sequence[str], tokens: int, count: Count
) -> str:
    """What is to be said of files that changed, in at most this many tokens; "" if none did."""
    known = {file.path: file for file in read_names(names)}
    current = {source.file.path: source for source in _readable(rules)}
    lines = [
        f"{on_one_line(path)} is gone: its rules no longer hold."
        for path in known
        if path not in current
    ]
    parts: list[RulesPiece] = []
    for path, source in current.items():
        before = known.get(path)
        if before is None:
            parts += make_pieces(rules, said, [source])[0]
        elif before.digest != source.file.digest:
            parts.append(_describe_change(source, before, said))
    if not lines and not parts:
        return ""
    return _join("\n".join((UPDATE, *lines)), parts, tokens, count)


def _join(text: str, parts: Sequence[RulesPiece], tokens: int, count: Count) -> str:
    """The parts that fit, the last one of them cut; of the others only that there is news."""
    if count(text) > tokens:
        text = UPDATE
    for n, part in enumerate(parts):
        others = f"\n[also changed: {', '.join(each.path for each in parts[n + 1 :])}]"
        left = tokens - count(f"{text}\n\n") - (count(others) if n + 1 < len(parts) else 0)
        made = write_piece(part, max(left, 0), count)
        added = made.text or made.left_out
        if count(f"{text}\n\n{added}") > tokens:
            break
        text = f"{text}\n\n{added}"
    return text if count(text) <= tokens else ""


def _describe_change(source: RulesSource, before: KnownFile, said: Sequence[str]) -> RulesPiece:
    """What is new in a file, as a piece, and what is no longer in it."""
    path = on_one_line(source.file.path)
    blocks = split_blocks(source.file.text)
    heading = f"{path} changed."
    if len(blocks) > MAX_BLOCKS or len(before.blocks) >= MAX_BLOCKS:
        return RulesPiece(path, heading, "Read the file for what it says now.", "")
    now = [_digest(block) for block in blocks]
    new = [block for block, digest in zip(blocks, now, strict=True) if digest not in before.blocks]
    gone = set(before.blocks) - set(now)
    lost = [_begin_of(block) for block in _blocks_said(said) if _digest(block) in gone]
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
        yield from split_blocks("\n".join(lines))


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
    blocks = split_blocks(source.file.text)[:MAX_BLOCKS]
    return source.file.path, source.file.digest, [_digest(block) for block in blocks]
