"""The repo map of seed 000, for the `window` preset: a fixed table of scores, labels by fixed thresholds, symbols by their kind."""

import re
from collections.abc import Iterable, Mapping

from loom.project.entries import Entry
from loom.project.rank import Relevance
from loom.project.render import HEADER, Map, Shown
from loom.project.symbols import Definition, Parsed

MENTIONED, KEYWORD = 100, 10
HIGH, MEDIUM = 100, 10  # the scores from which these labels hold
BYTES_PER_TOKEN = 4

# The seed's table names files of Elixir; what does the same in other languages stands beside them. The first that fits.
BASE = (
    (20, re.compile(r"(?:^|/)(?:application\.ex|main\.\w+|__main__\.py|app\.\w+|index\.[jt]sx?|Program\.cs|lib\.rs)$")),
    (
        18,
        re.compile(
            r"(?:^|/)(?:mix\.exs|pyproject\.toml|package\.json|Cargo\.toml|go\.mod|pom\.xml|build\.(?:gradle(?:\.kts)?|sbt))$"
        ),
    ),
    (18, re.compile(r"(?:^|/)(?:Gemfile|composer\.json|Package\.swift|CMakeLists\.txt|[^/]+\.csproj)$")),
    (15, re.compile(r"(?:^|/)(?:router|routes|urls)\.\w+$")),
    (10, re.compile(r"(?:lib|src)/")),
    (5, re.compile(r"(?:tests?|spec)/")),
)
ELSE = 1

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


def seed_map(entries: Mapping[str, Entry], tokens: int, mentioned: Iterable[str] = (), keywords: Iterable[str] = ()) -> Map:
    """The map in at most four bytes a token. A file that does not fit is only named; where that does not fit either, it ends."""
    named, words = frozenset(mentioned), [word.lower() for word in keywords if word]
    scores = {path: _score(path, named, words) for path in entries}
    left = tokens * BYTES_PER_TOKEN - len(HEADER)
    texts, files = [HEADER], []
    for path in sorted(scores, key=lambda path: (-scores[path], path)):
        label = _label(scores[path])
        lines = _symbols(entries[path].parsed)
        whole = f"### {path} (relevance: {label})\n" + "".join(f"{line}\n" for line in lines) + "\n" if lines else ""
        text = next((text for text in (whole, f"### {path}\n\n") if text and len(text.encode(errors="replace")) <= left), "")
        if not text:
            break
        left -= len(text.encode(errors="replace"))
        texts.append(text)
        shown = entries[path].parsed.definitions if text == whole else ()
        files.append(Shown(path, label, tuple(dict.fromkeys(one.path for one in shown))))
    return _counted("".join(texts), tuple(files)) if files else Map()


def _counted(text: str, files: tuple[Shown, ...]) -> Map:
    return Map(text, len(text) // BYTES_PER_TOKEN, files)


def _score(path: str, mentioned: frozenset[str], keywords: list[str]) -> int:
    base = next((score for score, pattern in BASE if pattern.search(path)), ELSE)
    return base + MENTIONED * (path in mentioned) + KEYWORD * sum(word in path.lower() for word in keywords)


def _label(score: int) -> Relevance:
    return "high" if score >= HIGH else "medium" if score >= MEDIUM else "low"


def _symbols(parsed: Parsed) -> list[str]:
    """What a file defines, a line for each kind, each name once."""
    kinds: dict[str, dict[str, None]] = {label: {} for label in _LABELS.values()}
    for one in parsed.definitions:
        kinds[_LABELS[one.kind]][_name(one, parsed.language)] = None
    return [f"{label}: {', '.join(names)}" for label, names in kinds.items() if names]


def _name(definition: Definition, language: str) -> str:
    """A name as its language writes it: in Elixir modules by their whole names, functions with the number of their arguments."""
    if definition.kind == "module":
        return definition.path
    if language == "elixir" and definition.kind in ("function", "method", "macro"):
        return f"{definition.name}/{_arguments(definition.signature)}"
    return definition.name


def _arguments(signature: str) -> int:
    """How many arguments a signature takes: the commas in its first parentheses that are in no others."""
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
