"""Code without the statements that define nothing, so that a grammar has less to read.

What comes out has the same lines, and the same definitions on them. Only whole lines are taken out,
and only inside of a block, where a language allows that a statement is not there. What cannot be
told for certain stays. Where a line was taken out wrongly the grammar finds an error, and whoever
asks reads the whole text instead.
"""

import re

MIN_BYTES = 2000  # of a text: less is read at once


def skeleton_of(language: str, source: bytes) -> bytes:
    """The text without what a grammar need not read; the text itself where nothing can be left
    out.
    """
    if language == "go" and len(source) >= MIN_BYTES and b"\r" not in source:
        return _skeleton_of_go(source)
    return source


# Go


def _skeleton_of_go(source: bytes) -> bytes:
    """Go as its formatter lays it out: what is at the top begins its line, and all in it is
    indented.
    """
    lines = source.split(b"\n")
    tops = [number for number, line in enumerate(lines) if line[:1] > b" "]
    first = 0  # of the lines that are not in `kept` yet
    kept: list[bytes] = []
    for place in range(len(tops) - 1):
        start, stop = tops[place] + 1, tops[place + 1]
        if stop == start or lines[stop][:1] not in _GO_CLOSING:
            continue
        body = b"\n".join(lines[start:stop])
        shorter = _shorten_go(lines[start - 1], body)
        if shorter is not body:
            kept += lines[first:start]
            kept.append(shorter)
            first = stop
    if not kept:
        return source
    kept += lines[first:]
    return b"\n".join(kept)


def _shorten_go(head: bytes, body: bytes) -> bytes:
    """What is between the line that begins something and the one that ends it, with less in it."""
    if (
        b"/*" in body
        or b"*/" in body
        or _GO_UNSURE.search(head)
        or (b"`" in body and _has_open_string(body))
    ):
        return body
    if head == b"import (":
        return b"\n" * body.count(b"\n")
    if head.startswith(b"type "):
        is_struct = head.endswith(b" struct {") and b"interface" not in body
        return b"\n" * body.count(b"\n") if is_struct else body
    if not _opens_go_body(head):
        return body
    if b"interface" in body and _GO_INTERFACE.search(body):
        return body
    below = b"\n" + body
    if _defines_in_go(below):
        if b"type (" in body:
            return body
        return _GO_STATEMENT.sub(_keep_definitions, below)[1:]
    return b"\n" * body.count(b"\n")


def _has_open_string(body: bytes) -> bool:
    """Whether a string begins in a line and does not end in it."""
    return any(line.count(b"`") % 2 for line in body.split(b"\n"))


def _defines_in_go(body: bytes) -> bool:
    """Whether there may be a definition in the body of a function; it begins with the end of a
    line.
    """
    if b"func" in body and (_GO_CLOSURE.search(body) or _GO_FUNCTION.search(body)):
        return True
    return b"type" in body and (
        _GO_TYPE.search(body) is not None or b"{ type" in body or b"; type" in body
    )


def _opens_go_body(head: bytes) -> bool:
    """Whether a function begins after a line, or a table; not what is part of a declaration."""
    if head[-1:] != b"{":
        return False
    if head.startswith(b"var ") or head == b"}{":
        return not head.endswith(b"interface {")
    if head.endswith((b"struct {", b"interface {")) or not head.startswith((b"func ", b")", b"})")):
        return False
    return head.count(b"(") + (head[:1] != b"f") == head.count(b")")


def _keep_definitions(statement: re.Match[bytes]) -> bytes:
    if b"func" in statement[0] or b"type" in statement[0]:
        return statement[0]
    return b"\n"


_GO_CLOSING = (b"}", b")")
_GO_UNSURE = re.compile(rb"//|/\*|`")
# each begins with what is quickly found
_GO_CLOSURE = re.compile(rb":=\s*+(?:func\b|/)")
_GO_FUNCTION = re.compile(rb"\n[ \t]*+func\b")
_GO_TYPE = re.compile(rb"\n[ \t]*+type\b")
_GO_INTERFACE = re.compile(rb"\binterface[ \t]*+\{[ \t]*+[^ \t}]")


def _nest(token: str, depth: int) -> str:
    """A token, or brackets around such tokens, and around brackets again.

    The groups may give back what they matched, but that takes no time: each character begins one
    kind of token only. (Groups that give back nothing miss matches before Python 3.11.5.)
    """
    found = token
    for _ in range(depth):
        found = rf"{token}|[(\[{{](?:{found})*[)\]}}]"
    return found


_GO_TOKEN = r"""[^()\[\]{}"'`/\n]++|"[^"\\\n]*+"|'[^'\\\n]'|`[^`\n]*+`"""
# A statement that takes one line, after another or at the beginning of a block. What goes on in the
# next line ends with a comma, an open bracket or an operator. Labels and types stay.
_GO_STATEMENT = re.compile(
    (
        r"""(?:(?<=[\w)\]}"'`{:;\n])|\A)\n[ \t]++(?!case\b|default\b|type\b)(?=[\w*&(])"""
        rf"""(?:{_nest(_GO_TOKEN, 4)})+(?<=[\w)\]}}"'`])(?=\n|\Z)"""
    ).encode()
)
