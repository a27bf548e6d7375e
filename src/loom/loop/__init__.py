"""The loop of an agent: a model with tools, in a session, in a tree or on a task."""

from loom.loop.desks import Desk, SessionDesk, TaskDesk, TreeDesk
from loom.loop.functions import Function
from loom.loop.loop import Loop
from loom.loop.values import Limits, LoopEvent, LoopOutcome, Spending

__all__ = [
    "Desk",
    "Function",
    "Limits",
    "Loop",
    "LoopEvent",
    "LoopOutcome",
    "SessionDesk",
    "Spending",
    "TaskDesk",
    "TreeDesk",
]
