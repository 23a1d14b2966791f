"""`python -m gpusupervisor.films`: replays films, and scores them. `gpusupervisorctl replay` runs it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpusupervisor.films.score import report


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when everything was as the films expect."""
    parser = argparse.ArgumentParser(prog="python -m gpusupervisor.films")
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge", help="replay films and print the score")
    judging.add_argument("films", nargs="+", type=Path, help="films, and folders with films")
    judging.add_argument("--jobs", type=int, default=1, help="processes to use")
    chosen = parser.parse_args(arguments)
    lines, good = report(chosen.films, chosen.jobs)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
