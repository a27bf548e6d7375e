"""The map as seed 000 writes it, for the `window` preset: names of what files define, by their
kind.
"""

from collections.abc import Iterable, Sequence

from loom.project.draw.render import HEADER, Map, ShownFile, printable
from loom.project.index.columns import Columns
from loom.project.parse.symbols import Definition
from loom.project.rank.shares import RankedFile

BYTES_PER_TOKEN = 4

_LABELS = {
    "module": "Modules",
    "class": "Classes",
    "interface": "Classes",
    "type": "Structs",
    "function": "Functions",
    "method": "Functions",
    "macro": "Macros",
    "constant": "Constants",
}


def seed_map(ranked: Iterable[RankedFile], columns: Columns, tokens: int) -> Map:
    """The map in at most four bytes a token. A file that does not fit is only named; where that
    does not fit either, it ends.
    """
    left = tokens * BYTES_PER_TOKEN - len(HEADER)
    texts, files = [HEADER], []
    for given in ranked:
        path, number = printable(given.path), columns.numbers[given.path]
        definitions = columns.definitions_of(number)
        lines = [printable(line) for line in _symbols(columns.language_of(number), definitions)]
        whole = ""
        if lines:
            whole = (
                f"### {path} (relevance: {given.relevance})\n"
                + "".join(f"{line}\n" for line in lines)
                + "\n"
            )
        text = next(
            (
                text
                for text in (whole, f"### {path}\n\n")
                if text and len(text.encode(errors="replace")) <= left
            ),
            "",
        )
        if not text:
            break
        left -= len(text.encode(errors="replace"))
        texts.append(text)
        shown = definitions if text == whole else ()
        files.append(
            ShownFile(given.path, given.relevance, tuple(dict.fromkeys(one.path for one in shown)))
        )
    text = "".join(texts)
    if files:
        return Map(text, len(text) // BYTES_PER_TOKEN, tuple(files))
    return Map()


def _symbols(language: str, definitions: Sequence[Definition]) -> list[str]:
    """What a file defines, a line for each kind, each name once."""
    kinds: dict[str, dict[str, None]] = {label: {} for label in _LABELS.values()}
    for one in definitions:
        kinds[_LABELS[one.kind]][_name(one, language)] = None
    return [f"{label}: {', '.join(names)}" for label, names in kinds.items() if names]


def _name(definition: Definition, language: str) -> str:
    """A name as its language writes it: in Elixir modules by their whole names, functions with the
    number of their arguments.
    """
    if definition.kind == "module":
        return definition.path
    if language == "elixir" and definition.kind in ("function", "method", "macro"):
        return f"{definition.name}/{_arguments(definition.signature)}"
    return definition.name


def _arguments(signature: str) -> int:
    """How many arguments a signature takes: the commas in its first parentheses that are in no
    others.
    """
    depth, found, is_empty = 0, 0, True
    for letter in signature[signature.find("(") :] if "(" in signature else "":
        if depth and letter not in " )":
            is_empty = False
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if not depth:
                break
        elif letter == "," and depth == 1:
            found += 1
    return 0 if is_empty else found + 1
