"""aider: RepoMap, with the names and files that its own coder finds in a message.

python bench/peers/aider_map.py ROOT REQUEST BUDGET ...     (bench/repomap.py calls it so)
No files are in the chat, and no context window is given: then it keeps the number of tokens that it
is given.
"""

import json
import os
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

from aider.coders.base_coder import Coder
from aider.repomap import RepoMap
from splintr import Tokenizer

_O200K = Tokenizer.from_pretrained("o200k_base")


def count(text: str) -> int:
    return len(_O200K.encode_ordinary(text))


def quiet(*_: object, **__: object) -> None:
    pass


def main() -> None:
    root, request, *budgets = sys.argv[1:]
    os.chdir(root)
    text = Path(request).read_text(encoding="utf-8")
    listed = (
        subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True)
        .stdout.decode()
        .split("\0")
    )
    paths = [path for path in listed if path and Path(path).is_file()]
    coder = SimpleNamespace(
        get_all_relative_files=lambda: paths,
        get_addable_relative_files=lambda: set(paths),
        get_inchat_relative_files=list,
        abs_read_only_fnames=set(),
        get_rel_fname=lambda path: path,
    )
    names = Coder.get_ident_mentions(coder, text)
    mentioned = Coder.get_file_mentions(coder, text) | Coder.get_ident_filename_matches(
        coder, names
    )
    absolute = {str(Path(root) / path) for path in paths}
    io = SimpleNamespace(
        tool_output=quiet, tool_error=quiet, tool_warning=quiet, read_text=lambda path: read(path)
    )
    model = SimpleNamespace(token_count=count)
    count("Ready, qzxvkj?")
    maps, took, used = {}, [], []
    for budget in budgets:
        made = RepoMap(map_tokens=int(budget), root=root, main_model=model, io=io, refresh="always")
        for _ in range(2):
            began, started = time.process_time(), time.perf_counter()
            shown = (
                made.get_repo_map(
                    set(), absolute, mentioned_fnames=mentioned, mentioned_idents=names
                )
                or ""
            )
            took.append(time.perf_counter() - started)
            used.append(time.process_time() - began)
        maps[budget] = {"tokens": count(shown), "text": shown}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {
        "maps": maps,
        "paths": paths,
        "indexed": len(paths),
        "cold": took[0],
        "cold processor": used[0],
        "warm": min(took[1:]),
        "MB": peak,
    }
    print(json.dumps(found | {"version": version("aider-chat")}))


def read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None


main()
