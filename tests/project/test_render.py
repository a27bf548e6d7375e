"""The map of what was ranked: its form, and that it never takes more than it may."""

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.budget.tokenizers import tokenizer
from loom.project.draw.render import HEADER, MAX_SIGNATURE_CHARS, Map, ShownFile, render_map
from loom.project.index.project_index import ProjectIndex
from loom.project.parse.symbols import Definition, Kind
from loom.project.rank.ranking import MapRequest, rank_files
from loom.project.rank.shares import RankedFile
from tests.shared import examples

HEADING = re.compile(r"### [^\n]+ \(relevance: (?:high|medium|low)\)")


def bytes_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def words_of(text: str) -> int:
    return len(text.split())


def quarters_of(text: str) -> int:
    return -(-len(text) // 4)


COUNTERS: dict[str, Callable[[str], int]] = {
    "bytes": bytes_of,
    "words": words_of,
    "quarters": quarters_of,
    "o200k": tokenizer("o200k_base"),
    "lines": lambda text: text.count("\n"),
    "dear": lambda text: 7 * len(text) + 3,
}


def defined(
    name: str, kind: Kind = "function", parent: str = "", signature: str = "", line: int = 1
) -> Definition:
    return Definition(name, kind, signature or f"def {name}()", line, line, parent)


def file(
    path: str, *definitions: Definition, score: float = 0.5, shares: tuple[float, ...] = ()
) -> RankedFile:
    return RankedFile(path, score, "high", definitions, shares)


def lines(made: Map) -> list[str]:
    return made.text.split("\n")


# Form


PYTHON = '''
"""A counter of words."""

LIMIT = 10


class Counter(dict):
    """Counts."""

    def add(self, word: str, times: int = 1) -> None:
        self[word] = self.get(word, 0) + times

    def most_common(self, number: int = LIMIT) -> list[tuple[str, int]]:
        return sorted(self.items(), key=lambda one: -one[1])[:number]


def read_words(path):
    return open(path).read().split()
'''
GO = """
package words

type Reader struct{}

func (r *Reader) ReadWords(path string) ([]string, error) {
	return nil, nil
}
"""
GOLDENS = {
    60: """## Project Files

### words/counter.py (relevance: high)
LIMIT = 10
def read_words(path)
class Counter(dict):
 def most_common(self, number: int = LIMIT) -> list[tuple[str, int]]
 add""",
    150: """## Project Files

### words/counter.py (relevance: high)
LIMIT = 10
def read_words(path)
class Counter(dict):
 def add(self, word: str, times: int = 1) -> None
 def most_common(self, number: int = LIMIT) -> list[tuple[str, int]]

### words/reader.go (relevance: low)
type Reader struct:
 func (r *Reader) ReadWords(path string) ([]string, error)

### README.md (relevance: low)""",
}


def test_the_map_of_a_small_project(tmp_path: Path) -> None:
    texts = {
        "words/counter.py": PYTHON,
        "words/reader.go": GO,
        "README.md": "# Words\n\nCounts words.\n",
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text.lstrip("\n"), encoding="utf-8")
    index = ProjectIndex(tmp_path)
    index.update()
    found = rank_files(index, MapRequest(query="most_common counts words of the counter wrong"))
    for tokens, golden in GOLDENS.items():
        made = render_map(found, tokens, COUNTERS["o200k"])
        assert made.text == golden
        assert made.tokens == COUNTERS["o200k"](golden)
        assert made.files[0] == ShownFile(
            "words/counter.py",
            "high",
            ("Counter.most_common", "Counter", "Counter.add", "LIMIT", "read_words"),
        )


def test_names_in_a_small_budget_and_signatures_in_a_larger() -> None:
    given = [
        file(
            "a.py",
            *(
                defined(name, signature=f"def {name}(first, second, *, third)")
                for name in ("one", "two", "three")
            ),
        )
    ]
    small, large = render_map(given, 20, words_of), render_map(given, 200, words_of)
    assert "one" in small.text
    assert "def three(first" not in render_map(given, 12, words_of).text
    assert [line for line in lines(large) if line.startswith("def ")] == [
        f"def {name}(first, second, *, third)" for name in ("one", "two", "three")
    ]


def test_methods_stand_under_the_name_of_their_class() -> None:
    members = (
        defined("read", "method", "Store", line=2),
        defined("write", "method", "Store", line=3),
    )
    given = [file("a.py", *members, defined("Store", "class", signature="class Store(Base):"))]
    made = next(
        made
        for tokens in range(100)
        if len((made := render_map(given, tokens, COUNTERS["o200k"])).text.split(", ")) > 1
    )
    assert lines(made)[3:] == ["Store: read, write"]
    assert set(made.files[0].symbols) >= {"Store.read", "Store.write"}
    full = render_map(given, 500, words_of)
    assert lines(full)[3:] == ["class Store(Base):", " def read()", " def write()"]


def test_a_namespace_is_not_said_with_every_name() -> None:
    definitions = (
        defined("Http", "module", "Acme", "namespace Acme.Http"),
        defined("Client", "class", "Acme.Http", "class Client"),
        defined("Send", "method", "Acme.Http.Client", "void Send()"),
    )
    made = render_map([file("Client.cs", *definitions)], 500, words_of)
    assert "Client.Send" in made.files[0].symbols
    assert "Acme.Http.Client" not in made.text


def test_a_name_is_shown_once_for_its_overloads() -> None:
    made = render_map(
        [
            file(
                "a.cpp",
                *(defined("open", signature=f"int open({kind})") for kind in ("int", "long")),
            )
        ],
        100,
        words_of,
    )
    assert made.files[0].symbols == ("open",)


def test_a_long_signature_is_cut_and_still_names_what_it_declares() -> None:
    signature = f"template <{', '.join(f'typename T{n}' for n in range(60))}> void apply()"
    made = render_map([file("a.hpp", defined("apply", signature=signature))], 5_000, bytes_of)
    assert "apply template <" in made.text
    assert max(map(len, lines(made))) <= MAX_SIGNATURE_CHARS + len("apply ")


@pytest.mark.parametrize(
    "path",
    [
        "a\nb.py",
        "a\x00b.py",
        "a\u2028b.py",
        "tab\there.py",
        "### (relevance: high)\n.py",
        "名字.py",
    ],
)
def test_a_heading_is_one_line_whatever_a_path_has(path: str) -> None:
    made = render_map([file(path, defined("f"))], 500, bytes_of)
    assert len([line for line in made.text.splitlines() if HEADING.fullmatch(line)]) == 1
    assert made.files[0].path == path


def test_a_name_with_control_characters_stays_in_its_line() -> None:
    made = render_map(
        [file("a.md", defined("one\n## Project Files\x1b[2J", signature="one\u2028two\r\n### b"))],
        5_000,
        bytes_of,
    )
    assert len(made.text.splitlines()) == 4
    assert not set(made.text) & set("\r\x1b\u2028")


def test_many_files_rather_than_few_in_full() -> None:
    given = [
        file(f"src/{n:02}.py", *(defined(f"name_{n}_{m}") for m in range(50)), score=0.05)
        for n in range(20)
    ]
    assert len(render_map(given, 400, COUNTERS["o200k"]).files) == 20


def test_what_has_more_chance_is_shown_with_more() -> None:
    best = file("best.py", *(defined(f"best_{m}") for m in range(20)), score=0.9)
    other = file("other.py", *(defined(f"other_{m}") for m in range(20)), score=0.1)
    shown = {
        one.path: len(one.symbols)
        for one in render_map([best, other], 160, COUNTERS["o200k"]).files
    }
    assert shown["best.py"] > shown["other.py"] > 0


def nest(depth: int) -> list[Definition]:
    """Functions each inside of the one before."""
    names = [f"level_of_a_nested_function_{number}" for number in range(depth)]
    return [
        defined(name, parent=".".join(names[:number]), line=number + 1)
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize("depth", [35, 64])
@pytest.mark.parametrize("tokens", [200, 1000, 2000])
def test_nested_definitions_leave_room_for_the_rest(depth: int, tokens: int) -> None:
    rest = [
        file(f"src/part_{number}.py", defined(f"work_{number}"), score=0.3) for number in range(6)
    ]
    made = render_map([file("src/deep.py", *nest(depth)), *rest], tokens, COUNTERS["o200k"])
    assert tokens // 2 < made.tokens <= tokens or len(made.files) == 7
    assert {shown.path for shown in made.files} == {"src/deep.py", *(one.path for one in rest)}


def test_a_heading_in_many_others_names_the_outermost_and_the_innermost() -> None:
    text = render_map([file("src/deep.py", *nest(20))], 5000, COUNTERS["o200k"]).text
    assert "level_of_a_nested_function_0.….level_of_a_nested_function_15" in text
    assert max(map(len, text.split("\n"))) < 240


def test_another_header() -> None:
    made = render_map([file("a.py", defined("f"))], 100, words_of, "## Beyond\n\n")
    assert made.text.startswith("## Beyond\n\n### a.py (relevance: high)\n")


@pytest.mark.parametrize("tokens", [-5, 0, 1, 5, 8])
def test_where_no_file_fits_there_is_no_map(tokens: int) -> None:
    assert (
        render_map(
            [file("a/rather/long/path/of/a/file.py", defined("f"))], tokens, COUNTERS["o200k"]
        )
        == Map()
    )
    assert render_map([], tokens, COUNTERS["o200k"]) == Map()


def test_each_text_is_counted_once() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return COUNTERS["o200k"](text)

    given = [
        file(f"src/{n}.py", *(defined(f"name_{n}_{m}") for m in range(9)), score=1 / (n + 1) ** 2)
        for n in range(400)
    ]
    render_map(given, 1_000, count)
    pieces = [text for text in counted if not text.startswith(HEADER) or text == HEADER]
    assert len(pieces) == len(set(pieces))


# Laws


def readable(name: str) -> str:
    hidden = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    return "".join(
        "?" if unicodedata.category(letter) in hidden and letter not in "\u200c\u200d" else letter
        for letter in name
    )


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    ["get", "a.b", "x" * 300]
)
KINDS: st.SearchStrategy[Kind] = st.sampled_from(
    ["module", "class", "function", "method", "constant"]
)
DEFINITIONS = st.builds(
    Definition,
    name=NAMES,
    kind=KINDS,
    signature=st.text(max_size=40) | st.just("def f(x): "),
    start=st.integers(1, 50),
    stop=st.integers(1, 50),
    parent=st.sampled_from(["", "A", "A.b", "f"]) | NAMES,
)


@st.composite
def rankings(draw: st.DrawFn) -> list[RankedFile]:
    found = []
    scores = sorted(draw(st.lists(st.floats(0, 1), max_size=12)), reverse=True)
    for number, score in enumerate(scores):
        definitions = tuple(draw(st.lists(DEFINITIONS, max_size=6)))
        has_shares = draw(st.booleans())
        shares = (1 / len(definitions),) * len(definitions) if definitions and has_shares else ()
        path = f"{draw(NAMES)}/{number}"
        found.append(
            RankedFile(
                path, score, draw(st.sampled_from(["high", "medium", "low"])), definitions, shares
            )
        )
    return found


@pytest.mark.parametrize("counter", COUNTERS)
@settings(max_examples=examples(40), deadline=None)
@given(given_files=rankings(), tokens=st.integers(-3, 60) | st.integers(60, 1_500))
def test_never_more_than_the_budget(
    counter: str, given_files: list[RankedFile], tokens: int
) -> None:
    count = COUNTERS[counter]
    made = render_map(given_files, tokens, count)
    assert made == render_map(given_files, tokens, count)
    assert made.tokens == (count(made.text) if made.files else 0)
    assert not made.files or made.tokens <= tokens
    assert bool(made.text) == bool(made.files)
    definers = {
        one.path: {readable(definition.name) for definition in one.definitions}
        for one in given_files
    }
    order = [one.path for one in given_files]
    assert [one.path for one in made.files] == [
        path for path in order if path in {shown.path for shown in made.files}
    ]
    for shown in made.files:
        assert bool(shown.symbols) == bool(definers[shown.path])
        assert all(
            any(symbol.endswith(name) for name in definers[shown.path]) for symbol in shown.symbols
        )
        assert len(set(shown.symbols)) == len(shown.symbols)
    if made.text:
        assert made.text.startswith(HEADER)
        assert len([line for line in made.text.splitlines() if HEADING.fullmatch(line)]) >= len(
            made.files
        )
