"""Is the tool that was called next among those that a request declares?

    python bench/tools.py [--seed N] [--missed]

Each case is the history of a recorded session up to a call. The agent has 200 tools of about 300
tokens each: those of the recorded agent, and others that are drawn by chance from made-up services.
Their definitions are fitted into 2,048 tokens. The recordings name the tools and their arguments
only, so all definitions are written here.

`all` cases are drawn from all calls. `new` are all calls of a tool that the session has not called
before: no use tells of it. `tuned` sessions were looked at while weights were chosen, `held out`
ones were not. `chance` takes tools at random, `latest` those that were called last.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

import loom
from loom import weave
from loom.budget.counting import gate_counter
from loom.conversation.message import Message, Tool
from loom.dialects.input import parse_given
from tool_definitions import AGENT_TOOLS, make_definition, make_distractors

SHARED = Path(os.environ.get("LOOM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
ZONE, TOOLS = 2048, 200
DRAWN = {"airline": 70, "pi": 12, "trail": 14, "sweagent": 4}  # cases of each half


class Session(Struct, frozen=True):
    """A recorded session: the kind of agent, and its messages."""

    kind: str
    held_out: bool
    system: str
    messages: tuple[Message, ...]


class Case(Struct, frozen=True):
    """The messages before a call, and the tool that it calls."""

    session: Session
    before: int
    needed: str

    @property
    def history(self) -> tuple[Message, ...]:
        return self.session.messages[: self.before]

    @property
    def is_new(self) -> bool:
        return all(call.name != self.needed for m in self.history for call in m.calls)


class Tally(Struct):
    cases: int = 0
    hits: int = 0
    whole: int = 0
    chance: float = 0.0
    latest: float = 0.0
    largest: int = 0


def read_sessions() -> list[Session]:
    folder = SHARED / "data" / "agents"
    found = []
    for n, run in enumerate(json.loads((folder / "taubench_airline_60.json").read_text())):
        found.append(_make_session("airline", bool(n % 2), run["traj"]))
    for n in range(1, 5):
        run = json.loads((folder / f"trail_{n}.json").read_text())
        found.append(_make_session("trail", n % 2 == 0, run["messages"]))
    run = json.loads((folder / "sweagent_function_calling_simple.traj").read_text())
    found.append(_make_session("sweagent", True, run["history"]))
    found += _read_pi(folder / "pi_large_session.jsonl")
    return found


def _make_session(kind: str, held_out: bool, messages: Sequence[dict[str, Any]]) -> Session:
    parsed = list(parse_given(messages))
    lead = next((n for n, m in enumerate(parsed) if m.role != "system"), len(parsed))
    system = "\n".join(message.text for message in parsed[:lead])
    return Session(kind, held_out, system, tuple(parsed[lead:]))


def _read_pi(path: Path) -> Iterator[Session]:
    """The long session, as two: its halves, each from a request of a user on."""
    run = next(iter(loom.read_runs(str(path))))
    messages = run.conversation().messages
    half = len(messages) // 2
    for held_out, part in ((False, messages[:half]), (True, messages[half:])):
        start = next(n for n, m in enumerate(part) if m.role == "user")
        yield Session("pi", held_out, "", tuple(part[start:]))


def list_cases(session: Session) -> list[Case]:
    """A case for each message that calls a tool: the first call of it."""
    return [
        Case(session, n, message.calls[0].name)
        for n, message in enumerate(session.messages)
        if message.calls and n and message.calls[0].name in AGENT_TOOLS[session.kind]
    ]


def make_tools(kind: str, rng: random.Random) -> list[Tool]:
    """The tools of an agent among others, in an order of chance."""
    own = [make_definition(definition) for definition in AGENT_TOOLS[kind].values()]
    others = [tool for tool in make_distractors() if tool.name not in AGENT_TOOLS[kind]]
    tools = own + rng.sample(others, TOOLS - len(own))
    rng.shuffle(tools)
    return tools


def measure(cases: Sequence[Case], seed: int, missed: bool) -> Tally:
    tally = Tally()
    count = gate_counter(None).count_tools
    for n, case in enumerate(cases):
        rng = random.Random(f"{seed} {n} {case.needed}")
        tools = make_tools(case.session.kind, rng)
        context = weave(
            list(case.history),
            system=case.session.system or None,
            tools=tools,
            window=200_000,
            zones={"tool_definitions": ZONE},
        )
        sent = {tool.name: tool for tool in context.conversation.tools}
        tally.cases += 1
        tally.hits += case.needed in sent
        tally.whole += sent.get(case.needed) in tools
        fits = ZONE // (count(tools) // TOOLS)
        tally.chance += fits / TOOLS
        tally.latest += case.needed in _list_latest(case)[:fits]
        tally.largest = max(tally.largest, count(context.conversation.tools))
        if missed and case.needed not in sent:
            print(f"  missed {case.needed} in {case.session.kind}: {', '.join(sorted(sent))}")
    return tally


def _list_latest(case: Case) -> list[str]:
    called = (call.name for m in reversed(case.history) for call in reversed(m.calls))
    return list(dict.fromkeys(called))


def draw(sessions: Sequence[Session], held_out: bool, seed: int) -> list[Case]:
    rng = random.Random(f"{seed} {held_out}")
    drawn: list[Case] = []
    for kind, number in DRAWN.items():
        found = [
            case
            for session in sessions
            if (session.kind, session.held_out) == (kind, held_out)
            for case in list_cases(session)
        ]
        drawn += rng.sample(found, min(number, len(found)))
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missed", action="store_true", help="print what was missed")
    parser.add_argument("--tuned", action="store_true", help="without what is held out")
    asked = parser.parse_args()
    if not SHARED.exists():
        sys.exit(f"{SHARED} does not exist; LOOM_SHARED names the folder of the recordings")
    sessions = read_sessions()
    print("cases           number   hits  whole  chance  latest  most tokens")
    for held_out in (False,) if asked.tuned else (False, True):
        half = "held out" if held_out else "tuned"
        new = [
            case
            for session in sessions
            if session.held_out == held_out
            for case in list_cases(session)
            if case.is_new
        ]
        for name, cases in (("all", draw(sessions, held_out, asked.seed)), ("new", new)):
            tally = measure(cases, asked.seed, asked.missed)
            total = max(tally.cases, 1)
            print(
                f"{half:9}{name:7}{tally.cases:6}{tally.hits / total:7.1%}"
                f"{tally.whole / total:7.1%}{tally.chance / total:8.1%}"
                f"{tally.latest / total:8.1%}{tally.largest:13,}",
                flush=True,
            )


if __name__ == "__main__":
    main()
