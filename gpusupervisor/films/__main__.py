"""`python -m gpusupervisor.films`: replays films, and scores them. `gpusupervisorctl replay` runs it."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from gpusupervisor.films import screen
from gpusupervisor.films.checks import FilmError
from gpusupervisor.films.evaluate import evaluate
from gpusupervisor.films.projector import production_of
from gpusupervisor.films.reading import read_film
from gpusupervisor.films.replay import replay
from gpusupervisor.films.score import report

WRONG_USE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when everything was as the films expect, 1 when not, 2 for films that cannot be read."""
    chosen = _parser().parse_args(arguments)
    if chosen.command == "judge":
        lines, good = report(chosen.films, chosen.jobs)
        print("\n".join(lines))
        return 0 if good else 1
    try:
        return _replay(chosen)
    except (FilmError, OSError) as error:
        print(f"{chosen.film}: {error}", file=sys.stderr)
        return WRONG_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpusupervisor.films")
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge", help="replay films and print the score")
    judging.add_argument("films", nargs="+", type=Path, help="films, and folders with films")
    judging.add_argument("--jobs", type=int, default=1, help="processes to use")
    replaying = commands.add_parser("replay", help="replay one film and show what was believed")
    replaying.add_argument("film", type=Path)
    replaying.add_argument("--definitions", type=Path, action="append", default=[], metavar="DIR")
    replaying.add_argument("--json", action="store_true")
    return parser


def _replay(chosen: argparse.Namespace) -> int:
    for folder in chosen.definitions:
        if not folder.is_dir():
            raise FilmError(f"--definitions: {folder} is no folder")
    film = read_film(chosen.film)
    record = replay(production_of(film, chosen.definitions))
    found = evaluate(film, record)
    if chosen.json:
        print(json.dumps(screen.shape(film, record, found)))
    else:
        unicode = "utf" in (sys.stdout.encoding or "").lower()
        for part in (screen.timeline(film, record), screen.plot(record, unicode=unicode), screen.verdict(found)):
            print("\n".join(part))
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main())
