"""The last part of the demo: an agent that reads more than its window holds."""

import asyncio
import json

from loom.cli.terminal import bar, dim, say, style
from loom.conversation.message import Conversation, Message, Text, ToolCall
from loom.engine.loom import Loom
from loom.loop import Loop, LoopEvent, SessionDesk
from loom.loop.values import CallStarted, RequestMade
from loom.providers.scripted import ScriptedModel

AGENT_WINDOW = 6_000
PAGES = 12
TASK = "Read all pages of the ledger, one by one. What was paid in line 17 of page 3?"


def read_page(page: int) -> str:
    """Read a page of the ledger."""
    return "\n".join(
        f"page {page}, line {line}: paid {page * 1000 + line}" for line in range(1, 60)
    )


def work(loom: Loom) -> int:
    """Let a scripted agent read the ledger; return the number of broken promises: 0."""
    broken = 0

    def play(request: Conversation) -> Message:
        nonlocal broken
        broken += not any(TASK in message.text for message in request.messages)
        page = len(model.requests)
        if page > PAGES:
            return Message("assistant", (Text("Line 17 of page 3: paid 3017."),))
        arguments = json.dumps({"page": page})
        return Message("assistant", (ToolCall(f"page_{page}", "read_page", arguments),))

    def show(event: LoopEvent) -> None:
        nonlocal broken
        match event:
            case RequestMade(context):
                report = context.report
                broken += report.input_tokens > report.usable
                left_out = f"{report.dropped} left out" if report.dropped else ""
                drawn = f"{bar(report.input_tokens / report.window, 30):<30}"
                say(
                    f"  {style(drawn, fg='blue')} {report.input_tokens:>5,} tokens  {dim(left_out)}"
                )
            case CallStarted(call):
                say(f"    {style(call.name, fg='yellow')} {dim(call.arguments)}")

    model = ScriptedModel.always(play)
    session = loom.new("Ledger", model="gpt-4o", system="You keep the ledger.")
    loop = Loop(SessionDesk(session, window=AGENT_WINDOW), model, [read_page], listen=show)
    outcome = asyncio.run(loop.run(TASK))
    say(f"  {style('agent', fg='green')}  {outcome.text}")
    return broken
