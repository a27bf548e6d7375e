"""The loop of an agent: a model with tools, in a session, in a tree or on a task; plans of an
architect, and subagents.
"""

from loom.loop.architect import Architect, ArchitectOutcome
from loom.loop.desks import Desk, SessionDesk, TreeDesk
from loom.loop.functions import Function
from loom.loop.loop import Loop
from loom.loop.plan import PlanStep, WorkPlan
from loom.loop.subagents import ChildResult, HandDown, Subagents
from loom.loop.task_desk import TaskDesk
from loom.loop.values import Limits, LoopEvent, LoopOutcome, Spending

__all__ = [
    "Architect",
    "ArchitectOutcome",
    "ChildResult",
    "Desk",
    "Function",
    "HandDown",
    "Limits",
    "Loop",
    "LoopEvent",
    "LoopOutcome",
    "PlanStep",
    "SessionDesk",
    "Spending",
    "Subagents",
    "TaskDesk",
    "TreeDesk",
    "WorkPlan",
]
