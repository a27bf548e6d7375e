"""Counting the tokens of maps. Loading a tokenizer takes as long as all else that a map needs, so
another thread does it meanwhile.
"""

from collections.abc import Callable
from functools import cache
from threading import Thread

from loom.budget.tokenizers import tokenizer

ENCODING = "o200k_base"
_UNKNOWN_WORD = "qzxvkj"  # the parts of words are only loaded for one that is not known as a whole


@cache
def load_counter() -> Callable[[str], int]:
    """What counts tokens, loaded from now on. The first count waits for it."""
    loading = Thread(target=lambda: tokenizer(ENCODING)(_UNKNOWN_WORD), daemon=True)
    loading.start()

    def count(text: str) -> int:
        loading.join()
        return tokenizer(ENCODING)(text)

    return count
