"""Store a session, close the store, and continue: python examples/kept_session.py [FILE]"""

import asyncio
import sys
from tempfile import TemporaryDirectory
from typing import Any

import loom

CALL = {"id": "call_1", "type": "function", "function": {"name": "run_tests", "arguments": "{}"}}
LOG = "".join(f"test_{n} PASSED\n" for n in range(1000))  # longer than the window
WINDOW = 4_000


def answer(context: loom.Context) -> dict[str, Any]:
    """The answer of a provider to `context.openai()`. This example needs no key and no network."""
    said = {"role": "assistant", "content": "All tests pass."}
    usage = {"prompt_tokens": context.report.input_tokens, "completion_tokens": 4}
    return {
        "id": "chatcmpl-1",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": said}],
        "usage": usage,
    }


async def main(path: str | None = None) -> None:
    with TemporaryDirectory() as folder:
        store = f"{folder}/loom.db"
        with loom.Loom.open(store, project="example") as kept:
            session = kept.new("An example", model="gpt-4o", system="You are careful.")
            session.append(
                *next(loom.read_runs(path)).messages() if path else ["Is the release ready?"]
            )
            session.append(
                "Run the tests.", {"role": "assistant", "content": None, "tool_calls": [CALL]}
            )
            session.append({"role": "tool", "tool_call_id": "call_1", "content": LOG})
            session.absorb(answer(await session.prepare(window=WINDOW)))
            name = session.id

        with loom.Loom.open(store, project="example") as kept:  # another process, another day
            session = kept.session(name)
            context = await session.prepare("Good. Summarize it.", window=WINDOW)
            report = context.report
            print(
                f"{len(session.path)} messages stored, {report.input_tokens} tokens sent, "
                f"epoch {report.epoch} {report.epoch_reason}"
            )
            print(f"{session.row.usage.prompt} tokens read so far, ${session.row.usage.cost:.4f}")
            for handle in [handle for item in report.items for handle in item.handles]:
                print(f"{handle} brings back {len(session.recall(handle)):,} characters")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
