"""What a project settles: its agents, and how its trees are read; and what each session has at hand
next to what was said.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.names import check_name
from loom.conversation.tree import Preferences
from loom.errors import ChoiceError, shorten
from loom.stores.sessions import Scope, lock_alive
from loom.stores.sql.database import Database, Reader, Writer
from loom.stores.sql.stored import (
    UNREADABLE,
    damage_error,
    read_each,
    read_preferences,
    read_rows,
    read_stored,
)
from loom.stores.states import STORE_KINDS, read_state

_T = TypeVar("_T")
# What each kind of setting holds. The doctor reads them too.
KINDS = {"agent": Agent, "preferences": Preferences}
_KEEP_AGAIN = "loom doctor says more, and setting it again repairs it"
# as the project of a setting: it holds in all of the tenant's; no project has this name
EVERY_PROJECT = ""


class Settings:
    """Agents and preferences of a project."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def agent(self, scope: Scope, name: str) -> Agent | None:
        """The agent of this name, where it was made known."""
        data = self._data(scope.tenant, scope.project, "agent", name)
        what = f"agent {name!r} of project {scope.project!r}"
        if data is None:
            return None
        return read_stored(data, Agent, what, _KEEP_AGAIN)

    def known_agent(self, scope: Scope, name: str) -> Agent:
        found = self.agent(scope, name)
        if found is None:
            raise ChoiceError(
                f"there is no agent {shorten(name)!r} in project {scope.project!r}; loom tree "
                "agent NAME creates one"
            )
        return found

    def agents(self, scope: Scope) -> list[Agent]:
        with self._database.read() as reader:
            sql = (
                "SELECT data, name FROM settings WHERE tenant = $1 AND project = $2 "
                "AND kind = 'agent' ORDER BY name"
            )
            found = read_rows(reader, sql, scope.tenant, scope.project)
        return read_each(
            found, lambda row: read_stored(row[0], Agent, ""), lambda row: f"agent {row[1]!r}"
        )

    def keep_agent(self, scope: Scope, agent: "Agent | Mapping[str, Any]", now: int) -> Agent:
        agent = Agent.of(agent)
        check_name("agent", agent.name)
        if not agent.name.strip():
            raise ChoiceError("an agent must have a name")
        self._put(scope, scope.project, "agent", agent.name, to_json(agent), now)
        return agent

    def preferences(self, scope: Scope) -> Preferences:
        """What holds for every tree of a project that does not say otherwise."""
        data = self._data(scope.tenant, scope.project, "preferences", "")
        if data is None:
            return Preferences()
        return read_preferences(data, f"in project {scope.project!r}")

    def app_preferences(self, scope: Scope) -> Preferences:
        """What holds for every tree of the tenant, where neither its project nor the tree says
        otherwise.
        """
        data = self._data(scope.tenant, EVERY_PROJECT, "preferences", "")
        if data is None:
            return Preferences()
        return read_preferences(data, "in all projects")

    def keep_preferences(
        self,
        scope: Scope,
        preferences: "Preferences | Mapping[str, Any]",
        now: int,
        all_projects: bool = False,
    ) -> None:
        where = EVERY_PROJECT if all_projects else scope.project
        self._put(scope, where, "preferences", "", to_json(Preferences.of(preferences)), now)

    def _data(self, tenant: str, project: str, kind: str, name: str) -> str | None:
        with self._database.read() as reader:
            sql = (
                "SELECT data FROM settings WHERE tenant = $1 AND project = $2 AND kind = $3 "
                "AND name = $4"
            )
            row = reader.first_row(sql, tenant, project, kind, check_name(kind, name))
        if row is None:
            return None
        data: str = row[0]
        return data

    def _put(self, scope: Scope, project: str, kind: str, name: str, data: str, now: int) -> None:
        with self._database.write() as writer:
            put_setting(writer, (scope.tenant, project), kind, name, data, scope.agent, now)


def put_setting(
    writer: Writer,
    where: tuple[str, str],
    kind: str,
    name: str,
    data: str,
    author: str,
    updated: int,
) -> None:
    writer.all(
        """INSERT INTO settings (tenant, project, kind, name, data, author, updated)
            VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (tenant, project, kind, name) DO UPDATE
            SET data = excluded.data, author = excluded.author,
            updated = excluded.updated""",
        *where,
        kind,
        name,
        data,
        author,
        updated,
    )


# a kind, and values by name as JSON; None takes one away
StateValues = tuple[str, Mapping[str, str | None]]


class States:
    """What a session has at hand: values by kind and name, as JSON."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, session: int, kind: str) -> dict[str, str]:
        """What is kept of this kind, the oldest first."""
        with self._database.read() as reader:
            return states_of(reader, session, kind)

    def find_value(self, session: int, kind: str, name: str) -> str | None:
        """What is kept of this kind under a name, if anything is."""
        with self._database.read() as reader:
            row = reader.first_row(
                "SELECT data FROM states WHERE session = $1 AND kind = $2 AND name = $3",
                session,
                kind,
                name,
            )
        return row[0] if row else None

    def read(self, session: int, kind: str, held: type[_T]) -> dict[str, _T]:
        """What is kept of a kind that the store knows, as values of its type."""
        made: dict[str, _T] = {}
        for name, data in self.all(session, kind).items():
            try:
                value = read_state(STORE_KINDS, kind, name, data)[0]
            except UNREADABLE:
                raise damage_error(f"the {kind} {name}") from None
            assert isinstance(value, held)
            made[name] = value
        return made

    def in_scope(self, scope: Scope, kind: str, held: type[_T]) -> dict[str, _T]:
        """What the sessions in scope keep of a kind that has one value, by the id of the session,
        the oldest first. What cannot be read is left out.
        """
        with self._database.read() as reader:
            found = reader.all(_IN_SCOPE, scope.tenant, scope.project, scope.agent, kind)
        made: dict[str, _T] = {}
        for session, name, data in found:
            with suppress(*UNREADABLE):
                value = read_state(STORE_KINDS, kind, name, data)[0]
                assert isinstance(value, held)
                made[session] = value
        return made

    def put(self, session: int, kind: str, values: Mapping[str, str | None], now: int) -> None:
        """Keep these values; None takes one away. A session that was purged keeps nothing any
        more.
        """
        self.put_all(session, [(kind, values)], now)

    def exchange(
        self,
        session: int,
        kind: str,
        change: Callable[[str | None], str | None],
        now: int,
        name: str = "",
    ) -> None:
        """Replace a value of a kind by what `change` makes of it, with nobody in between."""
        with self._database.write() as writer:
            lock_alive(writer, session)
            before = states_of(writer, session, kind).get(name)
            after = change(before)
            if after != before:
                put_states(writer, session, [(kind, {name: after})], now)

    def put_all(self, session: int, states: Iterable[StateValues], now: int) -> None:
        """Keep values of several kinds, all or none."""
        with self._database.write() as writer:
            lock_alive(writer, session)
            put_states(writer, session, states, now)


_IN_SCOPE = """SELECT s.id, x.name, x.data FROM sessions s JOIN states x ON x.session = s.key
    WHERE s.tenant = $1 AND s.project = $2 AND s.agent = $3 AND x.kind = $4 ORDER BY s.key"""


def put_states(writer: Writer, session: int, states: Iterable[StateValues], now: int) -> None:
    """Keep values of several kinds in a transaction that locks the session."""
    for kind, values in states:
        gone = [(session, kind, name) for name, value in values.items() if value is None]
        kept = [
            (session, kind, name, value, now) for name, value in values.items() if value is not None
        ]
        if gone:
            writer.run_many(
                "DELETE FROM states WHERE session = $1 AND kind = $2 AND name = $3", gone
            )
        if kept:
            writer.run_many(PUT_STATE, kept)


PUT_STATE = """INSERT INTO states (session, kind, name, data, updated) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (session, kind, name) DO UPDATE
    SET data = excluded.data, updated = excluded.updated"""


def states_of(reader: Reader, session: int, kind: str) -> dict[str, str]:
    sql = "SELECT name, data FROM states WHERE session = $1 AND kind = $2 ORDER BY updated, name"
    return dict(reader.all(sql, session, kind))
