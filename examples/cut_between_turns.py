"""Drop the older half of a history without tearing a tool call from its result.

    python examples/cut_between_turns.py [FILE]

FILE is any transcript that Loom reads. Without it, a small history in the OpenAI format is used.
"""

import json
import sys

import loom


def make_history() -> loom.Conversation:
    """Three requests, each with two calls of a tool and an answer."""
    messages = []
    for book in ("the first", "the second", "the third"):
        messages.append({"role": "user", "content": f"Read {book} book and summarize it."})
        for chapter in (1, 2):
            call_id = f"call_{len(messages)}"
            function = {"name": "read_chapter", "arguments": json.dumps({"chapter": chapter})}
            calls = [{"id": call_id, "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call_id,
                    "content": f"The text of chapter {chapter} of {book} book.",
                }
            )
        messages.append(
            {"role": "assistant", "content": f"In {book} book a weaver learns her craft."}
        )
    return loom.dialect("openai").parse({"model": "gpt-4o", "messages": messages})


def main(path: str | None = None) -> None:
    given = next(loom.read_runs(path)).conversation() if path else make_history()
    history = loom.repair(given).conversation.messages
    cut = loom.find_safe_boundary(history, len(history) // 2)
    kept = history[cut:]
    print(
        f"{len(loom.turns(history))} turns, {len(loom.exchanges(history))} exchanges that must "
        "stay whole"
    )
    print(
        f"cut at message {cut}: {len(kept)} of {len(history)} kept, beginning with a "
        f"{kept[0].role if kept else 'missing'} message"
    )


if __name__ == "__main__":
    main(*sys.argv[1:2])
