"""Names and labels: texts of one line, which are in headers and lists next to what others said."""

from unicodedata import category

from loom.errors import ChoiceError, shorten

MAX_NAME_CHARS = 200  # of a name that a store keeps
# controls, halves of pairs, breaks of lines; joiners belong to many scripts
_BREAKS = frozenset(["Cc", "Cs", "Zl", "Zp"])


def is_one_line(text: str) -> bool:
    """Whether a text has no line breaks, controls or halves of surrogate pairs."""
    return text.isprintable() or not any(category(character) in _BREAKS for character in text)


def flatten(text: str) -> str:
    """A name or a label on one line: what would break it becomes a space."""
    if is_one_line(text):
        return text
    return " ".join(
        "".join(" " if category(character) in _BREAKS else character for character in text).split()
    )


def plain_name(name: str) -> str:
    """A name as both databases can hold it, for people who look; the exact one is inside the JSON
    next to it.
    """
    return "".join(
        "\ufffd" if category(character) in _BREAKS else character
        for character in name[:MAX_NAME_CHARS]
    )


def check_name(what: str, name: object) -> str:
    """A name that both databases can hold, on one line."""
    if not isinstance(name, str) or plain_name(name) != name:
        raise ChoiceError(
            f"a {what} must be a text of at most {MAX_NAME_CHARS} characters, without line "
            "breaks or control characters, found "
            f"{shorten(repr(name))}"
        )
    return name
