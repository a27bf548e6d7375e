"""What a question is usually like to texts that have nothing to do with it.

How near in meaning a document is, is told by comparing it with others. A small collection has too
few others. So the question is compared with these texts, too: plain sentences about many things.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder, Vectors

_MAX_REMEMBERED = 8  # embedders
TEXTS = (
    "The bus leaves the station at a quarter past nine.",
    "She planted tomatoes and beans behind the house.",
    "Water boils faster when the pot has a lid.",
    "The committee voted to postpone the election.",
    "He broke his arm while skiing last winter.",
    "Copper conducts electricity better than iron.",
    "The function returns an error if the file is missing.",
    "Their orchestra played two symphonies and a waltz.",
    "Interest rates fell for the third month in a row.",
    "The cat slept on the warm roof all afternoon.",
    "An old castle stands above the river valley.",
    "Please sign the contract and send it back by mail.",
    "The goalkeeper saved a penalty in the last minute.",
    "Most whales travel thousands of miles each year.",
    "Grandmother knitted a blue scarf for the baby.",
    "Install the update and restart the computer.",
)
_known: "dict[tuple[str, int], Vectors]" = {}


def embed_background(embedder: "Embedder") -> "Vectors":
    """The vectors of these texts, made once by each embedder."""
    key = (embedder.name, embedder.dimensions)
    found = _known.get(key)
    if found is None:
        found = embedder.embed(list(TEXTS))
        while len(_known) >= _MAX_REMEMBERED:
            del _known[next(iter(_known))]
        _known[key] = found
    return found
