"""Facts as rows. Each row has a checksum: a damaged file must never teach a wrong fact."""

import json
import sqlite3
import zlib
from collections.abc import Iterator

from gpusupervisor.arbitration.learned import KINDS, Fact, FactKey, Measured
from gpusupervisor.telemetry.records import countable

COLUMNS = "kind, tenant, gpu, model, value, learned_at, source, application, evidence, checksum"
Row = tuple[object, ...]


def row_of(fact: Fact) -> Row:
    """The row that keeps a fact."""
    evidence = json.dumps([[each.at, each.value] for each in fact.evidence], separators=(",", ":"))
    content = (
        fact.kind,
        *fact.key[1:],
        countable(fact.value),
        countable(fact.learned_at),
        fact.source,
        fact.application,
        evidence,
    )
    return *content, _checksum(content)


def fact_of(row: Row) -> Fact | None:
    """The fact that a row keeps; None for one that is damaged."""
    kind, tenant, gpu, model, value, learned_at, source, application, evidence, checksum = row
    if checksum != _checksum(row[:-1]) or kind not in KINDS:
        return None
    measured = tuple(Measured(at, size) for at, size in json.loads(str(evidence)))
    return Fact(
        kind,
        str(tenant),
        str(gpu),
        _int(value),
        _int(learned_at),
        str(source),
        str(application),
        measured,
        str(model),
    )


def read_facts(connection: sqlite3.Connection) -> Iterator[Fact]:
    """Every fact of a sound file. Raises sqlite3.Error."""
    for row in connection.execute(f"SELECT {COLUMNS} FROM facts"):  # noqa: S608
        fact = fact_of(row)
        if fact is not None:
            yield fact


def salvage_facts(connection: sqlite3.Connection) -> dict[FactKey, Fact]:
    """The facts that can still be read of a damaged file, from both of its ends."""
    found: dict[FactKey, Fact] = {}
    for order in ("ASC", "DESC"):
        try:
            for row in connection.execute(f"SELECT {COLUMNS} FROM facts ORDER BY rowid {order}"):  # noqa: S608
                if fact := fact_of(row):
                    found[fact.key] = fact
        except (sqlite3.Error, UnicodeDecodeError, OverflowError):
            continue
    return found


def _checksum(content: Row) -> int:
    """Rows that are older than the column "model" have none, and keep the checksum that they were written with."""
    kind, tenant, gpu, model, *rest = content
    if not model:
        content = (kind, tenant, gpu, *rest)
    return zlib.crc32(repr(content).encode("utf-8", "backslashreplace"))


def _int(value: object) -> int:
    assert isinstance(value, int)  # the column is INTEGER of a STRICT table, and its checksum is right
    return value
