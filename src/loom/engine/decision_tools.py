"""Tools by which a model logs, queries and pivots decisions. Nothing is logged without a call."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from loom.conversation.checked import choose
from loom.decisions.lines import write_line, write_lines, write_pulse
from loom.decisions.values import EDGE_KINDS, KINDS
from loom.decisions.verdicts import find_verdicts
from loom.engine.decisions import DEFAULT_LIMIT, LogOptions, SessionDecisions
from loom.errors import ChoiceError, Conflict

MAX_QUERIED = 50
_QUERIES = ("active_goals", "recent_decisions", "pulse", "search")
_ID = "The id of the decision, or the first characters of it."


class DecisionLog(Struct, frozen=True, forbid_unknown_fields=True):
    node_type: Annotated[
        str, Meta(description="What it is.", extra_json_schema={"enum": list(KINDS)})
    ]
    title: Annotated[str, Meta(description="What it is, in one line.")]
    description: Annotated[str, Meta(description="More about it, such as why.")] | None = None
    confidence: (
        Annotated[int, Meta(ge=0, le=100, description="How sure you are, from 0 to 100.")] | None
    ) = None
    parent_id: (
        Annotated[str, Meta(description="The id of the goal or decision that it comes from.")]
        | None
    ) = None
    edge_type: (
        Annotated[
            str,
            Meta(
                description="How it follows from that (leads_to by default).",
                extra_json_schema={"enum": list(EDGE_KINDS)},
            ),
        ]
        | None
    ) = None


class DecisionQuery(Struct, frozen=True, forbid_unknown_fields=True):
    query_type: Annotated[
        str, Meta(description="What to look up.", extra_json_schema={"enum": list(_QUERIES)})
    ]
    search_term: Annotated[str, Meta(description="Words to search for.")] | None = None
    limit: (
        Annotated[
            int,
            Meta(ge=1, le=MAX_QUERIED, description=f"The most to return ({DEFAULT_LIMIT})."),
        ]
        | None
    ) = None


class PivotDecision(Struct, frozen=True, forbid_unknown_fields=True):
    old_node_id: Annotated[str, Meta(description=_ID)]
    observation: Annotated[str, Meta(description="What you observed that speaks against it.")]
    new_approach: Annotated[str, Meta(description="What you decide instead, in one line.")]
    confidence: (
        Annotated[int, Meta(ge=0, le=100, description="How sure you are, from 0 to 100.")] | None
    ) = None


DECISION_TOOLS: dict[str, tuple[type[Struct], str]] = {
    "decision_log": (
        DecisionLog,
        "Log a goal, decision, option, action, outcome or observation that matters later, once. "
        "Do not log routine steps.",
    ),
    "decision_query": (
        DecisionQuery,
        "Look up goals and decisions of this project, also of earlier sessions, with their ids.",
    ),
    "pivot_decision": (
        PivotDecision,
        "Replace an active decision by another, because of something that you observed.",
    ),
}


def answer_decision_tool(decisions: SessionDecisions, asked: Any) -> str:
    """What a call of one of these tools gives. That others were faster is for the model to know."""
    try:
        return _answer(decisions, asked)
    except Conflict as conflict:
        raise ChoiceError(str(conflict)) from None


def _answer(decisions: SessionDecisions, asked: Any) -> str:
    match asked:
        case DecisionLog():
            return _log(decisions, asked)
        case DecisionQuery():
            return _query(decisions, asked)
        case PivotDecision():
            made = decisions.pivot(
                asked.old_node_id.strip(),
                asked.observation,
                asked.new_approach,
                confidence=asked.confidence,
            )
            return f"Replaced by {write_line(made.decision)}"
    raise AssertionError(type(asked))


def _log(decisions: SessionDecisions, asked: DecisionLog) -> str:
    options: LogOptions = {
        "kind": choose("node_type", asked.node_type.strip(), KINDS),
        "description": asked.description or "",
        "confidence": asked.confidence,
        "parent": (asked.parent_id or "").strip() or None,
        "edge": choose("edge_type", (asked.edge_type or "leads_to").strip(), EDGE_KINDS),
    }
    return f"Logged {write_line(decisions.log(asked.title, **options))}"


def _query(decisions: SessionDecisions, asked: DecisionQuery) -> str:
    limit = asked.limit or DEFAULT_LIMIT
    match choose("query_type", asked.query_type.strip(), _QUERIES):
        case "pulse":
            return "\n".join(write_pulse(decisions.pulse()))
        case "active_goals":
            found, nothing = decisions.active_goals(limit), "There is no active goal."
        case "recent_decisions":
            found, nothing = decisions.recent(limit), "Nothing was decided yet."
        case _:
            if not (asked.search_term or "").strip():
                raise ChoiceError("a search needs search_term: the words to search for")
            found = decisions.search(asked.search_term or "", limit)
            nothing = "No decision says anything of this. Try other words."
    options = {each.id for each in found if each.kind == "option" and each.status == "active"}
    edges = [edge for option in sorted(options) for edge in decisions.edges(option)]
    return "\n".join(write_lines(found, find_verdicts(edges, options))) or nothing
