"""Reading films: JSON lines, plain or compressed with gzip. Everything is checked before anything is replayed."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import get_args

from gpusupervisor.arbitration.learned import KINDS
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.films import checks
from gpusupervisor.films.apply import Applier
from gpusupervisor.films.checks import FilmError, Line
from gpusupervisor.films.expect import read_expectation
from gpusupervisor.films.stage import Stage
from gpusupervisor.films.values import VERSION, Change, Command, Deed, Expectation, Film, Header, Learned, Reaction

LONGEST_LINE = 4 << 20
"""Bytes."""
MOST_LINES = 2_000_000
MAGIC = b"\x1f\x8b"
"""Of gzip."""
_DEEDS: tuple[Deed, ...] = get_args(Deed)
_PICTURE = ("gpus", "processes", "http", "units")


def read_film(path: Path) -> Film:
    """The film in a file. Raises FilmError, OSError."""
    name = path.name.split(".")[0]
    with path.open("rb") as file:
        if file.peek(2)[:2] != MAGIC:
            return parse_film(name, file)
        try:
            with gzip.open(file, "rb") as lines:
                return parse_film(name, lines)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise FilmError(f"{path.name} is damaged: {error}") from None


def parse_film(name: str, lines: Iterable[bytes]) -> Film:
    """The film of these lines. Raises FilmError."""
    header: Header | None = None
    changes: list[Change] = []
    reactions: list[Reaction] = []
    commands: list[Command] = []
    expectations: list[Expectation] = []
    for number, table in _tables(lines):
        if header is None:
            header = _header(table, number)
        elif "expect" in table:
            expectations.append(read_expectation(table, number))
        elif "when-asked" in table:
            reactions.append(_reaction(table, number))
        elif "do" in table:
            commands.append(_command(table, number))
        else:
            changes.append(_change(table, number, changes[-1].at if changes else 0))
    if header is None:
        raise FilmError('line 1: a film begins with a line such as {"film": 1, "title": "..."}')
    film = Film(name, header, tuple(changes), tuple(reactions), tuple(commands), tuple(expectations))
    _rehearse(film)
    return film


def _tables(lines: Iterable[bytes]) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Lines that are neither empty nor comments, with their numbers."""
    for number, line in enumerate(lines, 1):
        if number > MOST_LINES or len(line) > LONGEST_LINE:
            raise FilmError(f"line {number}: the film is too long; allowed: {MOST_LINES} lines of {LONGEST_LINE} bytes")
        if not (stripped := line.strip()) or stripped.startswith(b"#"):
            continue
        try:
            table = json.loads(stripped, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise FilmError(f"line {number}: is no JSON: {error}") from None
        if not isinstance(table, dict):
            raise FilmError(f"line {number}: allowed: one JSON object per line")
        yield number, table


def _no_constant(name: str) -> object:
    raise checks.Unfit(f"{name} is not JSON")


def _header(table: Mapping[str, object], number: int) -> Header:
    line = Line(table, number)
    version = line.take("film", checks.whole, 0)
    if version != VERSION:
        raise FilmError(f"line {number}: film: is {version}; this program reads version {VERSION}, on the first line")
    header = Header(
        title=line.take("title", checks.text, ""),
        about=line.take("about", checks.text, ""),
        started_at=line.take("start", _instant, 0),
        settings=line.take("settings", checks.table, checks.NOTHING),
        tenants={
            name: _checked(checks.table, each, number, f"tenants.{name}")
            for name, each in line.take("tenants", checks.table, checks.NOTHING).items()
        },
        answers=line.take("answers", checks.table, checks.NOTHING),
        learned=line.take("learned", _learned, ()),
        acts=line.take("acts", checks.flag, None),
        lasts=line.take("lasts", checks.time, None),
    )
    line.end()
    return header


def _checked(
    read: Callable[[object], Mapping[str, object]], value: object, number: int, path: str
) -> Mapping[str, object]:
    try:
        return read(value)
    except ValueError as error:
        raise FilmError(f"line {number}: {path}: {error}") from None


def _instant(value: object) -> int:
    """Unix microseconds of "2026-12-01T14:00:00Z"."""
    found = datetime.fromisoformat(checks.text(value))
    if found.tzinfo is None:
        raise checks.Unfit('allowed: a time with its zone, e.g. "2026-12-01T14:00:00Z"')
    return round(found.timestamp() * MICROSECONDS)


def _learned(value: object) -> tuple[Learned, ...]:
    if not isinstance(value, list):
        raise checks.Unfit("allowed: a list of objects with kind, tenant and value")
    facts = []
    for entry in value:
        table = checks.table(entry)
        if strangers := table.keys() - {"kind", "tenant", "gpu", "value", "model"}:
            raise checks.Unfit(f"{sorted(strangers)[0]} is no key here; allowed: kind, tenant, gpu, value, model")
        kind = checks.one_of(KINDS)(table.get("kind"))
        gpu, model = checks.text(table.get("gpu", "")), checks.text(table.get("model", ""))
        tenant, size = checks.text(table.get("tenant")), checks.size(table.get("value"))
        facts.append(Learned(kind, tenant, gpu, size, model))
    return tuple(facts)


def _change(table: Mapping[str, object], number: int, earliest: int) -> Change:
    line = Line(table, number)
    at = line.take("t", checks.time, earliest)
    if at < earliest:
        raise line.fault("t", "is earlier than the line before; allowed: the same time or a later one")
    line.take("note", checks.text, "")
    change = Change(at, {key: line.take(key, checks.table, checks.NOTHING) for key in _PICTURE if key in table}, number)
    for key in (*_PICTURE, "expect", "do", "when-asked"):
        line.take(key, lambda value: value, None)
    line.end()
    return change


def _reaction(table: Mapping[str, object], number: int) -> Reaction:
    line = Line(table, number)
    place = line.take("when-asked", checks.text, "")
    reaction = Reaction(
        since=line.take("t", checks.time, 0),
        address=place if ":" in place else f"127.0.0.1:{place}",
        having=line.take("having", checks.text, ""),
        after=line.take("after", checks.time, 0),
        picture={key: line.take(key, checks.table, checks.NOTHING) for key in _PICTURE if key in table},
        line=number,
    )
    line.take("note", checks.text, "")
    line.end()
    return reaction


def _command(table: Mapping[str, object], number: int) -> Command:
    line = Line(table, number)
    deed = line.take("do", checks.one_of(_DEEDS), _DEEDS[0])
    command = Command(
        at=line.take("t", checks.time, 0),
        deed=deed,
        tenant=line.take("tenant", checks.text, ""),
        size=line.take("size", checks.size, 0),
        line=number,
    )
    line.take("note", checks.text, "")
    line.end()
    return command


def _rehearse(film: Film) -> None:
    """Put every change on a stage once, so that mistakes are found before the replay. Raises FilmError."""
    stage = Stage()
    applier = Applier(stage, film.header.answers)
    pending = sorted(film.reactions, key=lambda each: each.since)
    for change in film.changes:
        applier.apply(change.picture, change.line, change.at)
        while pending and pending[0].since <= change.at:
            reaction = pending.pop(0)
            Applier(Stage(gpus=dict(stage.gpus)), film.header.answers).apply(reaction.picture, reaction.line, 0)
