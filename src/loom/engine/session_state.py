"""What a session has at hand besides what was said: its policy, working state, a handoff, what it
recalled, what was refused.

`SessionState` reads. The functions after it make what is written, so that several kinds can be kept
in one transaction.
"""

from typing import Any

from loom.config.project_file import ProjectFile
from loom.context import Evidence, Handoff, Policy, Working, find_policy, policies
from loom.conversation.canonical import to_json
from loom.conversation.checked import check_text
from loom.conversation.names import check_name
from loom.engine.remembered import KnownProjectFile, RememberedOptions
from loom.engine.running import RunClaim, Runner, read_runner
from loom.engine.skills import SkillsState
from loom.errors import ChoiceError, StoreError
from loom.stores import (
    Digits,
    Request,
    StateKind,
    States,
    StateValues,
    read_stored,
)

# the kinds of state that the store does not know itself, by their types
STATE_KINDS: dict[str, Any] = {
    "working": Working,
    "handoff": Handoff,
    "policy": str | Policy,
    "offered": tuple[Evidence, ...],
    "remembered": RememberedOptions,
    "runner": StateKind(Runner, lambda name: "\0" not in name),  # by the task that it works on
    "skills": SkillsState,
    "project_file": KnownProjectFile,
}


class SessionState:
    """The state of one session, read from the store. A guest has none: its key is 0."""

    def __init__(self, states: States, key: int) -> None:
        self._states, self._key = states, key

    def _all(self, kind: str) -> dict[str, str]:
        return self._states.all(self._key, kind)

    def put(self, now: int, *values: StateValues) -> None:
        """Keep these values, all or none."""
        self._states.put_all(self._key, values, now)

    def claim_run(self, claim: RunClaim, now: int) -> None:
        """Keep that a run is at work, unless another one is."""
        self._states.exchange(
            self._key, "runner", lambda stored: claim.take(stored, now), now, claim.task
        )

    def release_run(self, owner: str, now: int, task: str = "") -> None:
        """Forget that a run is at work. That of another owner is kept."""

        def forget(stored: str | None) -> str | None:
            found = read_runner(stored)
            return None if found is None or found.owner == owner else stored

        self._states.exchange(self._key, "runner", forget, now, task)

    @property
    def working(self) -> Working:
        data = self._all("working").get("")
        if data:
            return read_stored(data, Working, "the working state of the session")
        return Working()

    @property
    def events_seen(self) -> int:
        """Up to which event of the bus the session has looked for urgent ones."""
        data = self._all("events").get("")
        if data:
            return int(read_stored(data, Digits, "the events that the session has seen"))
        return 0

    @property
    def offered_evidence(self) -> tuple[Evidence, ...]:
        """What knowledge bases found for the last request that they found something for."""
        data = self._all("offered").get("")
        if data:
            return read_stored(data, tuple[Evidence, ...], "the evidence of the session")
        return ()

    @property
    def skills(self) -> SkillsState:
        """Where the skills of the session are, and which of them the model loaded."""
        data = self._all("skills").get("")
        if data:
            return read_stored(data, SkillsState, "the skills of the session")
        return SkillsState()

    @property
    def handoff(self) -> Handoff | None:
        """The handoff with which the window last began again."""
        data = self._all("handoff").get("")
        if data:
            return read_stored(data, Handoff, "the handoff of the session")
        return None

    @property
    def hidden_from_handoff(self) -> str:
        """What was hidden when that handoff was made."""
        data = self._all("handoff_hidden").get("")
        if data:
            return read_stored(data, str, "what was hidden from the handoff")
        return ""

    @property
    def policy(self) -> Policy | None:
        """The policy of the last request that named one; None if none did."""
        data = self._all("policy").get("")
        if not data:
            return None
        held: Any = str | Policy
        found = read_stored(data, held, "the policy of the session")
        if isinstance(found, str) and found not in policies():
            raise ChoiceError(
                f"{found!r} does not ship with Loom, and a policy with a function cannot be stored"
            )
        return find_policy(found)

    @property
    def remembered_options(self) -> RememberedOptions:
        """What the last requests named of what a session remembers."""
        data = self._all("remembered").get("")
        if data:
            return read_stored(data, RememberedOptions, "what the session remembers")
        return RememberedOptions()

    @property
    def project_file(self) -> KnownProjectFile | None:
        """The project's file when nothing was wrong with it the last time."""
        data = self._all("project_file").get("")
        if data:
            return read_stored(data, KnownProjectFile, "the project's file of the session")
        return None

    def token_limit(self, model: str) -> int:
        """How many tokens, uncorrected, may be sent to a model since it refused more; 0 if it never
        did.
        """
        data = self._all("overflow").get(model)
        if data:
            return read_stored(data, int, "what a provider refused")
        return 0

    def recalled_nodes(self, newest: int) -> list[str]:
        """The nodes that were recalled in the newest epoch: they are in the next one too."""
        found = self._all("recalled").items()
        return [
            name for name, epoch in found if newest <= read_stored(epoch, int, "what was recalled")
        ]

    def started_call(self, call: str) -> str:
        """The node that makes a call, if that was about to run; else ""."""
        data = self._states.find_value(self._key, "started", call)
        return read_stored(data, str, "a call that was started") if data else ""

    @property
    def request(self) -> Request | None:
        """The last request, if it outlives the object that made it; None if that cannot be read any
        more.
        """
        data = self._all("request").get("")
        try:
            if data:
                return read_stored(data, Request, "the last request")
            return None
        except StoreError:
            return None

    def texts(self, kind: str) -> dict[str, str]:
        """Texts by name: versions that were chosen, what is not committed yet."""
        return {
            name: read_stored(data, str, f"the {kind} of the session")
            for name, data in self._all(kind).items()
        }

    # What is written

    def policy_values(self, chosen: Policy) -> list[StateValues]:
        """A policy by its name if it ships, so that it is the same one in later versions, else all
        of it.

        Of a policy with a function only the name is kept: a request that names none then says which
        one is missing. Nothing if it is kept already.
        """
        ships = policies().get(chosen.name) == chosen
        named = chosen.name if ships or chosen.has_function else chosen
        data = to_json(named)
        if self._all("policy").get("") == data:
            return []
        return [("policy", {"": data})]

    def remembered_values(self, named: RememberedOptions) -> list[StateValues]:
        """What is remembered with what a request named. Nothing if it is remembered already."""
        before = self.remembered_options
        after = named.over(before)
        if after == before:
            return []
        return [remembered_values(after)]

    def project_file_values(self, found: ProjectFile | None) -> list[StateValues]:
        """A project's file with which nothing is wrong. Nothing if it is known already."""
        if found is None or found.problem is not None:
            return []
        data = to_json(KnownProjectFile(found.path, found.file.text)) if found.file else None
        if self._all("project_file").get("") == data:
            return []
        return [("project_file", {"": data})]

    def copied_values(self) -> list[StateValues]:
        """The policy, the options and the project's file that are remembered here, for another
        session.
        """
        copied: list[StateValues] = []
        for kind in ("policy", "remembered", "project_file"):
            if data := self._all(kind).get(""):
                copied.append((kind, {"": data}))
        return copied

    def unlimited_values(self) -> StateValues:
        """That no model refused anything."""
        return "overflow", dict.fromkeys(self._all("overflow"))

    def started_values(self, call: str, node: str, *, forget: bool) -> StateValues:
        """One more call that is about to run. Those of other nodes are over; they are forgotten if
        that is asked for.
        """
        over: dict[str, str | None] = {}
        if forget:
            known = self.texts("started").items()
            over = {name: None for name, caller in known if caller != node}
        return "started", over | {check_name("call", call): to_json(node)}

    def recalled_values(self, node: str, epoch: int) -> StateValues:
        """One more node that was recalled. Those of earlier epochs are forgotten."""
        fresh = self.recalled_nodes(epoch)
        older: dict[str, str | None] = {
            name: None for name in self._all("recalled") if name not in fresh
        }
        return "recalled", older | {node: to_json(epoch)}


def working_values(working: Working) -> StateValues:
    working = Working.of(working)
    return "working", {"": to_json(working) if not working.is_empty else None}


def remembered_values(remembered: RememberedOptions) -> StateValues:
    return "remembered", {"": to_json(remembered) if remembered != RememberedOptions() else None}


def skills_values(skills: SkillsState) -> StateValues:
    return "skills", {"": to_json(skills)}


def offered_values(offered: tuple[Evidence, ...]) -> StateValues:
    return "offered", {"": to_json(offered)}


def handoff_values(handoff: Handoff, hidden: str) -> list[StateValues]:
    """A handoff, and what was hidden when it was made."""
    return [
        ("handoff", {"": to_json(handoff)}),
        ("handoff_hidden", {"": to_json(hidden) if hidden else None}),
    ]


def limit_values(model: str, tokens: int) -> StateValues:
    return "overflow", {model: to_json(tokens)}


def request_values(request: Request) -> StateValues:
    return "request", {"": to_json(request)}


def text_values(kind: str, name: str, text: str) -> StateValues:
    check_text(f"the {kind} of a session", text)
    return kind, {check_name("node", name): to_json(text) if text else None}
