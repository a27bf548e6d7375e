"""What comes back by itself: is it what the request needs, and does nothing come back for nothing?

    python bench/recalled.py [FILE] [--show N]

FILE is in the format of LoCoMo (default: the shared half of it; LOOM_SHARED, or ../shared). Every
request is asked of a conversation that holds what answers it, far back, and of one that does not:

| requests | asked of | needed |
|---|---|---|
| questions about a conversation | that conversation | the turns that answer them |
| the same questions | another conversation | nothing |
| every second word of a line of an agent's session | that session | the message of the line |
| questions about conversations, first messages of other people | the same session | nothing |

`back` is the share of requests that bring anything back; `right` the share that bring back
something that is needed; `clean` the share of all passages that came back that are needed. Where
nothing is needed, `back` is what comes back for nothing. `--show` prints so many of these.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from evidence import SHARED, count, read_halves, read_talks
from loom.recall.corpus import Corpus, CorpusEntry
from loom.recall.relevance import find_relevant
from loom.recall.room import RecallRoom
from loom.recall.search import SearchRequest

ROOM = RecallRoom(tokens=1024, frame=48, count=count, is_shown=lambda line: False)


class Asked(Struct, frozen=True):
    """A request, and the keys of the messages that it needs."""

    text: str
    needed: frozenset[int] = frozenset()


class Tally(Struct):
    asked: int = 0
    back: int = 0
    right: int = 0
    passages: int = 0
    needed: int = 0
    seconds: float = 0.0


def measure(entries: Sequence[CorpusEntry], asked: Iterable[Asked], show: int) -> Tally:
    corpus = Corpus(entries)
    tally = Tally()
    for each in asked:
        begun = time.perf_counter()
        found = find_relevant(corpus, SearchRequest(each.text), ROOM)
        tally.seconds += time.perf_counter() - begun
        keys = {one.key for one in found}
        tally.asked += 1
        tally.back += bool(found)
        tally.right += bool(keys & each.needed)
        tally.passages += len(keys)
        tally.needed += len(keys & each.needed)
        if found and not each.needed and show > 0:
            show -= 1
            print(f"\n? {each.text[:300]!r}")
            for one in found:
                print(f"  {one.key}: {one.text[:300]!r}")
    return tally


def add(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        *(sum(getattr(each, name) for each in tallies) for name in Tally.__struct_fields__)
    )


def print_tally(label: str, tally: Tally, is_needed: bool) -> None:
    shares = f"{tally.asked:8,}{100 * tally.back / tally.asked:8.1f}"
    if is_needed:
        shares += f"{100 * tally.right / tally.asked:8.1f}"
        shares += f"{100 * tally.needed / max(tally.passages, 1):8.1f}"
    else:
        shares += 16 * " "
    print(f"{label:<44}{shares}{1000 * tally.seconds / tally.asked:8.1f}")


def read_openings(path: Path) -> list[str]:
    """The first messages of conversation trees."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["prompt"]["text"] for line in lines]


def measure_all(path: Path, show: int) -> None:
    print(
        f"{'percent':<44}"
        + "".join(f"{name:>8}" for name in ("asked", "back", "right", "clean", "ms"))
    )
    talks = read_talks(path)
    own, others = [], []
    for talk, other in zip(talks, (*talks[1:], talks[0]), strict=True):
        asked = [Asked(each.text, each.evidence) for each in talk.questions]
        own.append(measure(talk.entries, asked, 0))
        foreign = [Asked(each.text) for each in other.questions]
        others.append(measure(talk.entries, foreign, show // len(talks)))
    print_tally("conversations: their own questions", add(own), True)
    print_tally("conversations: those of others", add(others), False)
    session = SHARED / "data" / "agents" / "pi_large_session.jsonl"
    openings = SHARED / "data" / "trees" / "oasst_en_100_tree.jsonl"
    if not session.exists() or not openings.exists():
        return
    entries, sought = read_halves(session)
    halves = [Asked(each.words, frozenset(each.keys)) for each in sought]
    print_tally("an agent: half of a line", measure(entries, halves, 0), True)
    questions = [Asked(each.text) for talk in talks for each in talk.questions]
    print_tally(
        "an agent: questions of conversations",
        measure(entries, questions, show),
        False,
    )
    prompts = [Asked(text) for text in read_openings(openings)]
    print_tally("an agent: requests of others", measure(entries, prompts, show), False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--show", type=int, default=0, metavar="N")
    given = parser.parse_args()
    path = given.file or SHARED / "data" / "locomo" / "locomo_dev5.json"
    if not path.exists():
        sys.exit(f"{path} is missing")
    measure_all(path, given.show)


if __name__ == "__main__":
    main()
