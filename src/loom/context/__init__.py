"""What the model will see: policies, strategies, the gate, and the report."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.context.budgeting import budget_for as budget_for
    from loom.context.caches import Caches as Caches
    from loom.context.caches import NewestValues as NewestValues
    from loom.context.cover.anchors import find_anchors as find_anchors
    from loom.context.gathering import make_conversation as make_conversation
    from loom.context.handles import Archive as Archive
    from loom.context.handles import Cut as Cut
    from loom.context.history.epochs import Epoch as Epoch
    from loom.context.history.epochs import EpochEnds as EpochEnds
    from loom.context.history.epochs import Renewal as Renewal
    from loom.context.history.outlook import Outlook as Outlook
    from loom.context.history.places import Places as Places
    from loom.context.history.places import Spot as Spot
    from loom.context.history.places import Stretch as Stretch
    from loom.context.history.reasons import EpochReason as EpochReason
    from loom.context.history.requests import MAX_GOAL_REQUESTS as MAX_GOAL_REQUESTS
    from loom.context.history.requests import leans as leans
    from loom.context.history.strategies import find_strategy as find_strategy
    from loom.context.history.summary_covers import SummarySpan as SummarySpan
    from loom.context.options import Options as Options
    from loom.context.options import RequestOptions as RequestOptions
    from loom.context.options import WeaveOptions as WeaveOptions
    from loom.context.options import check_options as check_options
    from loom.context.options import select_request_options as select_request_options
    from loom.context.policy import Policy as Policy
    from loom.context.policy import find_policy as find_policy
    from loom.context.policy import policies as policies
    from loom.context.policy import policy_text as policy_text
    from loom.context.quotes import Quote as Quote
    from loom.context.quotes import Voice as Voice
    from loom.context.quotes import name_speaker as name_speaker
    from loom.context.quotes import render_quotes as render_quotes
    from loom.context.report import LEFT_OUT as LEFT_OUT
    from loom.context.report import Action as Action
    from loom.context.report import Continuation as Continuation
    from loom.context.report import Item as Item
    from loom.context.report import Piece as Piece
    from loom.context.report import Report as Report
    from loom.context.report import Returns as Returns
    from loom.context.request import Context as Context
    from loom.context.rules import Rule as Rule
    from loom.context.rules import find_kept as find_kept
    from loom.context.sections import Section as Section
    from loom.context.shorten.cut import shrink_text as shrink_text
    from loom.context.state.renewal import Handoff as Handoff
    from loom.context.state.renewal import open_calls as open_calls
    from loom.context.state.working import Dashboard as Dashboard
    from loom.context.state.working import Evidence as Evidence
    from loom.context.state.working import Incident as Incident
    from loom.context.state.working import Working as Working
    from loom.context.summary.drafts import SummaryDraft as SummaryDraft
    from loom.context.summary.drafts import SummaryPrompt as SummaryPrompt
    from loom.context.summary.drafts import SummaryTask as SummaryTask
    from loom.context.summary.summaries import SummaryLimits as SummaryLimits
    from loom.context.summary.summaries import add_dropped_note as add_dropped_note
    from loom.context.tail import add_to_tail as add_to_tail
    from loom.context.tail import find_free as find_free
    from loom.context.tail import find_shown as find_shown
    from loom.context.tool_finder import answer_find_tools as answer_find_tools
    from loom.context.tool_finder import finder_name as finder_name
    from loom.context.tool_use import EpochTools as EpochTools
    from loom.context.weaving import build as build
    from loom.context.weaving import forget_dropped as forget_dropped
    from loom.context.weaving import go_on as go_on
    from loom.context.weaving import weave as weave
else:
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "budgeting": ("budget_for",),
            "caches": ("Caches", "NewestValues"),
            "cover.anchors": ("find_anchors",),
            "gathering": ("make_conversation",),
            "handles": ("Archive", "Cut"),
            "history.epochs": ("Epoch", "EpochEnds", "Renewal"),
            "history.outlook": ("Outlook",),
            "history.places": ("Places", "Spot", "Stretch"),
            "history.reasons": ("EpochReason",),
            "history.requests": ("MAX_GOAL_REQUESTS", "leans"),
            "history.strategies": ("find_strategy",),
            "history.summary_covers": ("SummarySpan",),
            "options": (
                "Options",
                "RequestOptions",
                "WeaveOptions",
                "check_options",
                "select_request_options",
            ),
            "policy": ("Policy", "find_policy", "policies", "policy_text"),
            "quotes": ("Quote", "Voice", "name_speaker", "render_quotes"),
            "report": ("Action", "Continuation", "Item", "LEFT_OUT", "Piece", "Report", "Returns"),
            "request": ("Context",),
            "rules": ("Rule", "find_kept"),
            "sections": ("Section",),
            "shorten.cut": ("shrink_text",),
            "state.renewal": ("Handoff", "open_calls"),
            "state.working": ("Dashboard", "Evidence", "Incident", "Working"),
            "summary.drafts": ("SummaryDraft", "SummaryPrompt", "SummaryTask"),
            "summary.summaries": ("SummaryLimits", "add_dropped_note"),
            "tail": ("add_to_tail", "find_free", "find_shown"),
            "tool_finder": ("answer_find_tools", "finder_name"),
            "tool_use": ("EpochTools",),
            "weaving": ("build", "forget_dropped", "go_on", "weave"),
        },
    )
