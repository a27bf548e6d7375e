"""A text on one line, cut to a length."""


def shorten_line(text: str, most: int) -> str:
    """The text on one line, with an ellipsis where it was cut."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
