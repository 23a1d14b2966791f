"""A film made ready for its replay: its changes, reactions and settings, put in the place of a machine."""

import heapq
import json
import tempfile
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpusupervisor.films.apply import Applier
from gpusupervisor.films.cast import cast
from gpusupervisor.films.checks import FilmError
from gpusupervisor.films.replay import Production
from gpusupervisor.films.stage import Stage
from gpusupervisor.films.values import Film, Picture
from gpusupervisor.films.virtual_time import ORIGIN, VirtualClock
from gpusupervisor.settings import Settings, check_settings
from gpusupervisor.tenants.catalog import SHIPPED, Catalog, load_catalog

NOON = 1_764_590_400_000_000
"""When a film begins that does not say when, in wall-clock microseconds."""


class FilmScript:
    """Puts a film's changes on the stage as time goes by, and what it answers to requests."""

    def __init__(self, film: Film, stage: Stage, clock: VirtualClock) -> None:
        self._film = film
        self._applier = Applier(stage, film.header.answers, clock.realtime)
        self._due: list[tuple[int, int, Picture, int]] = [
            (change.at + ORIGIN, number, change.picture, change.line) for number, change in enumerate(film.changes)
        ]
        heapq.heapify(self._due)
        self._reactions_made = len(self._due)

    def advance(self, now: int) -> None:
        """See `Script`."""
        while self._due and self._due[0][0] <= now:
            at, _, picture, line = heapq.heappop(self._due)
            self._applier.apply(picture, line, at)

    def rests_until(self, now: int) -> int | None:
        """See `Script`."""
        return self._due[0][0] if self._due else None

    def asked(self, now: int, address: str, question: str, body: bytes) -> None:
        """See `Script`."""
        text = f"{question} {body.decode(errors='replace')}"
        fitting = [
            reaction
            for reaction in self._film.reactions
            if reaction.address == address and reaction.since + ORIGIN <= now and reaction.having in text
        ]
        latest = max((reaction.since for reaction in fitting), default=0)
        for reaction in fitting:
            if reaction.since < latest:
                continue  # later ones stand in its place
            self._reactions_made += 1
            entry = (now + reaction.after, self._reactions_made, reaction.picture, reaction.line)
            heapq.heappush(self._due, entry)


def production_of(film: Film, definitions: Sequence[Path] = (), *, acts: bool | None = None) -> Production:
    """The film, ready to be replayed. definitions: folders laid over what is shipped and what the film says.

    acts: whether requests are sent, whatever the film says. Raises FilmError.
    """
    stage = Stage()

    def script(clock: VirtualClock) -> FilmScript:
        made = FilmScript(film, stage, clock)
        made.advance(clock.now())
        return made

    return Production(
        stage=stage,
        script=script,
        catalog=cast(film, _catalog(json.dumps(film.header.tenants), tuple(definitions)), VirtualClock(0)),
        lasts=film.lasts,
        acts=film.acts if acts is None else acts,
        settings=_settings(film),
        learned=film.header.learned,
        commands=film.commands,
        started_at=film.header.started_at or NOON,
    )


def _settings(film: Film) -> Settings:
    settings, findings = check_settings(dict(film.header.settings))
    for path, message in findings:
        raise FilmError(f"line 1: settings.{'.'.join(str(part) for part in path)}: {message}")
    return settings


def catalog_with(tenants: Mapping[str, object], only: Set[str]) -> Catalog:
    """The shipped definitions with these tables laid over, by file stem. only: names of those to keep."""
    whole = _catalog(json.dumps(tenants), ())
    return replace(whole, definitions={name: each for name, each in whole.definitions.items() if name in only})


@cache
def _catalog(tenants: str, definitions: tuple[Path, ...]) -> Catalog:
    """The shipped definitions with these laid over. tenants: JSON, by file stem."""
    with tempfile.TemporaryDirectory(prefix="film-") as folder:
        for stem, table in json.loads(tenants).items():
            if "/" in stem or stem.startswith("."):
                raise FilmError(f"line 1: tenants: {stem!r} is no name of a tenant")
            (Path(folder) / f"{stem}.json").write_text(json.dumps(table))
        catalog = load_catalog((SHIPPED, Path(folder), *definitions))
    for problem in catalog.problems:
        raise FilmError(str(problem).replace(f"{folder}/", "line 1: tenants: "))
    return catalog
