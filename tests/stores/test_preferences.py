"""How trees are cut: as the tree says, else its project, else the application, for all projects of
a tenant and of no other.
"""

import json
from collections.abc import Iterator

import pytest

from loom import Loom
from loom.conversation.tree import Preferences, TreeHead
from loom.engine.session_state import STATE_KINDS
from loom.errors import TranscriptError
from loom.stores.health.doctor import examine
from loom.stores.sessions import Scope
from loom.stores.store import Store


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = Store(address, STATE_KINDS)
    yield opened
    opened.close()


def seen_from(store: Store, tenant: str, project: str) -> Loom:
    return Loom(
        store, Scope(tenant, project), lambda: 1_700_000_000_000, lambda: f"{tenant}-{project}"
    )


def test_preferences_of_the_application_hold_in_all_projects_of_the_tenant(store: Store) -> None:
    shop, garden, stranger = (
        seen_from(store, *names) for names in (("t", "shop"), ("t", "garden"), ("other", "shop"))
    )
    shop.prefer(Preferences(token_buffer=3000, minimum_recent_nodes=7), all_projects=True)
    garden.prefer(Preferences(token_buffer=2000))
    tree = garden.new_tree(
        "Beds", head=TreeHead(preferences=Preferences(truncation_strategy="rolling_window"))
    )
    assert shop.preferences == shop.app_preferences == Preferences(None, 7, 3000)
    assert garden.preferences == Preferences(None, 7, 2000)
    assert tree.preferences == Preferences("rolling_window", 7, 2000)
    assert stranger.preferences == stranger.app_preferences == Preferences()
    assert list(examine(store)) == []


def test_preferences_of_the_application_travel_with_everything_and_only_so(store: Store) -> None:
    shop = seen_from(store, "t", "shop")
    shop.prefer(Preferences(token_buffer=3000), all_projects=True)
    shop.new_tree("Flour")
    assert not any("preferences" in line for line in shop.export()), (
        "a project does not take along what is not its own"
    )
    lines = list(shop.export(everywhere=True))
    with Loom.open(":memory:") as other:
        other.import_lines(lines, everywhere=True)
        assert Loom(
            other.store, Scope("t", "elsewhere"), lambda: 0, lambda: "x"
        ).preferences == Preferences(token_buffer=3000)


@pytest.mark.parametrize(
    "change",
    [{"kind": "agent", "name": "bot", "data": '{"name":"bot"}'}, {"tenant": ""}, {"data": "[]"}],
)
def test_a_setting_of_all_projects_that_cannot_be_one_is_refused(
    store: Store, change: dict[str, str]
) -> None:
    shop = seen_from(store, "t", "shop")
    shop.prefer(Preferences(token_buffer=3000), all_projects=True)
    lines = list(shop.export(everywhere=True))
    lines[1] = json.dumps(json.loads(lines[1]) | change)
    with Loom.open(":memory:") as other, pytest.raises(TranscriptError, match="line 2"):
        other.import_lines(lines, everywhere=True)
