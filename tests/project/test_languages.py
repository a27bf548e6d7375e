"""What a text defines and uses: fifteen languages as their goldens say, and any text whatever
without raising or taking long.
"""

import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.project.parse import grammars
from loom.project.parse.grammars import GRAMMARS
from loom.project.parse.languages import language_of, parse
from loom.project.parse.linewise import forms, parse_by_lines
from loom.project.parse.python_lines import parse_python_lines
from loom.project.parse.symbols import ParsedFile
from tests.project.goldens import FIXTURES, golden, told
from tests.shared import examples

NAMED = """python javascript typescript go rust java c cpp csharp
    ruby php elixir kotlin swift scala""".split()  # noqa: SIM905
ENDINGS = sorted({path.suffix for path in FIXTURES})


def names(parsed: ParsedFile) -> list[str]:
    return [f"{one.kind} {one.path}" for one in parsed.definitions]


def check(parsed: ParsedFile, text: str) -> None:
    """What is true of every text."""
    lines = text.count("\n") + 1
    for one in parsed.definitions:
        assert one.name
        assert 1 <= one.start <= one.stop <= lines
        assert len(one.signature) <= 200
        assert not any(sign in one.signature for sign in "\n\r\t")
    assert list(parsed.references) == sorted(parsed.references)
    assert all(count > 0 and name for name, count in parsed.references.items())


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_fixtures_define_what_their_goldens_say(fixture: Path) -> None:
    text = fixture.read_text()
    parsed = parse(fixture.name, text)
    check(parsed, text)
    assert told(parsed) == golden(fixture).read_text()


def test_every_language_has_a_grammar_and_a_fixture() -> None:
    assert {parse(path.name, path.read_text()).language for path in FIXTURES} == set(NAMED)
    for name in GRAMMARS:
        assert grammars._load_grammar(name), (
            f"the grammar of {name} is not installed, or the query does not fit it"
        )


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_code_in_comments_and_strings_is_not_defined(fixture: Path) -> None:
    found = {
        one.name.lower().replace("_", "")
        for one in parse(fixture.name, fixture.read_text()).definitions
    }
    assert not found & {
        "commentedout",
        "commented",
        "instring",
        "insideheredoc",
        "trick",
        "quoted",
        "notthis",
        "inheredoc",
        "raw0",
    }


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_a_text_gives_the_same_each_time_and_in_every_thread(fixture: Path) -> None:
    text = fixture.read_text()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: told(parse(fixture.name, text)), range(8)))
    assert set(found) == {golden(fixture).read_text()}


# Python without its grammar


def library() -> list[Path]:
    """Modules of the Python that runs this, those that many tests import before others."""
    folder = Path(sysconfig.get_path("stdlib"))
    return [
        folder / f"{name}.py"
        for name in (
            "ast",
            "argparse",
            "dataclasses",
            "enum",
            "inspect",
            "pathlib",
            "typing",
            "tarfile",
        )
    ]


def agree(text: str) -> bool:
    """Whether lines and grammar find the same in a text; also where the lines leave it to the
    grammar.
    """
    by_lines, by_grammar = (
        parse_python_lines(text),
        grammars.parse_by_grammar("python", "python", text, is_header=False),
    )
    return by_lines is None or by_grammar is None or by_lines.definitions == by_grammar.definitions


@pytest.mark.parametrize(
    "path",
    [path for path in (*FIXTURES, *library()) if path.suffix == ".py"],
    ids=lambda path: path.name,
)
def test_lines_of_python_say_what_its_grammar_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert parse_python_lines(text)
    assert agree(text)


@pytest.mark.long
def test_lines_say_what_the_grammar_says_of_all_that_python_brings() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    texts = [path.read_text("utf-8", "replace") for path in folder.glob("*.py")] + [
        path.read_text("utf-8", "replace")
        for path in folder.glob("[a-z]*/*.py")
        if path.parent.name != "site-packages"
    ]
    # constants behind a semicolon or a backslash
    assert sum(not agree(text) for text in texts) <= len(texts) / 100


PYTHON = {
    "a decorator over lines": ("@wrap(\nsize=1,\n)\ndef f(): pass\n", ["f 1-4 def f()"]),
    "comments above and at the end": (
        "# of f\ndef f():\n    pass\n    # still\n# not f\n\nx = 1\n",
        ["f 1-4 def f()"],
    ),
    "code in strings": (
        'x = """\ndef no(): pass\n"""\ny = \'"""\'\ndef f(): pass\n',
        ["f 5-5 def f()"],
    ),
    "brackets left of a block": (
        "def f():\n    x = (\n1,\n)\n    return x\ny = 2\n",
        ["f 1-5 def f()"],
    ),
    "text left of a block": ('def f():\n    x = """\na\n"""\n    return x\n', ["f 1-5 def f()"]),
    "strings and colons in a head": (
        "def f(a=':', b={1: 2}, *, c: 'x' = \"#\"):\n  pass\n",
        ["f 1-2 def f(a=':', b={1: 2}, *, c: 'x' = \"#\")"],
    ),
    "a table with keys in front": (
        "TABLE = {\nAB: 1,\nCD: 2\n}\nf(\nEF=1)\n",
        ["TABLE 1-4 TABLE = { …"],
    ),
    "types over lines": (
        "TABLE: dict[\n    str, int\n] = {}\nSIZE: int\n",
        ["TABLE 1-3 TABLE: dict[ …", "SIZE 4-4 SIZE: int"],
    ),
    "behind a backslash": (
        "LONG = 1 + \\\n    2\ndef f(a, \\\n  b): pass\n",
        ["LONG 1-2 LONG = 1 + …", "f 3-4 def f(a, b)"],
    ),
    "a product over lines": ("y = (a\n@ b)\ndef f(): pass\n", ["f 3-3 def f()"]),
    "a product left of a block": (
        "def f():\n    x = foo(\n@a\n)\n    def g(): pass\n",
        ["f 1-5 def f()", "g 5-5 def g()"],
    ),
    "tabs": (
        "class A:\n\tdef f(self):\n\t\tpass\n\n\tdef g(self): pass\n",
        ["A 1-5 class A", "f 2-3 def f(self)", "g 5-5 def g(self)"],
    ),
}


@pytest.mark.parametrize("case", PYTHON)
def test_python_is_read_by_its_lines(case: str) -> None:
    text, expected = PYTHON[case]
    found = parse_python_lines(text)
    assert found
    assert [
        f"{one.name} {one.start}-{one.stop} {one.signature}" for one in found.definitions
    ] == expected


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n  pass\n",
        "x = 'open\n",
        "if x:\n\ty\n        z\n",
        'a = """\n',
        "\x01",
        "def f(a, b)\n",
        "def \\\n f(): pass\n",
        "def a·b(): pass\n",
    ],
)
def test_what_lines_do_not_say_is_left_to_the_grammar(text: str) -> None:
    assert parse_python_lines(text) is None


@settings(max_examples=examples(100))
@given(seed=st.integers(0, 2**32))
def test_python_that_was_cut_and_mixed_is_read_by_its_lines(seed: int) -> None:
    text = mixed((FIXTURES[0].parent / "python.py").read_text(), random.Random(seed))
    check(parse_python_lines(text) or ParsedFile(), text)


# What each language has of its own

OWN = {
    "operators.cs": (
        "class A {\n static A operator +(A a, A b) { return a; }\n static implicit operator "
        "List<int>(A a) => 1;\n"
        " int this[int i] { get { return 1; } }\n}\n",
        ["class A", "method A.operator+", "method A.operator List", "method A.this[]"],
    ),
    "operators.cpp": (
        "class A {\n operator bool() const { return 1; }\n explicit operator int();\n operator "
        "std::string() const;\n};\n"
        "A::operator int() { return 1; }\n",
        [
            "class A",
            "method A.operator bool",
            "method A.operator int",
            "method A.operator std::string",
            "method A.operator int",
        ],
    ),
    "exported.cpp": (
        "class LLVM_ABI Value {\n int f();\n};\nclass X_EXPORT Foo final {};\nstruct "
        "EXPORT_API S {};\nclass FOO final {};\n"
        'class A_API\n  B_OLD("no") Exported : public Base {\n};\nenum class A_API Color : int '
        "{ Red };\n"
        "struct FOO bar(int x) { return 1; }\n",
        [
            "class Value",
            "method Value.f",
            "class Foo",
            "class S",
            "class FOO",
            "class Exported",
            "type Color",
            "function bar",
        ],
    ),
    "operators.swift": (
        "struct A { static func ==(a: A, b: A) -> Bool { true } }\nprefix func +++(a: Int) -> "
        "Int { a }\n",
        ["class A", "method A.==", "function +++"],
    ),
    "operators.ex": (
        "defmodule A do\n  def a + b do\n    1\n  end\n  def a <> b when a > 1, do: 1\n  def "
        "-a, do: a\n"
        "  def c when true, do: 1\nend\n",
        ["module A", "function A.+", "function A.<>", "function A.-", "function A.c"],
    ),
    "Constants.java": (
        "class A {\n static final int MOST = 1, LEAST = 2;\n final static int SIZE = 3;\n "
        "final int OWN = 1;\n"
        " interface I { int X_Y = 1; }\n"
        " void f() { final int LOCAL = 1; }\n}\n",
        [
            "class A",
            "constant A.MOST",
            "constant A.LEAST",
            "constant A.SIZE",
            "interface A.I",
            "constant A.I.X_Y",
            "method A.f",
        ],
    ),
    "constants.go": (
        "package a\nconst (\n A, B, C = 1, 2, 3\n _ = iota\n)\nconst _ = 1\nfunc _() {}\nconst "
        "_, D = 1, 2\n",
        ["constant A", "constant B", "constant C", "constant D"],
    ),
    "constants.rb": (
        "class A\n  MOST = 1\n  attr_accessor :no\n  define_method(:x) do |a|\n    1\n  end\n  "
        "define_method('y') { 1 }\nend\n",
        ["class A", "constant A.MOST", "method A.x", "method A.y"],
    ),
    "wrapped.js": (
        "export const Hoc = memo(forwardRef((p, ref) => 1));\nexport const store = "
        "createStore();\n",
        ["function Hoc", "constant store"],
    ),
    "members.js": (
        "module.exports = function cors(o) {};\nApp.Views.run = function () "
        "{};\nmodule.exports.g = () => 1;\n"
        "a.b.C.prototype.h = function () {};\n",
        ["function cors", "method Views.run", "function g", "method C.h"],
    ),
    "pairs.js": (
        "var v = { methods: { bar: function () {} } };\nx.extend({ foo: function () {}, 'a "
        "phrase': function () {} });\n",
        ["method v.bar", "function foo", "function a phrase"],
    ),
    "computed.ts": (
        "class A { [Symbol.iterator]() {} }\ndeclare module './a.b' { function f(): void }\n",
        ["class A", "method A.[Symbol.iterator]", "module ./a.b", "function ./a.b.f"],
    ),
    "arrow.ts": ("export default () => 1;\n", ["function default"]),
    "function.js": ("export default function () {}\n", ["function default"]),
    "class.js": ("export default class { a() {} }\n", ["class default", "method default.a"]),
    "exports.js": ("module.exports = () => 1;\n", ["function exports"]),
}


@pytest.mark.parametrize("path", OWN)
def test_what_only_some_languages_have_is_found(path: str) -> None:
    text, expected = OWN[path]
    parsed = parse(path, text)
    check(parsed, text)
    assert names(parsed) == expected


# What a grammar cannot read

UNREAD = {
    "classes.kt": (
        "class A { val x = 1 }\nclass B { val x = 1 }\n",
        ["class A 1-1", "class B 2-2"],
    ),
    "constructor.kt": (
        "actual open class B\ninternal actual constructor(\n  val d: Int,\n) : S {\n  actual "
        "fun md5() = 1\n}\n",
        ["class B 1-5", "method B.md5 5-5"],
    ),
    "macros.c": (
        "#define BEGIN {\n#define END }\nvoid f(void)\nBEGIN\n  g();\n  if (a)\n  BEGIN\n  "
        "END\n  else if (b) {\n  }\nEND\n\n"
        "int late(int a,\n         int b);\n\nint umain(int argc, char *argv[]) {\n  return "
        "call(argc);\n}\n",
        ["function f 3-10", "function umain 16-18"],
    ),
    "text.kt": (
        'class A { val x = 1 }\nval s = """\nclass Quoted\n"""\n/*\nclass Commented\n*/\n',
        ["class A 1-1"],
    ),
    "Call.java": (
        "class A {\n  void f() { x = = 1; }\n  void g() {\n    call(a,\n        b, compute(c), "
        "() -> {\n        });\n  }\n}\n",
        ["class A 1-8", "method A.f 2-2", "method A.g 3-7"],
    ),
}


@pytest.mark.parametrize("path", UNREAD)
def test_what_a_grammar_cannot_read_is_read_by_lines(path: str) -> None:
    text, expected = UNREAD[path]
    parsed = parse(path, text)
    check(parsed, text)
    assert [
        f"{one.kind} {one.path} {one.start}-{one.stop}"
        for one in parsed.definitions
        if one.kind != "constant"
    ] == expected


# Broken and hostile texts


CUTS = """
import sys
from itertools import chain, repeat
from pathlib import Path
from loom.project.parse import grammars
from loom.project.parse.languages import parse
parse("a.kt", "val x = 1\\n@Thr")  # its scanner never ends without a line break
path, step = Path(sys.argv[1]), int(sys.argv[2])
text = path.read_text()
stops = range(step, len(text) + 1, step)
for stop in stops:
    parse(path.name, text[:stop])
grammars._CHUNK = step
for reads in range(len(stops)):  # and a clock that is late after so many
    clock = chain(repeat(0, reads + 1), repeat(1e9))
    grammars.thread_time = lambda: next(clock)
    parse(path.name, text)
"""


@pytest.mark.parametrize("part", [12, pytest.param(100_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_a_text_that_ends_anywhere_is_read(fixture: Path, part: int) -> None:
    """A scanner may look for ever for what does not come, so this is tried in another process."""
    step = max(1, len(fixture.read_text()) // part)
    subprocess.run(
        [sys.executable, "-c", CUTS, str(fixture), str(step)],
        capture_output=True,
        timeout=60,
        check=True,
    )


def test_what_stands_around_broken_code_is_still_found() -> None:
    text = (
        "def before(): pass\n\ndef broken(a, b):\n    x = = 3 (\n\nclass After:\n    def "
        "inner(self): pass\n"
    )
    assert {"function before", "class After", "method After.inner"} <= set(
        names(parse("a.py", text))
    )


UNITS = [
    "(",
    "[",
    "{ (",
    "[]",
    "((a,",
    "if ",
    "else ",
    "a.",
    "-> ",
    "<",
    '"',
    "`",
    "<<A\n",
    "/*",
    "\\",
    "@",
    "#",
    "x => ",
]


@pytest.mark.parametrize(
    "size",
    [
        20_000,
        pytest.param(2_000, marks=pytest.mark.long),
        pytest.param(60_000, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("ending", ENDINGS)
def test_any_depth_and_any_heap_of_signs_is_read_in_a_bounded_time(ending: str, size: int) -> None:
    for unit in UNITS:
        text = ("<?php " if ending == ".php" else "") + unit * (size // len(unit)) + "\n"
        start = time.process_time()
        check(parse(f"a{ending}", text), text)
        assert time.process_time() - start < 3, unit


SOUP = """
import random, sys
from loom.project.parse.languages import parse
dice, size = random.Random(int(sys.argv[2])), int(sys.argv[3])
signs = "()[]{}<>,.;:+-*/&|!?=@#'\\"\\\\ $%^~ab1"
words = ["alpha ", "of ", "class ", "def ", "if ", "(", "x, ", "return ", "<T", ">", "int "]
for kind in (signs, words):
    lines, length = [], 0
    while length < size:
        lines.append("".join(dice.choice(kind) for _ in range(dice.randrange(1, 80))))
        length += len(lines[-1]) + 1
    parse("a" + sys.argv[1], "\\n".join(lines))
# Of the process itself: the most that getrusage tells is inherited from whoever started it.
status = open("/proc/self/status")
print(next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells how much memory a process took"
)
@pytest.mark.parametrize("size", [100_000, pytest.param(900_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "ending",
    [".tsx", ".java", *(pytest.param(ending, marks=pytest.mark.long) for ending in ENDINGS)],
)
def test_what_is_no_code_ends_and_takes_little_memory(ending: str, size: int) -> None:
    """A parser may never come back from a heap of signs, so this is tried in another process."""
    command = [sys.executable, "-c", SOUP, ending, "1", str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 500


def test_indentation_of_any_depth_is_read() -> None:
    text = (
        "\n".join(" " * n + "if x:" for n in range(1200)) + "\n" + " " * 1300 + "def deep(): pass\n"
    )
    check(parse("a.py", text), text)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_a_text_that_takes_too_long_is_read_by_its_lines(
    fixture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "MIN_PARSE_SECONDS", -1e9)
    text = fixture.read_text()
    check(parse(fixture.name, text), text)


@settings(max_examples=examples(60))
@given(
    text=st.text(max_size=300), ending=st.sampled_from([*ENDINGS, "", ".lua", ".hs", ".sql", ".sh"])
)
def test_any_text_is_read(text: str, ending: str) -> None:
    check(parse(f"a{ending}", text), text)


@settings(max_examples=examples(150))
@given(fixture=st.sampled_from(FIXTURES), seed=st.integers(0, 2**32))
def test_fixtures_that_were_cut_and_mixed_are_read(fixture: Path, seed: int) -> None:
    text = mixed(fixture.read_text(), random.Random(seed))
    check(parse(fixture.name, text), text)
    check(parse_by_lines(parse(fixture.name, "").language, text), text)


SIGNS = (
    "\0",
    "\r",
    "\ud800",
    "𝔘",
    "{",
    "}",
    "(",
    '"',
    "'",
    "`",
    "/*",
    "*/",
    "#",
    "\n",
    "\\",
    "<<~A",
    'R"(',
    "${",
)


def mixed(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(text) + 1)
        stop = min(len(text), start + chance.choice((1, 5, 50, 500)))
        sign = chance.choice(SIGNS)
        text = chance.choice(
            (
                text[:start],
                text[start:],
                text[:start] + text[stop:],
                text[:start] + sign * chance.choice((1, 3, 100)) + text[start:],
                text[:start] + text[start:stop] * chance.choice((2, 20)) + text[stop:],
                text[stop:] + text[:stop],
            )
        )
    return text


def test_names_and_signatures_without_end_are_cut() -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnop", k=5000))
    text = (
        f"def {long}(): pass\ndef f({', '.join(f'argument_{n}' for n in range(100))}): pass\nA = "
        f"1\nAB = '{long}'\n"
    )
    found = parse("a.py", text).definitions
    assert [one.name for one in found] == ["f", "AB"]
    assert [len(one.signature) for one in found] == [200, 200]
    assert found[0].signature.endswith("…")


# Without grammars


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which no grammar is installed."""
    for grammar in GRAMMARS.values():
        monkeypatch.setitem(sys.modules, grammar.module, None)
    grammars._load_grammar.cache_clear()
    yield
    grammars._load_grammar.cache_clear()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
@pytest.mark.usefixtures("no_wheels")
def test_much_is_found_by_lines_where_a_grammar_is_missing(fixture: Path) -> None:
    text = fixture.read_text()
    parsed = parse(fixture.name, text)
    check(parsed, text)
    known = {
        line.split(" | ")[0].split(" ", 1)[1].rpartition(".")[2]
        for line in golden(fixture).read_text().split("\n")[1:-2]
    }
    found = {one.name for one in parsed.definitions}
    assert len(found & known) >= 0.35 * len(known), known - found


# Which language

LANGUAGES = {
    ("a.py", ""): "python",
    ("a.PY", ""): "python",
    ("d.py/a", ""): "",
    ("Rakefile", ""): "ruby",
    ("run", "#!/usr/bin/env python3\n"): "python",
    ("run", "#!/usr/bin/env -S node --harmony\n"): "javascript",
    ("run", "#!/bin/bash -e\n"): "shell",
    ("run", "#!/usr/bin/ruby2.7 -w\n"): "ruby",
    ("run", "#! /usr/bin/env php\n"): "php",
    ("run", "hello"): "",
    (".bashrc", ""): "",
    ("a.h", "int f(void);\n"): "c",
    ("a.h", "namespace a { class B; }\n"): "cpp",
    ("a.h", "@interface A : NSObject\n@end\n"): "objective-c",
    ("a.ts", "const a = 1;"): "typescript",
    ("de.ts", '<?xml version="1.0"?><!DOCTYPE TS><TS/>'): "",
    ("a.inc", "<?php function f() {}"): "php",
    ("a.inc", "define X"): "",
    ("readme.md", "# class A"): "",
    ("a.lua", ""): "lua",
    ("CMakeLists.txt", ""): "cmake",
    ("notes.txt", ""): "",
    ("a.unknown", "#!/bin/sh\n"): "",
}


@pytest.mark.parametrize("case", LANGUAGES, ids=str)
def test_the_language_is_told_by_the_name_or_the_first_line(case: tuple[str, str]) -> None:
    assert language_of(*case) == LANGUAGES[case]


def test_a_text_of_no_language_defines_nothing() -> None:
    assert parse("readme.md", "# class A\ndef f(): pass\n") == ParsedFile()


def test_types_of_flow_are_read() -> None:
    assert names(parse("a.js", "// @flow\ntype Id = string;\nfunction f(id: Id): void {}\n")) == [
        "type Id",
        "function f",
    ]


def test_the_scripts_of_a_page_keep_their_lines() -> None:
    [one] = parse("a.svelte", "<h1>\n</h1>\n<script>\n  function f() {}\n</script>\n").definitions
    assert (one.path, one.start) == ("f", 4)
    assert names(parse("a.astro", "---\nconst f = () => 1;\n---\n<a/>\n")) == ["function f"]


# Read by lines

OTHERS = {
    "a.sh": ("main() {\n  echo\n}\nfunction help {\n  :\n}\n", ["function main", "function help"]),
    "a.lua": (
        "local M = {}\nfunction M.f(a)\nend\nM.g = function() end\nlocal function h() end\n",
        ["method M.f", "method M.g", "function h"],
    ),
    "a.dart": (
        "class A extends B {\n  int f(int a) {\n    return 1;\n  }\n}\nvoid main() {\n}\n",
        ["class A", "method A.f", "function main"],
    ),
    "a.hs": (
        "module A.B where\ndata T = X\nf :: Int -> Int\nf 0 = 1\nf n = n\ng :: Int\ng = 2\n",
        ["module A.B", "type T", "function f", "function g"],
    ),
    "a.r": ("f <- function(x) {\n  x\n}\n", ["function f"]),
    "a.jl": (
        "module M\nstruct P\n  x\nend\nfunction f(x)\n  x\nend\nend\n",
        ["module M", "class P", "function f"],
    ),
    "a.clj": (
        "(ns a.b)\n(defn f [x]\n  x)\n(defmacro m [x] x)\n",
        ["module a.b", "function f", "macro m"],
    ),
    "a.erl": ("-module(a).\nf(0) -> 1;\nf(N) -> N.\ng(X) ->\n  X.\n", ["function f", "function g"]),
    "a.zig": (
        "pub const A = struct {\n    pub fn f(self: A) void {}\n};\n",
        ["class A", "method A.f"],
    ),
    "a.sql": (
        "CREATE TABLE IF NOT EXISTS shop.orders (\n  id int\n);\ncreate or replace function "
        "f() returns int\n",
        ["class shop.orders", "function f"],
    ),
    "a.proto": (
        "message A {\n  message B {\n  }\n}\nservice S {\n  rpc Get (A) returns (B);\n}\n",
        ["class A", "class A.B", "interface S", "method S.Get"],
    ),
    "a.ps1": ("function Get-Thing {\n}\n", ["function Get-Thing"]),
    "a.m": ("@interface A : NSObject\n- (void)run:(int)x;\n@end\n", ["class A", "function run"]),
    "a.sol": ("contract A {\n    function f() public {}\n}\n", ["class A", "method A.f"]),
    "a.tf": (
        'resource "aws_s3" "logs" {\n}\nvariable "region" {\n}\n',
        ["class logs", "constant region"],
    ),
    "a.pl": ("package A::B;\nsub f {\n}\n", ["module A.B", "function f"]),
    "a.nim": ("proc f(x: int): int =\n  x\n", ["function f"]),
    "a.groovy": ("class A {\n    def f(x) {\n    }\n}\n", ["class A", "method A.f"]),
    "a.el": ("(defun my-f (x)\n  x)\n(defmacro my-m (x) x)\n", ["function my-f", "macro my-m"]),
    "a.ml": (
        "module M = struct\n  let f x = x\nend\ntype t = int\n",
        ["module M", "function M.f", "type t"],
    ),
    "a.f90": (
        "module m\ncontains\nsubroutine s(x)\nend subroutine\nend module\n",
        ["module m", "function s"],
    ),
    "a.pyx": (
        "cdef class A:\n    cpdef int f(self, int x):\n        return x\n",
        ["class A", "method A.f"],
    ),
    "a.gd": ("class_name A\nfunc f(x):\n\tpass\n", ["class A", "function f"]),
    "a.cmake": ("function(f x)\nendfunction()\n", ["function f"]),
    "a.v": ("module top(input a);\nendmodule\n", ["module top"]),
    "a.coffee": (
        "class A\n  f: (x) ->\n    x\ng = (x) -> x\n",
        ["class A", "method A.f", "function g"],
    ),
    "a.graphql": ("type A {\n  id: ID\n}\nenum E {\n}\n", ["class A", "type E"]),
}


@pytest.mark.parametrize("path", OTHERS)
def test_languages_without_a_grammar_are_read_by_their_lines(path: str) -> None:
    text, expected = OTHERS[path]
    parsed = parse(path, text)
    check(parsed, text)
    assert names(parsed)[: len(expected)] == expected


def test_lines_say_where_a_definition_ends() -> None:
    text = (
        "class A {\n  int f(int a) {\n    g(a);\n  }\n\n  int h(int b)\n  {\n    return 2;\n  "
        "}\n}\n\nvoid main() {\n}\n"
    )
    assert [(one.path, one.start, one.stop) for one in parse("a.dart", text).definitions] == [
        ("A", 1, 10),
        ("A.f", 2, 4),
        ("A.h", 6, 9),
        ("main", 12, 13),
    ]


def test_no_pattern_takes_long_for_a_line_that_almost_fits() -> None:
    lines = [
        "a " * 240 + "(",
        "public " * 70 + "(",
        "f(" * 200,
        "<" * 499,
        "x.y::" * 99,
        " " * 499,
        "type " + "a" * 490,
        "(" * 499,
    ]
    start = time.process_time()
    for language in forms():
        for line in lines:
            check(parse_by_lines(language, "\n".join([line] * 4)), "\n" * 4)
    assert time.process_time() - start < 10
