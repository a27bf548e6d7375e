"""Which embedder a caller means: a value, a name or an address."""

import os
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from loom.errors import ChoiceError, describe

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder

KEY_VARIABLE = "LOOM_EMBEDDER_KEY"
# What the names of our embedders begin with; the version follows after a colon.
STATIC_MODEL, MINILM_MODEL = "loom-static-256", "all-minilm-l6-v2"
_FORMS = "give 'static', 'minilm', 'none', 'https://HOST/v1#MODEL' or an embedder"


def choose_embedder(choice: "Embedder | str | None") -> "Embedder | None":
    """The embedder that a caller names; None for `none`.

    `static` is the table that Loom ships, `minilm` the model of the extra `embed`, and
    `https://HOST/v1#MODEL` an endpoint, with the key in the environment variable
    LOOM_EMBEDDER_KEY. Anything with `name`, `dimensions` and `embed` is an embedder itself.
    """
    if choice is None or choice == "none":
        return None
    if choice == "static":
        from loom.providers.embedders.static import StaticEmbedder

        return StaticEmbedder()
    if choice == "minilm":
        from loom.providers.embedders.minilm import MiniLMEmbedder

        return MiniLMEmbedder()
    if isinstance(choice, str):
        return _open_endpoint(choice)
    return _check_shape(choice)


def find_local_choice(name: str) -> str:
    """What to choose so that stored vectors are used: `static` or `minilm` if the embedder of this
    name is one of them, in any version; `none` for any other.
    """
    model = name.partition(":")[0]
    return {STATIC_MODEL: "static", MINILM_MODEL: "minilm"}.get(model, "none")


def _open_endpoint(address: str) -> "Embedder":
    from loom.providers.embedders.endpoint import EndpointEmbedder

    url, _, model = address.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise ChoiceError(f"no embedder is called {describe(address)}; {_FORMS}")
    return EndpointEmbedder(url, model, os.environ.get(KEY_VARIABLE))


def _check_shape(value: Any) -> "Embedder":
    has_verb = callable(getattr(value, "embed", None))
    # Looked up without reading it: an endpoint would have to ask for its size.
    has_size = getattr_static(value, "dimensions", None) is not None
    if not has_verb or not has_size or not isinstance(getattr(value, "name", None), str):
        raise ChoiceError(f"{describe(value)} is not an embedder; {_FORMS}")
    found: Embedder = value
    return found
