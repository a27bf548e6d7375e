"""When two texts say the same: in the same words, whatever their case and their spaces."""

from hashlib import blake2b


def normal_text(text: str) -> str:
    """A text in the form in which equal ones look the same."""
    return " ".join(text.split()).casefold()


def text_digest(role: str, text: str) -> int:
    """A number of 63 bits by which equal texts of one role are known; never 0."""
    said = f"{role}\0{normal_text(text)}".encode(errors="surrogatepass")
    digest = blake2b(said, digest_size=8, person=b"repeats").digest()
    return int.from_bytes(digest, "big") >> 1 or 1
