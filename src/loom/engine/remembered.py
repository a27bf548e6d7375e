"""What a session remembers of the options of its requests, and what holds if nobody names a value.

A value that a request names is stored with the session. A request that does not name it is made as
if it did.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from loom.config.project_file import ProjectFile, restore_project_file
from loom.config.settings import Configuration, find_project_file, settle_configuration
from loom.context import Options, Policy, check_options, find_policy
from loom.conversation.checked import MAX_NUMBER
from loom.errors import CannotFit, ChoiceError, ConfigError, describe, shorten

_Tokens = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Window = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]


class SetOptions(TypedDict, total=False):
    """The options that a session remembers. None makes it forget a value."""

    # Name of a policy, or a `Policy`.
    policy: str | Policy | None
    # Name of the model.
    model: str | None
    # Size of the whole window in tokens.
    window: int | None
    # Part of the window that is reserved for the answer.
    reserve_output: int | None
    # Sizes of zones in tokens.
    zones: Mapping[str, int] | None
    # Folder of code.
    project: str | PathLike[str] | None


class RememberedOptions(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The options of requests that a session remembers, besides its policy. None: it remembers
    none.
    """

    # Name of the model.
    model: str | None = None
    # Size of the whole window in tokens.
    window: _Window | None = None
    # Part of the window that is reserved for the answer.
    reserve_output: _Tokens | None = None
    # Sizes of zones in tokens.
    zones: dict[str, _Tokens] | None = None
    # Folder of code, as an absolute path.
    project: str | None = None

    def over(self, weaker: "RememberedOptions") -> "RememberedOptions":
        """These values, and those of the other one where there are none."""
        return RememberedOptions(
            **{
                name: getattr(weaker, name) if value is None else value
                for name, value in msgspec.structs.asdict(self).items()
            }
        )


class RequestDefaults(Struct, frozen=True, kw_only=True):
    """What holds for requests if neither the caller nor the session names it."""

    policy: Policy | None = None
    values: RememberedOptions = RememberedOptions()
    headroom: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()  # for the report
    origins: str = ""  # where sizes come from, for errors
    # that was read, or that holds in its place; its `problem` is what is wrong now
    project_file: ProjectFile | None = None

    def add_headroom(self, policy: Policy) -> Policy:
        """A policy with the headroom, unless it has one of its own."""
        if self.headroom is None or policy.headroom_ceiling_pct:
            return policy
        floor, ceiling = self.headroom
        return replace(policy, headroom_floor_pct=floor, headroom_ceiling_pct=ceiling)

    @contextmanager
    def name_origins(self) -> Iterator[None]:
        """Add to an error about sizes where the configured ones come from."""
        try:
            yield
        except (CannotFit, ChoiceError) as error:
            if not self.origins or type(error) not in (CannotFit, ChoiceError):
                raise
            raise type(error)(f"{error} ({self.origins})") from None


class KnownProjectFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A project's file when nothing was wrong with it: its path, and the text that it had."""

    path: str
    text: str


def read_defaults(
    folder: "str | PathLike[str]", known: KnownProjectFile | None = None
) -> RequestDefaults:
    """What the configuration of a folder says of requests. What is wrong with it is a note.

    If the project's file is wrong, what it said when it was `known` still counts: somebody is
    editing it.
    """
    found = find_project_file(os.path.expanduser(os.fsdecode(folder)))
    try:
        return take_defaults(settle_configuration(found))
    except ConfigError as error:
        before = None
        if known is not None and known.path == found.path:
            before = restore_project_file(found, known.text)
        if before is None:
            note = f"{error}; nothing of the configuration of {os.fsdecode(folder)} is used"
            return RequestDefaults(notes=(note,), project_file=replace(found, problem=error))
        return _take_earlier(before, found, error)


def _take_earlier(before: ProjectFile, found: ProjectFile, error: ConfigError) -> RequestDefaults:
    """What a project's file said of requests before it was wrong. Rules that can be read are as
    they are.
    """
    note = f"{error}; what it said before still counts"
    try:
        made = take_defaults(settle_configuration(replace(before, problem=None)))
    except ConfigError:  # another file is wrong too
        made = RequestDefaults()
    held = found if found.file else before
    return replace(made, notes=(note,), project_file=replace(held, problem=error))


def take_defaults(settings: Configuration) -> RequestDefaults:
    """What a configuration says of requests."""
    policy = settings.policy
    return RequestDefaults(
        policy=None if policy is None else find_policy(policy),
        values=RememberedOptions(
            model=settings.model,
            window=settings.window,
            reserve_output=settings.reserve_output,
            zones=settings.zones or None,
        ),
        headroom=settings.headroom,
        origins=settings.name_origins(),
        project_file=settings.project,
    )


def named_values(
    options: Options, zones: Mapping[str, int] | None, project: "str | PathLike[str] | None"
) -> RememberedOptions:
    """What a request names of what a session remembers."""
    return RememberedOptions(
        model=options.model,
        window=options.window,
        reserve_output=options.reserve_output,
        zones=None if zones is None else dict(zones),
        project=None if project is None else absolute_folder(project),
    )


def fill_options(options: Options, values: RememberedOptions) -> Options:
    """Options with these values where they have none of their own. Zones are filled one by one."""
    if values.zones:
        options = replace(options, zones={**values.zones, **options.zones})
    reserve = values.reserve_output
    if options.reserve_output is None and reserve is not None:
        options = replace(options, reserve_output=reserve, answer=reserve or None)
    if options.model is None:
        options = replace(options, model=values.model)
    if options.window is None:
        options = replace(options, window=values.window)
    return options


def absolute_folder(project: "str | PathLike[str]") -> str:
    """The absolute path of a folder."""
    return os.path.abspath(os.path.expanduser(os.fsdecode(project)))


def check_remembered(given: SetOptions) -> RememberedOptions:
    """The values to remember, checked as `prepare` checks them."""
    policy = given.get("policy")
    zones, window = given.get("zones"), given.get("window")
    options = check_options(
        policy="default" if policy is None else policy,
        model=given.get("model"),
        window=window,
        reserve_output=given.get("reserve_output"),
        zones=zones,
    )
    if window == 0:
        raise ChoiceError("a window of 0 tokens holds nothing; give a positive window")
    for zone, size in (zones or {}).items():
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_NUMBER:
            raise ChoiceError(
                f"zone {shorten(zone)} must be a number of tokens, 0 or more, found "
                f"{describe(size)}"
            )
    return named_values(options, zones, given.get("project"))
