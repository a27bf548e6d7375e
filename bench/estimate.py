"""The error table of TARGETS.md 1: characters/4, each seed's counter and ours against o200k, and
how fast ours is.

    python bench/estimate.py

"loom list" is the same text in a list of one part, as Anthropic's and the responses wire have it,
with its frame.

Shared texts come from LOOM_SHARED (default ../shared from the repository's root); without them only
our own kinds are shown.
"""

import base64
import importlib.util
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from loom.budget.counting import Counter, counter_for
from loom.budget.estimate import estimate_tokens
from loom.budget.profiles import SEEDS
from loom.budget.tokenizers import tokenizer
from loom.dialects import anthropic

ROOT = Path(__file__).resolve().parent.parent
SHARED = (ROOT / os.environ.get("LOOM_SHARED", "../shared")).resolve()

SPOKEN = {
    "german": (
        "Die Zeitüberschreitung wird erst nach dem dritten Versuch gemeldet; vorher gibt es nur "
        "eine Warnung. "
    ),
    "polish": (
        "Przekroczenie czasu zgłaszamy dopiero po trzeciej próbie, wcześniej w dzienniku jest "
        "tylko ostrzeżenie. "
    ),
    "russian": (
        "О превышении времени сообщается только после третьей попытки, до этого в журнале лишь "
        "предупреждение. "
    ),
    "japanese": (
        "タイムアウトは三回目の試行の後にだけ報告され、それまではログに警告が書かれるだけです。"
    ),
    "korean": (
        "시간 초과는 세 번째 시도 이후에만 보고되며 그 전에는 로그에 경고만 기록됩니다. "
        "설정 파일을 먼저 확인하십시오. "
    ),
    "arabic": (
        "لا يتم الإبلاغ عن انتهاء المهلة إلا بعد المحاولة الثالثة، وقبل ذلك تكتب الخدمة تحذيرا في "
        "السجل فقط. "
    ),
    "hindi": (
        "समय सीमा की सूचना केवल तीसरे प्रयास के बाद दी जाती है, उससे पहले सेवा केवल लॉग में चेतावनी लिखती है। "
    ),
    "thai": "ระบบจะแจ้งว่าหมดเวลาหลังจากลองครั้งที่สามเท่านั้น ก่อนหน้านั้นบริการจะเขียนเพียงคำเตือนลงในบันทึก ",
    "emoji": "build ✅ tests 🚀 deploy 🎉 alert 🔥 review 👀 done 👍 broken ❌ idea 💡 ",
}


def shared_texts() -> dict[str, str]:
    path = SHARED / "bench" / "estimate_texts.py"
    if not path.exists():
        print(f"shared texts not found; set LOOM_SHARED (looked in {SHARED.name})", file=sys.stderr)
        return {}
    spec = importlib.util.spec_from_file_location("estimate_texts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    texts: dict[str, str] = module.texts()
    return texts


def transcripts() -> dict[str, str]:
    folder = SHARED / "data" / "agents"
    return (
        {path.stem[:20]: path.read_text("utf-8") for path in sorted(folder.glob("*"))}
        if folder.is_dir()
        else {}
    )


def own_texts() -> dict[str, str]:
    rng = random.Random(3)
    rows = [
        {"id": rng.randrange(10**8), "path": f"src/module_{n}.py", "ok": rng.random() < 0.5}
        for n in range(250)
    ]
    return {
        "uuids": "\n".join(str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(400)),
        "digits": "".join(rng.choice("0123456789") for _ in range(15_000)),
        "csv": "\n".join(
            ",".join(f"{rng.gauss(0, 100):.4f}" for _ in range(8)) for _ in range(300)
        ),
        "log": "\n".join(
            f"2026-11-15T10:{n % 60:02}:00Z    WARN    [worker-{n % 7}]    "
            f"took={rng.randrange(9999)}ms"
            for n in range(300)
        ),
        "pretty json": json.dumps(rows, indent=2),
        "escaped json": json.dumps(json.dumps(rows)),
        "base64 lines": base64.encodebytes(rng.randbytes(12_000)).decode(),
        "diff": "\n".join(
            f"@@ -{n},3 +{n},4 @@\n-    return value\n+    return value or {n}\n     if not value:"
            for n in range(200)
        ),
        "this file": Path(__file__).read_text("utf-8"),
        **{kind: text * 120 for kind, text in SPOKEN.items()},
    }


def count_listed(text: str) -> int:
    message = anthropic.parse_messages(
        [{"role": "user", "content": [{"type": "text", "text": text}]}]
    )
    return counter_for("claude-sonnet-4-6").count_messages(message)


def main() -> None:
    exact = tokenizer("o200k_base")
    ours: dict[str, Callable[[str], int]] = {"chars/4": lambda text: len(text) // 4}
    ours |= {name: Counter(profile).count_text for name, profile in SEEDS.items()}
    ours["loom"] = estimate_tokens
    ours["loom list"] = count_listed
    print(f"{'':22}{'tokens':>9}" + "".join(f"{name:>17}" for name in ours) + f"{'MB/s':>8}")
    for title, texts in (
        ("target", shared_texts()),
        ("transcripts", transcripts()),
        ("own", own_texts()),
    ):
        if texts:
            print(title)
        for kind, text in texts.items():
            tokens = exact(text)
            started = time.perf_counter()
            estimate_tokens(text)
            speed = len(text.encode("utf-8", "replace")) / (time.perf_counter() - started) / 1e6
            errors = "".join(
                f"{100 * (count(text) / tokens - 1):>+16.1f}%" for count in ours.values()
            )
            print(f"  {kind:20}{tokens:>9}{errors}{speed:>8.1f}")


if __name__ == "__main__":
    main()
