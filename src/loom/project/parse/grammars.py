"""What a text defines and which names it uses, by a tree-sitter grammar and a query of our own.

The queries in queries/*.scm say what is captured:

- @definition.KIND: a definition, with all of its lines. One of kind enum is a type, and comes
  before any other that takes the same lines.
- @declared.KIND: a definition that counts in a header file only.
- @scope: no definition, but its name comes before the names inside it: an extension, an impl.
- @name, @body: of the innermost definition or scope around them: its name, and where its
  declaration ends.
- @more, @also: what else belongs to that name (operator +); all names of the same definition
  (const A, B).
- @parent: a name that comes before that of the innermost definition: a receiver.
- @around, @keyword: lines that belong to the definition directly inside (export, decorators); the
  word that begins its declaration.
- @head: like @around, and all of it begins the declaration: template <…>.
- @aside: comments and attributes. They are no part of a declaration, but lines of the definition
  directly after them.

What is used is told by the words of the text: telling uses from variables and comments takes long,
and ranks no file better.
"""

from __future__ import annotations  # types of tree_sitter, which may not be installed

import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from operator import attrgetter, itemgetter
from pathlib import Path
from time import thread_time
from typing import cast

from msgspec import Struct, structs

from loom.project.parse.installed import HAS_GRAMMARS
from loom.project.parse.linewise import (
    MAX_NAME_CHARS,
    MAX_PATH_CHARS,
    MAX_SIGNATURE_CHARS,
    one_line,
    parse_by_lines,
)
from loom.project.parse.skeletons import skeleton_of
from loom.project.parse.symbols import Definition, Kind, ParsedFile

if HAS_GRAMMARS:
    from tree_sitter import Language, Node, Parser, Point, Query, QueryCursor

if sys.platform != "win32":
    from resource import RUSAGE_SELF, getrusage

MAX_SOURCE_BYTES = 2**22  # bytes that a parser is given
# A parser that is late is told that the text ends: what is no code can take it the square of its
# length, in time and in memory.
MIN_PARSE_SECONDS = 0.3  # seconds that it may take in any case
# bytes that it must read in each further second; code is read ten times as fast, or faster
MIN_BYTES_PER_SECOND = 600_000
MAX_MEMORY_BYTES = 300 * 2**20  # bytes that a text may cost
_MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024  # of what the system tells
_PROBE_BYTES = 2**12
_MAX_MEAN_LINE_CHARS, _MAX_LINE_CHARS = 300, 20_000
_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) != "_")
_MIN_WORD_SHARE = 0.3  # of what is no blank
_CHUNK_BYTES = 2**11  # bytes that a parser is given at once: between them the clock is looked at
# A query takes the square of the depth of a tree, and of the number of words and signs next to each
# other in what is no code.
_MAX_DEPTH = 500
_MAX_SIBLINGS, _MAX_UNNAMED, _MAX_BROKEN_NODES = 300, 2000, 20_000
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
    "typescript": Grammar(
        "tree_sitter_typescript", "ecmascript typescript", "language_typescript", "."
    ),
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


def parse_by_grammar(name: str, language: str, text: str, is_header: bool) -> ParsedFile | None:
    """What a text defines and uses; None if the grammar is not installed, or would take too
    long.
    """
    source = text.encode(errors="replace")
    loaded = _load_grammar(name)
    if loaded is None or len(source) > MAX_SOURCE_BYTES or _is_no_code(source):
        return None
    if not source.endswith(b"\n"):
        source += b"\n"  # without it some scanners, such as that of Kotlin, never find the end
    read = _read_code(*loaded, source, language)
    if read is None:
        return None
    code, root, captured = read
    definitions, names = _definitions(
        _frames(captured, code, is_header), code, GRAMMARS[name].separator
    )
    definitions = _fit_language(definitions, language)
    if root.has_error and (
        missed := _find_missed(root, language, code.decode(errors="replace"), definitions)
    ):
        names += [one.name.encode() for one in missed]
        definitions = _join_definitions(definitions, missed)
    return ParsedFile(language, tuple(definitions), _count_uses(source, language, names))


def _read_code(
    language: Language, query: Query, source: bytes, name: str
) -> tuple[bytes, Node, dict[str, list[Node]]] | None:
    """The code that a grammar was given of a text, its tree, and what was captured in it; None if
    that would take too long. A skeleton is read where there is one and it has no error.
    """
    code = skeleton_of(name, source)
    if code is not source:
        read = _read(language, query, code, is_apart=False)
        if read and not read[0].has_error:
            return code, *read
        code = source
    if name in _C:
        code = _EXPORTED.sub(lambda found: found[1] + _PRINTED.sub(b" ", found[2]), source)
    read = _read(language, query, code, is_apart=name == "elixir")
    return read and (code, *read)


def _fit_language(definitions: list[Definition], language: str) -> list[Definition]:
    """Definitions without what a language cannot define, and with the clauses of one function as
    one.
    """
    if language in _STRICT:
        return [one for one in definitions if _is_name(one.name)]
    if language == "elixir":
        return _clauses_joined(definitions)
    return definitions


def _count_uses(source: bytes, language: str, names: list[bytes]) -> dict[str, int]:
    """How often each name is used beyond where it is defined."""
    uses = Counter(_ASKING_WORDS.findall(source)) if language in _ASKING else _count_words(source)
    uses.subtract(names)
    # Sorted, because what is made of a file should be the same each time.
    kept = sorted([item for item in uses.items() if item[1] > 0 and len(item[0]) <= MAX_NAME_CHARS])
    return {name.decode(errors="replace"): count for name, count in kept}


def _count_words(source: bytes) -> Counter[bytes]:
    """How often a text has each word of two characters or more; what begins with digits counts
    without them. Splitting is several times faster than matching words.
    """
    words = Counter(source.translate(_WORDS_AND_BLANKS).split())
    for word in [word for word in words if len(word) < 2 or word[0] in _DIGITS]:
        count = words.pop(word)
        if len(rest := word.lstrip(_DIGITS)) > 1:
            words[rest] += count
    return words


_DIGITS = b"0123456789"
_WORDS_AND_BLANKS = bytes(
    code if code >= 128 or chr(code).isalnum() or chr(code) in "_$" else 32 for code in range(256)
)
_ASKING = ("ruby", "elixir")  # names may end so: empty? fetch!
_ASKING_WORDS = re.compile(rb"[A-Za-z_$\x80-\xff][A-Za-z_0-9$\x80-\xff]++(?:[?!](?!=))?")
# Words in capitals before the name of a class, which say how it is exported: class X_EXPORT Name {
_EXPORTED = re.compile(
    rb"\b(class|struct|union|enum)((?:\s++_*[A-Z][A-Z0-9_]++(?:\([^()\n]{0,200}\))?){1,3}?)"
    rb"(?=\s+(?!final\b)[A-Za-z_][\w:]*+(?:<[^;{}]{0,200}>)?(?:\s+final)?\s*(?:\{|:(?!:)))"
)
_PRINTED = re.compile(rb"[^\n]")
_C = ("c", "cpp")
_STRICT = ("c", "cpp", "java", "csharp")
_CONTROL = frozenset(
    [
        "if",
        "else",
        "for",
        "while",
        "do",
        "switch",
        "case",
        "default",
        "return",
        "goto",
        "break",
        "continue",
        "sizeof",
        "catch",
    ]
)
_OPERATOR = re.compile(r"operator\b")


def _is_name(name: str) -> bool:
    """Whether this can be a name in C and what looks like it: after macros statements are misread
    as functions.
    """
    return name not in _CONTROL and (" " not in name or _OPERATOR.match(name) is not None)


@cache
def _load_grammar(name: str) -> tuple[Language, Query] | None:
    if not HAS_GRAMMARS:
        return None
    grammar = GRAMMARS[name]
    try:
        language = Language(getattr(import_module(grammar.module), grammar.function)())
        folder = Path(__file__).with_name("queries")
        texts = [
            folder.joinpath(f"{name}.scm").read_text("utf-8") for name in grammar.queries.split()
        ]
        return language, Query(language, "\n".join(texts))
    # not installed, or so new or old that the query does not fit
    except (ImportError, AttributeError, ValueError):
        return None


def _read(
    language: Language, query: Query, source: bytes, is_apart: bool
) -> tuple[Node, dict[str, list[Node]]] | None:
    """A tree and the nodes of it that a query captures; None if that would take too long.

    `is_apart`: the query never asks for what stands around.
    """
    began, held = thread_time(), _most_memory()
    is_late = is_read = False
    furthest = 0
    ends: set[int] = set()  # where a late text was told to end

    def is_over(reached: int) -> bool:
        return (
            thread_time() - began > MIN_PARSE_SECONDS + reached / MIN_BYTES_PER_SECOND
            or _most_memory() - held > MAX_MEMORY_BYTES
        )

    def read(offset: int, _: Point) -> bytes:
        # Raising here, or the parser's own callback for progress, would end the process: a late
        # text ends instead.
        nonlocal is_late, furthest
        furthest = max(furthest, offset)
        is_late = is_late or (not is_read and is_over(furthest))
        if not is_late:
            return source[offset : offset + _CHUNK_BYTES]
        if offset - 1 in ends:
            return b""
        ends.add(offset)
        return b"\n"  # as each text ends

    # A parser for each text: its state is not safe from other threads, which may run while it
    # reads.
    root = Parser(language).parse(read).root_node
    is_read = True  # queries may still ask for the text of a node
    if is_late or (root.has_error and _is_shredded(root)):
        return None
    searched = [root]
    if is_apart and root.child_count > _MAX_SIBLINGS:
        # Where everything is a call, as in Elixir, a query takes the square of the number of them
        # next to each other.
        searched = root.children
    captured: dict[str, list[Node]] = {}
    for node in searched:
        if is_over(len(source)):
            return None
        for capture, nodes in _capture(query, node).items():
            captured.setdefault(capture, []).extend(nodes)
    return root, captured


def _capture(query: Query, node: Node) -> dict[str, list[Node]]:
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(_MAX_DEPTH)
    return cursor.captures(node)


def _most_memory() -> int:
    """The most bytes that this process has taken so far; 0 where nobody tells."""
    if sys.platform == "win32":
        return 0
    return getrusage(RUSAGE_SELF).ru_maxrss * _MEMORY_UNIT


def _is_no_code(source: bytes) -> bool:
    """Whether nobody writes code like this: enormous lines, the same again and again, hardly a word
    among signs.

    Parsers may take gigabytes to find that out, or never end.
    """
    if len(source) < _PROBE_BYTES:
        return False
    lines = source.split(b"\n")
    if (
        len(source) > _MAX_MEAN_LINE_CHARS * len(lines)
        or max(map(len, lines)) > _MAX_LINE_CHARS
        or len(set(lines)) * 20 < len(lines)
    ):
        return True
    for start in range(0, len(source), _PROBE_BYTES):
        dense = source[start : start + _PROBE_BYTES].translate(None, b" \t\n")
        if len(dense) > 200 and len(dense.translate(None, _SIGNS)) < _MIN_WORD_SHARE * len(dense):
            return True
    return False


def _is_shredded(root: Node) -> bool:
    """Whether so much of a tree is broken, or so wide, that reading it would take long."""
    broken = [root]
    for _ in range(_MAX_BROKEN_NODES):
        if not broken:
            return False
        node = broken.pop()
        if node.child_count - node.named_child_count > _MAX_UNNAMED:
            return True
        broken += [child for child in node.children if child.has_error]
    return True


# Definitions


class _Frame:
    """A stretch of the text that a definition, a scope or something around a definition takes, and
    what belongs to it.

    `kind` is "" for what is no definition here, but keeps its name to itself.
    """

    __slots__ = (
        "also", "begin", "body", "cuts", "keyword", "kind", "last", "name", "named", "node",
        "outer", "parent", "path", "row", "spent", "start", "stop", "within",
    )  # fmt: skip

    def __init__(self, kind: str, start: int, stop: int, node: Node, outer: _Frame | None) -> None:
        self.kind, self.start, self.stop, self.node, self.outer = kind, start, stop, node, outer
        self.begin, self.body = start, stop  # of the declaration
        self.row: int = node.start_point[0]
        self.last: int = node.end_point[0]
        self.named = start  # where the name stands
        self.name = self.parent = self.keyword = b""
        self.also: list[bytes] = []  # further names of the same
        # what is in the declaration, but is no part of it
        self.cuts: list[tuple[int, int]] = []
        self.spent = False  # whether the definition directly inside was found
        # the innermost definition or scope around it that has a name
        self.within: _Frame | None = None
        self.path = ""
        if outer and outer.kind in _WRAPPERS and node.parent == outer.node:
            self.keyword = outer.keyword
            if outer.kind == "head":
                self.begin = outer.begin
            if not outer.spent:
                self.row, outer.spent = outer.row, True


_WRAPPERS = frozenset(("around", "head"))
_NOTES = frozenset(("keyword", "name", "more", "also", "parent", "body"))
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
    "more": 10,
    "also": 10,
    "parent": 11,
    "aside": 12,
}
_DEFINITION = 3


def _frames(captured: dict[str, list[Node]], source: bytes, is_header: bool) -> list[_Frame]:
    """What was captured, as frames in the order of the text."""
    frames: list[_Frame] = []
    above: dict[int, Node] = {}  # comments and attributes by the line on which they end
    top: _Frame | None = None
    for start, end, _, capture, node in _in_order(captured):
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
        elif (
            top is None
            or (top.start, top.stop) != (start, -end)
            or top.kind in _WRAPPERS
            or capture in _WRAPPERS
        ):
            top = _Frame(_kind(capture, top, is_header), start, -end, node, top)
            frames.append(top)
    for frame in frames:
        frame.row = _first_row(frame.row, above, source)
        frame.last -= _blank_lines(source[max(frame.start, frame.stop - _TAIL_BYTES) : frame.stop])
    return frames


def _in_order(captured: dict[str, list[Node]]) -> list[tuple[int, int, int, str, Node]]:
    """What was captured, in the order of the text: where it begins, where it ends (negative), its
    order, its kind and the node.
    """
    events = [
        (node.start_byte, -node.end_byte, _ORDER.get(capture, _DEFINITION), capture, node)
        for capture, nodes in captured.items()
        if not capture.startswith("_")
        for node in nodes
    ]
    events.sort(key=itemgetter(0, 1, 2))
    return events


def _blank_lines(end: bytes) -> int:
    """How many lines end in the blanks at the end of a text: where indentation counts, some
    grammars take them in.
    """
    if end[-1:] > b" ":
        return 0
    return end[len(end.rstrip()) :].count(b"\n")


def _kind(capture: str, top: _Frame | None, is_header: bool) -> str:
    if capture == "definition.enum":
        return "type"
    if not capture.startswith("declared."):
        return capture.removeprefix("definition.")
    while top and top.kind not in _BODIES:
        top = top.outer
    if is_header and top is None:
        return capture.removeprefix("declared.")
    return ""


_BODIES = frozenset(("function", "method", "macro"))


def _note(frame: _Frame, capture: str, node: Node, source: bytes) -> None:
    match capture:
        case "name":
            if not frame.name:
                frame.name, frame.named = source[node.start_byte : node.end_byte], node.start_byte
        case "more":
            more = source[node.start_byte : node.end_byte]
            frame.name += b" " + more.partition(b"<")[0] if more[:1].isalnum() else more
        case "also":
            if node.start_byte != frame.named:
                frame.also.append(source[node.start_byte : node.end_byte])
        case "body":
            _end_declaration(frame, node.start_byte)
        case "parent":
            frame.parent = frame.parent or source[node.start_byte : node.end_byte]
        case "keyword":
            frame.keyword = source[node.start_byte : node.end_byte]


def _end_declaration(frame: _Frame, body: int) -> None:
    """A body ends what is declared: struct {…} in a typedef ends the typedef's declaration, too."""
    frame.body = min(frame.body, body)
    while (outer := frame.outer) and not outer.name and outer.kind not in _WRAPPERS:
        frame, outer.body = outer, min(outer.body, body)


def _first_row(row: int, above: dict[int, Node], source: bytes) -> int:
    """The first of the comments and attributes that stand directly above a line, each on lines of
    its own.
    """
    while node := above.get(row - 1):
        start, stop, (first, column) = node.start_byte, node.end_byte, node.start_point
        behind = b""
        if source[stop - 1 : stop] != b"\n":
            behind = source[stop : stop + MAX_SIGNATURE_CHARS].partition(b"\n")[0]
        if column > MAX_SIGNATURE_CHARS or source[start - column : start].strip() or behind.strip():
            break
        row = first
    return row


def _definitions(
    frames: list[_Frame], source: bytes, separator: str
) -> tuple[list[Definition], list[bytes]]:
    """What the frames define, and the names of it as they are in the text."""
    made: list[Definition] = []
    names: list[bytes] = []
    for frame in frames:
        frame.within = within = _scope_of(frame)
        if not frame.name or not frame.kind or frame.kind in _WRAPPERS:
            continue
        around, name = _full_name(frame, separator)
        parent = ".".join([within.path, *around] if within else around)
        if not name or len(name) > MAX_NAME_CHARS or "\n" in name or len(parent) > MAX_PATH_CHARS:
            continue
        frame.path = name
        if parent:
            frame.path = f"{parent}.{name}"
        if not _is_definition(frame):
            continue
        names += {frame.name, name.encode()}
        kind = _told_apart(frame.kind, bool(parent), bool(around), within)
        signature = _signature(frame, source)
        for one in (name, *(also.decode(errors="replace") for also in frame.also)):
            made.append(Definition(one, kind, signature, frame.row + 1, frame.last + 1, parent))
        names += frame.also
    return made, names


def _scope_of(frame: _Frame) -> _Frame | None:
    """The innermost frame around another that has a name."""
    outer = frame.outer
    if outer is None:
        return None
    # What is named after its body, as typedefs are, does not lend its name to what is in it.
    if outer.path and outer.named < frame.start:
        return outer
    return outer.within


def _full_name(frame: _Frame, separator: str) -> tuple[list[str], str]:
    """The names around a definition as it spells them, and its own."""
    around, name = _names(frame.name, separator)
    if frame.parent:
        before, last = _names(frame.parent, separator)
        around = [*before, last, *around]
    return around, name


def _is_definition(frame: _Frame) -> bool:
    """Whether a frame with a name defines it: a scope does not, nor does a constant inside a
    function.
    """
    if frame.kind == "constant" and frame.within:
        return frame.within.kind in _OF_CONSTANTS
    return frame.kind != "scope"


_OF_CONSTANTS = frozenset(("module", "class", "interface", "type"))


def _names(raw: bytes, separator: str) -> tuple[list[str], str]:
    """The parts of a name: those before the last, and the last."""
    text = raw.decode(errors="replace").strip("`'\" \t\r\n")
    if separator not in text or not separator or raw[:1] in _WHOLE or _OPERATOR.match(text):
        return [], text.removeprefix(":") if separator == "::" else text
    if "<" in text:
        text = _PARAMETERS.sub("", text)
    parts = [part.strip() for part in text.split(separator) if part.strip()]
    return parts[:-1], parts[-1] if parts else ""


_WHOLE = (b"[", b"'", b'"')  # what begins so is one name: [Symbol.iterator]
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
    pieces.append(source[begin : min(body, begin + 8 * MAX_SIGNATURE_CHARS)])
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
        if (
            made
            and (last.path, last.kind, _arity(last)) == (one.path, one.kind, _arity(one))
            and one.kind in _BODIES
        ):
            made[-1] = Definition(
                last.name,
                last.kind,
                last.signature,
                last.start,
                max(last.stop, one.stop),
                last.parent,
            )
        else:
            made.append(one)
    return made


def _arity(definition: Definition) -> int:
    """How many arguments a signature has, by the commas that are in no inner brackets."""
    _, bracket, rest = definition.signature.partition(f"{definition.name}(")
    depth, commas = 1, 0
    for n, sign in enumerate(rest):
        depth += (sign in "([{") - (sign in ")]}")
        commas += sign == "," and depth == 1
        if depth == 0:
            if rest[:n].strip():
                return commas + 1
            return 0
    return commas + 1 if bracket else 0


# What a grammar could not read


def _find_missed(
    root: Node, language: str, text: str, known: Iterable[Definition]
) -> list[Definition]:
    """What lines define where a tree is broken, under names that the grammar found nowhere."""
    names = {one.name for one in known}
    by_lines = [one for one in parse_by_lines(language, text).definitions if one.name not in names]
    if not by_lines or len(by_lines) > _MAX_MISSED:
        return []
    lines = text.split("\n")
    return [
        one
        for one in by_lines
        if _is_credible(one, language, lines) and not _is_inside(root, one, language, lines)
    ]


_MAX_MISSED = 2000


def _join_definitions(
    known: Iterable[Definition], missed: Iterable[Definition]
) -> list[Definition]:
    """Both in the order of the text. What was found without its body goes as far as what was missed
    in it.
    """
    last = {one.parent: one.stop for one in missed if one.parent}
    held = [
        structs.replace(one, stop=max(one.stop, last.get(one.path, 0)))
        if one.kind in _HOLDERS
        else one
        for one in known
    ]
    return sorted([*held, *missed], key=attrgetter("start"))


def _is_credible(one: Definition, language: str, lines: list[str]) -> bool:
    """Whether a line that looks like a declaration is none of the others that look so: calls,
    prototypes, guards.
    """
    if language in _SCRIPTS:
        # a call with a function in it
        return one.kind != "function" or not one.signature.startswith(f"{one.name}(")
    if language not in _STRICT:
        return True
    if language in _C and (lines[one.start - 1][:1].isspace() or one.kind == "constant"):
        return False
    return one.name not in _CONTROL and _opens_body(one, lines)


def _opens_body(one: Definition, lines: list[str]) -> bool:
    """Whether a declaration in C, or what looks like it, has a body or needs none."""
    if one.kind == "function" and one.signature.startswith("template"):
        return False
    if one.kind == "macro":
        return True
    if one.signature.startswith(("typedef", "using")):
        return "{" not in one.signature
    opens = _OPENS
    if one.kind in ("class", "type", "interface"):
        opens = _CLASS_OPENS
    found = opens.search("\n".join(lines[one.start - 1 : one.start + _HEAD_LINES]))
    return found is not None and found[0] in ("{", "=>")


_SCRIPTS = ("javascript", "typescript")
_HEAD_LINES = 20
_OPENS, _CLASS_OPENS = re.compile(r"[;{]|=>"), re.compile(r"[;{=]")


def _is_inside(root: Node, one: Definition, language: str, lines: list[str]) -> bool:
    """Whether a line is in the midst of something that the grammar read without an error.

    That is a comment or a string; where calls look like declarations, anything. Elsewhere a body
    may have been misread as a call.
    """
    row, line = one.start - 1, lines[one.start - 1]
    # in tree-sitter 0.26 a Point may not be made: it crashes
    at = (row, len(line[: len(line) - len(line.lstrip())].encode()))
    node: Node | None = root.descendant_for_point_range(at, at)
    if node and node.start_point[0] < row and _TEXTS.search(node.type):
        return "comment" in node.type or not _is_misread(node.parent, language, lines)
    while node and not node.has_error and language in _STRICT:
        if node.start_point[0] < row:
            return True
        node = node.parent
    return False


_TEXTS = re.compile("comment|string|quoted|heredoc|text$")


def _is_misread(string: Node | None, language: str, lines: list[str]) -> bool:
    """Whether what should be a string over lines begins with the quote that ends another."""
    if string is None or string.is_error:
        return True
    row, column = string.start_point
    return language in _SHORT_STRINGS and _ONE_QUOTE.match(lines[row].encode(), column) is not None


_SHORT_STRINGS = ("kotlin", "swift", "scala")  # only after three quotes they take several lines
_ONE_QUOTE = re.compile(rb'"(?!"")')
