"""`record` and `replay`: films of what the service sees, and its judgement run over them again."""

import sys
import time

from gpusupervisor.cli.exits import DONE, FAILED, CommandFailed
from gpusupervisor.cli.registry import Command, argument, typed
from gpusupervisor.cli.session import Session
from gpusupervisor.quantities import parse_duration

_EVERY = 1.0
"""Seconds between two questions."""
_MICROSECONDS = 1_000_000


async def record(session: Session) -> int:
    """Write lines as they come, until the time is over or Ctrl-C; the file is a whole film at every moment."""
    import asyncio
    import gzip

    from gpusupervisor.quantities import format_duration

    options = session.options
    path: str = options.film
    opened = gzip.open if path.endswith(".gz") else open
    ends = None if options.duration is None else time.monotonic() + options.duration / _MICROSECONDS
    try:
        with opened(path, "xt", encoding="ascii") as film:
            after = written = 0
            how_long = "until Ctrl-C" if ends is None else f"for {format_duration(options.duration)}"
            session.note(f"Recording {how_long}.")
            while True:
                lines, after = await session.client.call("Record", "t", [after])
                for line in lines:
                    print(line, file=film)
                film.flush()
                written += len(lines)
                if ends is not None and time.monotonic() >= ends:
                    break
                await asyncio.sleep(_EVERY)
    except FileExistsError:
        raise CommandFailed(f"{path} exists: choose another name.", FAILED) from None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}.", FAILED) from None
    session.note(f"Wrote {written} lines. See it with: gpusupervisorctl replay {path}")
    return DONE


async def replay(session: Session) -> int:
    """Hand over to the program that can judge: the command line itself has nothing of the service in it."""
    import asyncio

    options = session.options
    arguments = ["replay", options.film]
    for folder in options.definitions or ():
        arguments += ["--definitions", folder]
    if session.json:
        arguments.append("--json")
    sys.stdout.flush()
    child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-m", "gpusupervisor.films", *arguments)
    return await child.wait()


COMMANDS = (
    Command(
        "record",
        "record what the service sees, as a film",
        record,
        (
            argument("film", metavar="FILE", help="where to write it; .gz is compressed", completes="file"),
            argument("--for", metavar="TIME", help="how long; default: until Ctrl-C", dest="duration",
                     type=typed(parse_duration)),
        ),
    ),
    Command(
        "replay",
        "run the judgement over a film and show what it believes",
        replay,
        (
            argument("film", metavar="FILE", help="the film", completes="file"),
            argument(
                "--definitions", help="folder of tenant files to try on it", metavar="DIR", action="append",
                completes="file",
            ),
        ),
        connects=False,
    ),
)  # fmt: skip
