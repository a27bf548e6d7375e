"""Names and labels: texts of one line, which are in headers and lists next to what others said."""

from unicodedata import category

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
