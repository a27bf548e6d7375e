"""What a tool's answer is, known by a few of its lines, and the signs by which its lines are told
apart.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

Kind = Literal["log", "json", "table", "diff", "tests", "html", "code", "text"]

SAMPLE_CHARS = 8_000  # characters of beginning, middle and end by which a text is known
SAMPLE_LINES = 60  # lines of each of them
MAX_LINE_CHARS = 400  # characters of a line that are looked at: no pattern is slow on so few

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_VARYING = re.compile(r"\b(?=[a-fA-F]*\d)[0-9a-fA-F]{6,}(?:-[0-9a-fA-F]+)*\b|\d+")

# ── logs ─────────────────────────────────────────────────────────────────────

# In small letters only: a pattern that heeds no case is seven times slower.
_MILD = ("warn", "deprecat", "警告", "경고", "предупрежд")
ALARM = re.compile(
    "error|exception|traceback|fail|fatal|panic|critical|denied|refused|cannot|unable"
    "|not found|timed out|timeout|abort|killed"
    "|segmentation|错误|失败|异常|錯誤|失敗|エラー|오류|ошибк|erreur|fehler|" + "|".join(_MILD)
)
_NONE = re.compile(r"(?:\A|\W)(?:0|no) \Z")  # before what did not happen
TRACE = re.compile(r'\s+(?:at |File "|\.\.\. \d+ more)|Caused by|During handling|goroutine \d')
_LOGGED = re.compile(
    r"""\W{0,3}(?:\d{4}[-/.]\d\d[-/.]\d\d | \d\d[-/]\d\d[-/]\d\d | \d\d:\d\d:\d\d
        | [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d | \d+\.\d{3,}\])
    | .{0,80}?(?:(?<![\w.])(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|FATAL|CRITICAL|SEVERE)
            [\]:>)|!\s"]
        | \b(?:error|warning|note)(?:\ ?\[?[A-Z]+\d+\]?)?:\ | \blevel=\w)
    | npm\ (?:ERR!|error|WARN|warn|notice|info)\b | >\ \S+@\S+\ \w
    | make(?:\[\d+\])?:\ | \[\d+/\d+\]\ | Step\ \d+/\d | \#\d+\ \S
    | (?:Collecting|Downloading|Requirement\ already|Compiling|Get:\d|Setting\ up|Unpacking
        |Preparing|Fetching|Successfully)\b
    | \s+at\ .+[:(]\d+ | \s+File\ ".+",\ line\ \d | Traceback\ \(most""",
    re.VERBOSE,
)

# ── diffs ────────────────────────────────────────────────────────────────────

HUNKS = re.compile(r"^(?:diff |@@ |--- |\+\+\+ )", re.MULTILINE)
DIFF_HEAD = re.compile(
    r"diff |Index: |--- \S|\+\+\+ \S|@@ |commit [0-9a-f]{7}"
    r"|rename |new file|deleted file|Binary files "
)
_DIFF_LINE = re.compile(
    r"[-+ \\@]|diff |index |commit |Index: |Author:|Date:|Merge:"
    r"|rename |similarity |new |deleted |old mode|===|Binary "
)
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+")

# ── tests ────────────────────────────────────────────────────────────────────

SUMMARY = re.compile(
    r"""=+\ .*(?:\d+\ (?:passed|failed|errors?|skipped|warnings?|deselected)|no\ tests\ ran)
    | \s*(?:Tests?|Test\ Suites|Test\ Files|Snapshots):?\s+\d+\ \w+
    | test\ result:\ | Ran\ \d+\ tests?\ in | (?:FAILED|OK)\ \(.*=\d
    | (?:ok|FAIL)\s+\S+\s+(?:\d+\.\d+s|\(cached\)|\[\w) | [\#ℹ]\ (?:tests|pass|fail)\ \d
    | \s*\d+\ (?:passing|failing)\b
    | \s*<testsuites?\b | \d+\ (?:passed|failed)[,;\s]""",
    re.VERBOSE,
)
FAILING = re.compile(
    r"""(?:FAILED|ERROR|FAIL:?|XPASS)\s+\S | \S+\ FAILED\b | \S.*\ \.\.\.\ (?:FAILED|FAIL|ERROR)\b
    | \s*---\ FAIL
    | _{3,}\ .*\ _{3,}$ | ----\ .*\ ----$ | \s*[✕✗✘×✖]\ | \s*●\ | not\ ok\b
    | \s*<(?:failure|error)\b | .*\bpanicked\ at\ """,
    re.VERBOSE,
)
ASSERTING = re.compile(
    r"""[E>]\s+\S | \s*\S+\.\w+:\d+
    | .*(?:\b[Aa]ssert | \b(?:[Ee]xpected|[Rr]eceived|[Aa]ctual)\b | \b(?:left|right|got|want):?[ ]
        | (?:Error|Exception)\b)""",
    re.VERBOSE,
)
PASSING = re.compile(
    r"""\S+\ PASSED\b | PASS(?:ED)?\b | \s*---\ (?:PASS|SKIP) | ===\ (?:RUN|CONT|PAUSE|NAME)
    | .*\ \.\.\.\ (?:ok|ignored|skipped)\b
    | \s*[✓✔√]\ | ok\s | (?:\S+\.py\ )?[.sxX]+\s*(?:\[\s*\d+%\])?$ | \s*<testcase\b[^>]*/>$""",
    re.VERBOSE,
)
_TESTED = re.compile(
    r"""=+\ (?:test\ session\ starts|FAILURES|ERRORS|short\ test\ summary) | running\ \d+\ tests?$
    | test\ \S+\ \.\.\.\ \w
    | (?:PASS|FAIL)\ +\S+\.\w+ | \s*---\ (?:PASS|FAIL|SKIP): | ===\ RUN[ ]
    | \w+\ \(\S+\)\ \.\.\.\ (?:ok|FAIL|ERROR|skipped)
    | \S+::\S+\ (?:PASSED|FAILED|SKIPPED|ERROR) | \s*<testcase\b | (?:not\ )?ok\ \d+\b
    | \s*[✓✔√✕✗✘]\ .*\(\d+""",
    re.VERBOSE,
)

# ── tables ───────────────────────────────────────────────────────────────────

RULE = re.compile(r"[\s|+:=─━┼-]{3,}$")
_ROW = re.compile(r"\s*\|.*\|$|\+[-+=]+\+$|[-dlbcps][-rwxsStT]{9}[.+@]? +\d")
_HEADS = re.compile(r"\s*[A-Z%#][A-Z0-9%_/.#-]*(?: +[A-Z%(][A-Z0-9%_/.()-]*){2,}$")
_BLANKS = re.compile(r"\s{2,}")
_LEAST = 4  # lines that make a table or a pattern

# ── code ─────────────────────────────────────────────────────────────────────

NUMBER = re.compile(r"\s{0,8}\d{1,6}(?:[:|→\t-]|\s\s|$)")
LANDMARK = re.compile(
    r"^[ \t]{0,8}(?:[a-z]+ ){0,3}(?:def|class|function|func|fn|fun|interface|struct|enum|trait"
    r"|impl|type)\b",
    re.MULTILINE,
)
DEFINING = re.compile(
    r"""(?P<indent>\s*)
    (?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override
        |virtual|unsafe|inline|extern|declare
        |sealed|partial|open|data|suspend|readonly|pub(?:\([^)]*\))?)\ +)*
    (?:(?:def|defp|defmodule|class|function|func|fn|fun|interface|struct|enum|trait|impl|module|mod
        |namespace|record)[\ *(<]
    | type\ \w+\b | (?:describe|it|test)\(["'`]
    | (?:const|let|var)\ \w+.*=\ *(?:async\ *)?(?:function\b|\([^)]*\).*=>|\w+\ *=>)
    | (?!(?:if|for|while|switch|catch|return|else|do|try|with|foreach|elif|elseif|until|unless|new
        |await|throw)\b)
        (?:[\w<>\[\],.*&:?]+\ +)*\w+\ ?\([^;]*\)[^;=()]*\{$)""",
    re.VERBOSE,
)
IMPORTING = re.compile(
    r"\s*(?:import\b[ ({*\"']|from \S+ import\b|#\s*include\b|using \w|use \w[\w:]*"
    r"|package \w|require\b|export .*\bfrom\b"
    r"|(?:const|let|var) .*\brequire\()"
)
CONSTANT = re.compile(r"(?:export )?(?:const |let |var |static )?[A-Z][A-Z0-9_]+\b[^=(]*=")
REMARK = re.compile(r"\s*(?:\"\"\"|'''|/\*\*?|///?|#|--|\*|@\w)")
_SHAPED = re.compile(r"\s+\S|.*[{}\[\](;,:]$|[})\]#@]|//|/?\*")
_BRACED = re.compile(r".*[{};]$|\s*[})\]]")

# ── markup ───────────────────────────────────────────────────────────────────

_PAGE = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:div|span|p|a|li|ul|ol|td|tr|th|table|h[1-6]|br|img|script|style|link|b|i|em|strong"
    r"|form|input|button|section|nav|bdi)\b[^<>]*>",
    re.IGNORECASE,
)
_JSON = re.compile(
    r'\s*(?:\{\s*["}]|\[\s*(?:[\[{"\]]|-?\d[\d.eE+-]*\s*[,\]]|(?:true|false|null)\b))'
)


def kind_of(text: str) -> Kind:
    """What a text is, by a few lines of its beginning, middle and end."""
    if _JSON.match(text[:SAMPLE_CHARS]) and text[-SAMPLE_CHARS:].rstrip().endswith(("}", "]")):
        return "json"
    lines = _sample(text)
    if any(_PAGE.match(line) for line in lines[:12]):
        return "html"
    if _hits(_HUNK, lines) and _hits(_DIFF_LINE, lines) >= 0.7 * len(lines):
        return "diff"
    # One summary may be quoted; next to the tests it summarizes it is one.
    if _hits(SUMMARY, lines) + 2 * _hits(_TESTED, lines) > 2:
        return "tests"
    if _has_columns(lines):
        return "table"
    if len(lines) >= _LEAST and _hits(_LOGGED, lines) >= 0.3 * len(lines):
        return "log"
    if _is_code(lines):
        return "code"
    if _is_marked_up(lines):
        return "html"
    if _is_aligned(lines):
        return "table"
    if _is_alike(lines):
        return "log"
    return "text"


def view(line: str) -> str:
    """A line as it is looked at: not too much of it, without colours and without blanks at its
    end.
    """
    line = line[:MAX_LINE_CHARS]
    return (_ANSI.sub("", line) if "\x1b" in line else line).rstrip()


def alarm(line: str) -> Literal["", "mild", "grave"]:
    """Whether a line tells of a warning or of something worse."""
    small = line.lower()
    hit = ALARM.search(small)
    while hit and _NONE.search(small[max(0, hit.start() - 4) : hit.start()]):
        hit = ALARM.search(small, hit.end())
    if hit is None:
        return ""
    if hit[0] in _MILD:
        return "mild"
    return "grave"


def mask(line: str) -> str:
    """A line without what varies: equal for lines that say the same of other numbers, times and
    ids.
    """
    return _VARYING.sub("#", line)


def is_numbered(lines: Iterable[str]) -> bool:
    """Whether these lines, as a reader of files shows them, begin with their numbers."""
    some = [line for line in lines if line]
    return len(some) > 1 and _hits(NUMBER, some) >= 0.7 * len(some)


def _sample(text: str) -> list[str]:
    if len(text) <= 3 * SAMPLE_CHARS:
        lines = text.split("\n")
        if len(lines) > 3 * SAMPLE_LINES:
            middle = len(lines) // 2
            lines = (
                lines[:SAMPLE_LINES] + lines[middle : middle + SAMPLE_LINES] + lines[-SAMPLE_LINES:]
            )
    else:
        middle = len(text) // 2
        # Where such a piece begins or ends, a line may be torn.
        lines = text[:SAMPLE_CHARS].split("\n")[:-1][:SAMPLE_LINES]
        lines += text[middle : middle + SAMPLE_CHARS].split("\n")[1:-1][:SAMPLE_LINES]
        lines += text[-SAMPLE_CHARS:].split("\n")[1:][-SAMPLE_LINES:]
        lines = lines or [text[:SAMPLE_CHARS]]
    return [shown for line in lines if (shown := view(line))]


def _hits(pattern: re.Pattern[str], lines: Iterable[str]) -> int:
    return sum(1 for line in lines if pattern.match(line))


def _has_columns(lines: list[str]) -> bool:
    """Whether these are rows: between bars, or with the same number of the same sign in each."""
    if len(lines) < _LEAST:
        return False
    if _hits(_ROW, lines) >= 0.6 * len(lines):
        return True
    ruled = any(RULE.match(line) and "-+-" in line for line in lines)
    if ruled and sum("|" in line for line in lines) >= 0.6 * len(lines):
        return True
    # Rows end as they like, statements do not.
    if sum(line.endswith(("{", ";", "(", ",")) for line in lines) > 0.1 * len(lines):
        return False
    # The numbers of a file's lines are no column.
    for sign, least in (("\t", 2 if is_numbered(lines) else 1), (",", 2), (";", 2)):
        number, times = Counter(line.strip().count(sign) for line in lines).most_common(1)[0]
        if number >= least and times >= 0.95 * len(lines):
            return True
    return False


def _is_aligned(lines: list[str]) -> bool:
    if len(lines) < _LEAST:
        return False
    number, times = Counter(len(_BLANKS.split(line.strip())) for line in lines).most_common(1)[0]
    return (number > 2 and times >= 0.7 * len(lines)) or bool(_HEADS.match(lines[0]))


def _is_code(lines: list[str]) -> bool:
    if is_numbered(lines):
        lines = [bare for line in lines if (bare := NUMBER.sub("", line, count=1))]
    # A document shows code between fences.
    if len(lines) < 3 or sum(line.lstrip().startswith("```") for line in lines) > 1:
        return False
    braced = _hits(_BRACED, lines) / len(lines)
    named = sum(1 for line in lines if DEFINING.match(line) or IMPORTING.match(line))
    shaped = _hits(_SHAPED, lines) / len(lines)
    return (
        braced >= 0.4
        or (named > 0 and (braced >= 0.25 or shaped >= 0.8))
        or (named > 1 and shaped >= 0.6)
    )


def _is_marked_up(lines: list[str]) -> bool:
    tags = [len(tag[0]) for line in lines for tag in _TAG.finditer(line)]
    return len(tags) > 7 and sum(tags) >= 0.25 * sum(map(len, lines))


def _is_alike(lines: list[str]) -> bool:
    return len(lines) >= 3 * _LEAST and len(set(map(mask, lines))) <= 0.4 * len(lines)
