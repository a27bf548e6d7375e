"""The language of a file, and what it defines and uses."""

import re
from functools import cache
from typing import Literal

from loom.project.parse.grammars import GRAMMARS, parse_by_grammar
from loom.project.parse.installed import HAS_GRAMMARS
from loom.project.parse.linewise import forms, parse_by_lines
from loom.project.parse.python_lines import parse_python_lines
from loom.project.parse.symbols import ParsedFile

# How a text may be read: by a grammar if there is one; by how its lines begin; or without a grammar
# only if the result is the same.
Way = Literal["grammar", "lines", "plain"]


class NeedsGrammar(Exception):
    """A text that must be read by a grammar."""


def needs_grammar(path: str) -> bool:
    """Whether a file is read by a grammar, as far as its path tells."""
    ending = _ending(path)
    language = _by_ending().get(path.rpartition("/")[2]) or _by_ending().get(ending, "")
    return HAS_GRAMMARS and language != "python" and (language in GRAMMARS or ending in _PAGES)


def parse(path: str, text: str, way: Way = "grammar") -> ParsedFile:
    """What a file defines and uses. Of a text in no language that is known: nothing, and its
    language is "". Raises NeedsGrammar only if the way is "plain".
    """
    language = language_of(path, text)
    if not language:
        return ParsedFile()
    if language == "python" and (parsed := parse_python_lines(text)):
        return parsed
    ending = _ending(path)
    if ending in _PAGES:
        text = _script_of(text)
    grammar = language
    if ending == ".tsx" or (language == "javascript" and _FLOW.search(text, 0, 1000)):
        grammar = "tsx"
    if grammar not in GRAMMARS or not HAS_GRAMMARS or way == "lines":
        return parse_by_lines(language, text)
    if way == "plain":
        raise NeedsGrammar
    return parse_by_grammar(grammar, language, text, ending in _HEADERS) or parse_by_lines(
        language, text
    )


def language_of(path: str, text: str) -> str:
    """The language of a file by its name, or by its first line where the name has no ending; ""
    where it is none that is known.
    """
    name, ending = path.rpartition("/")[2], _ending(path)
    language = _by_ending().get(name) or _by_ending().get(ending, "")
    if not language and not ending:
        return _by_shebang(text)
    if ending == ".h":
        return _language_of_header(text)
    if ending == ".m" and _MATLAB.search(text):
        return "matlab"
    if ending in _AMBIGUOUS and not _AMBIGUOUS[ending].search(text):
        return ""
    return language


def _language_of_header(text: str) -> str:
    if _OBJECTIVE_C.search(text):
        return "objective-c"
    if _CPP.search(text):
        return "cpp"
    return "c"


# fmt: off
_ENDINGS = {
    "python": ".py .pyi .pyw .wsgi .bzl .bazel SConstruct SConscript wscript",
    "javascript": ".js .jsx .mjs .cjs .es6 Jakefile",
    "typescript": ".ts .tsx .mts .cts .vue .svelte .astro",
    "go": ".go",
    "rust": ".rs",
    "java": ".java",
    "c": ".c .h",
    "cpp": ".cc .cpp .cxx .c++ .hpp .hh .hxx .h++ .ipp .tpp .inl .cu .cuh .ino",
    "csharp": ".cs .csx",
    "ruby": ".rb .rake .gemspec .ru .podspec Rakefile Gemfile Guardfile Fastfile Podfile "
            "Vagrantfile",
    "php": ".php .phtml .php5 .inc",
    "elixir": ".ex .exs",
    "kotlin": ".kt .kts",
    "swift": ".swift",
    "scala": ".scala .sc .sbt",
}
_COMMANDS = {
    "node": "javascript", "nodejs": "javascript", "bun": "javascript", "deno": "typescript",
    "ts-node": "typescript", "tsx": "typescript", "iex": "elixir", "sh": "shell", "bash": "shell",
    "zsh": "shell", "ksh": "shell", "dash": "shell", "ash": "shell", "fish": "shell",
    "rscript": "r", "luajit": "lua", "pwsh": "powershell", "runghc": "haskell", "tclsh": "tcl",
    "escript": "erlang", "guile": "lisp", "racket": "lisp", "sbcl": "lisp", "pypy": "python",
}
# fmt: on
_HEADERS = frozenset((".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".ipp", ".tpp"))
_PAGES = frozenset((".vue", ".svelte", ".astro"))
_FLOW = re.compile(r"@flow\b")
_CPP = re.compile(
    r"^[ \t]*(?:(?:class|namespace|typename) +\w|template *<|using "
    r"+\w|(?:public|private|protected) *:|inline +namespace)|\bstd::",
    re.MULTILINE,
)
_OBJECTIVE_C = re.compile(r"^@(?:interface|protocol|class|property|implementation)\b", re.MULTILINE)
_MATLAB = re.compile(r"^\s*(?:function\b|classdef\b|%)", re.MULTILINE)
# endings that other kinds of files have too, and what a text of the language begins with or has
_AMBIGUOUS = {
    ".ts": re.compile(r"\A\s*[^<\s]|\A\s*\Z"),  # translations of Qt are XML
    ".inc": re.compile(r"<\?(?:php|=)"),
    ".t": re.compile(r"\buse [\w:]+|\bmy [$@%]"),
    ".v": re.compile(r"\bmodule\b"),
    ".d": re.compile(r"\bimport\b|\bmodule\b"),
    ".cl": re.compile(r"\A\s*[;(]"),
    ".pp": re.compile(r"(?i)\bprocedure\b|\bfunction\b.*;"),
}
_SHEBANG = re.compile(
    r"#![ \t]*(?:\S*/)?([\w+.-]+)(?:[ \t]+(?:-\S+[ \t]+|\w+=\S*[ \t]+)*([\w+.-]+))?"
)


@cache
def _by_ending() -> dict[str, str]:
    ours = {
        ending: language for language, endings in _ENDINGS.items() for ending in endings.split()
    }
    return {
        ending: language for language, form in forms().items() for ending in form.endings
    } | ours


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    dot = name.rfind(".")
    if dot > 0:
        return name[dot:].lower()
    return ""


def _by_shebang(text: str) -> str:
    said = _SHEBANG.match(text, 0, 200)
    if not said:
        return ""
    command = said[1]
    if command == "env":
        command = said[2] or ""
    command = command.rstrip("0123456789.").lower()
    if command in _COMMANDS:
        return _COMMANDS[command]
    if command in _ENDINGS or command in forms():
        return command
    return ""


def _script_of(text: str) -> str:
    """The scripts of a page, each on the lines that it has there."""
    kept = []
    at = 0
    while opened := _OPENED.search(text, at):
        stop = text.find(_CLOSING[opened[0][0]], opened.end())
        if stop < 0:
            stop = len(text)
        kept += ["\n" * text.count("\n", at, opened.end()), text[opened.end() : stop]]
        at = stop
    return "".join(kept)


_OPENED = re.compile(r"<script\b[^>]{0,500}>|\A---\n", re.IGNORECASE)
_CLOSING = {"<": "</script", "-": "\n---"}
