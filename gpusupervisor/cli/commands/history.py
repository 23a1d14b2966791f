"""`history` and `events`: what was, and what happened."""

import argparse
import time
from typing import TYPE_CHECKING, Any

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import FAILED, WRONG_USE, CommandFailed
from gpusupervisor.cli.registry import Command, argument, typed
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.times import SINCE_HELP, parse_since
from gpusupervisor.quantities import format_duration

if TYPE_CHECKING:
    from gpusupervisor.cli.client import Client

_OF_GPUS = ("used", "free", "unattributed", "power", "temperature", "utilization")
SERIES = (*_OF_GPUS, "holding", "shortfall", "need", "activity")
KINDS = ("plan", "plan-started", "step", "outcome", "load", "health", "drift", "fans", "job", "decisions")
_MOST = 12
"""Curves at a time."""
_POINTS = 120
"""Stretches of a curve in JSON, where nobody says how many; a plot has as many as are seen."""
_SINCE = 2 * 3600 * 1_000_000
_LEAST_SHOWN = 60 * 1_000_000
"""Microseconds that a plot shows at least."""
_DAY = 24 * 3600 * 1_000_000
_PAGE = 1000
"""Events in one answer, as many as the service gives."""


async def show_history(session: Session) -> None:
    """A plot of each figure that is asked for."""
    options = session.options
    until = time.time_ns() // 1000
    begin = max(until - options.since, 1)
    found = await _wanted(session)
    if not found:
        raise CommandFailed(_nothing(options.since), FAILED)
    count = options.points or (_POINTS if session.json else min(max(session.canvas.width, 40), 400))
    curves = []
    for name, gpu, tenant in found:
        points = await _ask(session.client, "Query", "sssttu", name, gpu, tenant, begin, until, count)
        curves.append(shapes.history(name, gpu, tenant, points))
    if session.json:
        return session.emit({"from": begin, "to": until, "series": curves})
    if not any(curve["points"] for curve in curves):
        raise CommandFailed(_nothing(options.since), FAILED)
    from gpusupervisor.cli.screens.history import plots

    gpus = {gpu["uuid"]: gpu for gpu in shapes.gpus(await session.client.objects())}
    # No empty hours before the first figure, unless a person named the time.
    first = min(curve["points"][0]["begin"] for curve in curves if curve["points"])
    shown_from = first if options.since == _SINCE and begin < first < until - _LEAST_SHOWN else begin
    return session.show(*plots(curves, gpus, shown_from, until, session.canvas))


def _nothing(since: int) -> str:
    return f"Nothing of that is known of the last {format_duration(since)}; --since 1w looks further back."


async def _wanted(session: Session) -> list[tuple[str, str, str]]:
    """The figures that are asked for, of those that are stored: name, UUID and tenant."""
    options = session.options
    uuid = ""
    if options.gpu:
        from gpusupervisor.cli.cards import card

        _, uuid = await card(session, options.gpu)
    names = options.series or (["holding"] if options.tenant else ["used"])
    stored = await _ask(session.client, "Series")
    found = [
        (name, gpu, tenant)
        for name, gpu, tenant, _, _ in stored
        if name in names
        and gpu in ((uuid, "") if uuid else (gpu,))
        and tenant in _tenants(name, options.tenant, tenant)
    ]
    if len(found) > _MOST:
        raise CommandFailed(
            f"These are {len(found)} curves, too many to tell apart: choose with --tenant, --gpu or --series.",
            WRONG_USE,
        )
    return sorted(found, key=lambda each: (names.index(each[0]), each[1:]))


def _tenants(name: str, wanted: str, found: str) -> tuple[str, ...]:
    """Whose of a series are shown: with --tenant that one's, and no tenant's of what is of a GPU alone."""
    if name in _OF_GPUS:
        return ("",)
    return (wanted or found,)


async def show_events(session: Session) -> None:
    """What happened, the oldest first; with --follow also what happens from now on."""
    begin = max(time.time_ns() // 1000 - session.options.since, 1)
    if session.options.follow:
        from gpusupervisor.cli.happening import follow_events

        return await follow_events(session, begin, _events, _print)
    found = await _events(session, begin)
    if session.json:
        return session.emit(found)
    if not found:
        session.note(f"Nothing has happened in the last {format_duration(session.options.since)}.")
    return _print(session, found)


async def _events(session: Session, begin: int) -> list[shapes.Shape]:
    """The oldest first."""
    stored = await _ask(session.client, "Events", "ttsu", begin, 0, session.options.kind, _PAGE)
    return [shapes.event(each) for each in reversed(stored)]


def _print(session: Session, found: list[shapes.Shape]) -> None:
    from gpusupervisor.cli.screens.events import event_line

    for each in found:
        session.show(event_line(each))


async def _ask(client: "Client", member: str, signature: str = "", *body: object) -> Any:  # noqa: ANN401  (a D-Bus value)
    from gpusupervisor.cli.client import BUS_NAME, ROOT

    return await client.call(member, signature, body, path=f"{ROOT}/telemetry", interface=f"{BUS_NAME}.Telemetry")


_GPU = argument("--gpu", metavar="GPU", help="its index, name or UUID; default: all", completes="gpu", default="")
_SINCE_WHEN = typed(parse_since)


def _points(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= 2000:
        raise argparse.ArgumentTypeError("it is 1 to 2000")
    return number


COMMANDS = (
    Command(
        "history",
        "plot what was held, free or missing",
        show_history,
        (
            _GPU,
            argument("--tenant", metavar="NAME", help="its id; plots what it held", completes="tenant", default=""),
            argument("--since", metavar="TIME", help=f"{SINCE_HELP}; default: 2h", type=_SINCE_WHEN,
                     default=_SINCE),
            argument("--series", metavar="SERIES", choices=SERIES, nargs="+", default=[],
                     help=f"one or more of {', '.join(SERIES)}; default: used, or holding with --tenant"),
            argument("--points", metavar="N", help=f"number of intervals; default: as many as fit, in JSON {_POINTS}",
                     type=_points, default=0),
        ),
    ),
    Command(
        "events",
        "show what happened: plans, loads, health, jobs",
        show_events,
        (
            argument("--since", metavar="TIME", help=f"{SINCE_HELP}; default: 1d", type=_SINCE_WHEN,
                     default=_DAY),
            argument("--kind", metavar="KIND", help=f"only these: {', '.join(KINDS)}", choices=KINDS, default=""),
            argument("--follow", "-f", help="keep showing new events until Ctrl-C", action="store_true"),
        ),
    ),
)  # fmt: skip
