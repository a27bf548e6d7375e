"""Fit the tables of `loom/budget/letters.py` to o200k, from any folder of text files.

    python scripts/letters.py FOLDER [WORDS]

Prints the cuts between letters, the readiness by length and the cost of leading signs; writes the
WORDS commonest words (default 4000) into the package data. Needs numpy. Give it a file per kind of
text (languages, code, logs, data): each file weighs the same. What is shipped was fitted to some
200 kinds, English and code weighing more, then rounded and leaned high.
"""

import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from textwrap import wrap

import numpy as np

from loom.budget import estimate, letters
from loom.budget.tokenizers import tokenizer

DATA = Path(__file__).resolve().parent.parent / "src" / "loom" / "budget" / "data" / "words.txt"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LENGTHS = 12
ROUNDS = 8
# How firmly a pair that is seldom seen is held to the average, as a share of the weight of all.
RIDGE = 0.3
LATIN = re.compile(r"([^\r\n0-9A-Za-zß-ɏḀ-ỿ]?)([A-ZÀ-Þ]*[a-zß-öø-ɏḀ-ỿ]+|[A-ZÀ-Þ]+)$")

exact = tokenizer("o200k_base")


def common_words(texts: list[str], size: int) -> list[str]:
    """Words that stand in the most files and are one token behind a space."""
    spread = Counter[str]()
    for text in texts:
        spread.update({word.lower() for word in re.findall(r"[A-Z]?[a-z]+", text)})
    return [word for word, _ in spread.most_common() if len(word) > 1 and exact(" " + word) == 1][
        :size
    ]


def weighted_pieces(texts: list[str]) -> Counter[str]:
    weights = Counter[str]()
    for text in texts:
        pieces = estimate._wide_pieces().findall(text)
        for piece, times in Counter(pieces).items():
            weights[piece] += times / len(pieces)  # type: ignore[assignment]
    return weights


def mode(lead: str, word: str) -> int:
    return 2 if len(word) > 1 and word.isupper() else int(lead == "")


def fit(texts: list[str], words: set[str]) -> None:
    rows = []
    for piece, weight in weighted_pieces(texts).items():
        found = LATIN.match(piece)
        if found and (found[2].lower() not in words or found[2].isupper()):
            rows.append((found[1], found[2], weight, exact(piece)))
    size = len(letters.ALPHABET)
    place = {letter: at for at, letter in enumerate(letters.ALPHABET)}
    weights = np.array([row[2] for row in rows], float)
    extra = np.array([row[3] - 1 for row in rows], float)
    modes = np.array([mode(row[0], row[1]) for row in rows])
    lengths = np.minimum([len(row[1]) for row in rows], LENGTHS)
    leads = sorted({row[0] for row in rows})
    lead_at = np.array([leads.index(row[0]) for row in rows])
    which, pairs = [], []
    for at, (_, word, _, _) in enumerate(rows):
        codes = [place[letter] for letter in word.lower().translate(estimate._ACCENTS)]
        which += [at] * (len(codes) - 1)
        pairs += [first * size + second for first, second in pairwise(codes)]
    row_of, pair_of = np.array(which), np.array(pairs)
    cuts, lead_cost, ready = (
        np.full(size * size, 0.5),
        np.zeros(len(leads)),
        np.full((3, LENGTHS + 1), 0.3),
    )
    for _ in range(ROUNDS):
        # Cuts, readiness and leads in turn, each the best for the others.
        scale = ready[modes, lengths]
        left, right = np.zeros((size * size, size * size)), np.zeros(size * size)
        for start in range(0, len(rows), 4000):
            stop = min(start + 4000, len(rows))
            begin, end = np.searchsorted(row_of, [start, stop])
            block = np.zeros((stop - start, size * size))
            np.add.at(
                block, (row_of[begin:end] - start, pair_of[begin:end]), scale[row_of[begin:end]]
            )
            left += block.T @ (block * weights[start:stop, None])
            right += (block * weights[start:stop, None]).T @ (extra - lead_cost[lead_at])[
                start:stop
            ]
        hold = RIDGE * weights.sum() / size**2
        cuts = np.clip(
            np.linalg.solve(left + hold * np.eye(size * size), right + hold * 0.5), 0.04, 1.4
        )
        cuts *= 0.5 * weights[row_of].sum() / (cuts[pair_of] * weights[row_of]).sum()
        sums = np.bincount(row_of, weights=cuts[pair_of], minlength=len(rows))
        for kind in range(3):
            for length in range(2, LENGTHS + 1):
                chosen = (modes == kind) & (lengths == length)
                if chosen.any():
                    wanted = (weights * (extra - lead_cost[lead_at]))[chosen].sum()
                    ready[kind, length] = max(
                        0.0, wanted / max(1e-9, (weights * sums)[chosen].sum())
                    )
        rest = extra - sums * ready[modes, lengths]
        for at, lead in enumerate(leads):
            chosen = lead_at == at
            lead_cost[at] = (
                0.0
                if lead in " "
                else np.clip(np.average(rest[chosen], weights=weights[chosen]), 0, 1)
            )
    for first in range(size):
        row = cuts[first * size : (first + 1) * size]
        print("".join(DIGITS[min(35, round(25 * float(value)))] for value in row))
    for name, values in zip(("AFTER_SIGN", "BARE", "CAPITALS"), ready[:, 2:], strict=True):
        print(name, tuple(round(float(value), 2) for value in values))
    print(
        {
            lead: round(float(cost), 2)
            for lead, cost in zip(leads, lead_cost, strict=True)
            if lead.isascii()
        }
    )


def main(arguments: list[str]) -> None:
    texts = [
        path.read_text("utf-8", "replace")
        for path in sorted(Path(arguments[0]).rglob("*"))
        if path.is_file()
    ]
    words = common_words(texts, int(arguments[1]) if len(arguments) > 1 else 4000)
    DATA.write_text("\n".join(wrap(" ".join(sorted(words)), 126)) + "\n")
    fit(texts, set(words))


if __name__ == "__main__":
    main(sys.argv[1:])
