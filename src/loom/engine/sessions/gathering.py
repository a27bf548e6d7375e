"""What a request is made from: what sources add, in what window, with which pins and skills."""

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Options, Working, budget_for
from loom.engine.options import RequestDetails
from loom.engine.prepare import LastRequest, RequestInput, ratio_of
from loom.engine.pressure import fit_into, limit_after_refusal, moment
from loom.engine.reading import ReadingStyle
from loom.engine.sessions.handoffs import find_handoff
from loom.engine.sessions.place import SessionPlace
from loom.engine.skills import SkillsState, ask_skills
from loom.engine.sources import SESSION_SOURCES, Asking, gather
from loom.providers.overflow import Overflow
from loom.stores import Path

if TYPE_CHECKING:
    from loom.project.skills.choosing import SkillRequest


class RequestParts(Struct, frozen=True, kw_only=True):
    """What a request is made from. `refused_at` are the tokens that a provider refused.

    `is_handoff_new`: the handoff is not the one that the store has.
    """

    asked: RequestInput
    working: Working
    refused_at: int
    is_handoff_new: bool


def gather_parts(
    place: SessionPlace,
    options: Options,
    details: RequestDetails,
    style: ReadingStyle,
    last: LastRequest | None,
    refused_at: int,
) -> RequestParts:
    """What a request of a session is made from. `last` is the request before it."""
    path = place.path_to(details.at)
    working = Working() if place.is_guest else place.state.working
    options = _ask_session_sources(place, options, path, style, working)
    if options.window is None and style.agent and style.agent.window:
        options = replace(options, window=style.agent.window)
    options = _keep_within(place, options, details.overflow, refused_at)
    if options.policy.cold < 1:
        cold, busy = moment(path, style.now)
        options = replace(options, cold=cold, busy=busy)
    handoff, is_new = None, False
    if options.policy.renew and not place.is_guest:
        handoff, is_new = find_handoff(place, path, working)
    pins = [place.node_to_pin(path, name) for name in details.pins]
    pins += [node for node in place.recalled_nodes(path) if node not in pins]
    asked = RequestInput(
        store=place.store,
        row=place.row,
        path=path,
        options=options,
        style=style,
        pins=pins,
        last=None if details.at else last,
        fetch=place.fetch,
        overflowed=details.overflow is not None,
        handoff=handoff,
        project=details.project,
        project_file=details.project_file,
        knowledge=details.knowledge,
        skills=_ask_skills(place, details, path),
        remembers=not place.is_guest,
        notes=details.notes,
        find=place.workspace.recaller.find,
    )
    return RequestParts(asked=asked, working=working, refused_at=refused_at, is_handoff_new=is_new)


def _ask_session_sources(
    place: SessionPlace, options: Options, path: Path, style: ReadingStyle, working: Working
) -> Options:
    """The options with what sources of the session add."""
    row = replace(place.row, key=0, id="") if place.is_guest else place.row
    asking = Asking(
        store=place.store,
        row=row,
        path=path,
        style=style,
        head=place.row.head,
        options=options,
        working=working,
    )
    return gather(asking, SESSION_SOURCES)


def _keep_within(
    place: SessionPlace, options: Options, overflow: Overflow | None, refused_at: int
) -> Options:
    """Options for as many tokens as providers took of this model before; for less if the last
    request was refused.
    """
    budget = budget_for(options, place.row.head)
    model = options.model or place.row.model
    limit = place.state.token_limit(model)
    if overflow:
        limit = limit_after_refusal(overflow, refused_at, budget.reserved_output)
    if limit:
        return fit_into(options, budget, int(limit * ratio_of(place.row, model)))
    return options


def _ask_skills(place: SessionPlace, details: RequestDetails, path: Path) -> "SkillRequest | None":
    """What is asked of skills; None if neither a project nor skills are named."""
    if details.project is None and not details.skills:
        return None
    project = details.project.root if details.project else ""
    state = SkillsState() if place.is_guest else place.state.skills
    shown = () if place.is_guest else place.recalled_nodes(path)
    return ask_skills(
        state, details.skills, project, path, shown, lambda node: place.is_on(path, node)
    )
