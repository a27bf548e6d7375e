"""The store's version, and the way forward from any older one.

Each migration is one transaction, under a lock that only one opener can hold; a store at the newest
version is only read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from loom.errors import StoreError
from loom.stores.sql.database import Database, Reader, Writer


class Migration(Struct, frozen=True):
    """The statements that bring a store from the number before to this one, and why."""

    number: int
    why: str
    statements: tuple[str, ...]


# Each table that is there, with each of its columns. Tables that an extension of PostgreSQL brought
# are nobody's data.
_COLUMNS = {
    "sqlite": (
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
        "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    ),
    "postgres": (
        "SELECT t.relname, a.attname FROM pg_class t JOIN pg_attribute a ON a.attrelid = t.oid "
        "AND a.attnum > 0 "
        "WHERE t.relnamespace = to_regnamespace(quote_ident(current_schema())) AND t.relkind IN "
        "('r', 'p') AND NOT EXISTS "
        "(SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = t.oid AND "
        "d.deptype = 'e')"
    ),
}

# SQLite's write lock keeps other openers out by itself. The number is any, as long as it is always
# the same.
_ALONE = {"sqlite": (), "postgres": ("SELECT pg_advisory_xact_lock(7006012718)",)}

_FIRST = {
    "sqlite": ("CREATE TABLE store (version BIGINT NOT NULL, created TEXT NOT NULL)",),
    "postgres": (
        "CREATE TABLE store (version BIGINT NOT NULL, created TEXT NOT NULL)",
        "CREATE SEQUENCE node_seq",
    ),
}


def migrate(database: Database, migrations: Sequence[Migration]) -> None:
    """Bring the store to the newest version. A newer one, and a database of something else, are
    refused and left as they are.
    """
    newest = migrations[-1].number if migrations else 0
    with database.read() as reader:
        version = _version(database, reader, newest)
    for migration in migrations:
        if version is None or migration.number > version:
            with database.write() as writer:
                version = _advance(database, writer, migration, newest)


def _advance(database: Database, writer: Writer, migration: Migration, newest: int) -> int:
    for statement in _ALONE[database.name]:
        writer.all(statement)
    version = _version(database, writer, newest)  # again: another process may have come first
    if version is None:
        for statement in _FIRST[database.name]:
            writer.all(statement)
        writer.all(
            "INSERT INTO store (version, created) VALUES (0, $1)",
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        version = 0
    if version >= migration.number:
        return version
    for statement in migration.statements:
        writer.all(statement)
    writer.all("UPDATE store SET version = $1", migration.number)
    return migration.number


def _version(database: Database, reader: Reader, newest: int) -> int | None:
    """The version of the store; nothing where none has been made yet."""
    columns = set(reader.all(_COLUMNS[database.name]))
    if not columns:
        return None
    found = None
    if {("store", "version"), ("store", "created")} <= columns:
        found = reader.first_row("SELECT version FROM store")
    if found is None:
        tables = sorted({table for table, _ in columns})
        raise StoreError(
            f"{database.address} is a database of something else (it has the tables "
            f"{', '.join(tables[:4])}"
            f"{' and more' if len(tables) > 4 else ''}); it was left as it is. Name another one"
        )
    if found[0] > newest:
        raise StoreError(
            f"{database.address} is a store of version {found[0]}, and this Loom knows versions "
            f"up to {newest}: "
            "upgrade loomwright, or open another store"
        )
    return int(found[0])
