"""The types that callers of the public names meet and seldom name: what verbs take, and what they
give back.
"""

from loom.budget.counting import Counter
from loom.budget.models import Figures
from loom.budget.zones import Budget, BudgetOptions, Zone
from loom.context import (
    Archive,
    Continuation,
    Dashboard,
    EpochReason,
    EpochTools,
    Evidence,
    Handoff,
    Incident,
    Item,
    Outlook,
    Piece,
    Places,
    Quote,
    RequestOptions,
    Returns,
    Spot,
    Stretch,
    WeaveOptions,
    Working,
)
from loom.conversation.message import Carried, Opaque
from loom.conversation.outline import OutlineNode
from loom.conversation.tree import ChosenVersion, Flags, Link, TreeNode
from loom.conversation.turns import Span
from loom.decisions.pulse import Pulse, PulseList
from loom.decisions.values import Decision, DecisionEdge, DecisionGraph
from loom.dialects.input import Answer
from loom.dialects.repair import Change, RepairedConversation, SeenHistories
from loom.dialects.wire import Dialect, Finding, Loss, RenderedRequest, WireRule
from loom.engine.answers import AnswerOutcome
from loom.engine.decisions import (
    ConfidenceChange,
    LogOptions,
    Pivot,
    ProjectDecisions,
    SessionDecisions,
)
from loom.engine.layers import MemoryItem
from loom.engine.loom import OpenOptions
from loom.engine.memory import ProjectMemory, RememberOptions, SessionMemory
from loom.engine.options import PrepareOptions, TreePrepareOptions
from loom.engine.remembered import RememberedOptions, SetOptions
from loom.engine.sessions import ResumePoint
from loom.engine.skills import SessionSkills
from loom.engine.tasks import TaskEntry
from loom.engine.trees import SayOptions, Step
from loom.engine.window import BuildOptions, BuiltMessages
from loom.project.draw.render import Map, ShownFile
from loom.project.rules.operations import OperationVerdict
from loom.project.rules.project_rules import RulesSource
from loom.project.rules.reading import RulesFile
from loom.project.skills.folders import Skill, Skills
from loom.providers.http import ConnectOptions, HttpModel
from loom.providers.knowledge import KnowledgeBase, KnowledgeItem
from loom.providers.models import (
    AnswerEnd,
    CallChunk,
    ReasoningChunk,
    StreamingModel,
    TextChunk,
    WireChunk,
)
from loom.recall.hits import Hit, Neighbour
from loom.runtime import EventBus, Subscription, Task
from loom.stores import (
    Aside,
    DecisionScope,
    EdgeMark,
    HandleTarget,
    ImportedSession,
    ListedTree,
    Mark,
    Marks,
    Note,
    Origin,
    Result,
    SessionRow,
    StoredTree,
    TreeRow,
    Usage,
)
from loom.transcripts.runs import Run

__all__ = [
    "Answer",
    "AnswerEnd",
    "AnswerOutcome",
    "Archive",
    "Aside",
    "Budget",
    "BudgetOptions",
    "BuildOptions",
    "BuiltMessages",
    "CallChunk",
    "Carried",
    "Change",
    "ChosenVersion",
    "ConfidenceChange",
    "ConnectOptions",
    "Continuation",
    "Counter",
    "Dashboard",
    "Decision",
    "DecisionEdge",
    "DecisionGraph",
    "DecisionScope",
    "Dialect",
    "EdgeMark",
    "EpochReason",
    "EpochTools",
    "EventBus",
    "Evidence",
    "Figures",
    "Finding",
    "Flags",
    "HandleTarget",
    "Handoff",
    "Hit",
    "HttpModel",
    "ImportedSession",
    "Incident",
    "Item",
    "KnowledgeBase",
    "KnowledgeItem",
    "Link",
    "ListedTree",
    "LogOptions",
    "Loss",
    "Map",
    "Mark",
    "Marks",
    "MemoryItem",
    "Neighbour",
    "Note",
    "Opaque",
    "OpenOptions",
    "OperationVerdict",
    "Origin",
    "OutlineNode",
    "Outlook",
    "Piece",
    "Pivot",
    "Places",
    "PrepareOptions",
    "ProjectDecisions",
    "ProjectMemory",
    "Pulse",
    "PulseList",
    "Quote",
    "ReasoningChunk",
    "RememberOptions",
    "RememberedOptions",
    "RenderedRequest",
    "RepairedConversation",
    "RequestOptions",
    "Result",
    "ResumePoint",
    "Returns",
    "RulesFile",
    "RulesSource",
    "Run",
    "SayOptions",
    "SeenHistories",
    "SessionDecisions",
    "SessionMemory",
    "SessionRow",
    "SessionSkills",
    "SetOptions",
    "ShownFile",
    "Skill",
    "Skills",
    "Span",
    "Spot",
    "Step",
    "StoredTree",
    "StreamingModel",
    "Stretch",
    "Subscription",
    "Task",
    "TaskEntry",
    "TextChunk",
    "TreeNode",
    "TreePrepareOptions",
    "TreeRow",
    "Usage",
    "WeaveOptions",
    "WireChunk",
    "WireRule",
    "Working",
    "Zone",
]
