"""Sections of a request come from sources of one shape, and what a caller says of a zone counts
more.
"""

import asyncio
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest
from msgspec.structs import replace

from loom import Loom, Section
from loom.context.options import check_options
from loom.context.state.working import Working
from loom.engine import sources
from loom.engine.prepare import request
from loom.engine.reading import ReadingStyle
from loom.engine.sources import (
    EPOCH_SOURCES,
    SESSION_SOURCES,
    TAIL_SOURCES,
    WINDOW_SOURCES,
    Asking,
    gather,
)
from loom.engine.sources.asking import SourceSections
from loom.engine.views import EpochText


def ask(loom: Loom, **values: object) -> Asking:
    session = loom.new(system="Be brief.")
    session.append("hello")
    row = session.row
    asking = Asking(
        store=loom.store,
        row=row,
        path=session.path,
        style=ReadingStyle(tree=loom.store.trees.head(row.tree), now=1),
        head=row.head,
        options=check_options(model="gpt-4o", sections=[Section("memory", "what I know")]),
    )
    return replace(asking, **values)


def test_every_source_is_in_a_list_once() -> None:
    files = {module.name for module in pkgutil.iter_modules(sources.__path__)} - {"asking"}
    found = {import_module(f"loom.engine.sources.{name}").gather for name in files}
    listed = [*SESSION_SOURCES, *WINDOW_SOURCES, *EPOCH_SOURCES, *TAIL_SOURCES]
    assert len(listed) == len(set(listed))
    assert set(listed) == found


def test_a_source_with_nothing_to_say_adds_nothing() -> None:
    with Loom.open(":memory:") as loom:
        asking = ask(loom)
        assert gather(asking, (*SESSION_SOURCES, *WINDOW_SOURCES, *EPOCH_SOURCES)) == asking.options


def test_sections_of_sources_stand_after_those_of_the_caller_in_the_order_of_the_list() -> None:
    with Loom.open(":memory:") as loom:
        asking = ask(loom, working=Working(plan=("look",)), summary="They met.")
        options = gather(asking, (*SESSION_SOURCES, *WINDOW_SOURCES, *EPOCH_SOURCES))
    assert [section.zone for section in options.sections] == ["memory", "working", "summary"]
    assert "They met." in options.sections[-1].text


def test_a_zone_that_the_caller_sizes_keeps_its_size() -> None:
    with Loom.open(":memory:") as loom:
        asking = ask(loom, working=Working(plan=("look",)))
        usual = gather(asking, SESSION_SOURCES).zones["working"]
        sized = replace(asking, options=replace(asking.options, zones={"working": usual + 500}))
        assert gather(sized, SESSION_SOURCES).zones["working"] == usual + 500


def test_a_text_of_a_source_stays_as_the_epoch_began_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["first words"]

    def begin(asking: Asking) -> EpochText:
        return EpochText(said[-1], (str(len(said)),))

    def place(asking: Asking) -> SourceSections:
        made = asking.texts["example"]
        note = f"made of {made.names}"
        return SourceSections(sections=(Section("rules", made.text),), notes=(note,))

    monkeypatch.setattr(sources, "BEGINNINGS", {"example": begin})
    monkeypatch.setattr(request, "EPOCH_SOURCES", (place,))
    for _ in range(2):  # the second time it is read from the store
        with Loom.open(tmp_path / "loom.db", fresh_id=lambda: "one") as loom:
            session = loom.session("one") if loom.sessions() else loom.new()
            context = asyncio.run(session.prepare("Go on.", window=8000))
            assert "first words" in context.anthropic()["system"][0]["text"]
            assert "made of ('1',)" in context.report.notes
            session.append({"role": "assistant", "content": "Done."})
        said.append("other words")
