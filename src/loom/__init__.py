"""Loom decides what a language model sees."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.budget.counting import estimate_message_tokens as estimate_message_tokens
    from loom.budget.counting import estimate_tool_defs_tokens as estimate_tool_defs_tokens
    from loom.budget.counting import is_over_context_budget as is_over_context_budget
    from loom.budget.models import model_limit as model_limit
    from loom.budget.zones import allocate_budget as allocate_budget
    from loom.context import Context as Context
    from loom.context import Policy as Policy
    from loom.context import Report as Report
    from loom.context import Rule as Rule
    from loom.context import Section as Section
    from loom.context import weave as weave
    from loom.conversation.agents import Agent as Agent
    from loom.conversation.message import Conversation as Conversation
    from loom.conversation.message import Media as Media
    from loom.conversation.message import Message as Message
    from loom.conversation.message import Reasoning as Reasoning
    from loom.conversation.message import Text as Text
    from loom.conversation.message import Tool as Tool
    from loom.conversation.message import ToolCall as ToolCall
    from loom.conversation.message import ToolResult as ToolResult
    from loom.conversation.tree import Preferences as Preferences
    from loom.conversation.tree import Reference as Reference
    from loom.conversation.tree import Tree as Tree
    from loom.conversation.tree import TreeHead as TreeHead
    from loom.conversation.turns import exchanges as exchanges
    from loom.conversation.turns import find_safe_boundary as find_safe_boundary
    from loom.conversation.turns import parse_turn_boundaries as parse_turn_boundaries
    from loom.conversation.turns import turns as turns
    from loom.dialects import dialect as dialect
    from loom.dialects.repair import repair as repair
    from loom.dialects.repair import restore_ids as restore_ids
    from loom.engine.loom import Loom as Loom
    from loom.engine.sessions import Session as Session
    from loom.engine.tools import tools as tools
    from loom.engine.trees import LoomTree as LoomTree
    from loom.engine.window import ContextWindow as ContextWindow
    from loom.engine.workspace import Event as Event
    from loom.errors import CannotFit as CannotFit
    from loom.errors import ChoiceError as ChoiceError
    from loom.errors import Conflict as Conflict
    from loom.errors import LoomError as LoomError
    from loom.errors import StoreError as StoreError
    from loom.errors import WireError as WireError
    from loom.project.maps import project_map as project_map
    from loom.project.rules.project_rules import ProjectRules as ProjectRules
    from loom.providers.http import connect as connect
    from loom.providers.models import Model as Model
    from loom.stores import Node as Node
    from loom.transcripts.formats import read_runs as read_runs
    from loom.transcripts.trees import read_trees as read_trees
    from loom.transcripts.trees import write_trees as write_trees
else:  # importing loom does no work
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "budget.counting": (
                "estimate_message_tokens",
                "estimate_tool_defs_tokens",
                "is_over_context_budget",
            ),
            "budget.models": ("model_limit",),
            "budget.zones": ("allocate_budget",),
            "context": ("Context", "Policy", "Report", "Rule", "Section", "weave"),
            "conversation.agents": ("Agent",),
            "conversation.message": (
                "Conversation",
                "Media",
                "Message",
                "Reasoning",
                "Text",
                "Tool",
                "ToolCall",
                "ToolResult",
            ),
            "conversation.tree": ("Preferences", "Reference", "Tree", "TreeHead"),
            "conversation.turns": (
                "exchanges",
                "find_safe_boundary",
                "parse_turn_boundaries",
                "turns",
            ),
            "dialects": ("dialect",),
            "dialects.repair": ("repair", "restore_ids"),
            "engine.loom": ("Loom",),
            "engine.sessions": ("Session",),
            "engine.tools": ("tools",),
            "engine.trees": ("LoomTree",),
            "engine.window": ("ContextWindow",),
            "engine.workspace": ("Event",),
            "errors": (
                "CannotFit",
                "ChoiceError",
                "Conflict",
                "LoomError",
                "StoreError",
                "WireError",
            ),
            "project.maps": ("project_map",),
            "project.rules.project_rules": ("ProjectRules",),
            "providers.http": ("connect",),
            "providers.models": ("Model",),
            "stores": ("Node",),
            "transcripts.formats": ("read_runs",),
            "transcripts.trees": ("read_trees", "write_trees"),
        },
    )
