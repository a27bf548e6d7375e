"""Drop the older half of a history without tearing a tool call from its result: python examples/cut_between_turns.py FILE"""

import sys

import loom


def main(path: str) -> None:
    run = next(loom.read_runs(path))
    history = loom.repair(run.conversation()).conversation.messages
    cut = loom.find_safe_boundary(history, len(history) // 2)
    kept = history[cut:]
    print(f"{len(loom.turns(history))} turns, {len(loom.exchanges(history))} units that must stay whole")
    print(f"cut at message {cut}: {len(kept)} of {len(history)} kept, from a {kept[0].role if kept else 'nothing'} message on")


if __name__ == "__main__":
    main(sys.argv[1])
