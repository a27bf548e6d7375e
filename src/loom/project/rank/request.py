"""What a request says of a project: words, names, paths, frames of error traces, and messages that
the code may hold verbatim.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from math import log, sqrt

from msgspec import Struct

from loom.conversation.stems import stem
from loom.project.index.roles import Role
from loom.project.parse.terms import terms_of

MAX_REQUEST_CHARS = 60_000  # characters of a request that are looked at
# characters of a line that a frame is looked for in, and of a word that may be a path
_MAX_LINE_CHARS = 300
_MAX_TITLE_CHARS = 200
_MAX_CODE_CHARS = 2500  # a longer block is output, whatever it looks like
# characters that a message has at least, and how many are looked for
_MIN_LITERAL_CHARS, _MAX_LITERALS = 12, 40

# How much a word counts by where it is. Listings and traces say much that is beside the point.
TITLE, PROSE, INLINE, CODE, OUTPUT = 2.0, 0.7, 1.0, 0.7, 0.5
ENOUGH, ENOUGH_NAME = 2.0, 1.5  # weight at which a word, a name has half of what it can have
FULL_WORTH_WORDS = 40  # words of a stretch; of more each counts less
PLAIN = 0.35  # of a name that could as well be a word


class Frame(Struct, frozen=True):
    """A place that an error trace names: a path as it is spelled there, a line from 1 on or 0, and
    the function's name or "".
    """

    path: str
    line: int = 0
    name: str = ""


class RequestClues(Struct, frozen=True):
    """What is asked for. Words and names have a weight from 0 to 1; `roles` are the roles of files
    that its first line asks for.
    """

    terms: dict[str, float] = {}
    names: dict[str, float] = {}
    paths: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    literals: tuple[str, ...] = ()
    roles: frozenset[Role] = frozenset()


def read_request(query: str) -> RequestClues:
    """What a request says. Its first line counts most; code and names in it more than talk, output
    of programs less.
    """
    text = _cut_middle(query).replace("\r\n", "\n")
    text = _LISTED.sub("", _ANSWERED.sub("", _without_comments(text)))
    text = _SIGNED.sub(lambda found: _SPELLED_OUT[found[0]], text)
    title = next((line.strip() for line in text.split("\n") if line.strip()), "")[:_MAX_TITLE_CHARS]
    terms: defaultdict[str, float] = defaultdict(float)
    names: defaultdict[str, float] = defaultdict(float)
    for weight, stretch in ((TITLE, title), *_stretches(text)):
        counts = terms_of(stretch)
        each = weight * min(1.0, sqrt(FULL_WORTH_WORDS / max(1, len(counts))))
        for term, count in counts.items():
            terms[term] += each * (1 + log(count))
        for name, times in _names(stretch).items():
            names[name] += weight * times
    return RequestClues(
        {
            term: weight / (weight + ENOUGH)
            for term, weight in terms.items()
            if _says_something(term)
        },
        {
            name: weight / (weight + ENOUGH_NAME)
            for name, weight in names.items()
            if _says_something(stem(name.lower()))
        },
        tuple(paths_in(text)),
        tuple(dict.fromkeys(_frames(text))),
        tuple(_literals(text)),
        frozenset(role for role, asked in _ASKED.items() if asked.search(title)),
    )


# Languages whose names have signs, as identifiers spell them.
_SPELLED_OUT = {"C++": "Cpp", "C#": "CSharp", "F#": "FSharp"}
_SIGNED = re.compile(r"(?<![\w+#])(?:C\+\+|[CF]#)(?![\w+#])")


def _cut_middle(text: str) -> str:
    """Of a very long request its beginning and its end."""
    if len(text) <= MAX_REQUEST_CHARS:
        return text
    return f"{text[: MAX_REQUEST_CHARS // 2]}\n{text[-MAX_REQUEST_CHARS // 2 :]}"


def _without_comments(text: str) -> str:
    """A text without what HTML hides. By hand: a pattern would look for the end of each
    beginning.
    """
    kept, rest = "", text
    while (start := rest.find("<!--")) >= 0 and (stop := rest.find("-->", start)) >= 0:
        kept, rest = kept + rest[:start], rest[stop + 3 :]
    return kept + rest


def _says_something(term: str) -> bool:
    return term not in STOP and not term.isdigit() and (len(term) > 1 or not term.isascii())


# Words by where they are

_ANSWERED = re.compile(r"^ *[-*] \[[ xX]\].*$", re.MULTILINE)  # the boxes of a form
# A line of a list of packages: `attrs==19.3.0`, `attrs  19.3.0`, `├── attrs@19.3.0`, `attrs
# (19.3.0)`, `attrs v19.3.0`
_LISTED = re.compile(
    r"^[^\w\n@./-]{0,20}[@\w./-]{1,100}(?:==|@|[ \t]{1,80}[(]?v?)\d{1,9}\.\d[\w.+-]{0,40}[)]?"
    r"(?:[ \t]{1,80}\S{1,200})?[ \t]*$",
    re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_IS_OUTPUT = re.compile(
    r'Traceback|File "|^E  |={10}|-{20}|^[ \t]{0,40}at [^\n]{1,300}:\d+\)?$'
    r"|^goroutine \d|panicked at",
    re.MULTILINE,
)


def _stretches(text: str) -> Iterator[tuple[float, str]]:
    """The text in pieces, each with how much its words count. What is marked as code in a sentence
    counts as both.
    """
    blocks = [found[2] for found in _FENCE.finditer(text)]
    prose = _FENCE.sub("\n", text)
    yield PROSE, prose
    yield INLINE, "\n".join(found[1] for found in _INLINE.finditer(prose))
    is_output = [len(block) > _MAX_CODE_CHARS or bool(_IS_OUTPUT.search(block)) for block in blocks]
    yield (
        CODE,
        "\n".join(block for block, given in zip(blocks, is_output, strict=True) if not given),
    )
    yield OUTPUT, "\n".join(block for block, given in zip(blocks, is_output, strict=True) if given)


_DOTTED = re.compile(r"[^\W\d]\w*(?:(?:\.|::|#|->)[^\W\d]\w*)*")
_PARTED = re.compile(r"\.|::|#|->")
_CAMEL = re.compile(r"[a-z][A-Z]")


def _names(text: str) -> dict[str, float]:
    """The identifiers in a text. One that cannot be a word, that is called or that is part of a
    dotted name counts whole.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for match in _DOTTED.finditer(text):
        parts = _PARTED.split(match[0])
        is_called = text[match.end() : match.end() + 1] == "("
        for part in parts:
            if len(part) > 2 or not part.isascii():
                is_name = is_called or len(parts) > 1 or "_" in part or bool(_CAMEL.search(part))
                found[part] += 1.0 if is_name else PLAIN
    return found


# Places

_TOKEN = re.compile(r"[^\s\"'`()<>\[\]{},;|=*]+")
_SPELLED = re.compile(r"(?:[\w.~+@-]*[/\\])*[\w.+@-]*\w\.[A-Za-z]\w{0,9}|(?:[\w.~+@-]+/)+[\w.+@-]+")
_FRAMES = (
    re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>[\w.<>]+))?'),  # Python
    re.compile(r"File (?P<path>\S+?):(?P<line>\d+), in (?P<name>[\w.<>]+)"),  # IPython
    re.compile(r"^\s*(?P<path>\S+\.\w+) in (?P<name>[\w.<>]+)\("),
    # JavaScript
    re.compile(r"\bat (?:async |new )?(?P<name>[\w.$<>]+) \((?P<path>[^():]+):(?P<line>\d+)"),
    # Java, Kotlin, Scala
    re.compile(r"\bat (?:[\w.$/]*\.)?(?P<name>[\w$<>]+)\((?P<path>[\w$]+\.\w+):(?P<line>\d+)\)"),
    # C#
    re.compile(r"\bat (?:[\w.`<>]*\.)?(?P<name>\w+)\([^)]*\) in (?P<path>.+?):line (?P<line>\d+)"),
    # Ruby
    re.compile(
        r"(?P<path>[^\s:'\"]+\.\w+):(?P<line>\d+):in [`'](?:[\w:]*[#.])?(?P<name>\w+[?!]?)'"
    ),
    # Elixir
    re.compile(r"(?P<path>[^\s:()]+\.exs?):(?P<line>\d+): (?:[\w.]*\.)?(?P<name>\w+[?!]?)/\d"),
    # PHP
    re.compile(r"(?P<path>[^\s:]+\.php)\((?P<line>\d+)\): (?:[\w\\]+(?:->|::))?(?P<name>\w+)\("),
    # any other
    re.compile(
        r"(?P<path>[^\s:()\"'`]+\.[A-Za-z]\w{0,9})(?::|\(|\", line |, line |:line )(?P<line>\d+)"
    ),
)


def paths_in(text: str) -> Iterator[str]:
    """What is spelled like a path in a text, or like the name of a file."""
    for token in dict.fromkeys(_TOKEN.findall(text)):
        found = None
        if len(token) < _MAX_LINE_CHARS and ("." in token or "/" in token or "\\" in token):
            found = _SPELLED.match(token)
        if found:
            yield found[0]


def _frames(text: str) -> Iterator[Frame]:
    for line in text.split("\n"):
        if "." not in line[:_MAX_LINE_CHARS]:
            continue
        for spelling in _FRAMES:
            matches = list(spelling.finditer(line[:_MAX_LINE_CHARS]))
            for match in matches:
                found = match.groupdict()
                yield Frame(
                    found["path"],
                    int(found.get("line") or 0),
                    (found.get("name") or "").rpartition(".")[2],
                )
            if matches:
                break


# Messages

_QUOTED = re.compile(r"\"([^\"\n]{1,200})\"|`([^`\n]{1,200})`|(?<!\w)'([^'\n]{1,200})'(?!\w)")
_RAISED = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception|Warning)|error|warning|fatal|panic)\b(?:\[\w+\])?: "
    r"*([^\n]{12,200})",
    re.IGNORECASE,
)
# what a program puts into a message, or with it
_FILLED = re.compile(r"['\"`{}%<>$\[\]]|\d+|\\[nt]")


def _literals(text: str) -> list[str]:
    """The fixed parts of messages that are quoted, or that come after the name of an error."""
    found: dict[str, None] = {}
    for match in (*_QUOTED.finditer(text), *_RAISED.finditer(text)):
        for part in _FILLED.split(next(filter(None, match.groups()))):
            part = part.strip(" .,:;()")
            if len(part) >= _MIN_LITERAL_CHARS and " " in part:
                found[part] = None
    return list(found)[:_MAX_LITERALS]


# Roles of files

_DO = (
    r"\b(?:add|write|fix|update|improve|extend|change|correct|missing|failing|flaky|broken|new"
    r"|more|typos?)\b[^.\n]{0,24}"
)
_ASKED: dict[Role, re.Pattern[str]] = {
    # Of one test it is told in many a request that is about what it tests.
    "test": re.compile(
        rf"{_DO}\b(?:(?:test|spec)s|(?:test|spec)(?= (?:for|of|that|cases?|suites?)\b| *$))\b",
        re.IGNORECASE,
    ),
    "document": re.compile(
        rf"{_DO}\b(?:docs?|documentation|readme|tutorials?|guides?|changelog)\b", re.IGNORECASE
    ),
    "example": re.compile(rf"{_DO}\b(?:examples?|samples?|demos?|benchmarks?)\b", re.IGNORECASE),
}

_STOP = """
a about above after again all also am an and any are as at be because been before being below
between both but by can cannot could did do does doing done down during each either else ever every
few for from further get gets got had has have having he her here him his how however i if in into
is it its itself just like may me might more most must my no nor not now of off on once one only or
other our out over own per please same see seem shall she should since so some still such than that
the their them then there these they thing this those though through thus to too under until up upon
us use used using very via want was we well were what when where whether which while who whom whose
why will with within without would yes yet you your hi hello thanks thank ok okay
continue proceed
的是 不是 一个 我们 这个 可以 没有 如果 因为 所以
"""
STOP = frozenset(word for given in _STOP.split() for word in (given, stem(given)))
