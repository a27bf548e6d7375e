"""Sections of a request come from sources of one shape, and what a caller says of a zone counts
more.
"""

import pkgutil
from importlib import import_module

from msgspec.structs import replace

from loom import Loom, Section
from loom.context.options import check_options
from loom.context.state.working import Working
from loom.engine import sources
from loom.engine.reading import ReadingStyle
from loom.engine.sources import (
    EPOCH_SOURCES,
    SESSION_SOURCES,
    TAIL_SOURCES,
    WINDOW_SOURCES,
    Asking,
    gather,
)


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
