"""What a search found, on a terminal: where each message is, and the passage with the words that
were looked for in bold.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from loom.cli import terminal
from loom.cli.terminal import COLOURS, clean, columns_of, dim, one_line, plural, say, say_dim, style
from loom.conversation.searchable import searchable_text
from loom.recall.hits import Hit, Neighbour
from loom.recall.question import Question, find_matches, merge_stretches, read_question

MAX_PASSAGE_LINES = 6
MIN_NAME_COLUMNS = 30  # of the name of a session; with fewer, it gets a line of its own
INDENT = 2


def print_hits(hits: Sequence[Hit], query: str, name_session: Callable[[str, int], str]) -> None:
    """Print what was found, best first; `name_session` says what people call a session, in so many
    columns.
    """
    question = read_question(query)
    for number, hit in enumerate(hits):
        if number:
            say()
        _print_place(hit, name_session)
        before = [each for each in hit.neighbours if each.place < hit.place]
        _print_neighbours(before)
        for line in _passage_lines(hit, question):
            say(line)
        _print_neighbours([each for each in hit.neighbours if each.place > hit.place])
    tokens = sum(hit.tokens for hit in hits)
    sessions = len({hit.session for hit in hits})
    found = f"{plural(len(hits), 'message')} in {plural(sessions, 'session')}"
    say()
    say_dim(f"{found}, {tokens:,} tokens; loom recall HANDLE prints one", indent=0)


def _print_place(hit: Hit, name_session: Callable[[str, int], str]) -> None:
    """The handle of a hit, who speaks, where and when."""
    where = f"message {hit.place}"
    day = _day(hit.created)
    lead = "  ".join(filter(None, (hit.handle, hit.role, where, day)))
    room = terminal.width() - len(lead) - 2
    said = [
        style(hit.handle, fg="blue"),
        style(hit.role, fg=COLOURS[hit.role]),
        *(dim(each) for each in (where, day) if each),
    ]
    if room >= MIN_NAME_COLUMNS:
        said.append(name_session(hit.session, room))
    say("  ".join(said))
    if room < MIN_NAME_COLUMNS:
        name = name_session(hit.session, terminal.width() - INDENT)
        say(" " * INDENT + name)


def _day(created: int) -> str:
    if not created:
        return ""
    try:
        return datetime.fromtimestamp(created / 1000, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):  # a file from elsewhere may say anything
        return ""


def _print_neighbours(neighbours: Sequence[Neighbour]) -> None:
    for each in neighbours:
        text = f"{each.role}: {' '.join(searchable_text(each.message).split())}"
        say(dim(" " * INDENT + one_line(text, terminal.width() - INDENT)))


def _passage_lines(hit: Hit, question: Question) -> Iterator[str]:
    """A passage in lines of the terminal, with what was looked for in bold."""
    columns, shown = terminal.width() - INDENT, 0
    whole, text = searchable_text(hit.message).strip(), hit.text.strip()
    begin = "" if whole.startswith(text) else "… "
    end = "" if whole.endswith(text) else " …"
    for line in filter(str.strip, f"{begin}{text}{end}".splitlines()):
        stretches = merge_stretches(find_matches(question, line))
        for start, stop in _wrap(line, columns):
            if shown == MAX_PASSAGE_LINES:
                yield dim(" " * INDENT + "…")
                return
            yield " " * INDENT + _bold(line, start, stop, stretches)
            shown += 1


def _wrap(line: str, columns: int) -> Iterator[tuple[int, int]]:
    """Where the pieces of a line begin and end that fit into so many columns, broken at spaces
    where that can be.
    """
    start, used, space = 0, 0, -1
    for place, character in enumerate(line):
        used += columns_of(character)
        if character.isspace():
            space = place
        if used > columns:
            stop = space if space > start else place
            yield start, stop
            start = stop + 1 if stop == space else stop
            used = columns_of(line[start : place + 1])
    yield start, len(line)


def _bold(line: str, start: int, stop: int, stretches: Sequence[tuple[int, int]]) -> str:
    """A piece of a line with the stretches that overlap it in bold."""
    made, at = "", start
    for begin, end in stretches:
        begin, end = max(begin, start), min(end, stop)
        if begin < end:
            made += clean(line[at:begin]) + style(line[begin:end], bold=True)
            at = end
    return made + clean(line[at:stop])
