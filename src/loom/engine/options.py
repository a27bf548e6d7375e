"""What is asked of a request from a store: the options of `prepare`, and their checker."""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from loom.config.project_file import ProjectFile
from loom.context import (
    Caches,
    Options,
    Policy,
    RequestOptions,
    check_options,
    select_request_options,
)
from loom.conversation.checked import check_flag
from loom.conversation.tree import Reference
from loom.engine.remembered import RememberedOptions, named_values
from loom.engine.skills import SkillsAsked, check_skills
from loom.errors import ChoiceError, describe, shorten
from loom.providers.knowledge import Findings, KnowledgeBase
from loom.providers.overflow import Overflow, error_text, read_overflow

if TYPE_CHECKING:
    from loom.project.maps import RankedProject

DEFAULT_POLICY = "default"  # the policy of a session for which nobody named one


class PrepareOptions(RequestOptions, total=False):
    """The options of `Session.prepare`."""

    # Name of a policy, or a `Policy`. It is remembered, as are `model`, `window`,
    # `reserve_output`, `zones` and `project` (default: the one that was named last, then the one
    # of the configuration, then `default`).
    policy: str | Policy | None
    # Ids of nodes that must stay.
    pins: Sequence[str]
    # Ids of annotations to read.
    include: Sequence[str]
    # Nodes that the answer is based on.
    sources: Sequence[Reference]
    # Whether nothing is stored.
    preview: bool
    # Preview the path to this node.
    at: str | None
    # Error of a provider that refused the last request as too long: this request and all later
    # ones are shorter.
    overflow: object
    # Folder of code: the system text contains its rules, and a map of it, each of the size of its
    # zone.
    project: str | PathLike[str] | None
    # Names of skills whose text must be in the request.
    skills: Sequence[str]
    # More folders of skills, besides those of the project and of the user.
    skill_folders: Sequence[str | PathLike[str]]
    # Knowledge bases to ask: anything with `query`, or a list of them; True asks the documents of
    # the project, False asks none (default: those of `Loom.open`).
    knowledge: KnowledgeBase | Sequence[KnowledgeBase] | bool | None
    # Seconds that all knowledge bases have together (default: those of `Loom.open`).
    knowledge_seconds: float | None


class TreePrepareOptions(PrepareOptions, total=False):
    """The options of `LoomTree.prepare`."""

    # Agent that reads the request (default: the one that the tree was opened for).
    agent: str | None


class RequestDetails(Struct, frozen=True, kw_only=True):
    """What is asked of a request besides its options. `named`: whether the caller says which
    policy. `values` are the other options that the caller names and the session remembers.
    `project_file` is the configuration that holds. `notes` are for the report.
    """

    pins: tuple[str, ...] = ()
    sources: tuple[Reference, ...] = ()
    include: tuple[str, ...] = ()
    preview: bool = True
    at: str | None = None
    overflow: Overflow | None = None
    project: "RankedProject | None" = None
    knowledge: Findings | None = None
    skills: SkillsAsked = SkillsAsked()
    named: bool = True
    values: RememberedOptions = RememberedOptions()
    project_file: ProjectFile | None = None
    notes: tuple[str, ...] = ()


def check_prepare_options(asked: PrepareOptions, caches: Caches) -> tuple[Options, RequestDetails]:
    """Options and details from what a caller asks for."""
    policy, at = asked.get("policy"), asked.get("at")
    preview = asked.get("preview", False)
    options = check_options(
        policy=DEFAULT_POLICY if policy is None else policy, **select_request_options(asked)
    )
    check_flag("preview", preview)
    details = RequestDetails(
        pins=_check_names("pins", asked.get("pins", ())),
        sources=check_sources(asked.get("sources", ())),
        include=_check_names("include", asked.get("include", ())),
        preview=preview or at is not None,
        at=at,
        overflow=_check_overflow(asked.get("overflow")),
        skills=check_skills(asked.get("skills", ()), asked.get("skill_folders", ())),
        named=policy is not None,
        values=named_values(options, asked.get("zones"), asked.get("project")),
    )
    return replace(options, caches=caches), details


def _check_names(what: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise ChoiceError(f"{what} must be a list of node ids, found {describe(given)}")
    return tuple(given)


def check_sources(given: object) -> tuple[Reference, ...]:
    """What an answer is made from besides its path, as a caller gives it."""
    if not isinstance(given, list | tuple) or not all(
        isinstance(source, Reference) for source in given
    ):
        raise ChoiceError(f"sources must be a list of Reference values, found {describe(given)}")
    return tuple(given)


def _check_overflow(given: object) -> Overflow | None:
    """The error by which a provider refused a request as too long, as a caller gives it."""
    return None if given is None else read_refusal(given)


def read_refusal(given: object) -> Overflow:
    """What an error says by which a provider refused a request as too long."""
    found = read_overflow(given)
    if found is None:
        cause = given if isinstance(given, BaseException) else None
        what = shorten(error_text(given), 500)
        raise ChoiceError(
            f"this error does not say that the request was too long: {what}; fix what it reports"
        ) from cause
    return found
