"""The estimate leans high, stays close to o200k on every kind of text, takes anything, however
long.
"""

import base64
import importlib.util
import json
import random
import uuid
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.budget.estimate import estimate_tokens
from loom.budget.tokenizers import tokenizer
from tests.shared import AGENTS, SHARED, needs_shared

exact = tokenizer("o200k_base")


def error(text: str) -> float:
    return estimate_tokens(text) / exact(text) - 1


def shared_bench(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SHARED / "bench" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_shared
@pytest.mark.parametrize("kind", ["prose", "python", "json", "hex_log", "base64", "chinese"])
def test_the_six_kinds_of_the_target_are_met(kind: str) -> None:
    assert 0 <= error(shared_bench("estimate_texts").texts()[kind]) <= 0.15


@needs_shared
@pytest.mark.parametrize(
    "path", sorted(AGENTS.glob("*")) if AGENTS.is_dir() else [], ids=lambda path: path.name
)
def test_real_transcripts_are_not_undercounted(path) -> None:
    assert -0.001 <= error(path.read_text("utf-8")) <= 0.15


rng = random.Random(7)
GENERATED = {
    "uuids": "\n".join(str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(300)),
    "digits": "".join(rng.choice("0123456789") for _ in range(9000)),
    "hex": "\n".join(f"{rng.getrandbits(256):064x}" for _ in range(150)),
    "base64 in lines": base64.encodebytes(rng.randbytes(9000)).decode(),
    "csv": "\n".join(",".join(f"{rng.gauss(0, 99):.3f}" for _ in range(8)) for _ in range(300)),
    "pretty json": json.dumps(
        [{"id": rng.randrange(10**8), "ok": True, "tags": ["a", "b"]} for _ in range(200)], indent=2
    ),
    "escaped json": json.dumps(
        json.dumps([{"path": "src/main.py", "line": rng.randrange(900)} for _ in range(200)])
    ),
    "log": "\n".join(
        f"2026-11-{rng.randrange(1, 28):02}T10:00:00Z   INFO    [worker-{rng.randrange(9)}]   "
        f"took={rng.randrange(999)}ms"
        for _ in range(200)
    ),
    "markdown table": "\n".join(f"| row {n} | {rng.randrange(999)} | yes |" for n in range(200)),
    "diff": "\n".join(
        f"@@ -{n},3 +{n},4 @@\n-    return value\n+    return value or {n}\n     if value:"
        for n in range(150)
    ),
}


@pytest.mark.parametrize("kind", GENERATED)
def test_machine_made_text_is_within_the_same_band(kind: str) -> None:
    assert -0.01 <= error(GENERATED[kind]) <= 0.15


SPOKEN = {
    "German": (
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren, mit Vernunft und "
        "Gewissen begabt."
    ),
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Japanese": (
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    ),
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلًا وضميرًا",
    "Hindi": ("सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।"),
    "Thai": ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม"),
    "traditional Chinese": (
        "人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神相對待。"
    ),
    "English in capitals": (
        "NOBODY HAD ASKED WHAT THE WINDOW WAS FOR WHEN THE FIRST CUSTOMER WROTE. "
    ),
    "emoji": "ship it 🚀 tests pass ✅ great work 🎉 deploy 🔥 looks good 👍",
}


@pytest.mark.parametrize("language", SPOKEN)
def test_languages_are_never_far_under(language: str) -> None:
    assert -0.06 <= error(SPOKEN[language] * 20) <= 0.4


@given(st.text())
def test_any_text_has_an_estimate(text: str) -> None:
    assert (estimate_tokens(text) > 0) == bool(text)


@given(st.text(st.characters(categories=["Cs", "Lu", "Mn", "So", "Co"]), max_size=20))
def test_halves_of_pairs_and_rare_characters_do_no_harm(text: str) -> None:
    assert estimate_tokens(text) <= 8 * len(text) + 1


@given(st.text(min_size=1, max_size=40), st.integers(2, 50))
def test_repeating_a_text_never_lowers_the_estimate(text: str, times: int) -> None:
    assert estimate_tokens(text * times) >= estimate_tokens(text)


@pytest.mark.parametrize("unit", ["a", "A", " ", "\n ", "aA0", "我", "-", "é", "=\n"], ids=repr)
def test_a_long_text_is_estimated_in_one_pass(unit: str) -> None:
    """A megabyte of one kind: what looked back would not end in a test's lifetime."""
    once = estimate_tokens(unit * 10_000)
    assert 90 * once <= estimate_tokens(unit * 1_000_000) <= 110 * once + 100
