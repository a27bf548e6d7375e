"""What a request uses if its caller names nothing: folder, configuration, policy, options."""

import os
from os import PathLike

from msgspec.structs import replace

from loom.context import Options, Policy, check_options, find_policy
from loom.engine.options import DEFAULT_POLICY, RequestDetails
from loom.engine.remembered import (
    RememberedOptions,
    RequestDefaults,
    SetOptions,
    check_remembered,
    fill_options,
    read_defaults,
)
from loom.engine.session_state import remembered_values
from loom.engine.sessions.place import SessionPlace
from loom.engine.sources import check_project
from loom.errors import ChoiceError


class RequestChoices:
    """The options that a session remembers, before those of the configuration.

    `last_options` are those of the last request of this object.
    """

    def __init__(self, place: SessionPlace) -> None:
        self._place = place
        self.last_options: Options | None = None

    def find_folder(self) -> tuple[str | None, tuple[str, ...]]:
        """The folder of code that the session remembers, and notes on it."""
        folder = self._place.state.remembered_options.project
        if folder is None or os.path.isdir(folder):
            return folder, ()
        note = (
            f"the folder {folder}, which the session remembers as its project, is not there; name "
            "another with prepare(project=…), or forget it with set_options(project=None)"
        )
        return None, (note,)

    def find_defaults(self, folder: "str | PathLike[str] | None") -> RequestDefaults:
        """What the configuration of a folder says; without a folder, that of the store."""
        if folder is None:
            return self._place.workspace.defaults
        return read_defaults(folder, self._place.state.project_file)

    def fill(self, options: Options, details: RequestDetails, defaults: RequestDefaults) -> Options:
        """Options with what the session remembers, and then with the configuration, where the
        caller names no value.
        """
        remembered, usual = self._place.state.remembered_options, defaults.values
        if details.values.zones is not None:
            remembered = replace(remembered, zones=None)
        if self._place.row.model:
            usual = replace(usual, model=None)
        agent = self._place.speaker()
        if agent and agent.window:
            usual = replace(usual, window=None)
        options = fill_options(fill_options(options, remembered), usual)
        if details.named:
            return options
        return replace(options, policy=self._find_policy(defaults))

    @property
    def policy(self) -> Policy:
        """The policy of the next request if it names none."""
        return self._find_policy(self.find_defaults(self.find_folder()[0]))

    @property
    def last_policy(self) -> Policy:
        """The policy of the last request. After a restart it is `default` if that one had a
        function.
        """
        if self.last_options:
            return self.last_options.policy
        try:
            return self.policy
        except ChoiceError:
            return find_policy(DEFAULT_POLICY)

    def options_to_summarize(self) -> Options:
        """The options of the last request, with the room that the configuration leaves free."""
        defaults = self.find_defaults(self.find_folder()[0])
        options = self.last_options
        if options is None:
            asked = check_options(policy=self.last_policy)
            options = self.fill(asked, RequestDetails(), defaults)
        return replace(options, policy=defaults.add_headroom(options.policy))

    def _find_policy(self, defaults: RequestDefaults) -> Policy:
        try:
            return self._place.state.policy or defaults.policy or find_policy(DEFAULT_POLICY)
        except (ChoiceError, ValueError) as error:
            message = (
                f"the policy that session {self._place.id} remembers cannot be used: {error}; "
                "name another with prepare(policy=…)"
            )
            raise ChoiceError(message) from None

    def set(self, options: SetOptions) -> RememberedOptions:
        """Remember these options; None makes the session forget one."""
        if (project := options.get("project")) is not None:
            check_project(project)
        given = check_remembered(options)
        named = {name: getattr(given, name) for name in options if name != "policy"}
        state = self._place.state
        remembered = replace(state.remembered_options, **named)
        states = [remembered_values(remembered)]
        if "policy" in options:
            chosen = options["policy"]
            if chosen is None:
                states.append(("policy", {"": None}))
            else:
                states += state.policy_values(find_policy(chosen))
        self._place.keep_states(*states)
        self._place.emit("changed")
        return remembered
