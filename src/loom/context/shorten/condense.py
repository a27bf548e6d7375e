"""Make a tool's answer smaller by what it is: of a log its errors stay, of JSON its shape, of a
diff its changes.

Rules of this file:
- What is kept is kept verbatim and in order. `… 12 lines` stands where lines are missing; the
  marker with the handle is last.
- A kind only ranks lines. The best are taken first, and of one rank those nearest to the beginning
  and to the end.
- The work is bounded by the length of the text and the tokens asked for. What cannot be read is cut
  as plain text, never refused.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import unescape
from itertools import groupby, islice

from msgspec import Struct

from loom.context.shorten.cut import cut_marker, fill, from_ends, guess, shorten, shrink_text
from loom.context.shorten.kinds import (
    ALARM,
    ASSERTING,
    CONSTANT,
    DEFINING,
    DIFF_HEAD,
    FAILING,
    HUNKS,
    IMPORTING,
    LANDMARK,
    NUMBER,
    PASSING,
    REMARK,
    RULE,
    SAMPLE_LINES,
    SUMMARY,
    TRACE,
    alarm,
    is_numbered,
    kind_of,
    mask,
    view,
)
from loom.context.shorten.prune import parse, prune, prune_line

# lines that are ranked; of a longer text those at both ends and the telling ones between
MAX_LINES = 12_000
MIN_LINE_CHARS = 80  # characters of a line that may stay, or as many as there are tokens
SHORT_CHARS = 16  # characters that are shown rather than counted
NEAR_LINES = 2  # lines at each side of an error that may explain it
# the rank of what was said already: a line like the one before it, a test that passed
ALIKE_RANK = 5
EDGE_LINES = 2  # lines at the beginning and at the end that are always worth it
HEAD_LINES = 10  # in which the line below a table's head is looked for
# characters of a page that are read; of a larger one its beginning and its end
MAX_PAGE_CHARS = 600_000
MIN_VISIBLE_CHARS = 60  # characters of text without which a page is no page

_HIDDEN = re.compile(r"<(?:(script|style|svg|noscript|template)\b|(!--))", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^<>]*>", re.IGNORECASE)
_HEADING = re.compile(r"<h([1-6])\b[^<>]*>", re.IGNORECASE)
_LINK = re.compile(
    r"<a\b[^<>]*?\shref=[\"']?(?!javascript:|data:|#)([^\"'<>\s]+)[^<>]*>\s*([^<>\s][^<>]*)</a>",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"</?(?:abbr|b|bdi|bdo|cite|code|del|em|font|i|img|ins|kbd|mark|picture|q|s|small|source"
    r"|span|strong|sub|sup|time|u|var|wbr)\b[^<>]*>",
    re.IGNORECASE,
)
_ITEM = re.compile(r"<li\b[^<>]*>", re.IGNORECASE)
_CELL = re.compile(r"</t[dh]>\s*<t[dh]\b[^<>]*>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:address|article|aside|blockquote|body|br|button|caption|center|dd|details|dialog"
    r"|div|dl|dt|fieldset|figure|footer|form"
    r"|h[1-6]|head|header|hr|html|label|li|main|meta|nav|ol|option|p|pre|section|select"
    r"|summary|table|tbody|td|textarea|tfoot|th"
    r"|thead|title|tr|ul)\b[^<>]*>",
    re.IGNORECASE,
)
_ANY_TAG = re.compile(r"</?[a-zA-Z!?][^<>]*>")
_BLANKS = re.compile(r"[ \t\r\f\v]+")


class _RankedLines(Struct):
    """Lines with what each is worth, in order: the lowest rank is kept first. Lines not looked at
    and blank ones have none.
    """

    lines: list[str]
    ranks: Mapping[int, int]
    noun: str = "line"
    alike: Mapping[int, int] = {}  # the last of the run of like lines in which a line stands
    # what is counted of lines that are missing: how it is said, and which they are
    told: tuple[tuple[str, list[int]], ...] = ()
    shorten: Callable[[str, int], str] = shorten


def condense(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str:
    """A tool's answer in at most this many tokens, with a marker; the marker alone where nothing
    else fits.
    """
    made = _by_kind(text, tokens, count, handle)
    if made is None:
        return shrink_text(text, tokens, count, handle)
    return made


def _by_kind(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str | None:
    """The text made smaller as its kind asks for; none if that does not fit or keeps too
    little.
    """
    kind = kind_of(text)
    if kind == "text" or count(cut_marker(len(text), handle)) > tokens:
        return None
    if kind == "json" and (pruned := prune(text, tokens, count, handle)) is not None:
        return pruned
    lines = text.rstrip().split("\n")
    most = max(MAX_LINES, tokens)
    match kind:
        case "json":
            if len(lines) < 2 or parse(lines[0]) is None:
                return None
            ranked = _log(lines, _lines_to_rank(lines, ALARM, most))
            ranked.shorten = prune_line
        case "log":
            ranked = _log(lines, _lines_to_rank(lines, ALARM, most))
        case "tests":
            ranked = _tests(lines, _lines_to_rank(lines, ALARM, most))
        case "diff":
            ranked = _diff(lines, _lines_to_rank(lines, HUNKS, most))
        case "table":
            ranked = _table(lines, _lines_to_rank(lines, None, most))
        case "code":
            ranked = _code(lines, _lines_to_rank(lines, LANDMARK, most))
        case "html":
            lines = _visible(text)
            if sum(map(len, lines)) < MIN_VISIBLE_CHARS:
                return None
            ranked = _page(lines, _lines_to_rank(lines, None, most))
    return _fitting(ranked, len(text), tokens, count, handle)


def _lines_to_rank(lines: list[str], telling: re.Pattern[str] | None, most: int) -> list[int]:
    """The lines to look at: all of them, or those at both ends and, between them, the telling ones
    with their neighbours.
    """
    if len(lines) <= most:
        return list(range(len(lines)))
    edge = most * 3 // 8
    between: set[int] = set()
    if telling is not None:
        middle = "\n".join(lines[edge:-edge]).lower()
        number = at = 0
        while len(between) < most // 4 and (hit := telling.search(middle, at)):
            number += middle.count("\n", at, hit.start())
            between.update(
                range(
                    max(number - NEAR_LINES, 0), min(number + NEAR_LINES + 1, len(lines) - 2 * edge)
                )
            )
            at = middle.find("\n", hit.end())
            if at < 0:
                break
    return [
        *range(edge),
        *(edge + number for number in sorted(between)),
        *range(len(lines) - edge, len(lines)),
    ]


# ── what lines are worth ─────────────────────────────────────────────────────


def _log(lines: list[str], seen: list[int]) -> _RankedLines:
    """Errors, then warnings and traces, then what stands beside errors, then what is said for the
    first time, then the rest.
    """
    ranks: dict[int, int] = {}
    masks: dict[int, str] = {}
    errors: list[int] = []
    known: set[str] = set()
    tracing = False
    for index in seen:
        if not (line := view(lines[index])):
            continue
        masks[index] = masked = mask(line)
        inside = tracing and line[:1] in (" ", "\t")
        alarmed = "" if inside else alarm(line)
        if masks.get(index - 1) == masked:
            ranks[index] = ALIKE_RANK
        elif alarmed and masked not in known:
            ranks[index] = 0 if alarmed == "grave" else 1
            errors += [index] * (alarmed == "grave")
        elif inside or TRACE.match(line):
            ranks[index] = 1
        else:
            ranks[index] = 3 if alarmed or masked not in known else 4
        known.add(masked)
        tracing = inside or line.startswith("Traceback")
    for index in errors:
        for near in range(index - NEAR_LINES, index + NEAR_LINES + 1):
            if ranks.get(near, ALIKE_RANK) != ALIKE_RANK:
                ranks[near] = min(ranks[near], 2)
    return _RankedLines(lines, _with_edges(ranks), alike=_runs(masks))


def _runs(masks: Mapping[int, str]) -> dict[int, int]:
    """For each line of a run of like lines the last of them."""
    alike: dict[int, int] = {}
    for _, run in groupby(
        enumerate(masks), key=lambda place: (masks[place[1]], place[1] - place[0])
    ):
        indexes = [index for _, index in run]
        if len(indexes) > 1:
            alike |= dict.fromkeys(indexes, indexes[-1])
    return alike


def _with_edges(ranks: dict[int, int], first: int = EDGE_LINES) -> dict[int, int]:
    """The ranks, with the first and the last lines among the best."""
    begin = islice((index for index, rank in ranks.items() if rank != ALIKE_RANK), first)
    return ranks | dict.fromkeys((*begin, *islice(reversed(ranks), EDGE_LINES)), 0)


def _tests(lines: list[str], seen: list[int]) -> _RankedLines:
    """The summary, then the names of what failed, what was expected, and the rest of each failure;
    what passed last.
    """
    ranks: dict[int, int] = {}
    passed: list[int] = []
    failing = False
    for index in seen:
        if not (line := view(lines[index])):
            continue
        if SUMMARY.match(line):
            ranks[index], failing = 0, False
        elif FAILING.match(line):
            ranks[index], failing = 1, True
        elif PASSING.match(line):
            ranks[index], failing = ALIKE_RANK, False
            passed.append(index)
        elif line.startswith("==="):
            ranks[index], failing = 4, False
        else:
            ranks[index] = 4 - failing - bool(ASSERTING.match(line))
    told = (("{:,} passed", passed),) if len(seen) == len(lines) else ()
    return _RankedLines(lines, _with_edges(ranks, first=0), told=told)


def _diff(lines: list[str], seen: list[int]) -> _RankedLines:
    """The heads of files and hunks, then what changed, then what stands around it."""
    ranks: dict[int, int] = {}
    more: list[int] = []
    less: list[int] = []
    for index in seen:
        line = lines[index]
        if not line.strip():
            continue
        if DIFF_HEAD.match(line):
            ranks[index] = 0
        elif line.startswith(("+", "-")):
            ranks[index] = 1
            (more if line[0] == "+" else less).append(index)
        else:
            ranks[index] = 2
    told = (("+{:,}", more), ("−{:,}", less)) if len(seen) == len(lines) else ()
    return _RankedLines(lines, ranks, told=told)


def _table(lines: list[str], seen: list[int]) -> _RankedLines:
    """The head, then rows from both ends."""
    ranks = _with_edges({index: 1 for index in seen if lines[index].strip()})
    for place, index in enumerate(seen[:HEAD_LINES]):
        if RULE.match(view(lines[index])):
            ranks |= {above: 0 for above in seen[: place + 1] if above in ranks}
            break
    return _RankedLines(lines, ranks, "row")


def _code(lines: list[str], seen: list[int]) -> _RankedLines:
    """What is defined, outermost first, then imports, then the first words on each definition, then
    other remarks, then bodies.
    """
    ranks: dict[int, int] = {}
    numbered = is_numbered(view(lines[index]) for index in seen[:SAMPLE_LINES])
    # what a remark is worth here: most where something was just defined, nothing amid a body
    remark = 3
    for index in seen:
        line = view(lines[index])
        if numbered:
            line = NUMBER.sub("", line, count=1)
        if not line:
            remark = 3
            continue
        defined = DEFINING.match(line)
        if defined:
            ranks[index] = 1 if defined["indent"] else 0
        elif IMPORTING.match(line) or CONSTANT.match(line):
            ranks[index] = 1
        else:
            ranks[index] = remark if REMARK.match(line) else 4
        remark = 2 if defined or line.strip() == "/**" else 4
    return _RankedLines(lines, _with_edges(ranks))


def _page(lines: list[str], seen: list[int]) -> _RankedLines:
    """Titles and headings, then text from both ends."""
    return _RankedLines(lines, {index: 0 if lines[index].startswith("#") else 1 for index in seen})


def _visible(text: str) -> list[str]:
    """What a reader of the page sees, a line each: text, headings with #, links with their
    addresses.
    """
    if len(text) > MAX_PAGE_CHARS:
        text = f"{text[: MAX_PAGE_CHARS * 2 // 3]}\n…\n{text[-MAX_PAGE_CHARS // 3 :]}"
    shown = "".join(_without_hidden(text))
    shown = _TITLE.sub("\n# ", shown)
    shown = _HEADING.sub(lambda found: "\n" + "#" * int(found[1]) + " ", shown)
    shown = _LINK.sub(r"[\2](\1)", _INLINE.sub("", shown))
    shown = _CELL.sub(" | ", shown)
    shown = _BLOCK.sub("\n", _ITEM.sub("\n- ", shown))
    shown = _BLANKS.sub(" ", unescape(_ANY_TAG.sub("", shown)))
    return [line for raw in shown.split("\n") if (line := raw.strip()) and line != "-"]


def _without_hidden(text: str) -> Iterator[str]:
    """The pieces of a page between scripts, styles, pictures and comments."""
    at = 0
    while hidden := _HIDDEN.search(text, at):
        yield text[at : hidden.start()]
        end = "-->" if hidden[2] else f"</{hidden[1]}"
        closed = re.compile(re.escape(end), re.IGNORECASE).search(text, hidden.end())
        if closed is None:
            return
        if hidden[2]:
            at = closed.end()
        else:
            at = text.find(">", closed.end()) + 1 or len(text)
    yield text[at:]


# ── what fits ────────────────────────────────────────────────────────────────


def _fitting(
    ranked: _RankedLines, length: int, tokens: int, count: Callable[[str], int], handle: str
) -> str | None:
    """As many of the lines, the best first, as fit; none if that is too little to be of use."""
    longest = max(MIN_LINE_CHARS, tokens)
    order = _order(ranked.ranks, tokens)

    def compose(taken: Iterable[int]) -> str:
        return _compose_lines(
            ranked, sorted(order[place] for place in taken), length, longest, handle
        )

    return fill([guess(ranked.lines[index][:longest]) for index in order], tokens, count, compose)


def _order(ranks: Mapping[int, int], most: int) -> list[int]:
    """The lines as they are taken: by rank, and of one rank from both ends."""
    by_rank: dict[int, list[int]] = {}
    for index, rank in ranks.items():
        by_rank.setdefault(rank, []).append(index)
    return [
        of_rank[from_ends(place, len(of_rank))]
        for _, of_rank in sorted(by_rank.items())
        for place in range(min(len(of_rank), most))
    ]


def _compose_lines(
    ranked: _RankedLines, kept: list[int], length: int, longest: int, handle: str
) -> str:
    """The kept lines, with what is missing between them told, and the marker."""
    lines, made = ranked.lines, list[str]()
    at, left = 0, length
    for index in (*_bridge_gaps(lines, kept), len(lines)):
        if made and at < index and ranked.alike.get(at - 1, 0) >= at:
            like = min(ranked.alike[at - 1] + 1, index) - at
            made[-1] = f"{made[-1].rstrip()} (× {like + 1:,} alike)"
            at += like
        if at < index:
            made.append(_missing(ranked, at, index))
        if index < len(lines):
            made.append(ranked.shorten(lines[index], longest))
            left -= min(len(lines[index]), longest) + 1
        at = index + 1
    return "\n".join((*made, cut_marker(max(left, 0), handle)))


def _bridge_gaps(lines: list[str], kept: list[int]) -> Iterator[int]:
    """The kept lines, and those between them that are as short as what would be said of them."""
    at = 0
    for index in kept:
        if index - at <= NEAR_LINES and sum(map(len, lines[at:index])) <= SHORT_CHARS:
            yield from range(at, index)
        yield index
        at = index + 1


def _missing(ranked: _RankedLines, start: int, stop: int) -> str:
    """What stands for lines that are not kept."""
    number = stop - start
    counts = (
        (said, bisect_left(indexes, stop) - bisect_left(indexes, start))
        for said, indexes in ranked.told
    )
    told = " ".join(said.format(counted) for said, counted in counts if counted)
    return f"… {number:,} {ranked.noun}{'s' * (number != 1)}{told and f' ({told})'}"
