"""`setup`: the first minutes on a machine."""

import os
import sys
from typing import TYPE_CHECKING

from gpusupervisor.cli import exits
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.failures import Place
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

if TYPE_CHECKING:
    from gpusupervisor.cli.setup.writing import Mode

_NEXT = "\nSee who holds what with gpusupervisorctl status, and watch it live with gpusupervisorctl top."


async def set_up(session: Session) -> int:
    """Look, propose, and write what is wanted. Ends with `exits.FAILED` when something could not be put in force."""
    from gpusupervisor.cli import overrides
    from gpusupervisor.cli.setup.front_writing import FrontWriter
    from gpusupervisor.cli.setup.looking import fronts, look
    from gpusupervisor.cli.setup.proposals import advise
    from gpusupervisor.cli.setup.writing import Writer

    place = session.client.place
    with session.waiting("looking at the machine"):
        findings = await look(session.client, thoroughly=os.geteuid() == 0 and not place.host)
        proxies = () if place.host else await fronts(session.client, findings)
    advice = advise(findings, proxies)
    if not session.json:
        from gpusupervisor.cli.screens.setup import found

        session.show(*found(findings, advice, session.canvas))
    may = overrides.can_be_written() and not place.host
    mode: Mode = "show" if not may else _mode(session)
    items = await Writer(session, mode).carry_out(advice.proposals)
    put = [] if len(items) < len(advice.proposals) else await FrontWriter(session, mode).carry_out(advice.fronts)
    outcomes = [each.outcome for each in items] + [each.outcome for each in put]
    if session.json:
        from gpusupervisor.cli.setup.shape import shape

        session.emit(shape(findings, advice, items, put))
    elif not {"proposed", "failed"} & set(outcomes):
        session.say(_NEXT)
    if not outcomes:
        return exits.DONE
    if not session.options.dry_run and not may and (session.options.yes or _is_somebody_there()):
        raise CommandFailed(_who_may(place, yes=session.options.yes), exits.NOT_ALLOWED)
    if mode == "show":
        session.note(_why_nothing_was_written(session))
    return exits.FAILED if "failed" in outcomes else exits.DONE


def _mode(session: Session) -> "Mode":
    if session.options.dry_run:
        return "show"
    if session.options.yes:
        return "yes"
    return "ask" if _is_somebody_there() and not session.json else "show"


def _is_somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _who_may(place: Place, *, yes: bool) -> str:
    command = place.command("sudo gpusupervisorctl setup" + (" --yes" if yes else ""), terminal=True)
    return f"Nothing was written: that takes root{' on the machine itself' if place.host else ''}. Run: {command}"


def _why_nothing_was_written(session: Session) -> str:
    if session.options.dry_run:
        return "Nothing was written (--dry-run)."
    return "Nothing was written: there is no terminal to ask on. --yes writes tenant files without asking."


COMMANDS = (
    Command(
        "setup",
        "find cards and engines, propose missing tenant files",
        set_up,
        (
            argument("--dry-run", "-n", help="only show what would be written", action="store_true"),
            argument(
                "--yes", "-y", help="write without asking; existing files and services are kept", action="store_true"
            ),
        ),
    ),
)
