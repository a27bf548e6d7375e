"""Write docs/api.md from the docstrings of the public names: `python scripts/api.py`.

A field and an option is described by the comment above it or behind it. The form `a…` of a verb,
which runs off the event loop, is named with the verb.
"""

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import loom
from loom.conversation.checked import options_of

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
NAMES = ("weave", "connect", "Context", "Report", "Policy", "Rule", "Loom", "Session", "LoomTree")
COMMAND = "python scripts/api.py"
HEAD = f"""# The Python API

The names that a program uses most, with their signatures. This page is generated from the
docstrings: `{COMMAND}` writes it again. All public names are listed in `loom.__all__`. What the
words mean is in the [glossary](glossary.md); how the parts are used together is in
[weave](weave.md), [sessions](sessions.md) and [trees](trees.md).
"""
MAX_LINE_CHARS = 88
# The module of a type says nothing to a reader, and changes when somebody moves the type.
_MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")


class Entry(NamedTuple):
    """A member of a class, as the page shows it."""

    name: str
    form: str
    text: str


def write_type(annotation: Any) -> str:
    """An annotation as a reader would write it, without modules."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULE.sub("", text).replace("NoneType", "None").strip("'")


def write_signature(name: str, function: Any) -> str:
    """A signature in Python, on one line if it fits, else a line for each parameter."""
    signature = inspect.signature(function)
    options = [option.name for option in read_options(function)]
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls", *options)
    ]
    shown = [_write_parameter(parameter) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if options:
        shown.append("**options")
    returned = write_type(signature.return_annotation)
    arrow = f" -> {returned}" if returned else ""
    verb = "await " if inspect.iscoroutinefunction(function) else ""
    line = f"{verb}{name}({', '.join(shown)}){arrow}"
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{verb}{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){arrow}"


def _write_parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name
    annotation = write_type(parameter.annotation)
    if annotation:
        text += f": {annotation}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = _write_default(parameter.default)
    return f"{text} = {default}" if annotation else f"{text}={default}"


def read_fields(kind: type) -> Iterator[Entry]:
    """The fields of a struct, each with its comment."""
    fields = getattr(kind, "__struct_fields__", ())
    if not fields:
        return
    comments = read_comments(kind)
    hints = get_type_hints(kind)
    defaults = getattr(kind, "__struct_defaults__", ())
    first_default = len(fields) - len(defaults)
    required = inspect.signature(kind).parameters
    for number, name in enumerate(fields):
        form = f"{name}: {write_type(hints[name])}"
        if number >= first_default and required[name].default is not inspect.Parameter.empty:
            form += f" = {_write_default(required[name].default)}"
        yield Entry(name, form, comments.get(name, ""))


def read_options(function: Any) -> Iterator[Entry]:
    """The options of a function that a `TypedDict` names, each with its comment."""
    if "options" not in getattr(function, "__annotations__", ()):
        return
    kind = options_of(function)
    comments = read_comments(kind)
    for name, hint in get_type_hints(kind).items():
        yield Entry(name, f"{name}: {write_type(hint)}", comments.get(name, ""))


def _write_default(value: Any) -> str:
    """A default value in Python; one that only a program can write is left out."""
    text = repr(value)
    return "…" if "<" in text or len(text) > MAX_LINE_CHARS else text


def read_comments(kind: type) -> dict[str, str]:
    """What the comments of a class say about its fields: those above a field, and behind it."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    [tree] = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for base in tree.bases:  # a `TypedDict` does not say at run time what it extends
        if isinstance(base, ast.Name) and typing.is_typeddict(
            parent := vars(sys.modules[kind.__module__]).get(base.id)
        ):
            found |= read_comments(parent)
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        start = node.lineno - 1
        while start and lines[start - 1].strip().startswith("#"):
            start -= 1
        above = [line.strip().lstrip("# ") for line in lines[start : node.lineno - 1]]
        behind = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
        found[node.target.id] = " ".join([*above, behind]).strip()
    return found


def read_members(kind: type) -> Iterator[Entry]:
    """The properties and methods of a class, in the order in which they are written."""
    members = {
        name: (base, value)
        for base in reversed(kind.__mro__)
        if base.__module__.split(".")[0] == "loom"
        for name, value in vars(base).items()
        if not name.startswith("_")
    }
    fields = getattr(kind, "__struct_fields__", ())
    for name, (_, value) in members.items():
        if name in fields or (name[0] == "a" and name[1:] in members):
            continue
        off_loop = f"a{name}" if f"a{name}" in members else ""
        entry = _read_member(name, value)
        if entry is not None:
            yield entry._replace(
                text=f"{entry.text}\n\nOff the event loop: `{off_loop}`."
                if off_loop
                else entry.text
            )


def _read_member(name: str, value: Any) -> Entry | None:
    if isinstance(value, property):
        returned = write_type(inspect.signature(value.fget).return_annotation) if value.fget else ""
        return Entry(name, f"{name}: {returned}", inspect.getdoc(value) or "")
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not callable(function):
        return None
    return Entry(name, write_signature(name, function), write_text(function))


def write_text(function: Any) -> str:
    """What a docstring says, and below it the options."""
    options = [f"- `{option.form}`: {option.text}" for option in read_options(function)]
    return "\n\n".join([inspect.getdoc(function) or "", "\n".join(options)]).strip()


def write_page() -> str:
    return HEAD + "".join(f"\n{part}\n" for name in NAMES for part in write_name(name))


def write_name(name: str) -> Iterator[str]:
    """The part of the page about one name."""
    found = getattr(loom, name)
    yield f"## {name}"
    if not inspect.isclass(found):
        yield f"```python\n{write_signature(name, found)}\n```"
        yield _paragraphs(write_text(found))
        return
    yield _paragraphs(inspect.getdoc(found) or "")
    fields = list(read_fields(found))
    if fields:
        yield "\n".join(f"- `{field.form}`: {field.text}" for field in fields)
    for entry in read_members(found):
        yield (
            f"### {name}.{entry.name}\n\n```python\n{entry.form}\n```\n\n{_paragraphs(entry.text)}"
        )


def _paragraphs(text: str) -> str:
    """A docstring as Markdown: its lines, without those that only wrap a sentence. A list stays."""
    return "\n\n".join(
        part if part.startswith("- ") else " ".join(part.split()) for part in text.split("\n\n")
    )


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written\n")
