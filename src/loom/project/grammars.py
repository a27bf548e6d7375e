"""What a text defines and which names it uses, by a tree-sitter grammar and a query of our own.

The queries in queries/*.scm say what is captured:
  @definition.KIND  a definition, with all of its lines; of kind enum it is a type, before any other that takes the same lines
  @declared.KIND    one that counts in a header file only
  @scope            no definition, but its name stands before the names inside it: an extension, an impl
  @name @body       of the innermost definition or scope around them: its name, and where its declaration ends
  @parent           a name that stands before that of the innermost definition: a receiver
  @around @keyword  lines that belong to the definition directly inside (export, decorators); the word that begins its declaration
  @head             the same, and all of it begins the declaration: template <…>
  @aside            comments and attributes: no part of a declaration, but lines of the definition directly behind them
What is used is told by the words of the text: telling uses from variables and comments takes long, and ranks no file better.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from time import thread_time
from typing import cast

from msgspec import Struct
from tree_sitter import Language, Node, Parser, Point, Query, QueryCursor

from loom.project.linewise import LONGEST_NAME, LONGEST_PATH, LONGEST_SIGNATURE, one_line
from loom.project.symbols import Definition, Kind, Parsed

if sys.platform != "win32":
    from resource import RUSAGE_SELF, getrusage

LARGEST = 2**22  # bytes that a parser is given
# A parser that is late is told that the text ends: what is no code can take it the square of its length, in time and in memory.
PATIENCE = 0.3  # seconds that it may take in any case
SLOWEST = 600_000  # bytes that it must read in each further second; code is read ten times as fast, or faster
MOST_MEMORY = 300 * 2**20  # bytes that a text may cost
_MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024  # of what the system tells
_SHORT = 2**12
_LONG_LINES, _LONGEST_LINE = 300, 20_000
_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) != "_")
_LEAST_WORDS = 0.3  # of what is no blank
_CHUNK = 2**11  # bytes that a parser is given at once: between them the clock is looked at
# A query takes the square of the depth of a tree, and of the number of words and signs beside each other in what is no code.
_DEEPEST = 500
_WIDE, _WIDEST, _MOST_BROKEN = 300, 2000, 20_000
_TAIL_BYTES = 400
_HOLDERS = frozenset(("class", "interface", "type", "constant", "scope"))


class Grammar(Struct, frozen=True):
    """Where a grammar is, which queries read its trees, and what parts the names in a long name."""

    module: str
    queries: str
    function: str = "language"
    separator: str = ""


GRAMMARS = {
    "python": Grammar("tree_sitter_python", "python"),
    "javascript": Grammar("tree_sitter_javascript", "ecmascript javascript"),
    "typescript": Grammar("tree_sitter_typescript", "ecmascript typescript", "language_typescript", "."),
    "tsx": Grammar("tree_sitter_typescript", "ecmascript typescript", "language_tsx", "."),
    "go": Grammar("tree_sitter_go", "go"),
    "rust": Grammar("tree_sitter_rust", "rust"),
    "java": Grammar("tree_sitter_java", "java"),
    "c": Grammar("tree_sitter_c", "c"),
    "cpp": Grammar("tree_sitter_cpp", "cpp", separator="::"),
    "csharp": Grammar("tree_sitter_c_sharp", "csharp", separator="."),
    "ruby": Grammar("tree_sitter_ruby", "ruby", separator="::"),
    "php": Grammar("tree_sitter_php", "php", "language_php", "\\"),
    "elixir": Grammar("tree_sitter_elixir", "elixir", separator="."),
    "kotlin": Grammar("tree_sitter_kotlin", "kotlin"),
    "swift": Grammar("tree_sitter_swift", "swift", separator="."),
    "scala": Grammar("tree_sitter_scala", "scala", separator="."),
}


def parsed_by_grammar(name: str, language: str, text: str, is_header: bool) -> Parsed | None:
    """What a text defines and uses; None where the grammar is not installed, or would take too long."""
    source = text.encode(errors="replace")
    loaded = _loaded(name)
    if loaded is None or len(source) > LARGEST or _is_no_code(source):
        return None
    captured = _captured(*loaded, source, is_apart=language == "elixir")
    if captured is None:
        return None
    frames = _frames(captured, source, is_header)
    definitions, names = _definitions(frames, source, GRAMMARS[name].separator)
    if language == "elixir":
        definitions = _clauses_joined(definitions)
    uses = Counter((_ASKING_WORDS if language in _ASKING else _WORDS).findall(source))
    uses.subtract(names)
    # Sorted, because what is made of a file should be the same each time.
    kept = sorted([item for item in uses.items() if item[1] > 0 and len(item[0]) <= LONGEST_NAME])
    return Parsed(language, tuple(definitions), {name.decode(errors="replace"): count for name, count in kept})


_WORDS = re.compile(rb"[A-Za-z_$\x80-\xff][A-Za-z_0-9$\x80-\xff]++")
_ASKING, _ASKING_WORDS = ("ruby", "elixir"), re.compile(_WORDS.pattern + rb"(?:[?!](?!=))?+")  # names may end so: empty? fetch!


@cache
def _loaded(name: str) -> tuple[Language, Query] | None:
    grammar = GRAMMARS[name]
    try:
        language = Language(getattr(import_module(grammar.module), grammar.function)())
        folder = Path(__file__).with_name("queries")
        texts = [folder.joinpath(f"{name}.scm").read_text("utf-8") for name in grammar.queries.split()]
        return language, Query(language, "\n".join(texts))
    except (ImportError, AttributeError, ValueError):  # not installed, or so new or old that the query does not fit
        return None


def _captured(language: Language, query: Query, source: bytes, is_apart: bool) -> dict[str, list[Node]] | None:
    """The nodes that a query captures; None where that would take too long. `is_apart`: it never asks for what stands around."""
    began, held = thread_time(), _most_memory()
    is_late = is_read = False
    furthest = 0

    def is_over(reached: int) -> bool:
        return thread_time() - began > PATIENCE + reached / SLOWEST or _most_memory() - held > MOST_MEMORY

    def read(offset: int, _: Point) -> bytes:
        # Raising here, or the parser's own callback for progress, would end the process: a late text ends instead.
        nonlocal is_late, furthest
        furthest = max(furthest, offset)
        is_late = is_late or (not is_read and is_over(furthest))
        return b"" if is_late else source[offset : offset + _CHUNK]

    # A parser for each text: its state is not safe from other threads, which may run while it reads.
    root = Parser(language).parse(read).root_node
    is_read = True  # queries may still ask for the text of a node
    if is_late or (root.has_error and _is_shredded(root)):
        return None
    captured: dict[str, list[Node]] = {}
    # Where everything is a call, as in Elixir, a query takes the square of the number of them beside each other.
    for node in root.children if is_apart and root.child_count > _WIDE else [root]:
        if is_over(len(source)):
            return None
        cursor = QueryCursor(query)
        cursor.set_max_start_depth(_DEEPEST)
        for capture, nodes in cursor.captures(node).items():
            captured.setdefault(capture, []).extend(nodes)
    return captured


def _most_memory() -> int:
    """The most bytes that this process has taken so far; 0 where nobody tells."""
    return 0 if sys.platform == "win32" else getrusage(RUSAGE_SELF).ru_maxrss * _MEMORY_UNIT


def _is_no_code(source: bytes) -> bool:
    """Whether nobody writes code like this: enormous lines, the same again and again, hardly a word among signs.

    Parsers may take gigabytes to find that out, or never end.
    """
    if len(source) < _SHORT:
        return False
    lines = source.split(b"\n")
    if len(source) > _LONG_LINES * len(lines) or max(map(len, lines)) > _LONGEST_LINE or len(set(lines)) * 20 < len(lines):
        return True
    for start in range(0, len(source), _SHORT):
        dense = source[start : start + _SHORT].translate(None, b" \t\n")
        if len(dense) > 200 and len(dense.translate(None, _SIGNS)) < _LEAST_WORDS * len(dense):
            return True
    return False


def _is_shredded(root: Node) -> bool:
    """Whether so much of a tree is broken, or so wide, that reading it would take long."""
    broken = [root]
    for _ in range(_MOST_BROKEN):
        if not broken:
            return False
        node = broken.pop()
        if node.child_count - node.named_child_count > _WIDEST:
            return True
        broken += [child for child in node.children if child.has_error]
    return True


# Definitions


class _Frame:
    """A stretch of the text that a definition, a scope or something around a definition takes, and what belongs to it.

    `kind` is "" for what is no definition here, but keeps its name to itself.
    """

    __slots__ = (
        "begin", "body", "cuts", "keyword", "kind", "last", "name", "named", "node", "outer", "parent", "path", "row", "spent",
        "start", "stop", "within",
    )  # fmt: skip

    def __init__(self, kind: str, start: int, stop: int, node: Node, outer: "_Frame | None") -> None:
        self.kind, self.start, self.stop, self.node, self.outer = kind, start, stop, node, outer
        self.begin, self.body = start, stop  # of the declaration
        self.row: int = node.start_point[0]
        self.last: int = node.end_point[0]
        self.named = start  # where the name stands
        self.name = self.parent = self.keyword = b""
        self.cuts: list[tuple[int, int]] = []  # what stands in the declaration, but is no part of it
        self.spent = False  # whether the definition directly inside was found
        self.within: _Frame | None = None  # the innermost definition or scope around it that has a name
        self.path = ""
        if outer and outer.kind in _WRAPPERS and node.parent == outer.node:
            self.keyword = outer.keyword
            if outer.kind == "head":
                self.begin = outer.begin
            if not outer.spent:
                self.row, outer.spent = outer.row, True


_WRAPPERS = frozenset(("around", "head"))
_NOTES = frozenset(("keyword", "name", "parent", "body"))
# Where several begin and end together, the first of these counts.
_ORDER = {
    "body": -1,
    "around": 0,
    "head": 1,
    "definition.enum": 2,
    "definition.type": 4,
    "definition.constant": 5,
    "declared.function": 6,
    "scope": 7,
    "keyword": 8,
    "name": 9,
    "parent": 10,
    "aside": 11,
}
_DEFINITION = 3


def _frames(captured: dict[str, list[Node]], source: bytes, is_header: bool) -> list[_Frame]:
    """What was captured, as frames in the order of the text."""
    events = [
        (node.start_byte, -node.end_byte, _ORDER.get(capture, _DEFINITION), capture, node)
        for capture, nodes in captured.items()
        if not capture.startswith("_")
        for node in nodes
    ]
    events.sort(key=itemgetter(0, 1, 2))
    frames: list[_Frame] = []
    above: dict[int, Node] = {}  # comments and attributes by the line on which they end
    top: _Frame | None = None
    for start, end, _, capture, node in events:
        while top and top.stop <= start:
            top = top.outer
        if capture == "aside":
            at = node.end_point
            above.setdefault(at[0] - (at[1] == 0), node)
            if top and start < top.body:
                top.cuts.append((start, -end))
        elif capture in _NOTES:
            if top:
                _note(top, capture, node, source)
        elif top is None or (top.start, top.stop) != (start, -end) or top.kind in _WRAPPERS or capture in _WRAPPERS:
            top = _Frame(_kind(capture, top, is_header), start, -end, node, top)
            frames.append(top)
    for frame in frames:
        frame.row = _first_row(frame.row, above, source)
        frame.last -= _blank_lines(source[max(frame.start, frame.stop - _TAIL_BYTES) : frame.stop])
    return frames


def _blank_lines(end: bytes) -> int:
    """How many lines end in the blanks at the end of a text: where indentation counts, some grammars take them in."""
    return 0 if end[-1:] > b" " else end[len(end.rstrip()) :].count(b"\n")


def _kind(capture: str, top: _Frame | None, is_header: bool) -> str:
    if not capture.startswith("declared."):
        return "type" if capture == "definition.enum" else capture.removeprefix("definition.")
    while top and top.kind not in _BODIES:
        top = top.outer
    return capture.removeprefix("declared.") if is_header and top is None else ""


_BODIES = frozenset(("function", "method", "macro"))


def _note(frame: _Frame, capture: str, node: Node, source: bytes) -> None:
    match capture:
        case "name":
            if not frame.name:
                frame.name, frame.named = source[node.start_byte : node.end_byte], node.start_byte
        case "body":
            frame.body = min(frame.body, node.start_byte)
            while (outer := frame.outer) and not outer.name and outer.kind not in _WRAPPERS:
                frame, outer.body = outer, min(outer.body, node.start_byte)  # struct {…} in a typedef ends what is declared, too
        case "parent":
            frame.parent = frame.parent or source[node.start_byte : node.end_byte]
        case "keyword":
            frame.keyword = source[node.start_byte : node.end_byte]


def _first_row(row: int, above: dict[int, Node], source: bytes) -> int:
    """The first of the comments and attributes that stand directly above a line, each on lines of its own."""
    while node := above.get(row - 1):
        start, stop, (first, column) = node.start_byte, node.end_byte, node.start_point
        behind = b"" if source[stop - 1 : stop] == b"\n" else source[stop : stop + LONGEST_SIGNATURE].partition(b"\n")[0]
        if column > LONGEST_SIGNATURE or source[start - column : start].strip() or behind.strip():
            break
        row = first
    return row


def _definitions(frames: list[_Frame], source: bytes, separator: str) -> tuple[list[Definition], list[bytes]]:
    """What the frames define, and the names of it as they stand in the text."""
    made: list[Definition] = []
    names: list[bytes] = []
    for frame in frames:
        outer = frame.outer
        # What is named behind its body, as typedefs are, does not lend its name to what stands in it.
        frame.within = within = outer if outer and outer.path and outer.named < frame.start else outer and outer.within
        if not frame.name or not frame.kind or frame.kind in _WRAPPERS:
            continue
        around, name = _names(frame.name, separator)
        if not name or len(name) > LONGEST_NAME:
            continue
        if frame.parent:
            before, last = _names(frame.parent, separator)
            around = [*before, last, *around]
        parent = ".".join([within.path, *around] if within else around)
        if len(parent) > LONGEST_PATH:
            continue
        frame.path = f"{parent}.{name}" if parent else name
        if frame.kind == "scope" or (frame.kind == "constant" and within and within.kind != "module"):
            continue
        names += {frame.name, name.encode()}
        kind = _told_apart(frame.kind, bool(parent), bool(around), within)
        made.append(Definition(name, kind, _signature(frame, source), frame.row + 1, frame.last + 1, parent))
    return made, names


def _names(raw: bytes, separator: str) -> tuple[list[str], str]:
    """The parts of a name: those before the last, and the last."""
    text = raw.decode(errors="replace").strip("`'\" \t\r\n")
    if separator not in text or not separator:
        return [], text
    if "<" in text:
        text = _PARAMETERS.sub("", text)
    parts = [part.strip() for part in text.split(separator) if part.strip()]
    return parts[:-1], parts[-1] if parts else ""


_PARAMETERS = re.compile(r"<[^<>]*(?:<[^<>]*>[^<>]*)*>(?=\s*::)")


def _told_apart(kind: str, has_parent: bool, is_received: bool, within: _Frame | None) -> Kind:
    """Functions of a type are methods, and methods of none are functions."""
    if kind == "function" and (is_received or (within and within.kind in _HOLDERS)):
        return "method"
    if kind == "method" and not has_parent:
        return "function"
    return cast(Kind, kind)


def _signature(frame: _Frame, source: bytes) -> str:
    begin, body = frame.begin, frame.body
    pieces: list[bytes] = [frame.keyword] if frame.keyword else []
    for start, stop in frame.cuts:
        if begin <= start < body:
            pieces.append(source[begin:start])
            begin = stop
    pieces.append(source[begin : min(body, begin + 8 * LONGEST_SIGNATURE)])
    if frame.named >= frame.body:
        pieces.append(frame.name)
    text = b" ".join(pieces).decode(errors="ignore").strip()
    if frame.kind == "constant" and "\n" in text:
        text = text.partition("\n")[0].rstrip() + " …"
    return one_line(text, bool(frame.cuts))


def _clauses_joined(definitions: Iterable[Definition]) -> list[Definition]:
    """Definitions with the clauses of a function told once, by the first of them."""
    made: list[Definition] = []
    for one in definitions:
        last = made[-1] if made else one
        if made and (last.path, last.kind, _arity(last)) == (one.path, one.kind, _arity(one)) and one.kind in _BODIES:
            made[-1] = Definition(last.name, last.kind, last.signature, last.start, max(last.stop, one.stop), last.parent)
        else:
            made.append(one)
    return made


def _arity(definition: Definition) -> int:
    """How many arguments a signature has, by the commas that stand in no inner brackets."""
    _, bracket, rest = definition.signature.partition(f"{definition.name}(")
    depth, commas = 1, 0
    for n, sign in enumerate(rest):
        depth += (sign in "([{") - (sign in ")]}")
        commas += sign == "," and depth == 1
        if depth == 0:
            return commas + 1 if rest[:n].strip() else 0
    return commas + 1 if bracket else 0
