"""Tools' answers made smaller by what they are."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom.budget.counting import counter_for
from loom.budget.tokenizers import tokenizer
from loom.context.handles import Archive
from loom.context.shorten.condense import condense
from loom.context.shorten.cut import cut_marker, fill, from_ends, shrink_text
from loom.context.shorten.kinds import Kind, kind_of
from loom.context.shorten.shrink import shrink_messages
from loom.conversation.handles import SAMPLE as HANDLE
from loom.conversation.message import Message, Text, ToolResult
from tests.shared import AGENTS, examples, needs_shared
from tests.strategies import SCRIPTS

o200k = tokenizer("o200k_base")


def letters(text: str) -> int:
    """Four characters to a token, so that a reader can check what fits."""
    return -(-len(text) // 4)


LOG = """\
2026-11-15 10:00:00 INFO starting worker 1
2026-11-15 10:00:01 INFO starting worker 2
2026-11-15 10:00:02 INFO starting worker 3
2026-11-15 10:00:03 INFO listening on port 8080
2026-11-15 10:00:04 INFO heartbeat ok
2026-11-15 10:00:05 INFO heartbeat ok
2026-11-15 10:00:06 INFO heartbeat ok
2026-11-15 10:00:07 INFO request 7f3a served
2026-11-15 10:00:08 ERROR cannot reach db-7.internal:5432
Traceback (most recent call last):
  File "/srv/app/db.py", line 31, in connect
    raise ConnectionRefusedError(111)
ConnectionRefusedError: [Errno 111] Connection refused
2026-11-15 10:00:09 INFO retrying in 5 s
2026-11-15 10:00:14 INFO heartbeat ok
2026-11-15 10:00:15 INFO heartbeat ok
2026-11-15 10:00:16 WARNING disk at 91 %
2026-11-15 10:00:17 INFO heartbeat ok
2026-11-15 10:00:18 INFO shutting down
2026-11-15 10:00:19 INFO bye
"""
DIFF = """\
diff --git a/src/app.py b/src/app.py
index 20edef5..5857437 100644
--- a/src/app.py
+++ b/src/app.py
@@ -1,9 +1,9 @@ import sys
 import os
 import sys

 def main():
-    print("hello")
+    print("hello, world")
     return 0
     # nothing follows
     # but remarks
@@ -40,7 +40,8 @@ def tail():
     first = 1
     second = 2
     third = 3
-    return first
+    total = first + second
+    return total
     # the end
     # of the file
"""
PYTEST = """\
============================= test session starts ==============================
platform linux -- Python 3.12.1, pytest-8.3.4
collected 8 items

tests/test_a.py::test_one PASSED                                         [ 12%]
tests/test_a.py::test_two PASSED                                         [ 25%]
tests/test_a.py::test_three PASSED                                       [ 37%]
tests/test_a.py::test_four PASSED                                        [ 50%]
tests/test_b.py::test_total FAILED                                       [ 62%]
tests/test_b.py::test_five PASSED                                        [ 75%]
tests/test_b.py::test_six PASSED                                         [ 87%]
tests/test_b.py::test_seven PASSED                                       [100%]

=================================== FAILURES ===================================
__________________________________ test_total __________________________________

    def test_total() -> None:
        cart = Cart()
        cart.add("apple", 3)
>       assert cart.total() == 3
E       AssertionError: assert 4 == 3

tests/test_b.py:9: AssertionError
=========================== short test summary info ============================
FAILED tests/test_b.py::test_total - AssertionError: assert 4 == 3
========================= 1 failed, 7 passed in 0.12s ==========================
"""
CODE = '''\
"""Carts and what is in them."""

import json
from decimal import Decimal

LIMIT = 100


class Cart:
    """What somebody wants to buy."""

    def __init__(self) -> None:
        self.items = {}
        self.closed = False

    def add(self, name: str, number: int) -> None:
        """Put something in."""
        if number > LIMIT:
            raise ValueError(name)
        self.items[name] = number


def total(cart: Cart) -> Decimal:
    # Sum of all.
    result = Decimal(0)
    for name, number in cart.items.items():
        result += number
    return result


def main() -> None:
    print(json.dumps({}))
'''
PAGE = f"""\
<!DOCTYPE html>
<html><head><title>Loom &amp; friends</title><style>p {{ color: red }}</style>
<script>var tracking = "very long";</script></head>
<body><nav><a href="/home">Home</a> <a href="#top">Top</a></nav>
<h1>Weaving</h1><p>A loom weaves <b>threads</b> into cloth.</p>
<svg><path d="M0 0"/></svg><!-- nothing to see -->
<h2>Parts</h2><ul><li>warp</li><li><a class="x" href="/shuttle"><span>shuttle</span></a></li></ul>
{"".join(f"<p>Paragraph number {n} of the page.</p>" for n in range(20))}
<h2>End</h2><p>That is all.</p></body></html>
"""
FIELDS = {
    "request": "r-17",
    "items": [
        {"id": n, "name": f"item {n}", "note": f"all about the item number {n}"} for n in range(50)
    ],
    "body": "long text " * 60,
    "error": "quota exceeded",
}
ROWS = "\n".join(f"{n},person {n},town {n % 7}" for n in range(40))
NUMBERED = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(CODE.splitlines(), 1))


# ── one example of each kind ─────────────────────────────────────────────────


def test_a_log_keeps_errors_and_what_explains_them_and_tells_like_lines_once() -> None:
    assert condense(LOG, 150, letters, HANDLE).splitlines() == [
        "2026-11-15 10:00:00 INFO starting worker 1 (× 3 alike)",
        "2026-11-15 10:00:03 INFO listening on port 8080",
        "… 3 lines",
        "2026-11-15 10:00:07 INFO request 7f3a served",
        "2026-11-15 10:00:08 ERROR cannot reach db-7.internal:5432",
        "Traceback (most recent call last):",
        '  File "/srv/app/db.py", line 31, in connect',
        "    raise ConnectionRefusedError(111)",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "… 3 lines",
        "2026-11-15 10:00:16 WARNING disk at 91 %",
        "… 1 line",
        "2026-11-15 10:00:18 INFO shutting down",
        "2026-11-15 10:00:19 INFO bye",
        f"[… 355 characters left out; recall {HANDLE} …]",
    ]


def test_of_json_the_telling_fields_the_first_items_and_the_ends_of_texts_are_kept() -> None:
    *written, marker = condense(json.dumps(FIELDS), 120, letters, HANDLE).splitlines()
    assert json.loads("\n".join(written)) == {
        "request": "r-17",
        "items": [*FIELDS["items"][:3], "… 47 more"],
        "body": f"{FIELDS['body'][:72]}… 480 characters …{FIELDS['body'][-48:]}",
        "error": "quota exceeded",
    }
    assert marker == f"[… 3,765 characters left out; recall {HANDLE} …]"


def test_json_is_written_with_the_blanks_it_had() -> None:
    made = condense(json.dumps(FIELDS, indent=2), 100, letters, HANDLE)
    assert made.splitlines() == [
        "{",
        '  "request": "r-17",',
        '  "items": [',
        "    {",
        '      "id": 0,',
        '      "name": "item 0",',
        '      "note": "all about the item number 0"',
        "    },",
        "    {",
        '      "id": 1,',
        '      "name": "item 1",',
        '      "note": "all about the item number 1"',
        "    },",
        '    "… 48 more"',
        "  ],",
        '  "…": "1 more",',
        '  "error": "quota exceeded"',
        "}",
        f"[… 5,308 characters left out; recall {HANDLE} …]",
    ]


def test_of_json_lines_the_long_ones_are_pruned_and_the_like_ones_told_once() -> None:
    rows = [
        {
            "level": "error" if n == 30 else "info",
            "n": n,
            "ids": list(range(200)) if n == 30 else [],
        }
        for n in range(60)
    ]
    assert condense("\n".join(map(json.dumps, rows)), 100, letters, HANDLE).splitlines() == [
        '{"level": "info", "n": 0, "ids": []}',
        '{"level": "info", "n": 1, "ids": []} (× 29 alike)',
        '{"level": "error", "n": 30, "ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, "… 187 more", 196, '
        "197, 198, 199]}",
        '{"level": "info", "n": 31, "ids": []} (× 27 alike)',
        '{"level": "info", "n": 58, "ids": []}',
        '{"level": "info", "n": 59, "ids": []}',
        f"[… 2,869 characters left out; recall {HANDLE} …]",
    ]


@pytest.mark.parametrize(
    ("tokens", "table", "expected"),
    [
        (
            40,
            f"id,name,city\n{ROWS}\n",
            "id,name,city\n0,person 0,town 0\n1,person 1,town 1\n… 36 rows\n38,person 38,town "
            "3\n39,person 39,town 4",
        ),
        (
            42,
            "Sizes:\n\n| name | size |\n|---|---|\n"
            + "".join(f"| f_{n} | {n}00 |\n" for n in range(40)),
            "Sizes:\n\n| name | size |\n|---|---|\n| f_0 | 000 |\n| f_1 | 100 |\n… 36 rows\n| "
            "f_38 | 3800 |\n| f_39 | 3900 |",
        ),
        (
            50,
            " id | name  | state\n----+-------+-------\n"
            + "".join(f" {n:2} | job_{n:2}| done\n" for n in range(40))
            + "(40 rows)\n",
            " id | name  | state\n----+-------+-------\n  0 | job_ 0| done\n  1 | job_ 1| "
            "done\n  2 | job_ 2| done\n… 36 rows\n"
            " 39 | job_39| done\n(40 rows)",
        ),
        (
            60,
            "  PID TTY          TIME CMD\n"
            + "".join(f" {n + 1000} pts/0    00:00:0{n % 9} job_{n}\n" for n in range(40)),
            "  PID TTY          TIME CMD\n 1000 pts/0    00:00:00 job_0\n 1001 pts/0    "
            "00:00:01 job_1\n… 36 rows\n"
            " 1038 pts/0    00:00:02 job_38\n 1039 pts/0    00:00:03 job_39",
        ),
    ],
    ids=["csv", "markdown", "psql", "ps"],
)
def test_a_table_keeps_its_head_and_rows_from_both_ends(
    tokens: int, table: str, expected: str
) -> None:
    made, marker = condense(table, tokens, letters, HANDLE).rsplit("\n", 1)
    assert made == expected
    assert f"recall {HANDLE}" in marker


def test_a_diff_keeps_heads_then_changes_and_counts_what_is_missing() -> None:
    assert condense(DIFF, 90, letters, HANDLE).splitlines() == [
        "diff --git a/src/app.py b/src/app.py",
        "… 1 line",
        "--- a/src/app.py",
        "+++ b/src/app.py",
        "@@ -1,9 +1,9 @@ import sys",
        " import os",
        "… 3 lines",
        '-    print("hello")',
        '+    print("hello, world")',
        "… 3 lines",
        "@@ -40,7 +40,8 @@ def tail():",
        "… 3 lines",
        "-    return first",
        "+    total = first + second",
        "+    return total",
        "… 2 lines",
        f"[… 192 characters left out; recall {HANDLE} …]",
    ]


def test_of_tests_the_summary_and_what_failed_are_kept_and_what_passed_is_counted() -> None:
    assert condense(PYTEST, 130, letters, HANDLE).splitlines() == [
        "… 8 lines (4 passed)",
        "tests/test_b.py::test_total FAILED                                       [ 62%]",
        "… 5 lines (3 passed)",
        "__________________________________ test_total __________________________________",
        "… 4 lines",
        ">       assert cart.total() == 3",
        "E       AssertionError: assert 4 == 3",
        "… 3 lines",
        "FAILED tests/test_b.py::test_total - AssertionError: assert 4 == 3",
        "========================= 1 failed, 7 passed in 0.12s ==========================",
        f"[… 986 characters left out; recall {HANDLE} …]",
    ]


def test_of_a_page_what_can_be_seen_is_kept() -> None:
    assert condense(PAGE, 70, letters, HANDLE).splitlines() == [
        "# Loom & friends",
        "[Home](/home) Top",
        "# Weaving",
        "A loom weaves threads into cloth.",
        "## Parts",
        "- warp",
        "- [shuttle](/shuttle)",
        "Paragraph number 0 of the page.",
        "… 18 lines",
        "Paragraph number 19 of the page.",
        "## End",
        "That is all.",
        f"[… 1,039 characters left out; recall {HANDLE} …]",
    ]


def test_code_keeps_what_it_imports_and_defines() -> None:
    assert condense(CODE, 110, letters, HANDLE).splitlines() == [
        '"""Carts and what is in them."""',
        "",
        "import json",
        "from decimal import Decimal",
        "",
        "LIMIT = 100",
        "",
        "",
        "class Cart:",
        '    """What somebody wants to buy."""',
        "",
        "    def __init__(self) -> None:",
        "… 3 lines",
        "    def add(self, name: str, number: int) -> None:",
        '        """Put something in."""',
        "… 5 lines",
        "def total(cart: Cart) -> Decimal:",
        "    # Sum of all.",
        "… 6 lines",
        "def main() -> None:",
        "    print(json.dumps({}))",
        f"[… 264 characters left out; recall {HANDLE} …]",
    ]


def test_code_keeps_the_numbers_of_its_lines() -> None:
    assert condense(NUMBERED, 130, letters, HANDLE).splitlines()[8:] == [
        "     9\tclass Cart:",
        '    10\t    """What somebody wants to buy."""',
        "    11\t",
        "    12\t    def __init__(self) -> None:",
        "… 3 lines",
        "    16\t    def add(self, name: str, number: int) -> None:",
        "… 6 lines",
        "    23\tdef total(cart: Cart) -> Decimal:",
        "… 7 lines",
        "    31\tdef main() -> None:",
        "    32\t    print(json.dumps({}))",
        f"[… 425 characters left out; recall {HANDLE} …]",
    ]


# ── what a text is ───────────────────────────────────────────────────────────

GO = (
    "=== RUN   TestAdd\n    add_test.go:12: got 4, want 3\n--- FAIL: TestAdd "
    "(0.00s)\nFAIL\nFAIL\texample.org/add\t0.004s\n"
)
JEST = (
    "FAIL src/cart.test.js\n  Cart\n    ✓ is empty (2 ms)\n    ✕ adds (5 ms)\n\n  ● adds\n\nTests: "
    " 1 failed, 1 passed, 2 total"
)
CARGO = (
    "running 2 tests\ntest tests::adds ... FAILED\ntest tests::takes ... ok\n\ntest result: "
    "FAILED. 1 passed; 1 failed\n"
)
UNITTEST = (
    "test_add (cart.Cart) ... FAIL\ntest_take (cart.Cart) ... ok\n\nRan 2 tests in "
    "0.001s\n\nFAILED (failures=1)\n"
)
JUNIT = (
    '<?xml version="1.0"?>\n<testsuite tests="2">\n<testcase name="a"/>\n<testcase '
    'name="b"><failure/></testcase>\n</testsuite>\n'
)
BUILD = "\n".join(f"src/a.ts({n},5): error TS2304: Cannot find name 'x{n}'." for n in range(9))
LISTING = "total 8\n" + "\n".join(
    f"-rw-r--r-- 1 me us {n}00 Nov 15 12:17 file_{n}" for n in range(9)
)
TYPESCRIPT = (
    "export class Cart {\n\tprivate items: Map<string, number>;\n\n\tadd(name: string): void "
    "{\n\t\tthis.items.set(name);\n\t}\n}"
)
FRAGMENT = '</li><li><a href="/a">one</a> <span class="x">two</span></li>' * 9
PROSE = (
    "Themes change the colours.\n\n# How\n\nWrite a file:\n\n```json\n{\n}\n```\n\nThen select it "
    "in the settings.\n"
)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("log", LOG),
        ("log", BUILD),
        ("log", "\n".join(f"copied object_{n}.o" for n in range(50))),
        ("log", "\n".join(f"2026-11-15 10:00:0{n} 错误 服务 {n} 失败了" for n in range(9))),
        ("json", json.dumps(FIELDS)),
        ("json", '[1, 2, 3]\n'),
        ("json", '{"a": 1}\n{"a": 2}\n'),
        ("table", f"id,name,city\n{ROWS}"),
        ("table", LISTING),
        ("table", ROWS.replace(",", "\t")),
        ("diff", DIFF),
        ("tests", PYTEST),
        ("tests", GO),
        ("tests", JEST),
        ("tests", CARGO),
        ("tests", UNITTEST),
        ("tests", JUNIT),
        ("html", PAGE),
        ("html", FRAGMENT),
        ("code", CODE),
        ("code", NUMBERED),
        ("code", TYPESCRIPT),
        ("text", PROSE),
        ("text", "[1/3] is a fraction, and [x] a box that is ticked]"),
        ("text", "Вот отчёт за ноябрь.\nВсё в порядке, ошибок нет.\nДо встречи."),
        ("text", "これは普通の文章です。\n" * 3),
        ("text", ""),
        ("text", "\n" * 100_000),
        ("text", "\x00\x01\xff" * 9_000),
        ("text", "\ud800" * 9_000),
    ],
)  # fmt: skip
def test_a_text_is_known_by_its_lines(kind: Kind, text: str) -> None:
    assert kind_of(text) == kind


def test_plain_text_is_cut_to_its_head_and_tail() -> None:
    text = "One sentence follows another, and none is like the last. " * 40
    assert condense(text, 80, letters, HANDLE) == shrink_text(text, 80, letters, HANDLE)


def test_what_only_looks_like_json_is_cut_as_text() -> None:
    text = '{"key": ' + "no value, " * 200 + "}"
    assert kind_of(text) == "json"
    assert condense(text, 80, letters, HANDLE) == shrink_text(text, 80, letters, HANDLE)


# ── what is kept of each kind ────────────────────────────────────────────────


def test_an_error_in_the_middle_of_a_huge_log_is_found() -> None:
    lines = [f"{n:06} INFO request {n} served in {n % 300} ms" for n in range(60_000)]
    lines[31_234] = "031234 ERROR cannot reach db-7.internal:5432"
    made = condense("\n".join(lines), 300, o200k, HANDLE)
    assert lines[31_234] in made
    assert lines[0] in made
    assert lines[-1] in made


def test_no_errors_are_none() -> None:
    lines = [
        f"12:00:0{n % 10} step {word} done" for n, word in enumerate("abcdefghijklmnopqrstuvwxyz")
    ]
    lines[12] = "12:00:02 lint m done: 0 errors, no warnings"
    lines[14] = "12:00:04 link o done: 10 errors"
    made = condense("\n".join(lines), 60, letters, HANDLE)
    assert lines[14] in made
    assert lines[12] not in made


@pytest.mark.parametrize("text", [GO, JEST, CARGO, UNITTEST, JUNIT])
def test_every_runners_failures_outlive_what_passed(text: str) -> None:
    lines = text.splitlines()
    passing = next(
        line for line in lines if any(sign in line for sign in ("RUN", "✓", "... ok", 'name="a"'))
    )
    at = lines.index(passing)
    many = "\n".join((*lines[:at], *[passing] * 300, *lines[at + 1 :]))
    made = condense(many, 90, letters, HANDLE)
    assert "passed)" in made
    assert any(
        sign in made for sign in ("--- FAIL", "✕ adds", "adds ... FAILED", "... FAIL", "<failure")
    )
    assert lines[-1] in made


def test_long_texts_deep_levels_and_many_fields_of_json_give_way() -> None:
    deep: object = "the bottom"
    for level in range(60):
        deep = {f"level {level}": deep}
    value = {
        "id": 7,
        "deep": deep,
        "long": "x" * 5_000,
        "many": {f"field {n}": n for n in range(3_000)},
        "path": "/srv/app",
    }
    written, marker = condense(json.dumps(value), 200, letters, HANDLE).rsplit("\n", 1)
    made = json.loads(written)
    assert made["id"] == 7
    assert made["path"] == "/srv/app"
    assert made.keys() <= value.keys() | {"…"}
    assert HANDLE in marker


def test_escaped_halves_of_a_pair_stay_escaped() -> None:
    text = json.dumps({"name": "\ud800", "items": ["some text"] * 500}).replace(
        "\\ud800", "\\uD800"
    )
    made = condense(text, 60, letters, HANDLE)
    assert made.startswith('{"name": "\\ud800"')
    made.encode()


# ── laws ─────────────────────────────────────────────────────────────────────

PLAIN = [
    LOG,
    DIFF,
    PYTEST,
    CODE,
    NUMBERED,
    BUILD,
    LISTING,
    GO,
    JEST,
    JUNIT,
    PROSE,
    f"id,name,city\n{ROWS}",
]
FRAGMENTS = [*PLAIN, PAGE, FRAGMENT, json.dumps(FIELDS), json.dumps(FIELDS, indent="\t")]
lines_of_all = [line for fragment in FRAGMENTS for line in fragment.splitlines(keepends=True)]
noise = st.sampled_from(
    [
        *SCRIPTS,
        "\x00",
        "\ud800",
        "\r\n",
        "\n\n\n",
        "{",
        "]",
        "<",
        "<script>",
        "\x1b[31m",
        "…",
        "x" * 3_000,
    ]
)
texts = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join),
    st.lists(st.one_of(st.sampled_from(lines_of_all), noise), max_size=60).map("".join),
    st.tuples(st.sampled_from(FRAGMENTS), st.integers(0, 900), st.integers(0, 900)).map(
        lambda cut: cut[0][cut[1] : -cut[2] or None]
    ),
)
counters = st.sampled_from(
    [o200k, letters, len, lambda text: len(text) ** 2 // 900, lambda text: 1 + text.count("\n") * 9]
)


@settings(max_examples=examples(150))
@given(texts, st.integers(0, 300), counters)
def test_it_fits_has_its_handle_and_is_the_same_each_time(
    text: str, tokens: int, count: Callable[[str], int]
) -> None:
    made = condense(text, tokens, count, HANDLE)
    assert f"recall {HANDLE}" in made
    assert count(made) <= tokens or made == cut_marker(len(text), HANDLE) == shrink_text(
        text, tokens, count, HANDLE
    )
    assert made == condense(text, tokens, count, HANDLE)
    if kind_of(text) == "text":
        assert made == shrink_text(text, tokens, count, HANDLE)


@settings(max_examples=examples(60))
@given(st.sampled_from(PLAIN).filter(lambda text: kind_of(text) != "text"), st.integers(40, 200))
def test_lines_are_verbatim_and_in_order(text: str, tokens: int) -> None:
    originals = iter(text.split("\n"))
    for line in condense(text, tokens, letters, HANDLE).split("\n")[:-1]:
        if not line.startswith("… "):
            whole = line.split(" (× ")[0].split("… ")[0]
            assert any(original.startswith(whole) for original in originals), line


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_000_000,
        '{"' + "x" * 10_000_000 + '"}',
        "\n" * 1_000_000,
        "error\n" * 500_000,
        "[" * 500_000 + "]" * 500_000,
        "<!doctype html>" + "<script>" * 300_000,
        "<!doctype html>" + "<" * 1_000_000,
        LOG * 5_000,
        DIFF * 5_000,
        CODE * 5_000,
        PAGE * 3_000,
        json.dumps([FIELDS] * 1_000),
        json.dumps({f"key {n}": [n] for n in range(200_000)}),
    ],
    ids=[
        "line",
        "string",
        "empty",
        "short",
        "deep",
        "script",
        "brackets",
        "log",
        "diff",
        "code",
        "page",
        "list",
        "object",
    ],
)
def test_however_long_it_is_little_of_it_is_counted(text: str) -> None:
    counted = 0

    def count(part: str) -> int:
        nonlocal counted
        counted += len(part)
        return letters(part)

    assert count(condense(text, 500, count, HANDLE)) <= 500
    assert counted <= 500 * 4 * 40


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13])
def test_from_both_ends_each_is_taken_once(number: int) -> None:
    taken = [from_ends(place, number) for place in range(number)]
    assert sorted(taken) == list(range(number))
    assert taken[0] == 0


def test_pieces_fill_the_room_and_one_that_is_too_large_is_passed_over() -> None:
    pieces = ["a" * 40, "b" * 400, "c" * 40]
    made = fill([10, 100, 10], 30, letters, lambda taken: "".join(pieces[place] for place in taken))
    assert made == "a" * 40 + "c" * 40


def test_too_little_is_not_worth_it() -> None:
    pieces = ["a" * 4, "b" * 4_000]
    assert (
        fill([1, 1_000], 100, letters, lambda taken: "".join(pieces[place] for place in taken))
        is None
    )


# ── in a history ─────────────────────────────────────────────────────────────


def test_only_tools_answers_are_cut_by_kind() -> None:
    counter, archive = counter_for("gpt-4o"), Archive()
    said, answered = (
        Message("user", (Text(LOG * 9),)),
        Message("tool", (ToolResult("c1", (Text(LOG * 9),)),)),
    )
    made = shrink_messages((said, answered), 900, 0, counter, archive)
    assert made is not None
    assert "alike)" not in made[0].text
    (part,) = made[1].results[0].parts
    assert isinstance(part, Text)
    assert "alike)" in part.text
    assert sum(map(counter.count_message, made)) <= 900
    assert [archive.recall(handle) for handle in archive.handles] == [LOG * 9] * 2


def results_of(name: str) -> list[str]:
    return [
        part.text
        for run in loom.read_runs(str(AGENTS / name))
        for message in run.messages()
        for result in message.results
        for part in result.parts
        if isinstance(part, Text)
    ]


@needs_shared
@pytest.mark.parametrize(
    ("name", "kind", "least", "signs"),
    [
        (
            "pi_large_session.jsonl",
            "code",
            9,
            ("import * as fs", "import type {", "export class Theme"),
        ),
        ("pi_large_session.jsonl", "log", 9, ("../tui/test/chat-simple.ts(",)),
        ("pi_large_session.jsonl", "json", 9, ('{\n\t"$schema"',)),
        (
            "pi_large_session.jsonl",
            "text",
            0,
            ("# Changelog", "# Pi Monorepo", "Successfully replaced"),
        ),
        ("taubench_airline_60.json", "json", 0, ("[{", "{")),
        ("trail_1.json", "text", 0, ("Address: google:",)),
        ("trail_1.json", "html", 0, ("Address: https:",)),
        ("sweagent_function_calling_simple.traj", "diff", 9, ("diff --git",)),
    ],
)
def test_real_answers_are_known_for_what_they_are(
    name: str, kind: Kind, least: int, signs: tuple[str, ...]
) -> None:
    found = [
        text
        for text in results_of(name)
        if text.lstrip().startswith(signs) and text.count("\n") >= least
    ]
    assert found
    assert {kind_of(text) for text in found} == {kind}


@needs_shared
def test_real_answers_are_used_to_the_full() -> None:
    for text in results_of("pi_large_session.jsonl"):
        tokens = o200k(text) // 3
        if tokens < 100:
            continue
        made = condense(text, tokens, o200k, HANDLE)
        assert 0.7 * tokens <= o200k(made) <= tokens
