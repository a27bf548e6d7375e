"""What a request leaves behind: the state of its session, and what listeners hear of it."""

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Context, Handoff, Report, Working
from loom.conversation.canonical import to_json
from loom.engine.knowledge import make_evidence
from loom.engine.options import RequestDetails
from loom.engine.prepare import LastRequest, NewHandles
from loom.engine.pressure import hidden_names, limit_after_refusal
from loom.engine.session_state import (
    handoff_values,
    limit_values,
    offered_values,
    skills_values,
    working_values,
)
from loom.engine.sessions.gathering import RequestParts
from loom.engine.sessions.place import SessionPlace
from loom.engine.sources import is_in_requests
from loom.stores import StateValues


class WovenRequest(Struct, frozen=True, kw_only=True):
    """A request that was made, what is remembered of it, and whether a fresh window begins with
    it.
    """

    context: Context
    prepared: LastRequest
    handles: NewHandles
    handoff: Handoff | None
    is_renewed: bool


def with_measures(state: Working, report: Report) -> Working:
    """The working state with what a request was measured at: the pressure that its report tells,
    and what it left free.
    """
    return state.set_measures(report.pressure, report.usable - report.input_tokens)


def list_states(
    place: SessionPlace, parts: RequestParts, woven: WovenRequest, details: RequestDetails
) -> list[StateValues]:
    """What the session has at hand after a request."""
    asked, report = parts.asked, woven.context.report
    options, agent = asked.options, asked.style.agent
    states: list[StateValues] = []
    if details.overflow:
        limit = limit_after_refusal(details.overflow, parts.refused_at, report.reserved_output)
        states.append(limit_values(options.model or place.row.model, limit))
    if woven.handoff and (woven.is_renewed or parts.is_handoff_new):
        hidden = hidden_names(asked.path, place.overlay(asked.path))
        states += handoff_values(woven.handoff, hidden)
    if agent and agent.loom_aware:
        states.append(("seen", {"": to_json(str(asked.style.now))}))
    if is_in_requests(parts.working, options.policy):
        states.append(working_values(with_measures(parts.working, report)))
    if not place.is_guest:
        states += _list_remembered(place, parts, details)
    return states


def _list_remembered(
    place: SessionPlace, parts: RequestParts, details: RequestDetails
) -> list[StateValues]:
    """What the session remembers of what its caller asked for."""
    states: list[StateValues] = []
    if details.named:
        states += place.state.policy_values(parts.asked.options.policy)
    states += place.state.remembered_values(details.values)
    if details.project is not None:
        states += place.state.project_file_values(details.project_file)
    states += _list_skill_places(place, details)
    if details.knowledge and details.knowledge.items:
        states.append(offered_values(make_evidence(details.knowledge.items)))
    return states


def _list_skill_places(place: SessionPlace, details: RequestDetails) -> list[StateValues]:
    """Where skills are, for the tool that loads them; nothing if that is known."""
    if details.project is None and not details.skills:
        return []
    before = place.state.skills
    project = details.project.root if details.project else ""
    after = replace(before, project=project, folders=details.skills.folders)
    return [] if after == before else [skills_values(after)]


def emit_prepared(place: SessionPlace, woven: WovenRequest, before: int, path: str) -> None:
    """Let listeners know of a request, and that something was left out of it which the last one
    may have held. `before` are the tokens of the last one.
    """
    report = woven.context.report
    epoch, reason = report.epoch, report.epoch_reason
    place.emit("prepared", tokens=report.input_tokens, epoch=epoch, reason=reason)
    if report.dropped and not report.continuation.is_continued:
        about = {
            "before": before,
            "after": woven.prepared.counted,
            "left_out": report.dropped,
            "renewed": report.renewed,
        }
        place.emit("compressed", path=path, reason=reason, epoch=epoch, **about)
