"""Before a request is made: what is asked, whom knowledge bases are asked for it, and what is
written first.
"""

from os import PathLike

from msgspec.structs import replace

from loom.context import Context, Options, budget_for
from loom.conversation.canonical import to_json
from loom.engine.inputs import Given, parse_with_metadata
from loom.engine.knowledge import find_question
from loom.engine.options import PrepareOptions, RequestDetails
from loom.engine.session_state import working_values
from loom.engine.sessions.place import SessionPlace
from loom.engine.sessions.requests import SessionRequests
from loom.engine.sessions.writing import append_given
from loom.engine.skills import refuse_unknown_skills
from loom.engine.sources import rank_project
from loom.engine.urgent_events import EVENTS_SEEN, bring_urgent_events
from loom.providers.knowledge import Findings, ask_bases
from loom.stores import StateValues


async def ask_knowledge(
    place: SessionPlace, request: Given | None, options: PrepareOptions
) -> Findings | None:
    """What knowledge bases say of the request; None if there are none to ask."""
    workspace = place.workspace
    lookup = workspace.knowledge_lookup.choose(
        options.get("knowledge"), options.get("knowledge_seconds"), lambda: workspace.knowledge
    )
    if not lookup.bases:
        return None
    at = options.get("at")
    question = await place.run_off_loop(lambda: _find_question(place, request, at))
    return await ask_bases(lookup.bases, question, seconds=lookup.seconds)


def _find_question(place: SessionPlace, request: Given | None, at: str | None) -> str:
    """What is asked now; "" of a text without roles, which asks nothing."""
    if place.is_text():
        return ""
    asked = ""
    if request is not None and not _is_asked(place, request):
        messages, _ = parse_with_metadata([request])
        asked = "\n".join(each.text for each in messages if each.role == "user")
    return find_question(place.path_to(at), asked)


def _is_asked(place: SessionPlace, request: Given) -> bool:
    """Whether a request is what was said last."""
    end = place.path.end
    return (
        end is not None
        and end.message is not None
        and [end.message] == parse_with_metadata([request])[0]
    )


def append_and_prepare(
    place: SessionPlace,
    requests: SessionRequests,
    request: Given | None,
    options: Options,
    details: RequestDetails,
    project: "str | PathLike[str] | None",
) -> Context:
    """Append the request, unless it is there, and make what is sent for it. What is wrong is said
    before anything is written.
    """
    choices = requests.choices
    notes: tuple[str, ...] = ()
    if project is None:
        project, notes = choices.find_folder()
    defaults = choices.find_defaults(project)
    details = replace(details, notes=(*notes, *defaults.notes), project_file=defaults.project_file)
    with defaults.name_origins():
        options = choices.fill(options, details, defaults)
        budget_for(options, place.row.head)
    refuse_unknown_skills(project, details.skills)
    _refuse_unknown_nodes(place, details)
    if request is not None and not _is_asked(place, request):
        append_given(place, [request])
    if place.row.agent and not place.is_guest and not details.preview:
        _bring_urgent_events(place)
    if project is not None:
        details = replace(details, project=rank_project(place.path_to(details.at), project))
    with defaults.name_origins():
        return requests.prepare(options, details)


def _refuse_unknown_nodes(place: SessionPlace, details: RequestDetails) -> None:
    for name in (*details.pins, *details.include):
        place.node(name)
    if details.at is not None:
        place.node(details.at)


def _bring_urgent_events(place: SessionPlace) -> None:
    """Let urgent events for the agent come up in the working state."""
    before, seen = place.state.working, place.state.events_seen
    working, upto = bring_urgent_events(place.workspace, place.row, before, seen)
    if upto > seen:
        states: list[StateValues] = [(EVENTS_SEEN, {"": to_json(str(upto))})]
        if working != before:
            states.append(working_values(working))
        place.keep_states(*states)
