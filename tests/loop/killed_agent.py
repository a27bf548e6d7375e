"""An agent whose tools write a line each, in a process that may be killed at any moment.

python -m tests.loop.killed_agent STORE FILE STEPS
"""

import asyncio
import json
import os
import sys
import time

from loom import Loom, Message, Session, Text, ToolCall
from loom.conversation.message import Conversation
from loom.loop import Loop, SessionDesk
from loom.providers.scripted import ScriptedModel


def main(store: str, file: str, steps: int) -> None:
    def write_line(number: int) -> str:
        """Write a line."""
        with open(file, "a") as lines:
            lines.write(f"{number}\n")
            lines.flush()
            os.fsync(lines.fileno())
        time.sleep(0.002)
        return f"wrote {number}"

    def play(request: Conversation) -> Message:
        """The next two lines after the highest that was called for."""
        made = [call for message in session.conversation().messages for call in message.calls]
        last = max((json.loads(call.arguments)["number"] for call in made), default=-1)
        if last + 1 >= steps:
            return Message("assistant", (Text("All lines are written."),))
        calls = [
            ToolCall(f"line{n}", "write_line", json.dumps({"number": n}))
            for n in (last + 1, last + 2)
        ]
        return Message("assistant", tuple(calls))

    with Loom.open(store, embedder="none") as loom:
        rows = loom.sessions()
        session: Session = loom.session(rows[0].id) if rows else loom.new(model="gpt-4o")
        request = None if len(session.path) else "Write all lines, each once."
        loop = Loop(SessionDesk(session, window=8000), ScriptedModel.always(play), [write_line])
        asyncio.run(loop.run(request))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
