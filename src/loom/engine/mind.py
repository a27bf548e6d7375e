"""What a session has at hand beside what was said: its policy, working state, a handoff, what it recalled, what was refused."""

from typing import Any

from loom.context.policy import Policy, policies
from loom.context.policy import policy as find_policy
from loom.context.renewal import Handoff
from loom.context.working import EMPTY, Working
from loom.conversation.canonical import to_json
from loom.conversation.checked import check_text
from loom.engine.home import Home
from loom.stores.sessions import check_name
from loom.stores.states import REQUEST, STORE_KINDS, Request, StateKind, StateKinds, is_unnamed
from loom.stores.stored import UNREADABLE, decode_stored, read_stored

STATE_KINDS: StateKinds = {
    **STORE_KINDS,
    "working": StateKind(Working, is_unnamed),
    "handoff": StateKind(Handoff, is_unnamed),
    "policy": StateKind(str | Policy, is_unnamed),
}


class Mind:
    """The states of one session; those of a guest are empty."""

    def __init__(self, home: Home, key: int) -> None:
        self._home, self._key = home, key

    def _all(self, kind: str) -> dict[str, str]:
        return self._home.store.states.all(self._key, kind)

    def _put(self, kind: str, values: dict[str, str | None]) -> None:
        self._home.store.states.put(self._key, kind, values, self._home.now())

    @property
    def working(self) -> Working:
        kept = self._all("working").get("")
        return read_stored(kept, Working, "the working state of the session") if kept else EMPTY

    def keep_working(self, working: Working) -> None:
        working = Working.of(working)
        self._put("working", {"": to_json(working) if working != EMPTY else None})

    @property
    def handed(self) -> Handoff | None:
        """The handoff with which the window last began anew."""
        kept = self._all("handoff").get("")
        return read_stored(kept, Handoff, "the handoff of the session") if kept else None

    @property
    def hidden_from_handed(self) -> str:
        """What was hidden when that handoff was made."""
        kept = self._all("handoff_hidden").get("")
        return read_stored(kept, str, "what was hidden from the handoff") if kept else ""

    def keep_handed(self, handed: Handoff, hidden: str) -> None:
        self._put("handoff", {"": to_json(handed)})
        self._put("handoff_hidden", {"": to_json(hidden) if hidden else None})

    @property
    def policy(self) -> Policy | None:
        """The policy of the last request that named one; None where none did."""
        kept = self._all("policy").get("")
        held: Any = str | Policy
        return find_policy(read_stored(kept, held, "the policy of the session")) if kept else None

    def keep_policy(self, chosen: Policy) -> None:
        """Remember a policy: by its name if it ships, so that it is the same one in later versions, else all of it."""
        named = chosen.name if policies().get(chosen.name) == chosen else chosen
        kept = to_json(named)
        if self._all("policy").get("") != kept:
            self._put("policy", {"": kept})

    def copy_policy(self, other: "Mind") -> None:
        """Remember what another session remembers."""
        if kept := other._all("policy").get(""):
            self._put("policy", {"": kept})

    def most(self, model: str) -> int:
        """How many tokens, uncorrected, may be sent to a model since it refused more; 0 where it never did."""
        kept = self._all("overflow").get(model)
        return read_stored(kept, int, "what a provider refused") if kept else 0

    def keep_most(self, model: str, tokens: int) -> None:
        self._put("overflow", {model: to_json(tokens)})

    def forget_most(self) -> None:
        self._put("overflow", dict.fromkeys(self._all("overflow")))

    def recalled(self, newest: int) -> list[str]:
        """The nodes that were recalled in the newest epoch: they stand in the next one too."""
        return [name for name, epoch in self._all("recalled").items() if newest <= read_stored(epoch, int, "what was recalled")]

    def keep_recalled(self, node: str, epoch: int) -> None:
        """One more, and those of earlier epochs are forgotten."""
        fresh = self.recalled(epoch)
        older: dict[str, str | None] = {name: None for name in self._all("recalled") if name not in fresh}
        self._put("recalled", older | {node: to_json(epoch)})

    @property
    def request(self) -> Request | None:
        """The last request, where it outlives the object that made it; None where that cannot be read any more."""
        kept = self._all(REQUEST).get("")
        try:
            return decode_stored(kept, Request) if kept else None
        except UNREADABLE:
            return None

    def keep_request(self, request: Request | None) -> None:
        self._put(REQUEST, {"": to_json(request) if request else None})

    def texts(self, kind: str) -> dict[str, str]:
        """Texts by name: versions that were chosen, what is not committed yet."""
        return {name: read_stored(data, str, f"the {kind} of the session") for name, data in self._all(kind).items()}

    def keep_text(self, kind: str, name: str, text: str) -> None:
        check_text(f"the {kind} of a session", text)
        self._put(kind, {check_name("node", name): to_json(text) if text else None})
