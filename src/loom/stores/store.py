"""A store: what the engine keeps and finds again, each kind of thing behind the few methods that
are needed of it.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from loom.stores.decisions.graph import StoredDecisions
from loom.stores.knowledge.documents import Documents
from loom.stores.memory.notes import StoredNotes
from loom.stores.memory.uses import Uses
from loom.stores.requests import Requests
from loom.stores.sessions import Sessions
from loom.stores.settings import Settings, States
from loom.stores.snapshots import WrittenSnapshots
from loom.stores.sql.database import Database, open_database
from loom.stores.sql.migrate import migrate
from loom.stores.sql.schema import MIGRATIONS
from loom.stores.states import StateKinds, with_own_kinds
from loom.stores.summaries import Summaries
from loom.stores.tasks import Tasks
from loom.stores.tree.growth import Growth
from loom.stores.tree.trees import Trees
from loom.stores.views import Views

if TYPE_CHECKING:
    from loom.stores.search.home import SearchIndex


class Store:
    """One database, opened and brought to the newest version.

    `own_states` are the kinds of state that the store does not know itself, by their types.
    """

    def __init__(self, url: str | None, own_states: Mapping[str, Any]) -> None:
        self.state_kinds: StateKinds = with_own_kinds(own_states)
        self.database: Database = open_database(url)
        try:
            migrate(self.database, MIGRATIONS)
        except BaseException:
            self.database.close()
            raise
        self.sessions = Sessions(self.database)
        self.views = Views(self.database)
        self.requests = Requests(self.database)
        self.growth = Growth(self.database)
        self.trees = Trees(self.database)
        self.settings = Settings(self.database)
        self.states = States(self.database)
        self.summaries = Summaries(self.database)
        self.snapshots = WrittenSnapshots(self.database)
        self.documents = Documents(self.database)
        self.tasks = Tasks(self.database, self.sessions)
        self.notes = StoredNotes(self.database)
        self.uses = Uses(self.database)
        self.decisions = StoredDecisions(self.database)

    @cached_property
    def search(self) -> "SearchIndex":
        """The index by which messages are found."""
        from loom.stores.search.home import SearchIndex

        return SearchIndex(self.database)

    def forget(self) -> None:
        """Let go of what of the index is in memory: names of speakers are among it."""
        if "search" in self.__dict__:
            self.search.forget()

    def close(self) -> None:
        self.database.close()
