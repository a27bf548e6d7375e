"""The words of a text, in any script."""

import re
from itertools import pairwise

_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)


def find_words(text: str) -> frozenset[str]:
    """The words of a text in any script: runs of letters and digits; where no spaces part them,
    pairs of characters.
    """
    found: set[str] = set()
    for run in _WORD.findall(text.lower()):
        wide = _UNSPACED.findall(run)
        found.update(a + b for stretch in wide for a, b in pairwise(stretch))
        found.update(stretch for stretch in wide if len(stretch) == 1)
        found.update(part for part in _UNSPACED.split(run) if part)
    return frozenset(found)
