"""Every error Loom raises on purpose. A class exists where a caller would do something different on it.

LoomError
├── WireError        a request or message is not of the form its wire prescribes
├── TranscriptError  a file cannot be read as a transcript
├── CannotFit        what must be in a request does not fit its window
├── ChoiceError      a name or number given by the caller is not one of those that exist
└── StoreError       the store cannot be opened, read or written
    ├── Conflict     somebody else moved what this call was about to change
    ├── Diverged     a session to be imported is here already and differs
    └── Unfinished   a purge took the words, but some of their bytes are still on disk
"""


class LoomError(Exception):
    """The base of all errors that Loom raises on purpose; its text is one clear line."""


class WireError(LoomError):
    """A request or message is not of the form its wire prescribes."""

    def __init__(self, place: str, expected: str, found: object) -> None:
        self.place = place
        self.expected = expected
        self.found = describe(found)
        super().__init__(f"{place}: expected {expected}, found {self.found}")


class TranscriptError(LoomError):
    """A file cannot be read as a transcript."""


class CannotFit(LoomError):
    """What must be in a request does not fit its window; the text names the items, the numbers and the way out."""


class ChoiceError(LoomError):
    """A name or number given by the caller is not one of those that exist."""


class StoreError(LoomError):
    """The store cannot be opened, read or written; the text names the store, what is wrong and the way out."""


class Conflict(StoreError):
    """Somebody else moved what this call was about to change: read the session again, then decide."""

    def __init__(self, session: str, expected: str, found: str) -> None:
        self.session = session
        self.expected = expected
        self.found = found
        super().__init__(
            f"session {session} was changed by somebody else: expected it at {expected or 'its beginning'}, "
            f"found it at {found or 'its beginning'}; read it again and repeat the change"
        )


class Diverged(StoreError):
    """A session to be imported is here already, and the file has of it what is not here; nothing of it was changed."""

    def __init__(self, session: str, text: str) -> None:
        self.session = session
        super().__init__(text)


class Unfinished(StoreError):
    """A purge took the words out of the store, but copies of them are still on disk: `remains` says where. Purge again."""

    def __init__(self, session: str, remains: tuple[str, ...]) -> None:
        self.session = session
        self.remains = remains
        super().__init__(
            f"session {session} was purged, and something of it is still on disk: {'; '.join(remains)}. "
            f"Purge it again until nothing remains: loom session purge {session}"
        )


class UnreadableWarning(UserWarning):
    """Something in a store cannot be read and was left out of what was asked for; the text names it."""


def describe(value: object) -> str:
    """A value in a few words, for an error message."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"the text {shorten(value)!r}"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, bool | int | float):
        return f"{value!r}"
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(str, list(value)[:6])) or '(none)'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return type(value).__name__


_SHOWN_BITS = 128  # a longer number says no more by its digits


def shorten(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
