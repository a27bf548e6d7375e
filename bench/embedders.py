"""How quickly the embedders load, and how many texts they embed in a second.

    python bench/embedders.py [static] [minilm]

Texts are short sentences made of a few hundred words, and messages of about 120 words. Times are
those of the processor, not of the clock, so that other programs count less. Each embedder is loaded
in a new process, with numpy imported before. The first process of `minilm` may also convert the
weights: run it twice.
"""

import random
import subprocess
import sys
import time

VOCABULARY = """able about account action address agree answer area ask bad bank begin board
body book bring brother build business buy call car care case cause change child city class close
college come company cost country court cut day deal decide develop doctor door drive early eat
education effect end energy event eye face fact fall family father feel few field fight figure find
food foot force form friend game give girl government great group grow hand happen hard head health
hear heart help high history hold home hope hospital hour house idea issue job keep kill kind know
land large late law lawyer lead learn leave left letter level life line list live local long lose
love low market matter mean meet member mind minute money month morning mother move music name need
news night number offer office old open order paper parent part party pass past pay people period
person pick place plan play point police policy power president pressure price problem process
produce program provide public pull push question raise rate read ready real reason receive record
report require research rest result return rise road role room rule run safe school sea season
section seek sell send sense serve service set share show side sign simple sister site skill sleep
small social son song sound source space speak stage stand start state stay step stop store story
street strong student study success suggest summer support sure table take talk task teach team tell
term test thank thing think thought throw time town trade travel tree trip true try turn type use
value visit voice vote wait walk wall want war watch water way weapon wear week weight wife window
wish woman wonder word work world worry write year young"""
SHORT_WORDS, LONG_WORDS = 10, 120
COUNTS = {"static": (30_000, 3_000), "minilm": (200, 40)}
LOADING = """
import time, numpy
from loom.providers.embedders import choose_embedder
began = time.process_time()
choose_embedder({name!r})
print(time.process_time() - began)
"""


def make_texts(count: int, words: int) -> list[str]:
    chosen, known = random.Random(count), VOCABULARY.split()
    return [" ".join(chosen.choices(known, k=words)) for _ in range(count)]


def measure_loading(name: str) -> float:
    """Seconds that a new process needs, the least of three."""
    command = [sys.executable, "-c", LOADING.format(name=name)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


def measure_speed(name: str) -> list[float]:
    """Texts per second: short ones, long ones."""
    from loom.providers.embedders import choose_embedder

    embedder = choose_embedder(name)
    assert embedder is not None
    embedder.embed(make_texts(10, LONG_WORDS))
    speeds = []
    for count, words in zip(COUNTS[name], (SHORT_WORDS, LONG_WORDS), strict=True):
        texts = make_texts(count, words)
        began = time.process_time()
        embedder.embed(texts)
        speeds.append(count / (time.process_time() - began))
    return speeds


def main(names: list[str]) -> None:
    print(f"{'':10}{'load ms':>10}{'short/s':>10}{'long/s':>10}")
    for name in names or list(COUNTS):
        short, long = measure_speed(name)
        print(f"{name:10}{1000 * measure_loading(name):10.0f}{short:10,.0f}{long:10,.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
