"""Commands: the lines with which loom-aware agents act on a tree, read out of what they answer.

Rules of this file:
- A command is a line that begins with `→` and a name. Such a line inside a fence is text, and so is
  a `→` without a name.
- `"…"` is one word and may span lines; \\" \\\\ \\n \\t are escapes in it. `key:value` is an option
  where the command has that
  key, else a word. Other words end at a blank.
- `→ think` begins a thought, which ends at the next `←`; what follows that is read as a line of its
  own.
- What is wrong is told, never guessed, and does not keep the other commands from being read.
- Reading takes time in proportion to the answer, whatever is in it.
"""

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from loom.conversation.agents import PERMISSIONS, Permission
from loom.errors import ChoiceError, shorten

Code = Literal[
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "INVALID_SYNTAX",
    "LIMIT_EXCEEDED",
    "CROSS_TREE",
    "CONFLICT",
    "MODEL_ERROR",
]

LONGEST_BATCH = 20  # commands in one answer
MOST_CONTINUATIONS = 10  # in one command
TREE_DEPTH = 5  # of a picture, where none is asked for
_WIDEST_FORM = 40  # columns of a form next to which there is room for what it is about


class Command(Struct, frozen=True):
    """What an agent asks for. Options have keys in small letters, each once."""

    name: str
    words: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    source: str = ""

    def option(self, key: str, default: str = "") -> str:
        return next((value for given, value in self.options if given == key), default)


class Thought(Struct, frozen=True):
    """What an agent says to itself only."""

    text: str


class Mistake(Struct, frozen=True):
    """Why a command was not done, and what to write instead."""

    code: Code
    message: str
    hint: str = ""
    source: str = ""


Found = Command | Thought | Mistake


class Spec(Struct, frozen=True):
    """How a command is written. It takes `least` to `most` arguments: its words, and each option
    that stands instead of one.

    `place` says where options are: with the words, instead of one, or always so. `choices` are
    all that its word may be.
    """

    name: str
    form: str
    about: str
    needs: Permission
    least: int
    most: int
    options: tuple[str, ...] = ()
    place: Literal["beside", "instead", "always"] = "beside"
    choices: tuple[str, ...] = ()


_LISTS = (
    "continuations",
    "siblings",
    "annotations",
    "links",
    "bookmarks",
    "branches",
    "trees",
    "documents",
)
_MEMORY = ("trace", "stashed")
_STASH = 'stash "LABEL" "TEXT" | content-of:NODE | summary-of:A-B'

SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec("view", "view NODE", "show a node in full", "loom_aware", 1, 1),
        Spec(
            "list",
            f"list [{'|'.join(_LISTS)}]",
            f"list these (default: {_LISTS[0]})",
            "loom_aware",
            0,
            1,
            choices=_LISTS,
        ),
        Spec(
            "tree",
            "tree [NODE] [depth:N]",
            f"draw the tree (default depth: {TREE_DEPTH})",
            "loom_aware",
            0,
            1,
            ("depth",),
        ),
        Spec(
            "switch",
            "switch NODE [digest:yes]",
            "move to a node; digest:yes sums up the branch that you leave",
            "loom_aware",
            1,
            1,
            ("digest",),
        ),
        Spec("search", 'search "WORDS"', "find nodes with these words", "loom_aware", 1, 1),
        Spec(
            "think",
            "think … ←",
            "think, on any number of lines; only you see it",
            "loom_aware",
            0,
            0,
        ),
        Spec(
            "pin",
            "pin NODE | result:N | stash:LABEL",
            "keep this in your memory",
            "loom_aware",
            1,
            1,
            ("result", "stash"),
            "instead",
        ),
        Spec(
            "stash",
            _STASH,
            "save this for later",
            "loom_aware",
            2,
            2,
            ("content-of", "summary-of"),
            "instead",
        ),
        Spec(
            "recall",
            'recall "LABEL"|~HANDLE [from:LINE]',
            "get back a stash, or what a handle names",
            "loom_aware",
            1,
            1,
            ("from",),
        ),
        Spec(
            "drop",
            "drop pin:NODE | stash:LABEL",
            "remove this from your memory",
            "loom_aware",
            1,
            1,
            ("pin", "stash"),
            "always",
        ),
        Spec(
            "memory",
            "memory [trace|stashed]",
            "show your memory",
            "loom_aware",
            0,
            1,
            choices=_MEMORY,
        ),
        Spec("help", "help [COMMAND]", "list the commands, or explain one", "loom_aware", 0, 1),
        Spec(
            "respond",
            'respond [to:NODE] "TEXT"',
            "say something here, or after a node",
            "loom_write",
            1,
            1,
            ("to",),
        ),
        Spec("annotate", 'annotate NODE "TEXT"', "write a note on a node", "loom_write", 2, 2),
        Spec(
            "link",
            'link NODE NODE|TREE/NODE ["LABEL"]',
            "link a node to another",
            "loom_write",
            2,
            3,
        ),
        Spec("edit", 'edit NODE "TEXT"', "write another version of a node", "loom_write", 2, 2),
        Spec("bookmark", 'bookmark NODE ["LABEL"]', "bookmark a node", "loom_write", 1, 2),
        Spec("unbookmark", "unbookmark NODE", "remove the bookmark", "loom_write", 1, 1),
        Spec("prune", "prune NODE", "hide a node and everything after it", "loom_write", 1, 1),
        Spec("restore", "restore NODE", "show a pruned node again", "loom_write", 1, 1),
        Spec(
            "continue",
            "continue [n:N]",
            f"let the model continue, up to {MOST_CONTINUATIONS} times",
            "loom_generate",
            0,
            0,
            ("n",),
        ),
        Spec("read", 'read "NAME" [from:LINE]', "read a document", "doc_read", 1, 1, ("from",)),
        Spec(
            "write",
            'write "NAME" "TEXT" [over:NODE]',
            "add to a document, or edit a part of it",
            "doc_write",
            2,
            2,
            ("over",),
        ),
    )
}

_BEGUN = re.compile(r"[^\S\n]*+→[^\S\n]*+([^\W\d_][^\s←:]*+):?")
_REST = re.compile(r"[^\S\n]*+\n?")
_BLANKS = re.compile(r"[^\S\n]*+")
_KEY = re.compile(r"([A-Za-z][A-Za-z-]*+):")
_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*)"', re.DOTALL)
_PLAIN = re.compile(r"\S*+")
_ESCAPED = re.compile(r'\\(["\\nt])')
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_FENCE = re.compile(r"\s*+(`{3,}+(?=[^`]*+$)|~{3,}+)")

_WHOLE = re.compile(r"[1-9][0-9]{0,8}"), "a whole number from 1"
_VALUES = {
    "depth": _WHOLE,
    "n": _WHOLE,
    "from": _WHOLE,
    "result": _WHOLE,
    "digest": (re.compile(r"yes|no"), "yes or no"),
    "summary-of": (re.compile(r"[^\s-]+-[^\s-]+"), "the first and the last node, as A-B"),
}
_SOMETHING = re.compile(r".+", re.DOTALL), "a value right after its colon"


# Reading


def parse_commands(answer: str) -> tuple[str, tuple[Found, ...]]:
    """What was said besides the commands, and the commands in their order; an answer without any
    comes back unchanged.
    """
    if "→" not in answer:
        return answer, ()
    said = _PlainLines()
    found: list[Found] = []
    hopeless: set[int] = set()
    thoughts_end = answer.rfind("←")
    at, fence, meant, not_run = 0, "", 0, ""
    while at < len(answer):
        begun = None if fence else _BEGUN.match(answer, at)
        if begun is None:
            end = _line_end(answer, at)
            fence = _fence_after(fence, answer[at:end])
            said.keep(answer[at:end])
            at = end
            continue
        said.take_out()
        name, behind = begun[1].lower(), begun.end()
        if name == "think" and behind <= thoughts_end:
            end = answer.index("←", behind)
            found.append(Thought(answer[behind:end].strip()))
            at = _match_end(_REST, answer, end + 1)
            continue
        # A thought without an end has no arguments: quotes in it could close lines later.
        arguments, end = ([], -1) if name == "think" else _arguments(answer, behind, hopeless)
        stop = _line_end(answer, at if end < 0 else end)
        source = answer[at:stop].strip()
        meant += 1
        if meant > LONGEST_BATCH:
            not_run = not_run or source
        elif end < 0:
            found.append(_endless(name, source))
        else:
            found.append(_command(name, arguments, source))
        at = stop
    if not_run:
        found.append(_too_many(meant - LONGEST_BATCH, not_run))
    return (said.text if found else answer), tuple(found)


def limit_batch(found: Sequence[Found]) -> tuple[Found, ...]:
    """The commands of an answer of several texts, as many as one answer may hold."""
    places = [n for n, each in enumerate(found) if not isinstance(each, Thought)]
    if len(places) <= LONGEST_BATCH + 1:  # of one text, what is too much has been told already
        return tuple(found)
    first = found[places[LONGEST_BATCH]]
    source = "" if isinstance(first, Thought) else first.source
    return (*found[: places[LONGEST_BATCH]], _too_many(len(places) - LONGEST_BATCH, source))


class _PlainLines:
    """The lines that are not commands. Where something is taken out between two of them, at most
    one blank line stays.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        # the blank line that stands for what was taken out, "" for none
        self._gap: str | None = None

    def keep(self, line: str) -> None:
        if self._gap is None:
            self._lines.append(line)
        elif not line.strip():
            self._gap = self._gap or line
        else:
            self._lines += (self._gap, line)
            self._gap = None

    def take_out(self) -> None:
        self._gap = self._gap or ""
        while self._lines and not self._lines[-1].strip():
            self._gap = self._lines.pop()

    @property
    def text(self) -> str:
        return "".join(self._lines).strip()


def _line_end(answer: str, at: int) -> int:
    """Where the next line begins."""
    return answer.find("\n", at) + 1 or len(answer)


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _fence_after(fence: str, line: str) -> str:
    """The fence that is open after this line, "" for none. It closes at a line of as many of its
    marks, or more.
    """
    if fence:
        marks = line.strip()
        if marks.startswith(fence) and not marks.strip(fence[0]):
            return ""
        return fence
    opened = _FENCE.match(line)
    return opened[1] if opened else ""


def _arguments(answer: str, at: int, hopeless: set[int]) -> tuple[list[tuple[str, str]], int]:
    """The words from here to the end of their line, each with what comes before its colon, and
    where they end.

    They end at -1 where a quote never closes. Then all quotes on the way there are hopeless for
    whoever opens them again.
    """
    found: list[tuple[str, str]] = []
    opened: list[int] = []
    while (at := _match_end(_BLANKS, answer, at)) < len(answer) and answer[at] != "\n":
        keyed = _KEY.match(answer, at)
        key, at = (keyed[1], keyed.end()) if keyed else ("", at)
        if not answer.startswith('"', at):
            end = _match_end(_PLAIN, answer, at)
            found.append((key, answer[at:end]))
            at = end
            continue
        opened.append(at)
        quote = None if at in hopeless else _QUOTED.match(answer, at)
        if quote is None:
            hopeless.update(opened)
            return [], -1
        found.append((key, _ESCAPED.sub(lambda escape: _ESCAPES[escape[1]], quote[1])))
        at = quote.end()
    return found, at


def quote_word(text: str) -> str:
    """A text as one word of a command, on one line."""
    return (
        '"'
        + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        + '"'
    )


# Judging


def _command(name: str, arguments: list[tuple[str, str]], source: str) -> Command | Mistake:
    spec = SPECS.get(name)
    if spec is None:
        return _unknown(name, source)
    words = tuple(
        f"{key}:{value}" if key else value
        for key, value in arguments
        if key.lower() not in spec.options
    )
    options = tuple((key.lower(), value) for key, value in arguments if key.lower() in spec.options)
    if spec.choices:
        words = tuple(word.lower() for word in words)
    wrong = _wrong_options(spec, options) or _wrong_words(spec, words, options)
    if wrong:
        return Mistake("INVALID_SYNTAX", wrong, _hint(spec, words), source)
    if name == "help" and words and words[0].lower() not in SPECS:
        return _unknown(words[0], source)
    command = Command(name, words, options, source)
    if int(command.option("n", "1")) > MOST_CONTINUATIONS:
        message = (
            f"{name} makes at most {MOST_CONTINUATIONS} continuations, found "
            f"n:{command.option('n')}"
        )
        return Mistake("LIMIT_EXCEEDED", message, f"→ {name} n:{MOST_CONTINUATIONS}", source)
    return command


def _wrong_options(spec: Spec, options: tuple[tuple[str, str], ...]) -> str:
    keys = [key for key, _ in options]
    for key, value in options:
        if keys.count(key) > 1:
            return f"{key}: is given {keys.count(key)} times to {spec.name}"
        form, demanded = _VALUES.get(key, _SOMETHING)
        if not form.fullmatch(value):
            return f"{key}: takes {demanded}, found {shorten(value)!r}"
    return ""


def _wrong_words(spec: Spec, words: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> str:
    standing = 0 if spec.place == "beside" else len(options)
    count = len(words) + standing
    if not spec.least <= count <= spec.most:
        return f"{spec.name} takes {_amount(spec)}, found {count or 'none'}"
    if standing > 1 or (spec.place == "always" and not standing):
        return (
            f"{spec.name} takes one of {' and '.join(f'{key}:' for key in spec.options)}, "
            f"found {standing or 'none'}"
        )
    unknown = [word for word in words if spec.choices and word not in spec.choices]
    if unknown:
        return f"{spec.name} has no {shorten(unknown[0])!r}"
    return ""


def _amount(spec: Spec) -> str:
    if spec.most == 0:
        return "no argument"
    least = "" if spec.least == spec.most else f"{spec.least} to "
    return f"{least}{spec.most} argument{'s' if spec.most > 1 else ''}"


def _hint(spec: Spec, words: tuple[str, ...]) -> str:
    torn = len(words) > spec.most and any('"' in word for word in words)
    return f"→ {spec.form}" + ('; write \\" for a quote inside a text' if torn else "")


def _unknown(name: str, source: str) -> Mistake:
    near = get_close_matches(name.lower(), SPECS, n=1)
    hint = "→ help lists the commands"
    if near:
        hint = f"did you mean: → {SPECS[near[0]].form}"
    return Mistake("INVALID_SYNTAX", f"there is no command {shorten(name)!r}", hint, source)


def _endless(name: str, source: str) -> Mistake:
    if name not in SPECS:
        return _unknown(name, source)
    if name == "think":
        return Mistake("INVALID_SYNTAX", "the thought does not end", "end it with ←", source)
    hint = 'end the text with ", and write \\" for a quote inside it'
    return Mistake("INVALID_SYNTAX", f"a quote of {name} does not close", hint, source)


def _too_many(count: int, source: str) -> Mistake:
    were = "1 more was" if count == 1 else f"{count:,} more were"
    message = f"an answer may contain {LONGEST_BATCH} commands; {were} not run"
    return Mistake("LIMIT_EXCEEDED", message, f"give at most {LONGEST_BATCH} at a time", source)


# Telling


def describe_mistake(mistake: Mistake) -> str:
    """A mistake as its agent reads it."""
    return f"✗ {mistake.code}: {mistake.message}" + (
        f"\n  hint: {mistake.hint}" if mistake.hint else ""
    )


def may_use(spec: Spec, allowed: Collection[Permission]) -> bool:
    """Whether these permissions are enough; who is not loom-aware has no commands at all."""
    return "loom_aware" in allowed and spec.needs in allowed


def help_text(name: str = "", allowed: Collection[Permission] = PERMISSIONS) -> str:
    """All commands that these permissions are enough for, or one command and the permission it
    needs.
    """
    if name:
        return _help_on(name, allowed)
    usable = [spec for spec in SPECS.values() if may_use(spec, allowed)]
    if not usable:
        return "no commands: they need loom_aware, which you do not have"
    forms = [f"→ {spec.form}" for spec in usable]
    wide = max(len(form) for form in forms if len(form) <= _WIDEST_FORM)
    return "\n".join(
        f"{form:<{wide}}  {spec.about}"
        if len(form) <= wide
        else f"{form}\n{'':<{wide}}  {spec.about}"
        for form, spec in zip(forms, usable, strict=True)
    )


def _help_on(name: str, allowed: Collection[Permission]) -> str:
    spec = SPECS.get(name.lower())
    if spec is None:
        raise ChoiceError(
            f"there is no command {shorten(name)!r}; choose one of {', '.join(SPECS)}"
        )
    missing = ", which you do not have"
    if may_use(spec, allowed):
        missing = ""
    return f"→ {spec.form}\n  {spec.about}\n  needs {spec.needs}{missing}"
