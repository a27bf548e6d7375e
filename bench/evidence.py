"""Evidence recall: is what the answer needs among what a search finds (TARGETS.md 3)?

    python bench/evidence.py [FILE] [--embedder NAME] [--each] [--kinds] [--others]

FILE is in the format of LoCoMo (default: the shared half of it; LOOM_SHARED, or ../shared): long
conversations of two speakers over many dates, and questions with the turns that answer them. The
score is the share of questions whose turns are ALL among what is found in the budget. Tokens are
o200k; a line is "Speaker: text"; the date of a session is charged once if a line of it is used.
Questions that cannot be answered are dropped. `recency` is the newest lines that fit, `bm25` the
best by BM25 on stems. Each result is counted again here, and the bench ends with an error if one is
over its budget, or holds a line twice.

`--embedder` adds Loom with an embedder (`static`, `minilm`, an address). `--each` prints
each conversation, `--kinds` each kind of question. `--others` measures the same engine on other
shared data, to see that nothing is tuned to this set: answers of different people to the same
message, and messages of an agent's session by half of a line.
"""

import argparse
import json
import math
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

import loom
from loom.budget.tokenizers import tokenizer
from loom.conversation.words import split_terms
from loom.providers.embedders.choice import choose_embedder
from loom.recall.choosing import Room
from loom.recall.corpus import Corpus, CorpusEntry
from loom.recall.embedder import Embedder
from loom.recall.search import SearchRequest, search
from loom.recall.times import DAY_MS, to_days

SHARED = Path(
    os.environ.get("LOOM_SHARED", Path(__file__).resolve().parent.parent / ".." / "shared")
).resolve()
BUDGETS = (1_000, 2_000, 4_000, 8_000)
WANTED = {"loom": (77, 83, 88, 93), "bundled": (78, 84.5, 89.5, 94), "extra": (80, 87, 92, 96)}
KINDS = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop"}
UNANSWERABLE = 5
_MONTHS = "January February March April May June July August September October November December"
_DATE = re.compile(r"(\d+):(\d+) ([ap])m on (\d+) (\w+), (\d+)")
count = tokenizer("o200k_base")


class AskedQuestion(Struct, frozen=True):
    text: str
    evidence: frozenset[int]
    kind: int


class Talk(Struct, frozen=True):
    """A conversation: lines with their session and speaker, dates of sessions, questions."""

    name: str
    entries: tuple[CorpusEntry, ...]
    headers: dict[str, int]
    questions: tuple[AskedQuestion, ...]


def read_talks(path: Path) -> list[Talk]:
    return [_read_talk(each) for each in json.loads(path.read_text(encoding="utf-8"))]


def _read_talk(given: dict[str, Any]) -> Talk:
    conversation = given["conversation"]
    entries: list[CorpusEntry] = []
    headers: dict[str, int] = {}
    places: dict[tuple[int, int], int] = {}
    for number in range(1, 1 + len(conversation)):
        session, date = f"session_{number}", conversation.get(f"session_{number}_date_time", "")
        for place, turn in enumerate(conversation.get(session) or ()):
            headers[session] = count(date + "\n")
            places[_ids_in(turn["dia_id"])[0]] = len(entries)
            line = f"{turn['speaker']}: {turn['text']}\n"
            entries.append(
                CorpusEntry(
                    len(entries),
                    session,
                    place,
                    turn["text"],
                    count(line),
                    author=turn["speaker"],
                    created=_read_date(date),
                )
            )
    questions = []
    for asked in given["qa"]:
        ids = {one for text in asked["evidence"] for one in _ids_in(text)}
        evidence = frozenset(places[one] for one in ids if one in places)
        if evidence and asked["category"] != UNANSWERABLE:
            questions.append(AskedQuestion(asked["question"], evidence, asked["category"]))
    return Talk(given["sample_id"], tuple(entries), headers, tuple(questions))


def _ids_in(text: str) -> list[tuple[int, int]]:
    """The ids of turns in a text. Some are malformed: 'D8:6; D9:17', 'D:11:26', 'D30:05'."""
    return [(int(a), int(b)) for a, b in re.findall(r"D:?(\d+):(\d+)", text)]


def _read_date(text: str) -> int:
    match = _DATE.match(text)
    if match is None:
        return 0
    hour, minute, half, day, month, year = match.groups()
    hours = int(hour) % 12 + 12 * (half == "p")
    days = to_days(int(year), _MONTHS.split().index(month) + 1, int(day))
    return days * DAY_MS + (hours * 60 + int(minute)) * 60_000


Finder = Callable[[str, int], Sequence[int]]  # question and budget in, keys of lines out


def fill(talk: Talk, order: Sequence[int], budget: int) -> list[int]:
    """The first lines of an order that fit."""
    found: list[int] = []
    sessions: set[str] = set()
    for key in order:
        entry = talk.entries[key]
        price = entry.tokens + (entry.session not in sessions) * talk.headers[entry.session]
        if price <= budget:
            budget -= price
            sessions.add(entry.session)
            found.append(key)
    return found


def find_recent(talk: Talk) -> Finder:
    newest = range(len(talk.entries) - 1, -1, -1)
    return lambda question, budget: fill(talk, newest, budget)


def find_by_bm25(talk: Talk) -> Finder:
    counts = [Counter(split_terms(f"{one.author}: {one.text}")) for one in talk.entries]
    said_by = Counter(term for each in counts for term in each)
    lengths = [each.total() for each in counts]
    usual = sum(lengths) / len(lengths)

    def score(key: int, terms: set[str]) -> float:
        held = 1.2 * (0.25 + 0.75 * lengths[key] / usual)
        return sum(
            math.log(1 + (len(counts) - said_by[term] + 0.5) / (said_by[term] + 0.5))
            * (counts[key][term] * 2.2 / (counts[key][term] + held))
            for term in terms
        )

    def find(question: str, budget: int) -> Sequence[int]:
        terms = {term for term in split_terms(question) if said_by[term]}
        keys = sorted(range(len(counts)), key=lambda key: (-score(key, terms), -key))
        return fill(talk, keys, budget)

    return find


def find_by_loom(talk: Talk, embedder: Embedder | None = None) -> Finder:
    corpus = Corpus(talk.entries, embedder)

    def find(question: str, budget: int) -> Sequence[int]:
        room = Room(tokens=budget, session_tokens=talk.headers)
        matches = search(corpus, SearchRequest(question, room), embedder)
        check_budget(talk, [match.tokens for match in matches], budget)
        found = [key for match in matches for key in (*match.before, match.key, *match.after)]
        check_lines(talk, found, budget)
        return found

    return find


def check_budget(talk: Talk, tokens: Sequence[int], budget: int) -> None:
    if sum(tokens) > budget:
        sys.exit(f"{talk.name}: {sum(tokens)} tokens in a budget of {budget}")


def check_lines(talk: Talk, found: Sequence[int], budget: int) -> None:
    if len(found) != len(set(found)):
        sys.exit(f"{talk.name}: a line was found twice")
    lines = sum(talk.entries[key].tokens for key in found)
    dates = sum(talk.headers[name] for name in {talk.entries[key].session for key in found})
    if lines + dates > budget:
        sys.exit(f"{talk.name}: lines of {lines} and dates of {dates} tokens in {budget}")


class Tally(Struct):
    """How many questions were asked, and how many answered in each budget, by group."""

    asked: Counter[str]
    answered: dict[str, list[int]]
    seconds: list[float]

    def shares(self, group: str) -> list[float]:
        return [round(100 * one / self.asked[group], 1) for one in self.answered[group]]


def measure(talks: Sequence[Talk], make: Callable[[Talk], Finder]) -> Tally:
    tally = Tally(Counter(), defaultdict(lambda: [0] * len(BUDGETS)), [])
    for talk in talks:
        find = make(talk)
        for asked in talk.questions:
            groups = ("all", talk.name, KINDS.get(asked.kind, "other"))
            tally.asked.update(groups)
            for n, budget in enumerate(BUDGETS):
                begun = time.perf_counter()
                found = find(asked.text, budget)
                tally.seconds.append(time.perf_counter() - begun)
                for group in groups:
                    tally.answered[group][n] += asked.evidence <= set(found)
    return tally


def print_tally(name: str, tally: Tally, groups: Sequence[str]) -> None:
    slow = sorted(tally.seconds)[int(len(tally.seconds) * 0.95)] * 1000
    for group in ("all", *groups):
        label = name if group == "all" else f"  {group}"
        figures = "".join(f"{share:8.1f}" for share in tally.shares(group))
        print(f"{label:<24}{figures}" + (f"{slow:10.1f}" if group == "all" else ""))


def load_embedder(name: str) -> Embedder:
    embedder = choose_embedder(name)
    if embedder is None:
        sys.exit(f"{name!r} is no embedder")
    return embedder


def measure_evidence(path: Path, embedders: Sequence[str], each: bool, kinds: bool) -> None:
    talks = read_talks(path)
    tokens = sum(entry.tokens for talk in talks for entry in talk.entries)
    begun = time.perf_counter()
    for talk in talks:
        Corpus(talk.entries)
    seconds = time.perf_counter() - begun
    asked = sum(len(talk.questions) for talk in talks)
    print(
        f"{len(talks)} conversations, {tokens:,} tokens indexed in {seconds:.2f} s; {asked} asked"
    )
    print(f"{'percent':<24}" + "".join(f"{budget:8,}" for budget in BUDGETS) + "    p95 ms")
    names = [talk.name for talk in talks] if each else []
    groups = names + (list(KINDS.values()) if kinds else [])
    print_tally("recency", measure(talks, find_recent), [])
    print_tally("bm25", measure(talks, find_by_bm25), groups)
    print_tally("loom", measure(talks, find_by_loom), groups)
    for name in embedders:
        embedder = load_embedder(name)
        tally = measure(talks, lambda talk, by=embedder: find_by_loom(talk, by))
        print_tally(f"loom + {embedder.name}"[:23], tally, groups)
    for name, wanted in WANTED.items():
        print(f"{'wanted: ' + name:<24}" + "".join(f"{one:8.1f}" for one in wanted))


# Something else: the same engine on other data


class Sought(Struct, frozen=True):
    """Words to seek by, the documents that are sought, and the one that the words come from."""

    words: str
    keys: tuple[int, ...]
    source: int | None = None


def read_answers(path: Path) -> tuple[list[CorpusEntry], list[Sought]]:
    """In conversation trees: other people's answers to the same message, by the first sentence of
    one of them.
    """
    entries: list[CorpusEntry] = []
    sought: list[Sought] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        waiting = [json.loads(line)["prompt"]]
        while waiting:
            replies = waiting.pop().get("replies", [])
            first = len(entries)
            keys = range(first, first + len(replies))
            for key, reply in zip(keys, replies, strict=True):
                text = reply["text"]
                entries.append(CorpusEntry(key, str(key), 0, text, count(text)))
            for key in keys:
                sentence = re.split(r"(?<=[.!?])\s|\n", entries[key].text.strip())[0][:300]
                if len(keys) > 1 and len(split_terms(sentence)) >= 5:
                    others = tuple(other for other in keys if other != key)
                    sought.append(Sought(sentence, others, key))
            waiting += replies
    return entries, sought


def read_halves(path: Path) -> tuple[list[CorpusEntry], list[Sought]]:
    """In the session of an agent: a message, by every second word of its longest line."""
    run = next(iter(loom.read_runs(path)))
    entries: list[CorpusEntry] = []
    sought: list[Sought] = []
    for place, message in enumerate(run.conversation().messages):
        results = [part for result in message.results for part in result.parts]
        parts = [part.text for part in (*message.parts, *results) if isinstance(part, loom.Text)]
        text = "\n".join((*parts, *(call.arguments for call in message.calls)))
        if not text:
            continue
        entries.append(CorpusEntry(place, "s", place, text, count(text), message.role))
        lines = [line for part in parts for line in part.splitlines()]
        words = max(lines, key=len, default="").split()[:40:2]
        if message.role in ("user", "assistant") and len(words) >= 5:
            sought.append(Sought(" ".join(words).replace('"', "")[:300], (place,)))
    return entries, sought


def measure_others(embedders: Sequence[str]) -> None:
    """The share of what is sought that is among the first N found."""
    folder = SHARED / "data"
    ranks = (1, 5, 10, 20)
    for label, (entries, sought) in (
        ("other answers", read_answers(folder / "trees" / "oasst_en_100_tree.jsonl")),
        ("half of a line", read_halves(folder / "agents" / "pi_large_session.jsonl")),
    ):
        print(f"{label}: {len(sought)} times sought in {len(entries)} messages")
        print(f"{'percent of them':<24}" + "".join(f"{n:8}" for n in ranks))
        for name in (None, *embedders):
            embedder = load_embedder(name) if name else None
            corpus = Corpus(entries, embedder)
            found = [0.0] * len(ranks)
            for one in sought:
                excluded = frozenset(() if one.source is None else (one.source,))
                asked = SearchRequest(one.words, Room(limit=max(ranks)), excluded)
                keys = [match.key for match in search(corpus, asked, embedder)]
                for n, rank in enumerate(ranks):
                    most = min(rank, len(one.keys))
                    found[n] += len(set(keys[:rank]) & set(one.keys)) / most / len(sought)
            label = f"loom + {embedder.name}" if embedder else "loom"
            print(f"{label[:23]:<24}" + "".join(f"{100 * share:8.1f}" for share in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--embedder", action="append", default=[], metavar="NAME")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--others", action="store_true")
    given = parser.parse_args()
    if given.others:
        measure_others(given.embedder)
        return
    talks = SHARED / "data" / "locomo" / "locomo_dev5.json"
    measure_evidence(given.file or talks, given.embedder, given.each, given.kinds)


if __name__ == "__main__":
    main()
