"""`jobs`, `job` and `cancel`: long work."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, FAILED
from gpusupervisor.cli.registry import Command, argument, typed
from gpusupervisor.cli.session import Session


async def show_all(session: Session) -> None:
    """What runs, or ended lately."""
    shape = shapes.jobs(await session.client.objects())
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.jobs import all_jobs

    return session.show(all_jobs(shape))


async def show_one(session: Session) -> int:
    """One job; with --follow until it has ended. Ends with `exits.FAILED` when it has failed."""
    number = session.options.job
    shape = shapes.job(await _jobs(session, "Get", number))
    code = FAILED if shape["state"] == "failed" else DONE
    if session.options.follow and shape["state"] == "running":
        from gpusupervisor.cli.client import ROOT
        from gpusupervisor.cli.following import follow

        shape, code = await follow(session, f"{ROOT}/jobs/{number}")
    if session.json:
        session.emit(shape)
    else:
        from gpusupervisor.cli.screens.autotune import proposal
        from gpusupervisor.cli.screens.jobs import details

        session.show(*details(shape))
        for line in proposal(shape["result"], shape["target"]):
            session.say(line)
    return code


async def cancel(session: Session) -> None:
    """Ask a job to end."""
    number = session.options.job
    await _jobs(session, "Cancel", number)
    if session.json:
        return session.emit({"id": number, "asked_to_end": True})
    return session.say(f"Job {number} was asked to end; it first undoes what has to be undone.")


async def _jobs(session: Session, member: str, number: int) -> dict[str, object]:
    from gpusupervisor.cli.client import BUS_NAME, ROOT

    found: dict[str, object] = await session.client.call(
        member, "u", [number], path=f"{ROOT}/jobs", interface=f"{BUS_NAME}.Jobs"
    )
    return found


def number(text: str) -> int:
    """A job's number, for argparse."""
    if not text.isdecimal() or not 0 < int(text) < 2**32:
        raise ValueError(f"{text!r} is not the number of a job")
    return int(text)


_NUMBER = argument("job", metavar="N", help="its number", completes="job", type=typed(number))

COMMANDS = (
    Command("jobs", "list jobs that are running or ended recently", show_all),
    Command(
        "job",
        "show one job: progress and result",
        show_one,
        (_NUMBER, argument("--follow", "-f", help="follow it to its end; Ctrl-C cancels it", action="store_true")),
    ),
    Command("cancel", "ask a job to end", cancel, (_NUMBER,)),
)
