"""`loom models`: what is known of models; and the user's own figures, which win over what Loom
knows.
"""

import os
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from loom.budget.models import (
    OVERRIDES_FILE,
    OVERRIDES_VARIABLE,
    Figures,
    ModelFacts,
    find,
    read_overrides,
)
from loom.budget.models import model as find_model
from loom.cli.terminal import clean, dim, plural, say, style
from loom.config.user_folder import user_folder
from loom.conversation.canonical import to_json
from loom.errors import ChoiceError

MAX_SHOWN_NAMES = 40  # names listed; the rest is counted


def user_overrides() -> dict[str, Figures]:
    """The figures of the file that the variable names, else of the one in the user's
    configuration; none if there is none.
    """
    named = os.environ.get(OVERRIDES_VARIABLE)
    path = Path(named) if named else user_folder() / OVERRIDES_FILE
    if not named and not path.is_file():
        return {}
    try:
        return read_overrides(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ChoiceError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except ChoiceError as error:
        raise ChoiceError(f"{path}: {error}") from None


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the figures and the names as JSON.")
def models(name: str | None, as_json: bool) -> None:
    """Show the window, prices and tokenizer of a model.

    If no model has this NAME, the models whose names contain it are listed.
    Without NAME, the number of known models is shown.
    """
    overrides = user_overrides()
    if name is None:
        count = len(find("", overrides))
        say(
            to_json({"models": count, "overrides": len(overrides)})
            if as_json
            else f"{plural(count, 'model')} known"
        )
        if not as_json:
            say(
                dim(
                    f"{plural(len(overrides), 'of them is', 'of them are')} yours; ask with loom "
                    "models NAME, or a part of a name"
                )
            )
        return
    found, names = find_model(name, overrides), find(name, overrides)
    if as_json:
        say(to_json(to_report(found, names)))
    elif found.known:
        print_model(found)
    elif names:
        say(
            f"no model is called {clean(name)}; "
            f"{plural(len(names), 'name contains', 'names contain')} it:"
        )
        for other in names[:MAX_SHOWN_NAMES]:
            say(f"  {clean(other)}")
        if len(names) > MAX_SHOWN_NAMES:
            say(dim(f"  and {len(names) - MAX_SHOWN_NAMES:,} more"))
    else:
        say(
            f"no model is called {clean(name)}, and no name contains it; its window is assumed to "
            f"be {found.window:,} tokens"
        )


def to_report(found: ModelFacts, names: tuple[str, ...]) -> dict[str, Any]:
    report = asdict(found)
    report["tokenizer"] = report.pop("encoding") or None
    return report | {
        "names": list(names[:MAX_SHOWN_NAMES]),
        "more": max(len(names) - MAX_SHOWN_NAMES, 0),
    }


def print_model(found: ModelFacts) -> None:
    say(style(found.name, bold=True))
    say(f"  window      {found.window:>11,} tokens")
    if found.max_output is not None:
        say(f"  answer      {found.max_output:>11,} tokens at most")
    for title, price in (
        ("input", found.input),
        ("output", found.output),
        ("cache read", found.cache_read),
        ("cache write", found.cache_write),
    ):
        if price is not None:
            say(f"  {title:<11} {f'${price:,.4g}':>11} per million tokens")
    say(f"  tokenizer   {found.encoding or 'not public':>11}")
