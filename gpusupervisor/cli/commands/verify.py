"""`verify`: the real thing tried on this machine, asked for first, measured, and put back."""

import sys

from gpusupervisor.cli.exits import DONE, FAILED, WRONG_USE, CommandFailed
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

_NOTHING_LASTS = "Nothing is left changed, but idle applications lose what they have loaded until they are next used."


async def verify(session: Session) -> int:
    """List what is tried, ask, try it. Ends with `exits.FAILED` or `exits.PARTIAL` unless all is well."""
    from gpusupervisor.cli.verification import Verification, planned
    from gpusupervisor.cli.verification_plan import plan

    options = session.options
    steps = plan(await session.client.objects(), options.tenant, hand_off=options.hand_off)
    if options.dry_run:
        _show(session, {"outcome": None, "steps": planned(steps)})
        return DONE
    if not any(not step.skipped for step in steps):
        _show(session, {"outcome": None, "steps": planned(steps)})
        session.note("There is nothing to try now: no application is idle with memory, and nothing is controlled.")
        return DONE
    if not options.yes:
        await _ask([f"{step.kind} {step.target}: {step.what}" for step in steps if not step.skipped], session)
    verification = Verification(session, steps)
    code = await verification.run()
    _show(session, {"outcome": verification.outcome, "steps": verification.rows})
    return code


async def _ask(what: list[str], session: Session) -> None:
    """Raises CommandFailed unless the answer is yes."""
    from gpusupervisor.cli.asking import ask

    if not sys.stdin.isatty():
        raise CommandFailed("It asks before it does anything, and nobody is there to be asked: add --yes.", WRONG_USE)
    for line in ("This will be done:", *(f"  {each}" for each in what), _NOTHING_LASTS):
        session.note(line)
    try:
        answer = await ask("Go on? [y/N] ")
    except EOFError:
        answer = ""
    if answer not in ("y", "yes"):
        raise CommandFailed("Nothing was done.", FAILED)


def _show(session: Session, shape: dict[str, object]) -> None:
    if session.json:
        session.emit(shape)
        return
    from gpusupervisor.cli.screens.verify import screen

    session.show(*screen(shape))


COMMANDS = (
    Command(
        "verify",
        "test everything for real; asks first, nothing lasts",
        verify,
        (
            argument("--yes", "-y", help="do not ask", action="store_true"),
            argument("--dry-run", "-n", help="only show what would be tested", action="store_true"),
            argument("--hand-off", help="also load a model for which another one gives way", action="store_true"),
            argument("--tenant", metavar="NAME", help="test only this one", completes="tenant", default=""),
        ),
    ),
)
