"""`LOOM.md`: instructions, a list of rules, and the operations that are allowed and denied."""

import re
from collections.abc import Mapping

from msgspec import Struct

from loom.project.rules.blocks import closes_fence
from loom.project.rules.operations import ANY, Patterns, name_category
from loom.project.rules.reading import on_one_line

MAX_PATTERNS = 500  # of a category
MAX_PATTERN_CHARS = 500
_HEADING = re.compile(r"##\s+(.*?)[\s#:]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BULLET = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+")
_CATEGORY = re.compile(r"\*|[A-Za-z][\w .-]{0,39}")
_PATTERN = re.compile(r"\s*(?:`([^`]*)`|\"([^\"]*)\"|([^,]+))")
_ALLOWED = "allowed operations"
_UNREADABLE = "\ufffd"  # stands for a character that could not be read


class LoomFile(Struct, frozen=True):
    """What `LOOM.md` says. `problems` are lines that could not be understood."""

    instructions: str = ""
    rules: tuple[str, ...] = ()
    allowed: Patterns = {}
    denied: Patterns = {}
    problems: tuple[str, ...] = ()


class _FileSection(Struct):
    title: str
    heading: str
    lines: list[tuple[int, str]]


def parse_loom_file(text: str) -> LoomFile:
    """The parts of a file. What is before the first `##`, and sections with other titles, are
    instructions.
    """
    instructions: list[str] = []
    rules: list[str] = []
    problems: list[str] = []
    allowed: dict[str, list[str]] = {}
    denied: dict[str, list[str]] = {}
    for section in _split_sections(text):
        match section.title:
            case "rules":
                rules += _read_items([line for _, line in section.lines])
            case "allowed operations":
                problems += _read_operations(section, allowed)
            case "denied operations":
                problems += _read_operations(section, denied)
            case _:
                said = "\n".join(line for _, line in section.lines).strip("\n")
                instructions.append("\n".join(filter(None, (section.heading, said))))
    return LoomFile(
        instructions="\n\n".join(filter(str.strip, instructions)),
        rules=tuple(rules),
        allowed=_limit_patterns(allowed, False, problems),
        denied=_limit_patterns(denied, True, problems),
        problems=tuple(problems),
    )


def _split_sections(text: str) -> list[_FileSection]:
    sections = [_FileSection("", "", [])]
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        opened = _FENCE.match(line)
        heading = _HEADING.match(line)
        if fence:
            if closes_fence(line, fence):
                fence = ""
        elif opened:
            fence = opened[1]
        elif heading:
            title = " ".join(heading[1].lower().split())
            sections.append(_FileSection(title, line, []))
            continue
        sections[-1].lines.append((number, line))
    return sections


def _read_items(lines: list[str]) -> list[str]:
    """The items of a list, each on one line. A paragraph is an item too."""
    items: list[str] = []
    goes_on = False
    for line in lines:
        bullet = _BULLET.match(line)
        said = on_one_line(line[bullet.end() :] if bullet else line.lstrip("# "))
        if not said:
            goes_on = False
        elif goes_on and not bullet:
            items[-1] += f" {said}"
        else:
            items.append(said)
            goes_on = True
    return items


def _read_operations(section: _FileSection, found: dict[str, list[str]]) -> list[str]:
    """Add the patterns of a section; lines that are not `category: pattern, pattern`. Such a line
    denies in all categories; it allows nothing.
    """
    problems: list[str] = []
    for number, line in section.lines:
        said = on_one_line(_BULLET.sub("", line, count=1))
        if not said or _FENCE.match(line):
            continue
        category, colon, patterns = said.partition(":")
        category = category.strip().strip("`").removeprefix("**").removesuffix("**")
        if not colon or not _CATEGORY.fullmatch(category):
            wanted = f'line {number}: "{said[:80]}" is not "category: pattern, pattern"'
            if section.title == _ALLOWED:
                problems.append(f"{wanted}; it allows nothing")
                continue
            problems.append(f"{wanted}; it is denied in every category")
            category, patterns = ANY, said
        if section.title != _ALLOWED:
            patterns = patterns.replace(_UNREADABLE, ANY)  # in doubt it is denied
        known = _read_patterns(patterns)
        if not known:
            without = f'line {number}: "{said[:80]}" has no pattern'
            if section.title == _ALLOWED:
                problems.append(f"{without}; it allows nothing")
                continue
            problems.append(f"{without}; all of it is denied")
            known = [ANY]
        found.setdefault(name_category(category), []).extend(known)
    return problems


def _limit_patterns(
    found: Mapping[str, list[str]], is_denied: bool, problems: list[str]
) -> dict[str, tuple[str, ...]]:
    """The patterns by category, as many as can be compared. If more are denied, all is denied."""
    made: dict[str, tuple[str, ...]] = {}
    for category, patterns in found.items():
        known = tuple(dict.fromkeys(patterns))
        if len(known) > MAX_PATTERNS:
            rest = "the first of them count"
            known = known[:MAX_PATTERNS]
            if is_denied:
                rest, known = "all of its operations are denied", ("*",)
            problems.append(f"{category}: it has more than {MAX_PATTERNS:,} patterns; {rest}")
        made[category] = known
    return made


def _read_patterns(text: str) -> list[str]:
    """Patterns between commas. Backquotes and quotes around one are not part of it."""
    groups = (match.groups() for match in _PATTERN.finditer(text))
    patterns = (next(filter(None, group), "").strip() for group in groups)
    return [pattern[:MAX_PATTERN_CHARS] for pattern in patterns if pattern]
