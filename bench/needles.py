"""What was stated once in 5,000 messages of agent work: how much of it does a request still show?

python bench/needles.py [--only KIND ...] [--ways WAY ...] [--seeds N] [--messages N] [--quick]
[--missed] [--json]
Statements of six shapes (a hex code, a ticket, a URL, a name with a number, a path, a decision in
plain words) are made once by the user or by the model, in made-up sessions of three kinds
(agent_sessions.py) whose tools print hex words, dates and paths. A statement is visible if its
value stands in the request, of a decision the whole sentence. Requests are of 32,000 tokens with no
reserve. Nothing here is a test.

one shot   `weave` with all messages
grown      a session in memory that is asked at every call, at the last one
imported   a session that was read into a store from a file, and asked once
newest     no Loom: the newest messages that fit
third      no Loom: the user's messages in a third of the window, then the newest

recall     what comes back by a handle that stands in the request, or is visible
search     what is among the first ten hits of a search for its words without the value, or visible

Tune on one kind: the other two are held out. At the end the bench says what is missed of the wanted
figures.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import agent_sessions
import loom
from agent_sessions import SHAPES, SPEAKERS, TUNED_ON, AgentSession, Needle
from loom.engine.importing import import_run
from loom.engine.measures import message_tokens, text_of
from loom.engine.replay import FIRST_TIME_MS
from thread import Transcript, parse, tokens_of

WINDOW = 32_000
USER_TOKENS = 8_000  # what the user says at most
HITS = 10
IDENTIFIED = SHAPES[:-1]
WANTED_USER, WANTED_MODEL, WANTED_FOUND, WANTED_NEAR = 90, 60, 100, 10  # percent, and points
BASELINES = ("newest", "third")

Row = dict[str, Any]
Chat = dict[str, Any]
_HANDLE = re.compile(r"~[0-9a-z]{8,}")


class Sent:
    """A request, and the ways back to what it leaves out."""

    def __init__(
        self,
        messages: Sequence[Chat],
        recall: Callable[[str], str] | None = None,
        search: Callable[[str], list[str]] | None = None,
    ) -> None:
        self.tokens = sum(message_tokens(message, tokens_of) for message in messages)
        self.text = "\n".join(text_of(message) for message in messages)
        self.plain = " ".join(self.text.split())
        self.recall, self.search = recall, search

    def shows(self, needle: Needle) -> bool:
        return needle.value in self.plain

    def recall_all(self) -> str:
        """What comes back by the handles that a reader of the request sees."""
        assert self.recall is not None
        return "\n".join(map(self.recall, dict.fromkeys(_HANDLE.findall(self.text))))

    def finds(self, needle: Needle) -> bool:
        assert self.search is not None
        return any(needle.value in found for found in self.search(needle.query))


# ── the ways ─────────────────────────────────────────────────────────────────


def open_store(url: str) -> loom.Loom:
    """With a clock and ids that are the same in each run."""
    clock, ids = count(FIRST_TIME_MS), count()
    return loom.Loom.open(url, now=lambda: next(clock), fresh_id=lambda: f"{next(ids):032x}")


def sent_by(session: loom.Session, context: loom.Context) -> Sent:
    def search(query: str) -> list[str]:
        return [session.recall(hit.handle) for hit in session.search(query, HITS)]

    return Sent(context.openai()["messages"], session.recall, search)


async def prepare(session: loom.Session) -> loom.Context:
    return await session.prepare(model="gpt-4o", window=WINDOW, reserve_output=0)


async def send_once(transcript: Transcript, _: loom.Loom) -> Sent:
    context = loom.weave(transcript.conversation, model="gpt-4o", window=WINDOW, reserve_output=0)
    return Sent(context.openai()["messages"], context.recall)


async def send_grown(transcript: Transcript, store: loom.Loom) -> Sent:
    session = store.new()
    conversation = transcript.conversation
    await session.aappend(*conversation.system)
    appended = 0
    for place, message in enumerate(conversation.messages):
        if message.role == "assistant" and place:
            await session.aappend(*conversation.messages[appended:place])
            appended = place
            await prepare(session)
    await session.aappend(*conversation.messages[appended:])
    return sent_by(session, await prepare(session))


async def send_imported(transcript: Transcript, store: loom.Loom) -> Sent:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        messages = transcript.system + transcript.messages
        path.write_text(json.dumps({"model": "gpt-4o", "messages": messages}), encoding="utf-8")
        session = import_run(store, next(iter(loom.read_runs(str(path)))))
    return sent_by(session, await prepare(session))


async def send_newest(transcript: Transcript, _: loom.Loom) -> Sent:
    return Sent(transcript.send_newest(len(transcript.messages), WINDOW))


async def send_third(transcript: Transcript, _: loom.Loom) -> Sent:
    return Sent(transcript.send_third(len(transcript.messages), WINDOW))


WAYS = {
    "one shot": send_once,
    "grown": send_grown,
    "imported": send_imported,
    "newest": send_newest,
    "third": send_third,
}


# ── the measuring ────────────────────────────────────────────────────────────


def measure(
    kind: str, way: str, session: AgentSession, transcript: Transcript, searched: int
) -> Row:
    """One request. Every so manyth statement that it does not show is searched for."""
    with open_store(":memory:") as store:
        started = time.perf_counter()
        sent = asyncio.run(WAYS[way](transcript, store))
        seconds = time.perf_counter() - started
        found = [{"needle": needle, "visible": sent.shows(needle)} for needle in session.needles]
        if sent.recall:
            recalled = sent.recall_all()
            for row in found:
                row["recalled"] = row["visible"] or is_in(row["needle"].value, recalled)
        if sent.search:
            for row in found[::searched]:
                row["searched"] = row["visible"] or sent.finds(row["needle"])
    return {"kind": kind, "way": way, "tokens": sent.tokens, "seconds": seconds, "found": found}


def is_in(value: str, recalled: str) -> bool:
    """Whether it came back; messages come back as JSON."""
    return value in recalled or json.dumps(value)[1:-1] in recalled


def share(found: Sequence[Row], name: str, speaker: str, shapes: Sequence[str]) -> float | None:
    """Of the statements for which it is known, those for which it holds, in percent."""
    known = [
        row[name]
        for row in found
        if name in row and row["needle"].speaker == speaker and row["needle"].shape in shapes
    ]
    return round(100 * sum(known) / len(known), 1) if known else None


def add_up(runs: Sequence[Row]) -> Row:
    """The requests of one kind and way, for several seeds, as one row."""
    found = [row for run in runs for row in run["found"]]
    row: Row = {name: runs[0][name] for name in ("kind", "way")}
    row |= {"held_out": row["kind"] != TUNED_ON, "runs": len(runs)}
    row |= {name: sum(run[name] for run in runs) / len(runs) for name in ("tokens", "seconds")}
    for speaker in SPEAKERS:
        row[speaker] = {shape: share(found, "visible", speaker, (shape,)) for shape in SHAPES}
        row[speaker]["identified"] = share(found, "visible", speaker, IDENTIFIED)
        row[speaker]["all"] = share(found, "visible", speaker, SHAPES)
        row[speaker]["recall"] = share(found, "recalled", speaker, SHAPES)
        row[speaker]["search"] = share(found, "searched", speaker, SHAPES)
    row["missed"] = [
        [each["needle"].speaker, each["needle"].place, each["needle"].sentence]
        for each in found
        if not each["visible"]
    ]
    return row


def check_session(session: AgentSession) -> None:
    """Every value stands there once, and the user says no more than is allowed."""
    whole = "\n".join(text_of(message) for message in session.messages)
    if twice := [needle.value for needle in session.needles if whole.count(needle.value) != 1]:
        sys.exit(f"stated more than once, or not at all: {twice}")
    spoken = sum(
        message_tokens(message, tokens_of)
        for message in session.messages
        if message["role"] == "user"
    )
    if spoken > USER_TOKENS:
        sys.exit(f"the user says {spoken} tokens, of {USER_TOKENS} allowed")


# ── the telling ──────────────────────────────────────────────────────────────

COLUMNS = (*SHAPES, "all", "recall", "search")


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def show_head() -> None:
    heads = " ".join(f"{name[:8]:>8}" for name in COLUMNS)
    print(f"visible of 100 at {WINDOW:,} tokens\n{'':<37}{heads} {'tokens':>7} {'s':>6}")


def show(row: Row) -> None:
    held = "held out" if row["held_out"] else "tuned on"
    for speaker in SPEAKERS:
        name = f"{row['kind']} ({held}), {row['way']}" if speaker == SPEAKERS[0] else ""
        figures = " ".join(f"{figure(row[speaker][column]):>8}" for column in COLUMNS)
        who = "user" if speaker == "user" else "model"
        size = f" {row['tokens']:>7,.0f} {row['seconds']:>6.1f}" if name else ""
        print(f"{name:<31}{who:<6}{figures}{size}", flush=True)


def judge(rows: Sequence[Row]) -> str:
    """What Loom misses of the wanted figures; nothing where it meets all of them."""
    missed = []
    once = {row["kind"]: row for row in rows if row["way"] == "one shot"}
    for row in rows:
        if row["way"] in BASELINES:
            continue
        title = f"{row['kind']}, {row['way']}"
        user, model = row["user"]["all"], row["assistant"]["identified"]
        if user < WANTED_USER:
            missed.append(f"{title}: user {user} (wanted {WANTED_USER})")
        if model < WANTED_MODEL:
            missed.append(f"{title}: identifiers of the model {model} (wanted {WANTED_MODEL})")
        for speaker in SPEAKERS:
            best = max(row[speaker]["recall"] or 0, row[speaker]["search"] or 0)
            if best < WANTED_FOUND:
                missed.append(f"{title}: recall or search of the {speaker} {best}")
        if beside := once.get(row["kind"]):
            for speaker, name in (("user", "all"), ("assistant", "identified")):
                apart = beside[speaker][name] - row[speaker][name]
                if apart > WANTED_NEAR:
                    missed.append(f"{title}: {speaker} {apart:.1f} points below one shot")
    return "missed:\n  " + "\n  ".join(missed) if missed else ""


def main() -> None:
    options = argparse.ArgumentParser(
        description="How much of what was stated once a request still shows."
    )
    kinds = tuple(agent_sessions.KINDS)
    options.add_argument("--only", nargs="+", choices=kinds, default=kinds, help="these kinds")
    options.add_argument("--ways", nargs="+", choices=WAYS, help="these ways")
    options.add_argument("--seeds", type=int, default=2, help="sessions of each kind (2)")
    options.add_argument("--messages", type=int, default=5_000, help="of each session (5000)")
    options.add_argument(
        "--searched", type=int, default=2, help="search for every so manyth statement (2)"
    )
    options.add_argument(
        "--quick",
        action="store_true",
        help="one session of each kind, grown only if named, few searches",
    )
    options.add_argument("--missed", action="store_true", help="print what is not visible")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.seeds, chosen.searched = 1, 12
    ways = chosen.ways or [way for way in WAYS if way != "grown" or not chosen.quick]
    rows = []
    if not chosen.json:
        show_head()
    for kind in chosen.only:
        sessions = [
            agent_sessions.make_session(kind, chosen.messages, seed=seed)
            for seed in range(1, chosen.seeds + 1)
        ]
        for session in sessions:
            check_session(session)
        transcripts = [parse(session.messages) for session in sessions]
        for way in ways:
            runs = [
                measure(kind, way, session, transcript, chosen.searched)
                for session, transcript in zip(sessions, transcripts, strict=True)
            ]
            rows.append(add_up(runs))
            if not chosen.json:
                show(rows[-1])
                if chosen.missed:
                    for speaker, place, sentence in rows[-1]["missed"]:
                        print(f"  [{place}] {speaker}: {sentence}")
    if chosen.json:
        print(json.dumps({"window": WINDOW, "rows": rows}, indent=1))
    if verdict := judge(rows):
        sys.exit(verdict)


if __name__ == "__main__":
    main()
