"""What every embedder does with texts before it reads them."""

from collections.abc import Iterator, Sequence


def replace_surrogates(text: str) -> str:
    """The text with a question mark for each half of a pair that has lost the other half."""
    return text.encode("utf-8", "replace").decode()


def cut_texts(texts: Sequence[str], chars: int) -> list[str]:
    """The beginning of each text."""
    return [text[:chars] for text in texts]


def batch_texts(texts: Sequence[str], count: int, chars: int) -> Iterator[list[str]]:
    """The texts in order, in batches of at most `count` texts and about `chars` characters."""
    batch: list[str] = []
    length = 0
    for text in texts:
        if batch and (len(batch) == count or length + len(text) > chars):
            yield batch
            batch, length = [], 0
        batch.append(text)
        length += len(text)
    if batch:
        yield batch
