"""Anchors: the exact names, paths, numbers and addresses in what was said, and an index of the
passages that hold them.

An anchor is what cannot be said in other words: change a letter of it and it is wrong. The index
grows message by message, each letter is looked at a bounded number of times, and nothing of it
depends on what will be asked.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Literal, assert_never

from msgspec import Struct

from loom.context.cover.novelty import SpokenWords, find_words
from loom.context.quotes import Quote, Voice, name_speaker
from loom.conversation.canonical import from_json
from loom.conversation.message import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult

# What a message ages by. Users, and the model where it says something, have clocks of their own, so
# that no work of tools makes their words old. What was quoted before ages by what came since.
Clock = Literal["user", "assistant", "work", "quotes"]
Kind = Literal["", "path", "random"]  # of an anchor

# How much a mention says about what will be needed: a tool shows everything, a speaker only what
# matters to him.
VOICES: dict[Voice, float] = {
    "user": 4.0,
    "assistant": 5.0,
    "thought": 3.0,
    "call": 4.0,
    "result": 1.0,
    "error": 2.0,
    "system": 1.0,
}
SPEAKING: tuple[Voice, ...] = ("user", "assistant")
PRINTING: tuple[Voice, ...] = ("result", "error")
# whose lines come before all others, and are judged by how new their words are
FIRST_VOICES: tuple[Voice, ...] = ("assistant",)
# and more where a tool names one thing: that tells more than a list of a thousand
ALONE_WEIGHT = 3.0
FEW_ANCHORS = 4  # names in a tool's answer with which half of that is left
# What a line is worth for its words alone, whatever it names.
WORDS: dict[Voice, float] = {
    "user": 2.5,
    "assistant": 0.5,
    "thought": 0.1,
    "call": 0.0,
    "result": 0.2,
    "error": 0.5,
    "system": 0.1,
}
NOTED_WEIGHT = 1.5  # and more where it tells of an error, a decision or a task
# What its kind adds to the worth of an anchor.
BONUS: dict[Kind, float] = {"": 0.0, "path": 1.0, "random": 5.0}
OFTEN_ANCHORS = 1.0  # anchors of a kind in each message of a source that make one half as rare

# lines up to which a tool's answer is worth its words; of a longer one only what names things is
# kept
MAX_ANSWER_LINES = 3
# characters up to which a call is told in its own words where its result is shown
MAX_CALL_CHARS = 80
MAX_ABOUT_CHARS = 48  # characters of a call's main argument where it is longer
# characters up to which a line is one passage; a longer one is cut around its anchors
MAX_WHOLE_CHARS = 200
MARGIN_CHARS = 24  # characters of the original kept at each side of an anchor where a line is cut
MAX_ANCHOR_CHARS = 160  # an anchor that is longer is data, not a name
MAX_PIECE_CHARS = 160  # characters that a passage of a long line may grow to, margins aside
MAX_READ_MESSAGES = 4_096  # messages whose passages are remembered, and as many before them
MAX_HELD_BYTES = 16_000_000  # about how many bytes they may take
PASSAGE_BYTES = 512  # bytes of a passage and its anchors, its words aside

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = rf"[^\W{_CJK}]"
_QUOTE, _UNQUOTE = "`「『《【“", "`」』》】”"
# A run is letters, digits and what joins them in names. It is taken whole, so that a blob of any
# length is read once.
_RUN = rf"""(?P<url>[A-Za-z][A-Za-z+]{{1,9}}://[^\s"'`<>()\[\]{{}}\\{_CJK}]+)
    |[{_QUOTE}](?=(?P<quoted>[^\s{_QUOTE}{_UNQUOTE}\\]
        [^\n{_QUOTE}{_UNQUOTE}\\]{{0,38}}[^\s{_QUOTE}{_UNQUOTE}\\])[{_UNQUOTE}])
    |(?P<run>(?:[~.]{{0,2}}/\.?|[@\#.~]|--)?
        {_WORD}(?:{_WORD}|[./@+:~-](?={_WORD}|[./~])|(?<=\d),(?=\d))*)"""
# Words of plain letters that nothing joins to others are no names: as many as follow each other are
# passed over at once.
_PASSED = r"""(?:[A-Za-z][a-z]*+[.:-]?+[\s,;!?'"()\[\]{}<>=*|&%$^]++)+|"""
_ESCAPE = r"\\(?:u[0-9a-fA-F]{4}|.)|"
_PARTS = re.compile(r"\w+")
_NAME = re.compile(
    r"""\w*[^\W\d_]_\w+ | _\w{2,}           # snake_case
    | [a-z]+[A-Z]\w*                       # camelCase
    | [A-Z]+[a-z0-9]+[A-Z]\w*              # PascalCase
    | [A-Z]{2,}[a-z]\w+                    # HTTPServer
    | [A-Z][A-Z0-9]{2,}                    # CONSTANTS
    | (?=\w*\d)(?=\w*[^\W\d_])\w{3,}       # letters and digits: hashes, versions, codes
    | \d{3,}""",
    re.VERBOSE,
)
_FILE = re.compile(r"\.?[\w@+-]+(?<!\b\w)(?:\.[\w@+-]+)*\.[A-Za-z][A-Za-z0-9]{0,4}")
_DIGITS = re.compile(r"v?\d+(?:[.:,-]\d+)+\w{0,4}")
# joined by hyphens: tickets, dates, names of models
_CODE = re.compile(r"[\w-]*(?:\d|[A-Z]{2})[\w-]*|\w+(?:-\w+){2,}")
_RANDOM = re.compile(r"[A-Za-z]\d+[A-Za-z]|\d[A-Za-z]+\d|[A-Za-z]-\w*\d")
_COUNT = re.compile(r"[\d.,:%-]+")  # how many, or when: nobody coins it
_SENTENCE = re.compile(r"[.!?;:。！？；\n](?:(?<=[。！？；\n])|\s+)")
_ERROR = re.compile(
    r"(?:error|exception|warning)s?\b"
    r"|\b(?:fail(?:ed|ure|s)?|fatal|panic|denied|refused|cannot|unable)\b|not found"
    r"|错误|失败|异常|錯誤|失敗|エラー|오류|ошибк|erreur|fehler",
    re.IGNORECASE,
)
_ERRORS = (  # without one of these no text in plain letters tells of an error
    *(
        "error",
        "exception",
        "warning",
        "fail",
        "fatal",
        "panic",
        "denied",
        "refused",
        "cannot",
        "unable",
        "not found",
    ),
    *("erreur", "fehler"),
)
_TASK = re.compile(
    r"\b(?:TODO|FIXME|must|never|always|instead|decided?|decision|remember|important|agreed"
    r"|prefer|next step|remaining)\b"
    r"|\[ \]|决定|必须|不要|待办|注意|記住|记住|決定|必ず|нужно|решено",
    re.IGNORECASE,
)
_TASKS = (
    *(
        "todo",
        "fixme",
        "must",
        "never",
        "always",
        "instead",
        "decide",
        "decision",
        "remember",
        "important",
        "agreed",
        "prefer",
    ),
    *("next step", "remaining", "[ ]"),
)
_DEFINES = re.compile(
    r"^\W*(?:export |public |private |static |async |pub |default |abstract )*"
    r"(?:def|class|function|func|fn|interface|type|struct|enum|trait|const|let|var|import|from"
    r"|module|package)\b"
    r"|^\W{0,3}[\w.\-\[\]\"']{2,40} ?(?::=|=|:) ?\S|^\S+:\d+"
)


class Passage(Struct, frozen=True, gc=False):
    """A line of a message, or a piece of a long one: `text[start:stop]`. `said` tells how much of
    its worth is in its words.
    """

    line: int
    text: str
    start: int
    stop: int
    anchors: tuple[str, ...]
    voice: Voice
    size: int  # bytes: of all scripts they tell best how many tokens a text has
    said: float = 0.0
    defines: bool = False
    words: tuple[str, ...] = ()  # of what the model said, by which it is judged how new that is


class Speaker(Struct, frozen=True, gc=False):
    """Who a message is from: its author or role, or the tool that answered, with what it was asked
    and the place of the call.
    """

    voice: Voice
    name: str
    about: str = ""
    call: int = -1

    @property
    def is_tool(self) -> bool:
        return self.voice in ("result", "error")


class SourceOutput(Struct):
    """What a source has printed: how many messages, and how many anchors of each kind for the first
    time.
    """

    messages: int = 0
    anchors: dict[str, int] = {}

    def rate(self, kind: str) -> float:
        return self.anchors.get(kind, 0) / max(self.messages, 1)


class Trace(Struct, gc=False):
    """Where an anchor was named: messages, each once, and passages, both in order.

    It is coined if somebody said it and no tool printed it: nobody can look it up. Of what was
    quoted before, that was found out when it was read.
    """

    kind: Kind
    messages: list[int]
    passages: list[int]
    is_coined: bool = False


def _is_known(anchor: str, voice: Voice, coined: tuple[str, ...] | None) -> bool:
    """Whether this mention says that an anchor was not coined: a tool printed it, or had printed it
    before it was quoted.
    """
    if voice in PRINTING:
        return True
    return coined is not None and voice in SPEAKING and anchor not in coined


def _source(origin: Speaker) -> str:
    """Who prints: a tool, or a voice."""
    return origin.name if origin.is_tool else origin.voice


def _clock(origin: Speaker, texts: Sequence["Said"]) -> Clock:
    if origin.voice == "user":
        return "user"
    if origin.voice == "assistant" and any(voice == "assistant" for voice, _, _ in texts):
        return "assistant"
    return "work"


class AnchorIndex:
    """What a history holds on to: its passages in order, and for each anchor where it was named."""

    def __init__(self, memory: "Memory | None" = None) -> None:
        self.memory = memory or Memory()
        self.origins: list[Speaker] = []
        self.weights: list[float] = []  # of each message: what its mentions tell
        self.sizes: list[int] = []  # of each message: how many anchors it names
        self.printed: dict[str, SourceOutput] = {}  # of each source: how much of what it prints
        self.first: list[int] = [0]  # of each message: its first passage; one more at the end
        self.passages: list[Passage] = []
        self.places: list[int] = []  # of each passage: its message
        self.clocks: list[Clock] = []  # of each message: the clock by which it ages
        # of each voice: the passages that are worth something for their words
        self.spoken: dict[Voice, list[int]] = {}
        self.traces: dict[str, Trace] = {}
        self.spoken_words = SpokenWords()  # of the model
        self.judged: dict[int, float] = {}  # of passages that were quoted before: their novelty
        self.size = 0  # about how many bytes all this takes
        self._calls: dict[str, Speaker] = {}

    def __len__(self) -> int:
        return len(self.origins)

    def add(self, source: Message | Quote) -> None:
        """Take in the next message, or what was quoted of one."""
        if isinstance(source, Quote):
            # What a tool was asked was on its label, which is shorter now.
            speaker = Speaker(source.voice, source.speaker)
            self._add(speaker, tuple(_quoted_texts(source)), source.coined)
            self.clocks[-1] = "quotes"
        else:
            self._add(self._origin(source, len(self.origins)), tuple(_texts(source)))
        read = range(self.first[-2], self.first[-1])
        if isinstance(source, Quote) and len(source.novelty) == len(source.lines):
            self.judged |= {n: source.novelty[self.passages[n].line] for n in read}
        elif words := {word for n in read for word in self.passages[n].words}:
            self.spoken_words.add(words)

    def _add(
        self, origin: Speaker, texts: tuple["Said", ...], coined: tuple[str, ...] | None = None
    ) -> None:
        place = len(self.origins)
        named = 0
        read = self.memory.passages(texts)
        for number, passage in enumerate(read, len(self.passages)):
            if passage.said:
                self.spoken.setdefault(passage.voice, []).append(number)
            named += len(passage.anchors)
            for anchor in passage.anchors:
                trace = self.traces.get(anchor)
                if trace is None:
                    trace = self._trace(anchor, origin, place, number)
                    trace.is_coined = passage.voice in SPEAKING and not _COUNT.fullmatch(anchor)
                    self.traces[anchor] = trace
                if trace.is_coined and _is_known(anchor, passage.voice, coined):
                    trace.is_coined = False
                if trace.passages[-1] == number:
                    continue
                trace.passages.append(number)
                if trace.messages[-1] != place:
                    trace.messages.append(place)
        self.size += _bytes_of(texts, read)
        self.passages += read
        self.places += [place] * len(read)
        self.origins.append(origin)
        self.clocks.append(_clock(origin, texts))
        self.sizes.append(named)
        self.printed.setdefault(_source(origin), SourceOutput()).messages += 1
        self.weights.append(
            VOICES[origin.voice]
            + (ALONE_WEIGHT / (1 + named / FEW_ANCHORS) if origin.is_tool else 0.0)
        )
        self.first.append(len(self.passages))

    def _trace(self, anchor: str, origin: Speaker, place: int, number: int) -> Trace:
        """The trace of an anchor that is named for the first time."""
        kind = _kind(anchor)
        if kind:
            printed = self.printed.setdefault(_source(origin), SourceOutput())
            printed.anchors[kind] = printed.anchors.get(kind, 0) + 1
        return Trace(kind, [place], [number])

    def rarity(self, kind: str, places: Sequence[int]) -> float:
        """How rare this kind of anchor is with whoever named it at these places: 1 for a source
        that hardly ever prints one, less the more it prints.
        """
        rates = [self.printed[_source(self.origins[place])].rate(kind) for place in places]
        return 1 / (1 + min(rates) / OFTEN_ANCHORS)

    def novelty(self, number: int) -> float:
        """How new a passage of the model was when it was said, from 0 to 1."""
        known = self.judged.get(number)
        if known is None:
            return self.spoken_words.novelty(self.passages[number].words)
        return known

    def find_coined(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The anchors of these passages that were coined, each once."""
        named = [anchor for number in numbers for anchor in self.passages[number].anchors]
        return tuple([name for name in dict.fromkeys(named) if self.traces[name].is_coined])

    def of_message(self, place: int) -> list[Passage]:
        return self.passages[self.first[place] : self.first[place + 1]]

    def _origin(self, message: Message, place: int) -> Speaker:
        for call in message.calls:
            name = name_speaker("call", "tool", call.name)
            self._calls[call.id] = Speaker("call", name, describe_call(call), place)
        results = message.results
        if message.role != "tool" or not results:
            said = _voice(message)
            return Speaker(said, name_speaker(said, message.role, message.author))
        answered = [
            self._calls.get(result.call_id)
            or Speaker("call", name_speaker("call", "tool", result.name))
            for result in results
        ]
        voice: Voice = "result"
        if any(result.error for result in results):
            voice = "error"
        if len(answered) == 1:
            return Speaker(voice, answered[0].name, answered[0].about, answered[0].call)
        return Speaker(
            voice, ", ".join(dict.fromkeys([call.name for call in answered])), "", answered[0].call
        )


def _plain(text: str) -> str:
    return " ".join(text.split())


def describe_call(call: ToolCall) -> str:
    """What a call asks: its arguments as they are where they are short, else the first text in
    them.
    """
    if len(call.arguments) <= MAX_CALL_CHARS and len(call.arguments.splitlines()) < 2:
        return call.arguments.strip()
    try:
        value = from_json(call.arguments)
    except ValueError:
        value = None
    found = call.arguments
    if isinstance(value, dict):
        found = next(
            (item for item in value.values() if isinstance(item, str) and item.strip()), ""
        )
    found = _plain(found[: 4 * MAX_ABOUT_CHARS])
    if len(found) <= MAX_ABOUT_CHARS:
        return found
    return found[: MAX_ABOUT_CHARS - 1] + "…"


def _voice(message: Message) -> Voice:
    match message.role:
        case "user" | "assistant":
            return message.role
        case "tool":
            return "result"
        case "system" | "developer":
            return "system"
        case _:
            assert_never(message.role)


@lru_cache(maxsize=1 << 16)
def _kind(anchor: str) -> Kind:
    """What kind of name an anchor is: what looks random cannot be guessed, a place in a tree is
    come back to.
    """
    if "/" in anchor and "://" not in anchor:
        return "path"
    if len(anchor) > 5 and _RANDOM.search(anchor):
        return "random"
    return ""


Found = tuple[int, int, str]  # where an anchor begins and ends in a line, and its text


# Sets of letters this large take many milliseconds to compile, so that is left to the first use.
@cache
def _cjk_letter() -> re.Pattern[str]:
    return re.compile(f"[{_CJK}]")


@cache
def _runs(escaped: bool, mixed: bool) -> re.Pattern[str]:
    passed = _RUN if mixed else _PASSED + _RUN
    return re.compile(_ESCAPE + passed if escaped else passed, re.VERBOSE)


def find_anchors(line: str, escaped: bool = False) -> list[Found]:
    r"""The anchors of a line. In escaped text, as in the arguments of a call, `\n` and its like
    belong to no word.
    """
    found: list[Found] = []
    # Among signs that have no spaces between words, every Latin word is a name.
    mixed = not line.isascii() and _cjk_letter().search(line) is not None
    for match in _runs(escaped, mixed).finditer(line):
        kind = match.lastgroup
        if kind is None:
            continue
        start, stop = match.span(kind)
        text = match[kind]
        if kind == "run":
            names = _names(text) if 2 < len(text) <= MAX_ANCHOR_CHARS else ()
            if names:
                found += [(start + low, start + high, text[low:high]) for low, high in names]
                if (
                    escaped
                    and start > 1
                    and names[0][0] == 0
                    and line[start - 2] == "\\"
                    and line[start - 1] in "nt"
                ):
                    # What begins a line of code that the model wrote is worth showing there, even
                    # where a listing shows it too.
                    found.append(
                        (start - 1, start + names[0][1], line[start - 1 : start + names[0][1]])
                    )
            elif mixed and 2 <= len(text) <= MAX_ANCHOR_CHARS and not text.isdigit():
                found.append((start, stop, text))
        elif kind == "url":
            text = text.rstrip(".,;:!?")[: 2 * MAX_ANCHOR_CHARS]
            found.append((start, start + len(text), text))
        else:
            found.append((start, stop, text))
    return found


@lru_cache(maxsize=1 << 16)
def _names(run: str) -> tuple[tuple[int, int], ...]:
    """Where the names in a run are."""
    stop = len(run.rstrip("./@+:~-"))
    whole = run[:stop]
    if "/" in whole:
        stop = whole.find(":") if ":" in whole else stop
        if stop > 2:
            return ((0, stop),)
        return ()
    if (
        _DIGITS.fullmatch(whole)
        or whole.startswith("--")
        or "@" in whole
        or (whole[0] == "#" and len(whole) > 3)
    ):
        return ((0, stop),)
    if "-" in whole and _CODE.fullmatch(whole):
        return ((0, stop),)
    if names := [match.span() for match in _PARTS.finditer(whole) if _NAME.fullmatch(match[0])]:
        return tuple(names)
    file = whole.partition(":")[0]
    if "." in file and _FILE.fullmatch(file):
        return ((0, len(file)),)
    return ()


def forget_names() -> None:
    """Let go of the short runs of letters that were looked at last."""
    _names.cache_clear()
    _kind.cache_clear()


Said = tuple[Voice, bool, str]  # whose words, whether they are escaped, and the words


class Memory:
    """The passages of what was read last, by content: what stands behind a cover now is told of in
    the next one.
    """

    def __init__(self, messages: int = MAX_READ_MESSAGES, held: int = MAX_HELD_BYTES) -> None:
        self._most, self._most_held = messages, held
        self._new: dict[tuple[Said, ...], tuple[Passage, ...]] = {}
        self._old: dict[tuple[Said, ...], tuple[Passage, ...]] = {}
        self._held = 0  # about how many bytes the new ones take

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def clear(self) -> None:
        self._new, self._old, self._held = {}, {}, 0

    def passages(self, texts: tuple[Said, ...]) -> tuple[Passage, ...]:
        known = self._new.get(texts)
        if known is None:
            known = self._old.get(texts)
            known = tuple(_read(texts)) if known is None else known
            self._keep(texts, known)
        return known

    def _keep(self, texts: tuple[Said, ...], passages: tuple[Passage, ...]) -> None:
        held = _bytes_of(texts, passages)
        if held > self._most_held // 4:  # it would drive out all the rest
            return
        self._new[texts] = passages
        self._held += held
        if len(self._new) >= self._most or self._held > self._most_held:
            self._old, self._new, self._held = self._new, {}, 0


def _bytes_of(texts: tuple[Said, ...], passages: tuple[Passage, ...]) -> int:
    """About what they take."""
    return sum([len(text) for _, _, text in texts]) + PASSAGE_BYTES * len(passages)


def passages_of(message: Message, memory: Memory) -> tuple[Passage, ...]:
    """The passages of a message that may be worth keeping: all that is said, and what tools show
    with names in it.
    """
    return memory.passages(tuple(_texts(message)))


def _read(texts: tuple[Said, ...]) -> Iterator[Passage]:
    number = -1
    for voice, escaped, text in texts:
        lines = text.splitlines()
        prose = voice not in ("call", "result") or (
            voice == "result" and len(lines) <= MAX_ANSWER_LINES
        )
        for raw in lines:
            number += 1
            line = raw.strip()
            if not line:
                continue
            found = find_anchors(line, escaped)
            if found or prose or (voice == "result" and _tells(line, _ERRORS, _ERROR)):
                yield from _cut_line(line, found, voice, prose, number)


def _texts(message: Message) -> Iterator[Said]:
    said = _voice(message)
    for part in message.parts:
        match part:
            case Text():
                yield said, False, part.text
            case Reasoning():
                yield "thought", False, part.text
            case ToolCall():
                yield "call", part.kind == "function", f"{part.name} {part.arguments}"
            case ToolResult():
                for inner in part.parts:
                    if isinstance(inner, Text):
                        yield "error" if part.error else "result", False, inner.text
            case Media() | Opaque():
                pass
            case _:
                assert_never(part)


def _quoted_texts(quote: Quote) -> Iterator[Said]:
    """The lines of a quote, those of one voice that follow each other as one text."""
    for voice, lines in groupby(quote.lines, key=itemgetter(0)):
        yield voice, voice == "call", "\n".join([text for _, text in lines])


def _cut_line(
    line: str, found: list[Found], voice: Voice, prose: bool, number: int
) -> Iterator[Passage]:
    if len(line) <= MAX_WHOLE_CHARS:
        anchors = tuple(dict.fromkeys([anchor for _, _, anchor in found]))
        said, defines = _score_signs(line, voice, prose), _DEFINES.search(line) is not None
        words = _find_words(line, found, voice)
        size = _bytes(line)
        yield Passage(number, line, 0, len(line), anchors, voice, size, said, defines, words)
        return
    # The first time a line names a thing stands for all.
    firsts: dict[str, Found] = {}
    for one in found:
        firsts.setdefault(one[2], one)
    for low, high, anchors in _pieces(line, sorted(firsts.values()), prose):
        text, said = line[low:high], _score_signs(line[low:high], voice, prose)
        inside = [(start - low, stop - low, name) for start, stop, name in found if start >= low]
        words = _find_words(text, inside, voice)
        yield Passage(number, line, low, high, anchors, voice, _bytes(text), said, words=words)


def _find_words(text: str, found: Iterable[Found], voice: Voice) -> tuple[str, ...]:
    if voice in FIRST_VOICES:
        return find_words(text, found)
    return ()


def _bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode(errors="surrogatepass"))


def _score_signs(text: str, voice: Voice, prose: bool) -> float:
    if voice == "call":
        return 0.0
    if voice in ("result", "error"):
        noted = _tells(text, _ERRORS, _ERROR)
    else:
        noted = _tells(text, _TASKS, _TASK)
    return (WORDS[voice] if prose else 0.0) + (NOTED_WEIGHT if noted else 0.0)


def _tells(text: str, stems: tuple[str, ...], pattern: re.Pattern[str]) -> bool:
    """Whether the pattern is in the text. It is slow and seldom there, and in plain letters never
    without one of the stems.
    """
    if text.isascii():
        lowered = text.lower()
        for stem in stems:
            if stem in lowered:
                break
        else:
            return False
    return pattern.search(text) is not None


def _pieces(
    line: str, found: list[Found], prose: bool
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """A long line in pieces: prose by sentences, and what is too long even so around its
    anchors.
    """
    at = 0
    for low, high in _sentences(line) if prose else [(0, len(line))]:
        until = at
        while until < len(found) and found[until][0] < high:
            until += 1
        inside, at = found[at:until], until
        if high - low <= MAX_WHOLE_CHARS:
            yield _piece(line, inside, low, high)
            continue
        if prose and (not inside or inside[0][0] - low > MAX_PIECE_CHARS):
            yield _piece(
                line, [], low, low + MAX_PIECE_CHARS
            )  # its beginning tells what it is about
        for group in _groups(inside):
            yield _piece(line, group, group[0][0], group[0][1])


def _groups(found: list[Found]) -> Iterator[list[Found]]:
    """Anchors that stand so near each other that one piece may hold them."""
    group: list[Found] = []
    for one in found:
        if group and (
            one[0] - group[-1][1] > MARGIN_CHARS or one[1] - group[0][0] > MAX_PIECE_CHARS
        ):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _piece(line: str, group: list[Found], low: int, high: int) -> tuple[int, int, tuple[str, ...]]:
    """A stretch of the line that holds these anchors, each with enough around it to be
    understood.
    """
    if group:
        low, high = (
            min(low, group[0][0] - MARGIN_CHARS),
            max(high, max(stop for _, stop, _ in group) + MARGIN_CHARS),
        )
    low, high = max(0, low), min(len(line), high)
    # A word cut in half misleads; where a space is near, cut there.
    if low and (near := line.rfind(" ", max(0, low - 12), low)) >= 0:
        low = near + 1
    if high < len(line) and (near := line.find(" ", high, high + 12)) >= 0:
        high = near
    elif high < len(line) and line[high - 1] == "\\":
        high += 1
    return low, high, tuple([anchor for _, _, anchor in group])


def _sentences(line: str) -> Iterator[tuple[int, int]]:
    low = high = 0
    for match in _SENTENCE.finditer(line):
        if match.end() - low > MAX_PIECE_CHARS and high > low:
            yield low, high
            low = high
        high = match.end()
    if high > low and len(line) - low > MAX_PIECE_CHARS:
        yield low, high
        low = high
    if low < len(line):
        yield low, len(line)
