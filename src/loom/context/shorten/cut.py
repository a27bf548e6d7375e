"""Cut what is too large: a text to its head, a marker with a handle, and its tail; pieces to as
many of the best as fit.
"""

from collections.abc import Callable, Iterable

HEAD_SHARE = 0.6  # of what is kept of a text; the rest is its end
MAX_COUNTS = 12  # times at most that what is made of pieces is counted
FULL_SHARE = 0.95  # of the tokens, with which one is content
WORTH_SHARE = 0.5  # of the tokens: where there is more, what takes less is worse than head and tail
BYTES_PER_TOKEN = 3  # to a token, where it is not worth counting


def cut_marker(characters: int, handle: str) -> str:
    return f"[… {characters:,} characters left out; recall {handle} …]"


def shrink_text(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str:
    """Head and tail of the text with a marker between, in at most this many tokens; the marker
    alone where nothing else fits.
    """
    low, high = 0, len(text)
    best = cut_marker(len(text), handle)
    # Twenty steps find the length to a millionth of the text; each counts only what might be kept.
    high = min(high, tokens * 12)
    for _ in range(20):
        if low >= high:
            break
        middle = (low + high + 1) // 2
        candidate = cut_text(text, middle, handle)
        if count(candidate) <= tokens:
            low, best = middle, candidate
        else:
            high = middle - 1
    return best


def cut_text(text: str, kept: int, handle: str) -> str:
    """So many characters of the text with the marker in it: from its beginning and, if they are
    many, from its end.
    """
    # Of little, the beginning tells most: a goal must still be known by its first words.
    head = kept if kept < 160 else int(kept * HEAD_SHARE)
    tail = kept - head
    begin, end = text[:head], text[len(text) - tail :] if tail else ""
    # A line cut in half misleads; where a line break is near, cut there.
    if (at := begin.rfind("\n")) > head * 0.8:
        begin = begin[: at + 1]
    if 0 <= (at := end.find("\n")) < tail * 0.2:
        end = end[at:]
    return f"{begin}{cut_marker(len(text) - len(begin) - len(end), handle)}{end}"


def shorten(text: str, longest: int) -> str:
    """A line that is too long as its beginning and its end, with how much is missing between
    them.
    """
    if len(text) <= longest:
        return text
    head = int(longest * HEAD_SHARE)
    return (
        f"{text[:head]}… {len(text) - longest:,} characters …{text[len(text) - longest + head :]}"
    )


def guess(text: str) -> int:
    """What a text may take in a line of its own, in tokens."""
    return len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN + 1


def from_ends(place: int, number: int) -> int:
    """Which of so many is taken in this place: in turn three from the beginning and two from the
    end.
    """
    fives, rest = divmod(place, 5)
    if rest < 3:
        return 3 * fives + rest
    return number - 1 - (2 * fives + rest - 3)


def fill(
    costs: list[int],
    tokens: int,
    count: Callable[[str], int],
    compose: Callable[[Iterable[int]], str],
) -> str | None:
    """The largest text that fits, made of pieces with these costs, the first before the others;
    none if it is not worth it.
    """
    best, best_size, best_number = None, 0, 0
    low, high = 0, sum(costs) + 1  # with room for so much it fits, with so much it does not
    room = min(tokens, high - 1)
    for turn in range(MAX_COUNTS):
        taken = _take_fitting(costs, room)
        made = compose(taken)
        size = count(made)
        if size > tokens:
            high = room
        else:
            best, best_size, best_number, low = made, size, len(taken), room
        if FULL_SHARE * tokens <= size <= tokens or high - low < 2:
            break
        # What joins the pieces is known only now: if these came to so much, that much would come to
        # the tokens.
        if turn < MAX_COUNTS // 2:
            next_room = room * tokens // max(size, 1)
        else:
            next_room = (low + high) // 2
        room = min(max(next_room, low + 1), high - 1)
    if best_number and (best_size >= WORTH_SHARE * tokens or best_number == len(costs)):
        return best
    return None


def _take_fitting(costs: list[int], room: int) -> list[int]:
    """The pieces that fit, each in its turn, up to one that does not; the next, which is nearly as
    good, is still tried.
    """
    taken: list[int] = []
    passed = False
    for place, cost in enumerate(costs):
        fits = cost <= room
        if fits:
            taken.append(place)
            room -= cost
        if passed:
            break
        passed = not fits
    return taken
