"""`make judge`: replays films and generated machines, and prints the score."""

import argparse
import os
import sys
from pathlib import Path

from gpusupervisor.films import score
from tests.films.machines import tournament


def main() -> int:
    """Returns the exit code: 0 when nothing was judged wrongly."""
    parser = argparse.ArgumentParser(prog="make judge")
    parser.add_argument("films", nargs="*", type=Path, default=[Path(__file__).parent])
    parser.add_argument("--generate", type=int, default=1000, help="machine-minutes; 0: films only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    lines, good = score.report(chosen.films, chosen.jobs)
    print("\n".join(lines))
    if chosen.generate:
        lines, perfect = tournament.report(chosen.generate, chosen.seed, chosen.jobs)
        print("\n".join(["", *lines]))
        good = good and perfect
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
