"""MiniLM, the better embedder: a small language model that reads a text as a whole.

The extra `embed` installs its weights, which are a package of their own, and ONNX Runtime. The
first use checks the weights, turns them into bytes and keeps the result in the user's cache.
"""

import os
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from loom.errors import EmbedderError
from loom.project.index.index_file import cache_folder
from loom.providers.embedders.choice import MINILM_MODEL
from loom.providers.embedders.onnx_graph import (
    IDS,
    POSITIONS,
    SENTENCE,
    ByteWeights,
    Encoder,
    write_encoder,
)
from loom.providers.embedders.tensors import open_tensors, read_tensors, write_tensors
from loom.providers.embedders.texts import cut_texts
from loom.providers.embedders.word_pieces import Ids, PieceSplitter

if TYPE_CHECKING:
    from loom.recall.embedder import Vector, Vectors

NAME = f"{MINILM_MODEL}:bytes:1"
SHAPE = Encoder(layers=6, heads=12, width=384)
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
CACHE_VARIABLE = "LOOM_CACHE"
MAX_TEXT_CHARS = 16_000
MAX_WINDOWS = 4  # of a long text; the mean of their vectors is its vector
WINDOW_PIECES = 254  # the model was made for 256, and two of them are its marks
_BEGIN, _END = 101, 102
_MAX_THREADS = 8
_PACKAGE, _ARCHIVE = "all_minilm_l6_v2", "model.zip"
_FILE = "all-minilm-l6-v2-bytes-1.safetensors"
_INSTALL = "install it with: pip install 'loomwright[embed]'"


class MiniLMEmbedder:
    """Embeds texts by the model all-MiniLM-L6-v2, offline: 384 numbers for each text.

    A text is read in up to 4 windows of 254 word pieces. It knows English only.
    """

    name = NAME
    dimensions = SHAPE.width

    def __init__(self, threads: int | None = None) -> None:
        content = _load_model()
        self._threads = threads or min(os.cpu_count() or 1, _MAX_THREADS)
        self._session = _open_session(content["graph"])
        self._splitter = PieceSplitter(content["tokenizer"])

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """A row of length 1 for each text, zeros for a text without a word."""
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        pieces = self._splitter.split(cut_texts(texts, MAX_TEXT_CHARS))

        def fill(number: int) -> None:
            rows[number] = self._embed_pieces(pieces.of(number))

        if min(self._threads, len(texts)) > 1:
            with ThreadPoolExecutor(self._threads, "loom-embed") as pool:
                list(pool.map(fill, range(len(texts))))
        else:
            for number in range(len(texts)):
                fill(number)
        return rows

    def _embed_pieces(self, ids: Ids) -> "Vector":
        """One text is one call: what it becomes depends on no other text."""
        total = np.zeros(self.dimensions, np.float32)
        for start in range(0, min(len(ids), MAX_WINDOWS * WINDOW_PIECES), WINDOW_PIECES):
            window = ids[start : start + WINDOW_PIECES]
            marked = np.concatenate(([_BEGIN], window, [_END]))[None]
            inputs = {IDS: marked, POSITIONS: np.arange(marked.shape[1])}
            total += self._session.run([SENTENCE], inputs)[0][0] * len(window)
        length = np.sqrt(total @ total)
        return total / length if length else total


def _open_session(graph: bytes) -> Any:
    try:
        runtime: Any = import_module("onnxruntime")
    except ImportError:
        raise EmbedderError(f"the embedder minilm needs onnxruntime; {_INSTALL}") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # texts run beside each other instead
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _load_model() -> dict[str, bytes]:
    """The graph and the tokenizer from the cache, or from the installed weights."""
    path = _cache_folder() / _FILE
    try:
        kept = open_tensors(path).tensors
        return {name: kept[name].tobytes() for name in ("graph", "tokenizer")}
    except (OSError, ValueError, KeyError, msgspec.DecodeError):
        content = convert_weights(_find_archive())
        _keep(path, content)
        return content


def convert_weights(archive: Path) -> dict[str, bytes]:
    """The graph and the tokenizer, from the archive of the model."""
    try:
        with zipfile.ZipFile(archive) as opened:
            weights = opened.read("model.safetensors")
            tokenizer = opened.read("tokenizer.json")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise EmbedderError(f"{archive} is not the archive of the model: {error}") from None
    if sha256(weights).hexdigest() != WEIGHTS_SHA256:
        raise EmbedderError(
            f"the weights in {archive} are not those of all-MiniLM-L6-v2: their SHA-256 is not "
            f"{WEIGHTS_SHA256[:12]}…; {_INSTALL}"
        )
    graph = write_encoder(SHAPE, read_tensors(weights).tensors, ByteWeights())
    return {"graph": graph, "tokenizer": strip_tokenizer(tokenizer)}


def strip_tokenizer(tokenizer: bytes) -> bytes:
    """The tokenizer without what it adds, cuts or takes for marks of its own."""
    rules = msgspec.json.decode(tokenizer, type=dict[str, Any])
    rules |= {"truncation": None, "padding": None, "post_processor": None, "added_tokens": []}
    return msgspec.json.encode(rules)


def _find_archive() -> Path:
    spec = find_spec(_PACKAGE)  # the package is found, not imported: it prints when it is
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderError(f"the weights of the embedder minilm are not installed; {_INSTALL}")
    return Path(spec.submodule_search_locations[0]) / _ARCHIVE


def _cache_folder() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else cache_folder() / "loom"


def _keep(path: Path, content: dict[str, bytes]) -> None:
    """Write the file whole or not at all. Without a cache, the next process converts again."""
    arrays = {name: np.frombuffer(data, np.uint8) for name, data in content.items()}
    written = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(write_tensors(arrays, {"name": NAME}))
        written.replace(path)
    except OSError:
        with suppress(OSError):
            written.unlink()
