"""A session about this project: the map is in its first request, and stays the same while files and
requests change.
"""

import asyncio
from pathlib import Path

import loom

HERE = Path(__file__).resolve().parent.parent / "src"


async def main() -> None:
    with loom.Loom.open(":memory:") as home:
        session = home.new()
        context = await session.prepare(
            "The marker for a gap names the wrong window.", project=HERE, model="gpt-4o"
        )
        print(context.conversation.system[0].text[:600], "…\n")
        session.append({"role": "assistant", "content": "It is `marker_for`."})

        later = await session.prepare(
            "Then look at how PostgreSQL connections are closed.", project=HERE, model="gpt-4o"
        )
        assert later.conversation.system == context.conversation.system
        print(later.conversation.messages[-1].text)


asyncio.run(main())
