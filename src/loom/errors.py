"""Every error Loom raises on purpose. A class exists where a caller would do something different on
it.

LoomError
├── WireError        a request or message does not have the form of its dialect
├── TranscriptError  a file cannot be read as a transcript
│   └── UnknownFormat  a file is not a transcript in any format that Loom knows
├── DocumentError    a file or a text cannot be read as a document of a knowledge base
│   └── DocumentTooLarge  it is beyond a limit; the text names the limit
├── CannotFit        what must be in a request does not fit its window
├── ChoiceError      the caller gave a name or a value that is not valid
│   ├── ConfigError    a configuration file or variable is not valid; the text names file and line
│   └── UnknownOption  a verb has no option of this name; it is a TypeError too
├── EmbedderError    an embedder cannot be loaded, or did not answer
├── ProviderError    a provider refused a request, could not be reached, or broke off
│   ├── RequestTooLong   the request was longer than the window of the model
│   ├── ProviderTimeout  the provider did not answer in time; it is a TimeoutError too
│   └── BrokenAnswer     the answer broke off; `partial` is what came of it
└── StoreError       the store cannot be opened, read or written
    ├── Conflict     somebody else moved what this call was about to change
    ├── Diverged     a session of an import is already stored and differs
    └── Unfinished   a purge deleted the words, but copies of them are still on disk
"""

from typing import Any


class LoomError(Exception):
    """The base of all errors that Loom raises on purpose; its text is one clear line."""


class WireError(LoomError):
    """A request or message does not have the form of its dialect."""

    def __init__(self, place: str, expected: str, found: object) -> None:
        self.place = place
        self.expected = expected
        self.found = describe(found)
        super().__init__(f"{place}: expected {expected}, found {self.found}")


class TranscriptError(LoomError):
    """A file cannot be read as a transcript."""


class UnknownFormat(TranscriptError):
    """A file is not a transcript in any format that Loom knows; the text lists the formats."""


class DocumentError(LoomError):
    """A file or a text cannot be read as a document of a knowledge base."""


class DocumentTooLarge(DocumentError):
    """A document is beyond a limit; the text names the limit and the way out."""


class CannotFit(LoomError):
    """What must be in a request does not fit its window; the text names the items, the numbers and
    the way out.
    """


class ChoiceError(LoomError):
    """The caller gave a name or a value that is not valid; the text says which ones are."""


class ConfigError(ChoiceError):
    """A configuration file is not valid: `file` and `line` say where. A `line` of 0 means the whole
    file.
    """

    def __init__(self, text: str, file: object, line: int = 0) -> None:
        self.text = text
        self.file = str(file)
        self.line = line
        where = f"{self.file}:{line}" if line else self.file
        super().__init__(f"{where}: {text}")

    def extend(self, more: str) -> "ConfigError":
        """The same error with more to say."""
        return ConfigError(f"{self.text}; {more}", self.file, self.line)


class UnknownOption(ChoiceError, TypeError):
    """A verb has no option of this name; the text lists those that it has."""


class EmbedderError(LoomError):
    """An embedder cannot be loaded, or did not answer; the text names it. A search without vectors
    still works.
    """


class ProviderError(LoomError):
    """A provider refused a request, could not be reached, or broke off; the text says what it said.

    `status` is that of HTTP, 0 if there was none. `is_passing`: the same request may succeed later.
    `retry_after` is how many seconds the provider asks to wait, None if it does not say.
    """

    def __init__(
        self,
        text: str,
        *,
        provider: str = "",
        status: int = 0,
        is_passing: bool = False,
        retry_after: float | None = None,
    ) -> None:
        self.provider = provider
        self.status = status
        self.is_passing = is_passing
        self.retry_after = retry_after
        super().__init__(text)


class RequestTooLong(ProviderError):
    """The request was longer than the window of the model. Give this error to
    `prepare(overflow=…)`, which makes a shorter one.

    `limit` is the window and `asked` the tokens counted, 0 where the provider did not say.
    """

    def __init__(
        self, text: str, *, provider: str = "", status: int = 0, limit: int = 0, asked: int = 0
    ) -> None:
        self.limit = limit
        self.asked = asked
        super().__init__(text, provider=provider, status=status)


class ProviderTimeout(ProviderError, TimeoutError):
    """The provider did not answer in time; the text says which limit it reached."""


class BrokenAnswer(ProviderError):
    """The answer broke off. `partial` is the `Answer` so far, None if nothing came."""

    def __init__(
        self,
        text: str,
        *,
        provider: str = "",
        status: int = 0,
        is_passing: bool = False,
        partial: Any = None,
    ) -> None:
        self.partial = partial
        super().__init__(text, provider=provider, status=status, is_passing=is_passing)


class StoreError(LoomError):
    """The store cannot be opened, read or written; the text names the store, what is wrong and the
    way out.
    """


class Conflict(StoreError):
    """Somebody else moved what this call was about to change: read it again, then decide.

    `session` is the session that was moved, or in which the decision was logged that was changed.
    """

    def __init__(self, session: str, expected: str, found: str, text: str = "") -> None:
        self.session = session
        self.expected = expected
        self.found = found
        super().__init__(
            text
            or f"session {session} was changed by somebody else: expected it at "
            f"{expected or 'its beginning'}, "
            f"found it at {found or 'its beginning'}; read it again and repeat the change"
        )


class Diverged(StoreError):
    """A session of an import is already stored and differs from the file. Nothing was changed."""

    def __init__(self, session: str, text: str) -> None:
        self.session = session
        super().__init__(text)


class Unfinished(StoreError):
    """A purge deleted the words, but copies of them are still on disk: `remains` says where. Purge
    again.
    """

    def __init__(self, session: str, remains: tuple[str, ...]) -> None:
        self.session = session
        self.remains = remains
        super().__init__(
            f"session {session} was purged, but copies of it are still on disk: "
            f"{'; '.join(remains)}. "
            f"Purge it again until nothing remains: loom session purge {session}"
        )


class UnreadableWarning(UserWarning):
    """Something in a store cannot be read and was left out; the text names it."""


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
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"
