"""What was done and why: a line for every item in a request and every span left out of it."""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from loom.context.handles import Archive
from loom.context.outlook import Outlook
from loom.context.places import EVERYWHERE, Places
from loom.conversation.message import Message
from loom.conversation.turns import Span

Action = Literal["kept", "shrunk", "covered", "dropped", "repaired", "hidden"]


LEFT_OUT: tuple[Action, ...] = ("dropped", "covered")  # what is not in the request itself; of what is covered, some lines are


class Item(Struct, frozen=True, omit_defaults=True):
    """One thing: where it stands, what was done to it by which rule, its tokens before and after, and the way back.

    `returns_at` is the window at which it would stand whole again: all that outranks it, itself, and the reserve.
    """

    place: str
    zone: str
    action: Action
    rule: str
    before: int
    after: int
    handles: tuple[str, ...] = ()
    returns_at: int = 0


class Piece(Struct, frozen=True):
    """A stretch of the history as it will be sent."""

    span: Span
    messages: tuple[Message, ...]
    items: tuple[Item, ...]


class Report(Struct, frozen=True, kw_only=True):
    """`prefix` is what a provider can cache: tools, system and history, without the tail. `margin` is kept free on purpose.

    `outlook` is how many calls are expected to come, and whether a new epoch would pay; `renewed`, that a fresh window begins.
    """

    policy: str
    model: str
    counter: str
    window: int
    reserved_output: int
    input_tokens: int
    margin: int = 0
    zones: dict[str, dict[str, int]]
    items: tuple[Item, ...]
    dropped: int
    truncated: bool
    prefix_tokens: int
    prefix_hash: str
    epoch: int
    epoch_reason: str
    outlook: Outlook = Outlook(1)
    renewed: bool = False
    rho: float | None = None  # the pressure by which a ladder is climbed; the only one, where there is a ladder
    notes: tuple[str, ...] = ()
    ids: dict[str, str] = {}
    # What the next call needs to continue this epoch.
    pieces: tuple[Piece, ...] = ()
    head_hash: str = ""
    history: tuple[Message, ...] = ()
    pins: tuple[int, ...] = ()
    archive: Archive | None = None
    places: Places = EVERYWHERE
    given_up: tuple[int, ...] = ()
    widened: dict[str, int] = {}  # zones of the system text that have some of what was free when the epoch began
    own_room: int | None = None  # what may still come in before history gives way, by the policy's own counter

    @property
    def usable(self) -> int:
        return self.window - self.reserved_output

    @property
    def pressure(self) -> float:
        """Measured tokens by usable tokens; where a policy climbs a ladder, what it measures by its own counter."""
        if self.rho is not None:
            return round(self.rho, 4)
        return round(self.input_tokens / self.usable, 4) if self.usable > 0 else 1.0

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        hidden = ("pieces", "head_hash", "history", "pins", "archive", "places", "items", "given_up", "rho", "widened", "own_room")
        told = {name: getattr(self, name) for name in self.__struct_fields__ if name not in hidden}
        return told | {"outlook": asdict(self.outlook), "pressure": self.pressure, "items": [asdict(item) for item in self.items]}
