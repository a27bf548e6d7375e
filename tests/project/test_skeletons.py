"""Go is read the same with its bodies and without them."""

from pathlib import Path

import pytest

from loom.project.parse import grammars, skeletons
from loom.project.parse.grammars import parse_by_grammar
from loom.project.parse.installed import HAS_GRAMMARS
from loom.project.parse.skeletons import skeleton_of

pytestmark = pytest.mark.skipif(not HAS_GRAMMARS, reason="grammars are not installed")

BODIES = {
    "a body that defines nothing": "func run(a int) error {\n\tx := 1\n\n\treturn call(a, x)\n}\n",
    "a function in a body": (
        "func run() {\n\ta, b := 1, 2\n\tstop := func(code int) {\n\t\texit(code)\n\t}\n"
        '\tshort := func() int { return 1 }\n\tswitch a {\n\tcase 1:\n\t\tcall("{", b)\n'
        "\tdefault:\n\t\tstop(2)\n\t}\n\tgo func() {\n\t\tinner := func() {}\n\t\tinner()\n\t}()\n"
        "\tcall(a,\n\t\tb,\n\t\tshort)\n}\n"
    ),
    "types in a body": (
        "func run() {\n\ttype row struct {\n\t\ta int\n\t\tb string\n\t}\n\tx := 1\n\ttype (\n"
        "\t\tA int\n\t\tB string\n\t)\n\tvar s interface {\n\t\tStop() error\n\t}\n}\n"
    ),
    "a type after a bracket": "func run() {\n\tif true { type T int }\n}\n",
    "a declaration over several lines": (
        "func run(\n\ta int,\n\tb struct {\n\t\tc int\n\t},\n) (\n\terr error,\n) {\n\tcall()\n}\n"
    ),
    "a struct in a declaration": (
        "func run(t T, steps []struct {\n\tname string\n}) {\n\tcall()\n}\n\n"
        "func table() []struct {\n\tname string\n} {\n\treturn nil\n}\n\n"
        "func both(a struct {\n\tname string\n}, b struct {\n\tname string\n}) int {\n"
        "\treturn 1\n}\n"
    ),
    "strings that look like code": (
        "const page = `\nfunc inside() {\n\tx := 1\n}\n`\n\n"
        'func run() {\n\tx := `\n}\n\nfunc no() {\n\tcall()\n}\n`\n\tcall("}", x)\n}\n'
    ),
    "comments that look like code": (
        "/*\nfunc old() {\n\tx := 1\n}\n*/\n// run runs.\nfunc run() { // {\n\tcall() /*\n}\n"
        "func no() {\n\t*/\n\tcall()\n}\n"
    ),
    "tables": (
        'var tests = []struct {\n\tname string `json:"a"`\n}{\n\t{"a"},\n\t{name: "b"},\n}\n\n'
        "var handler = func(a int) {\n\tcall(a)\n}\n\n"
        "var _ = (interface {\n\tGet() int\n})(nil)\n\n"
        "const (\n\tA = iota\n\tB\n)\n"
    ),
    "types": (
        'import (\n\t"fmt"\n\t"os"\n)\n\n'
        'type T[K any] struct {\n\t// a comment\n\ta K `json:"a"`\n}\n\n'
        "type Get interface {\n\tOne() int\n\tTwo(a int) (b int)\n}\n\n"
        "type Holds struct {\n\tinner interface {\n\t\tThree()\n\t}\n}\n\n"
        "func (t *T[K]) Run() {\n\tt.call()\n}\n"
    ),
    "what no formatter wrote": (
        "func run() {\n  if x {\n}\n}\n  func next() {\n  call() }\nfunc last() { call() }\n"
    ),
    "what is broken": "func run() {\n\tx := (\n}\n\nfunc next() {\n\tcall()\n}\n",
}


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeletons, "MIN_BYTES", 0)


@pytest.mark.parametrize("name", BODIES)
def test_go_without_its_bodies_defines_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"package main\n\n{BODIES[name]}"
    short = parse_by_grammar("go", "go", text, False)
    monkeypatch.setattr(grammars, "skeleton_of", lambda _, source: source)
    assert short == parse_by_grammar("go", "go", text, False)


def test_all_bodies_in_one_file_define_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [body for name, body in BODIES.items() if not name.startswith("what")]
    text = "package main\n\n" + "\n".join(kept)
    short = parse_by_grammar("go", "go", text, False)
    monkeypatch.setattr(grammars, "skeleton_of", lambda _, source: source)
    assert short == parse_by_grammar("go", "go", text, False)


@pytest.mark.parametrize("name", BODIES)
def test_a_skeleton_has_the_lines_of_its_text(name: str) -> None:
    source = BODIES[name].encode()
    lines, kept = source.split(b"\n"), skeleton_of("go", source).split(b"\n")
    assert len(kept) == len(lines)
    assert all(short in (line, b"") for short, line in zip(kept, lines, strict=True))


def test_a_body_that_defines_nothing_is_left_out() -> None:
    source = b"func run(a int) error {\n\tx := 1\n\n\treturn call(a, x)\n}\n"
    assert skeleton_of("go", source) == b"func run(a int) error {\n\n\n\n}\n"


def test_of_a_body_with_a_function_only_whole_statements_are_left_out() -> None:
    source = b"func run() {\n\ta := 1\n\tf := func() {\n\t\tcall(\n\t\t\ta)\n\t}\n\tf()\n}\n"
    wanted = b"func run() {\n\n\tf := func() {\n\t\tcall(\n\t\t\ta)\n\t}\n\n}\n"
    assert skeleton_of("go", source) == wanted


def test_other_languages_and_other_ends_of_lines_are_left_as_they_are() -> None:
    source = b"func run() {\n\tcall()\n}\n"
    assert skeleton_of("rust", source) is source
    ended = source.replace(b"\n", b"\r\n")
    assert skeleton_of("go", ended) is ended


def test_the_go_of_the_fixtures_defines_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.go")]
    assert texts
    short = [parse_by_grammar("go", "go", text, False) for text in texts]
    monkeypatch.setattr(grammars, "skeleton_of", lambda _, source: source)
    assert short == [parse_by_grammar("go", "go", text, False) for text in texts]
