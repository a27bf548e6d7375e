"""Embedders turn texts into vectors for a search: the table that Loom ships, MiniLM, and any
endpoint that speaks the API of OpenAI.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.providers.embedders.choice import choose_embedder as choose_embedder
    from loom.providers.embedders.choice import find_local_choice as find_local_choice
    from loom.providers.embedders.endpoint import EndpointEmbedder as EndpointEmbedder
    from loom.providers.embedders.minilm import MiniLMEmbedder as MiniLMEmbedder
    from loom.providers.embedders.static import StaticEmbedder as StaticEmbedder
else:  # an embedder that nobody uses is not loaded, nor is numpy
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "choice": ("choose_embedder", "find_local_choice"),
            "endpoint": ("EndpointEmbedder",),
            "minilm": ("MiniLMEmbedder",),
            "static": ("StaticEmbedder",),
        },
    )
