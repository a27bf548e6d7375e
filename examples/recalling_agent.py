"""An agent that no longer sees a number, searches for it and gets it back.

    python examples/recalling_agent.py

The agent is scripted. A real one gets `context.openai()` (or another dialect) with the tools in it,
and calls them itself.
"""

import asyncio
import re

import loom

WINDOW = 2_000


def ledger(page: int) -> str:
    """A page of numbers. One of them is needed much later."""
    return "\n".join(
        f"{page}.{line} paid {page * 7919 + line * 104_729} to mill {line}" for line in range(40)
    )


async def main() -> None:
    with loom.Loom.open(":memory:") as kept:
        session = kept.new("The books", model="gpt-4o", tools=loom.tools())
        session.append("Read the ledger page by page, then answer.")
        for page in range(30):
            call = loom.ToolCall(f"read_{page}", "read_page", f'{{"page":{page}}}')
            result = loom.ToolResult(call.id, (loom.Text(ledger(page)),), name=call.name)
            session.append(loom.Message("assistant", (call,)), loom.Message("tool", (result,)))
        context = await session.prepare(
            "What was paid to mill 17 on page 3, line 17?", window=WINDOW
        )
        wanted = str(3 * 7919 + 17 * 104_729)
        print(
            f"{len(session.path)} messages are stored, and {context.report.dropped} of them "
            "were left out of the request"
        )
        print(f"{wanted} is {'' if wanted in str(context.openai()) else 'not '}in it\n")

        found = await act(
            session,
            loom.ToolCall("call_1", "search_context", '{"query":"\\"3.17 paid\\" mill","limit":3}'),
        )
        handle = re.findall(r"~[a-z2-7]{12}", found)[0]
        whole = await act(session, loom.ToolCall("call_2", "recall", f'{{"handle":"{handle}"}}'))
        print(f"{wanted} is {'' if wanted in whole else 'not '}in what was recalled")


async def act(session: loom.Session, call: loom.ToolCall) -> str:
    """What the loop of an agent does with a call: append it, run it, append the result, and build
    the next request.
    """
    session.append(loom.Message("assistant", (call,)))
    node = session.use(call)
    await session.prepare(window=WINDOW)
    assert node.message is not None
    [result] = node.message.results
    text = "\n".join(part.text for part in result.parts if isinstance(part, loom.Text))
    print(f"→ {call.name} {call.arguments}\n{text[:300]}{'…' if len(text) > 300 else ''}\n")
    return text


if __name__ == "__main__":
    asyncio.run(main())
