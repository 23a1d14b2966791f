"""The score of many films together: how often memory was taken from the wrong tenant, or not made at all."""

import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.films.checks import FilmError
from gpusupervisor.films.evaluate import Findings, Kind, evaluate
from gpusupervisor.films.projector import production_of
from gpusupervisor.films.reading import read_film
from gpusupervisor.films.replay import replay
from gpusupervisor.quantities import format_duration

SUFFIXES = (".film", ".film.gz")
KINDS: tuple[tuple[Kind, str], ...] = (
    ("wrong eviction", "wrong evictions"),
    ("missed hand-off", "missed hand-offs"),
    ("belief", "wrong beliefs"),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """One film."""

    path: Path
    lasts: int
    found: Findings | None
    problem: str = ""
    """Why it could not be replayed."""


def films_in(places: Iterable[Path]) -> Iterator[Path]:
    """The films of folders, with those of the folders within; a file is one film."""
    for place in places:
        if place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.name.endswith(SUFFIXES))
        else:
            yield place


def judge_film(path: Path) -> Judged:
    """Replay one film, and hold it against what it expects."""
    try:
        film = read_film(path)
        record = replay(production_of(film))
    except (FilmError, OSError) as error:
        return Judged(path, 0, None, str(error))
    return Judged(path, film.lasts, evaluate(film, record))


def judge_films(paths: list[Path], workers: int = 1) -> list[Judged]:
    """Every film, in order. workers: processes."""
    if workers < 2 or len(paths) < 4:
        return [judge_film(path) for path in paths]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(judge_film, paths, chunksize=2))


def report(places: list[Path], workers: int = 1) -> tuple[list[str], bool]:
    """The lines to print, and whether everything was as expected."""
    begun = time.monotonic()
    results = judge_films(list(films_in(places)), workers)
    lines = [line for result in results for line in _told(result)]
    found = [result.found for result in results if result.found is not None]
    broken = sum(result.found is None for result in results)
    lines.append(
        f"{len(results)} films, {format_duration(sum(result.lasts for result in results), 1_000_000)} of machine time, "
        f"{time.monotonic() - begun:.1f} s; {sum(each.met for each in found)} expectations met"
    )
    for kind, name in KINDS:
        lines.append(f"{name:18} {sum(finding.kind == kind for each in found for finding in each.findings)}")
    waits = sorted(wait for each in found for wait in each.waits)
    if waits:
        median = format_duration(round(statistics.median(waits)), 10_000)
        lines.append(f"{'time to room':18} median {median}, worst {format_duration(waits[-1], 10_000)}")
    lines.append(f"{'thrash':18} {sum(each.thrash for each in found)}")
    if broken:
        lines.append(f"{'unreadable films':18} {broken}")
    good = bool(results) and not broken and not any(each.findings for each in found)
    return lines, good


def _told(result: Judged) -> Iterator[str]:
    if result.found is None:
        yield f"{result.path}: {result.problem}"
        return
    for finding in result.found.findings:
        yield f"{result.path}:{finding.expectation.line}: {finding.kind}: {finding.expectation.text}"
        yield f"    {finding.seen}"
