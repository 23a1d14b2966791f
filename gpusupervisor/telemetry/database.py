"""The file: opened, written and recovered by one thread. Raises `Damaged` and `Unwritable` only."""

import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpusupervisor.arbitration.learned import Fact, FactKey
from gpusupervisor.foreign_text import harmless
from gpusupervisor.telemetry import schema
from gpusupervisor.telemetry.fact_rows import COLUMNS, read_facts, row_of, salvage_facts
from gpusupervisor.telemetry.records import Point, Recalled, Series, TelemetryEvent, countable

LOCK_PATIENCE = 5.0
"""Seconds to wait for a lock: only a person with sqlite3 could hold one."""
CACHE_KIB = 2048
LOG_SIZE = 1 << 20
"""Bytes to which the write-ahead log is kept and cut back."""
PAGE = 4096
LAST_PLAN = "last-plan"


class StoreError(Exception):
    """Something is wrong with the file."""


class Damaged(StoreError):  # noqa: N818
    """What is in the file cannot be believed any more."""


class Unwritable(StoreError):  # noqa: N818
    """The file cannot be opened or written now; what is in it is well."""


@contextmanager
def troubles() -> Iterator[None]:
    """SQLite's and the system's errors as ours."""
    try:
        yield
    except schema.UnknownVersion as error:
        raise Damaged(str(error)) from error
    except sqlite3.Error as error:
        raise of_sqlite(error) from error
    except (UnicodeDecodeError, OverflowError) as error:
        raise Damaged(harmless(str(error))) from error
    except OSError as error:
        raise Unwritable(error.strerror or str(error)) from error


def of_sqlite(error: sqlite3.Error) -> StoreError:
    """Damage, or anything else. Text that is no UTF-8, an integer that is none and a missing table are damage too."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return (Damaged if code in _DAMAGE else Unwritable)(harmless(str(error)))


_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG,
    }
)  # fmt: skip


class Database:
    """An open file. Every method may raise `Damaged` or `Unwritable`; what it was to write is then not written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._series: dict[Series, int] = {}
        with troubles():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(path, timeout=LOCK_PATIENCE, isolation_level=None)
            try:
                self._set_up()
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        """Closes; what the log holds goes into the file when the file lets it."""
        with troubles():
            self.connection.close()

    def recall(self) -> Recalled:
        """What an earlier life of the service left."""
        with troubles():
            facts = tuple(read_facts(self.connection))
            row = self.connection.execute("SELECT value FROM counters WHERE name = ?", (LAST_PLAN,)).fetchone()
            return Recalled(facts, row[0] if row else 0)

    def write(self, points: Sequence[Point], events: Sequence[TelemetryEvent], plans: int) -> None:
        """One batch, whole or not at all. plans: number of the last plan."""
        with troubles(), self._transaction():
            rows = [
                (self._series_id(series), countable(at), None if value is None else countable(value))
                for series, at, value in points
            ]
            self.connection.executemany("INSERT OR REPLACE INTO samples (series, at, value) VALUES (?, ?, ?)", rows)
            self.connection.executemany(
                "INSERT INTO events (at, kind, tenant, gpu, plan, details) VALUES (?, ?, ?, ?, ?, ?)",
                [(countable(e.at), e.kind, e.tenant, e.gpu, e.plan, json.dumps(e.details)) for e in events],
            )
            self.connection.execute(
                "INSERT INTO counters VALUES (?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
                (LAST_PLAN, plans),
            )

    def write_facts(self, changes: Sequence[tuple[FactKey, Fact | None]]) -> None:
        """Facts that are new, have changed, or (None) are forgotten; on the disk when this returns."""
        with troubles():
            self.connection.execute("PRAGMA synchronous = FULL")
            try:
                with self._transaction():
                    for key, fact in changes:
                        self._write_fact(key, fact)
            finally:
                self.connection.execute("PRAGMA synchronous = NORMAL")

    def _write_fact(self, key: FactKey, fact: Fact | None) -> None:
        if fact is None:
            where = "kind = ? AND tenant = ? AND gpu = ? AND model = ?"
            self.connection.execute(f"DELETE FROM facts WHERE {where}", key)  # noqa: S608
            return
        row = row_of(fact)
        marks = ", ".join("?" for _ in row)
        self.connection.execute(f"INSERT OR REPLACE INTO facts ({COLUMNS}) VALUES ({marks})", row)  # noqa: S608

    def check(self, give_up: Callable[[], bool]) -> None:
        """Read the whole file; raises Damaged. give_up: asked again and again whether to stop.

        On a connection of its own: what this one has in memory says nothing of the file.
        """
        with troubles():
            connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        try:
            connection.set_progress_handler(lambda: int(give_up()), 100_000)
            with troubles():
                [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise Damaged(harmless(str(found)))
        except Unwritable:
            if not give_up():
                raise
        finally:
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            self.forget_series()  # some may have been made in what is rolled back
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def forget_series(self) -> None:
        """Which number a series has is looked up anew: rows of the table were deleted."""
        self._series.clear()

    def transaction(self, statements: Callable[[sqlite3.Connection], None]) -> None:
        """Several statements, all or none."""
        with troubles(), self._transaction():
            statements(self.connection)

    def _set_up(self) -> None:
        run = self.connection.execute
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA journal_size_limit = {LOG_SIZE}")
        run(f"PRAGMA wal_autocheckpoint = {LOG_SIZE // PAGE}")
        run(f"PRAGMA cache_size = -{CACHE_KIB}")
        schema.migrate(self.connection)

    def _series_id(self, series: Series) -> int:
        known = self._series.get(series)
        if known is not None:
            return known
        find = "SELECT id FROM series WHERE name = ? AND gpu = ? AND tenant = ?"
        row = self.connection.execute(find, series).fetchone()
        if row is None:
            make = "INSERT INTO series (name, gpu, tenant) VALUES (?, ?, ?) RETURNING id"
            row = self.connection.execute(make, series).fetchone()
        self._series[series] = row[0]
        return int(row[0])


def set_aside(path: Path) -> Path:
    """Give a damaged file, with its log, another name: nothing of it is deleted. Raises Unwritable."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *map("-{}".format, range(2, 1000))))
    with troubles():
        aside = next(itertools.dropwhile(Path.exists, names))
        for suffix in ("-shm", "-wal", ""):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
    return aside


def salvage(path: Path) -> Recalled:
    """What can be read of a file that is damaged or cannot be written; nothing of it is changed."""
    log = path.with_name(f"{path.name}-wal")
    # an empty log is left by a try to open it on a full disk, where no file beside it can be made to read them together
    try:
        has_log = log.stat().st_size > 0
    except OSError:
        has_log = False
    immutable = "" if has_log else "&immutable=1"
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro{immutable}", uri=True, isolation_level=None)
    except sqlite3.Error:
        return Recalled()
    try:
        facts = tuple(salvage_facts(connection).values())
        return Recalled(facts, _salvaged_plans(connection))
    finally:
        connection.close()


def _salvaged_plans(connection: sqlite3.Connection) -> int:
    """Number of the last plan; a damaged one that cannot be is 0."""
    try:
        row = connection.execute("SELECT value FROM counters WHERE name = ?", (LAST_PLAN,)).fetchone()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError):
        return 0
    return row[0] if row and isinstance(row[0], int) and 0 <= row[0] < 1 << 31 else 0
