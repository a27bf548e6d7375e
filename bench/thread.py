"""Does a request still hold the thread of a conversation: what a short request leans on, and what
the user said?

python bench/thread.py [FILE ...] [--windows TOKENS ...] [--model NAME] [--ids] [--json] [--quick]
(LOOM_SHARED, or ../shared, holds the recorded sessions; where it is missing, only generated
sessions and the named files are measured.) Each transcript is replayed call by call in this
process, with no reserve, and every request is judged. Nothing here is a test.

request   of the calls under a message of the user that leans on what came before ("yes, do it"):
          those that hold the last message of the user that says something by itself
words     of the same calls: those that hold the end of the model's last words before the user spoke
user      messages of the user that stand verbatim in a message of the user's role, over all calls;
          what is longer than 4,000 characters is pasted data, and not counted
letters   the same by characters
fit       user and letters, over the calls at which all that the user said fits a third of the
window

Two simple ways stand beside Loom: the newest messages that fit, and the user's messages in a third
of the window and then the newest. They keep no tool call together with its result: they are no
requests that a provider takes. At the end the bench says what Loom misses of the wanted figures.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import agent_sessions
import loom
from loom.budget.tokenizers import tokenizer
from loom.conversation.message import Conversation
from loom.dialects.openai import render_messages
from loom.engine.measures import message_tokens
from loom.engine.replay import PlayedPolicy, replay

SHARED = Path(
    os.environ.get("LOOM_SHARED", Path(__file__).resolve().parent.parent / ".." / "shared")
).resolve()
WINDOWS = (8_000, 16_000, 32_000)
SHORT_WINDOWS = (4_000, 8_000, 16_000)  # for recorded sessions that are short
QUICK_WINDOWS = (8_000, 16_000)
GENERATED_MESSAGES = 1_200
LEANING_WORDS = 8  # a message of the user with no more words leans on what came before
PASTED_CHARS = 4_000  # a longer message of the user holds pasted data
ENDING_CHARS = 60  # of the model's last words: there the question or the plan stands
WAYS = ("loom", "newest", "third")
TITLES = {
    "loom": "Loom default",
    "newest": "newest messages only",
    "third": "user messages in a third, then the newest",
}
# Percent wanted at a window: request, words, user messages where they fit, by letters too.
WANTED = {8_000: (99, 90, 90), 16_000: (99, 97, 100), 32_000: (99, 97, 100)}

Row = dict[str, Any]
Chat = dict[str, Any]
count = tokenizer("o200k_base")


# ── the definitions ──────────────────────────────────────────────────────────


def text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part if isinstance(part, str) else part.get("text") or "" for part in content)


def leans(message: Chat) -> bool:
    words = text(message.get("content")).split()
    return len(words) <= LEANING_WORDS or words[0].startswith("/")


def users(history: Sequence[Chat]) -> list[int]:
    """The places of the user's messages that say anything."""
    return [
        place
        for place, message in enumerate(history)
        if message["role"] == "user" and text(message.get("content")).strip()
    ]


def antecedent(history: Sequence[Chat]) -> tuple[str, str] | None:
    """The last message of the user that says something by itself, and the model's last words before
    the user's latest message.

    None where the latest message of the user does not lean, or nothing stands before it.
    """
    places = users(history)
    if not places or not leans(history[places[-1]]):
        return None
    request = next(
        (
            text(history[at]["content"]).strip()
            for at in reversed(places[:-1])
            if not leans(history[at])
        ),
        "",
    )
    before = (
        text(message.get("content")).strip()
        for message in reversed(history[: places[-1]])
        if message["role"] == "assistant"
    )
    words = next(filter(None, before), "")
    return (request, words) if request and words else None


@cache
def lines(words: str) -> str:
    """The text without white space around lines and without quotation marks before them, so that a
    quotation counts.
    """
    return "\n".join(line.strip().removeprefix(">").strip() for line in words.strip().splitlines())


def stands(words: str, sent: str) -> bool:
    """Whether words are there as whole lines, perhaps behind a short label such as "[12] user:
    ".
    """
    sought = lines(words)
    if sought not in sent:  # most are not, and a plain look is fast
        return False
    pattern = rf"(?m)^(?:[^\n]{{0,40}}[:>\]] ?)?{re.escape(sought)}$"
    return re.search(pattern, sent) is not None


def judge_call(history: Sequence[Chat], request: Sequence[Chat]) -> Row:
    """What one request holds of the thread. `history` is all that was said before the call."""
    sent = [text(message.get("content")) for message in request]
    by_user = [
        lines(words)
        for message, words in zip(request, sent, strict=True)
        if message["role"] == "user"
    ]
    own = "\n".join(by_user)
    spoken = {at: text(history[at]["content"]).strip() for at in users(history)}
    spoken = {at: words for at, words in spoken.items() if len(words) <= PASTED_CHARS}
    missing = [at for at, words in spoken.items() if not stands(words, own)]
    letters = sum(map(len, spoken.values()))
    row: Row = {"leans": False, "said": len(spoken), "kept": len(spoken) - len(missing)}
    row |= {"letters": letters, "letters_kept": letters - sum(len(spoken[at]) for at in missing)}
    row |= {"user_tokens": sum(4 + tokens_of(words) for words in spoken.values())}
    row |= {"missing": missing}
    if found := antecedent(history):
        whole = "\n".join(map(lines, sent))
        row |= {"leans": True, "request": lines(found[0]) in whole}
        row |= {"words": found[1][-ENDING_CHARS:] in "\n".join(sent)}
    return row


def share(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def total(calls: Sequence[Row], window: int) -> Row:
    """Shares over all calls of a replay, in percent."""
    leaning = [call for call in calls if call["leans"]]
    fitting = [call for call in calls if call["user_tokens"] <= window / 3]
    row: Row = {"calls": len(calls), "leaning": len(leaning), "fitting": len(fitting)}
    for field in ("request", "words"):
        row[f"{field}_kept"] = share(sum(call[field] for call in leaning), len(leaning))
    for name, part, whole in (("messages", "kept", "said"), ("letters", "letters_kept", "letters")):
        for ending, chosen in (("", calls), ("_where_they_fit", fitting)):
            row[f"user_{name}_kept{ending}"] = share(
                sum(call[part] for call in chosen), sum(call[whole] for call in chosen)
            )
    return row


# ── the simple ways ──────────────────────────────────────────────────────────


@cache
def tokens_of(words: str) -> int:
    return count(words)


class Transcript:
    """A conversation as chat: its system text, its messages, their tokens, and its calls."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.system: list[Chat] = list(render_messages(conversation.system, []))
        self.messages: list[Chat] = []
        self.calls: list[int] = []  # how many chat messages stand before each call
        for message in conversation.messages:
            if message.role == "assistant" and self.messages:
                self.calls.append(len(self.messages))
            self.messages += render_messages((message,), [])
        self.sizes = [message_tokens(message, tokens_of) for message in self.messages]
        self.fixed = sum(message_tokens(message, tokens_of) for message in self.system)

    @property
    def tokens(self) -> int:
        return self.fixed + sum(self.sizes)

    def newest(self, end: int, room: int, kept: Iterable[int] = ()) -> list[Chat]:
        """The system text, what is kept anyhow, and the newest of the messages before `end`."""
        chosen = set(kept)
        for at in range(end - 1, -1, -1):
            if at in chosen:
                continue
            if self.sizes[at] > room:
                break
            room -= self.sizes[at]
            chosen.add(at)
        return self.system + [self.messages[at] for at in sorted(chosen)]

    def send_newest(self, end: int, window: int) -> list[Chat]:
        return self.newest(end, window - self.fixed)

    def send_third(self, end: int, window: int) -> list[Chat]:
        """The user's messages in a third of the window, the newest first, and then the newest."""
        room, kept = window // 3, set[int]()
        for at in reversed(users(self.messages[:end])):
            if self.sizes[at] <= room:
                room -= self.sizes[at]
                kept.add(at)
        return self.newest(end, window - window // 3 - self.fixed + room, kept)


# ── the measuring ────────────────────────────────────────────────────────────


def play(
    transcript: Transcript, window: int, model: str | None
) -> tuple[PlayedPolicy, list[list[Chat]]]:
    """What Loom makes of a transcript, and the requests; one that was refused is empty."""
    sent: dict[int, list[Chat]] = {}
    played = replay(
        transcript.conversation,
        model=model,
        window=window,
        reserve_output=0,
        sent=lambda _, number, context: sent.update({number: context.openai()["messages"]}),
    )["default"]
    return played, [sent.get(number, []) for number in range(len(transcript.calls))]


def measure_run(
    transcript: Transcript, window: int, model: str | None
) -> tuple[PlayedPolicy, dict[str, list[Row]]]:
    played, requests = play(transcript, window, model)
    makers: dict[str, Callable[[int, int], list[Chat]]] = {
        "newest": transcript.send_newest,
        "third": transcript.send_third,
    }
    calls: dict[str, list[Row]] = {way: [] for way in WAYS}
    for end, request in zip(transcript.calls, requests, strict=True):
        history = transcript.messages[:end]
        made = {"loom": request} | {way: make(end, window) for way, make in makers.items()}
        for way, messages in made.items():
            calls[way].append(judge_call(history, messages))
    return played, calls


def measure(
    title: str, transcripts: Sequence[Transcript], window: int, model: str | None = None
) -> Row:
    """The figures of all transcripts of a session that are longer than the window, in one row."""
    started = time.perf_counter()
    long = [transcript for transcript in transcripts if transcript.tokens > window]
    runs = [measure_run(transcript, window, model) for transcript in long]
    ways = {way: total([call for _, calls in runs for call in calls[way]], window) for way in WAYS}
    return {
        "session": title,
        "window": window,
        "runs": len(runs),
        "ways": ways,
        "replay": add_figures([played for played, _ in runs]),
        "ids": [find_missing(number, calls["loom"]) for number, (_, calls) in enumerate(runs)],
        "seconds": round(time.perf_counter() - started, 1),
    }


def add_figures(runs: Sequence[PlayedPolicy]) -> Row:
    """The figures of replays as those of one."""
    calls = [call for played in runs for call in played.calls if not call.refused]
    made = max(len(calls), 1)
    new = sum(call.new for call in calls)
    uncached = sum(call.tokens - call.shared - call.tail for call in calls)
    tail = sum(call.tail for call in calls)
    return {
        "calls": sum(len(played.calls) for played in runs),
        "refused": sum(bool(call.refused) for played in runs for call in played.calls),
        "over_budget": sum(call.over_budget for call in calls),
        "torn_pairs": sum(call.torn_pairs for call in calls),
        "goal_missing": sum(call.goal_missing for call in calls),
        "epochs": sum(call.renewed for call in calls),
        "recache_factor": round(uncached / new, 3) if new else None,
        "recache_factor_with_tail": round((uncached + tail) / new, 3) if new else None,
        "mean_tokens": round(sum(call.tokens for call in calls) / made, 1),
        "ms_per_call": round(1000 * sum(call.seconds for call in calls) / made, 2),
    }


def find_missing(run: int, calls: Sequence[Row]) -> Row:
    """The numbers of the calls that miss what they lean on, and for each message of the user how
    many calls miss it.
    """
    missed: dict[int, int] = {}
    for call in calls:
        for place in call["missing"]:
            missed[place] = missed.get(place, 0) + 1
    leaning = [(number, call) for number, call in enumerate(calls) if call["leans"]]
    return {
        "run": run,
        "request": [number for number, call in leaning if not call["request"]],
        "words": [number for number, call in leaning if not call["words"]],
        "user_messages": {str(place): missed[place] for place in sorted(missed)},
    }


# ── the sessions ─────────────────────────────────────────────────────────────


def read(path: str) -> list[Transcript]:
    return [Transcript(run.conversation()) for run in loom.read_runs(path)]


def recorded() -> Iterable[tuple[str, list[Transcript], Sequence[int]]]:
    """The shared sessions with their windows: the long one, and the short ones in small windows."""
    folder = SHARED / "data" / "agents"
    yield "pi", read(str(folder / "pi_large_session.jsonl")), WINDOWS
    for path in sorted(folder.glob("trail_*.json")):
        yield path.stem, read(str(path)), SHORT_WINDOWS
    yield "taubench", read(str(folder / "taubench_airline_60.json")), SHORT_WINDOWS[:1]


def parse(messages: list[Chat]) -> Transcript:
    return Transcript(loom.dialect("openai").parse({"model": "gpt-4o", "messages": messages}))


def generated(length: int) -> Iterable[tuple[str, list[Transcript], Sequence[int]]]:
    """Agent work that is made up, of three kinds."""
    for name in agent_sessions.KINDS:
        session = agent_sessions.make_session(name, length, needles_each=2)
        yield f"made up: {name}", [parse(session.messages)], WINDOWS


def replay_1200() -> list[Transcript]:
    sys.path.append(str(SHARED / "bench"))
    import transcripts

    return [parse(transcripts.session(1200, "agentic", 7, 60)[0])]


def choose(chosen: argparse.Namespace) -> Iterable[tuple[str, list[Transcript], Sequence[int]]]:
    """What to measure: the named files, or all there is."""
    if chosen.files:
        for path in chosen.files:
            yield Path(path).name, read(path), WINDOWS
        return
    if not (SHARED / "data" / "agents").is_dir():
        print(f"no shared sessions in {SHARED}: set LOOM_SHARED; they are skipped", file=sys.stderr)
    else:
        yield from recorded()
        if not chosen.quick and (SHARED / "bench" / "transcripts.py").exists():
            yield "replay_1200", replay_1200(), WINDOWS
    yield from generated(GENERATED_MESSAGES // 3 if chosen.quick else GENERATED_MESSAGES)


# ── the telling ──────────────────────────────────────────────────────────────

SHARES = (
    "request_kept", "words_kept", "user_messages_kept", "user_letters_kept",
    "user_messages_kept_where_they_fit", "user_letters_kept_where_they_fit",
)  # fmt: skip
HEADS = ("request", "words", "user", "letters", "user, fit", "letters, fit")


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def show_row(row: Row) -> None:
    made = row["replay"]
    print(
        f"{row['session']} at {row['window']:,} ({plural(row['runs'], 'run')}, {row['seconds']} s)"
    )
    for way in WAYS:
        found = row["ways"][way]
        shares = " ".join(f"{figure(found[name]):>13}" for name in SHARES)
        print(f"  {TITLES[way]:<42}{shares}")
    found = row["ways"]["loom"]
    faults = f"{made['over_budget']} / {made['torn_pairs']} / {made['goal_missing']}"
    print(
        f"  {made['calls']} calls, {found['leaning']} lean, {found['fitting']} where the user "
        "fits a"
        f" third; re-cache {made['recache_factor']}, with the tail"
        f" {made['recache_factor_with_tail']}, mean tokens {made['mean_tokens']:,.0f}, epochs"
        f" {made['epochs']}, over / torn / goal lost {faults}, refused {made['refused']},"
        f" {made['ms_per_call']} ms a call",
        flush=True,
    )


def show_missing(row: Row) -> None:
    for run in row["ids"]:
        print(f"  run {run['run']}: request missing at calls {run['request']}")
        print(f"  run {run['run']}: words missing at calls {run['words']}")
        missed = ", ".join(f"{place} ({n})" for place, n in run["user_messages"].items())
        print(f"  run {run['run']}: messages of the user, and calls that miss them: {missed}")


def plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def judge(rows: Iterable[Row]) -> str:
    """What Loom misses of the wanted figures; nothing where it meets all of them."""
    missed = []
    for row in rows:
        if row["window"] not in WANTED:
            continue
        request, words, user = WANTED[row["window"]]
        found = row["ways"]["loom"]
        wanted = dict(zip(SHARES, (request, words, 0, 0, user, user), strict=True))
        missed += [
            f"{row['session']} at {row['window']:,}: {head} {found[name]} (wanted {wanted[name]})"
            for name, head in zip(SHARES, HEADS, strict=True)
            if found[name] is not None and found[name] < wanted[name]
        ]
        made = row["replay"]
        faults = sum(made[name] for name in ("over_budget", "torn_pairs", "goal_missing"))
        missed += [f"{row['session']} at {row['window']:,}: {faults} faults"] if faults else []
    return "missed:\n  " + "\n  ".join(missed) if missed else ""


def main() -> None:
    options = argparse.ArgumentParser(
        description="Whether requests hold what the user said and what a short request leans on."
    )
    options.add_argument("files", nargs="*", metavar="FILE", help="transcripts to measure instead")
    options.add_argument("--windows", nargs="+", type=int, help="windows in tokens")
    options.add_argument("--model", help="the model (default: the one that the transcript names)")
    options.add_argument("--ids", action="store_true", help="print the calls that miss something")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument(
        "--quick", action="store_true", help="windows of 8,000 and 16,000; shorter made-up sessions"
    )
    chosen = options.parse_args()
    rows = []
    if not chosen.json:
        print(f"{'shares in % over all calls':<44}" + " ".join(f"{head:>13}" for head in HEADS))
    for title, transcripts, windows in choose(chosen):
        if chosen.windows:
            windows = chosen.windows
        elif chosen.quick:
            windows = [window for window in windows if window in QUICK_WINDOWS]
        for window in windows:
            row = measure(title, transcripts, window, chosen.model)
            if not row["runs"]:
                print(f"{title} at {window:,}: all of it fits, not measured", file=sys.stderr)
                continue
            rows.append(row)
            if not chosen.json:
                show_row(row)
                if chosen.ids:
                    show_missing(row)
    if chosen.json:
        print(json.dumps({"wanted": WANTED, "rows": rows}, indent=1))
    if verdict := judge(rows):
        sys.exit(verdict)


if __name__ == "__main__":
    main()
