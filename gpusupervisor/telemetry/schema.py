"""The tables, and how an older file becomes one of today."""

import sqlite3

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE series (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, gpu TEXT NOT NULL, tenant TEXT NOT NULL,
        UNIQUE (name, gpu, tenant)
    ) STRICT;
    -- As looked at: low, high and span are NULL. Summed up later: value is the mean over span microseconds.
    CREATE TABLE samples (
        series INTEGER NOT NULL, at INTEGER NOT NULL, value INTEGER, low INTEGER, high INTEGER, span INTEGER,
        PRIMARY KEY (series, at)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, tenant TEXT NOT NULL, gpu TEXT NOT NULL,
        plan TEXT NOT NULL, details TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_time ON events (at);
    CREATE INDEX events_by_kind ON events (kind, at);
    CREATE TABLE facts (
        kind TEXT NOT NULL, tenant TEXT NOT NULL, gpu TEXT NOT NULL, value INTEGER NOT NULL,
        learned_at INTEGER NOT NULL, source TEXT NOT NULL, application TEXT NOT NULL, evidence TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, tenant, gpu)
    ) STRICT;
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE facts RENAME TO facts_without_model;
    CREATE TABLE facts (
        kind TEXT NOT NULL, tenant TEXT NOT NULL, gpu TEXT NOT NULL, model TEXT NOT NULL, value INTEGER NOT NULL,
        learned_at INTEGER NOT NULL, source TEXT NOT NULL, application TEXT NOT NULL, evidence TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, tenant, gpu, model)
    ) STRICT;
    INSERT INTO facts
        SELECT kind, tenant, gpu, '', value, learned_at, source, application, evidence, checksum
        FROM facts_without_model;
    DROP TABLE facts_without_model;
    """,
)
"""Each leads from the version of its place to the next one."""


class UnknownVersion(Exception):  # noqa: N818
    """The file is of a later gpusupervisor, or of none."""


def migrate(connection: sqlite3.Connection, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring a file to the newest version, each step whole or not at all."""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= len(migrations):
        raise UnknownVersion(f"it has version {version}, and this gpusupervisor knows up to {len(migrations)}")
    for number, script in enumerate(migrations[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
