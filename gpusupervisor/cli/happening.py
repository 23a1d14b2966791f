"""What happens, told as it does: asked for when the service has sent a signal."""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Awaitable, Callable

from gpusupervisor.cli.client import BUS_NAME
from gpusupervisor.cli.exits import NOT_RUNNING, CommandFailed
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.shapes import Shape

Ask = Callable[[Session, int], Awaitable[list[Shape]]]
"""Events since a time, the oldest first."""
Show = Callable[[Session, list[Shape]], None]
_SETTLE = 1.0
"""Seconds from the service's signal until what has happened is asked for: it is stored by then."""
_REMEMBERED = 1000
"""Events that were told, so that none is told twice."""


async def follow_events(session: Session, begin: int, ask: Ask, show: Show) -> None:
    """Show what has happened since `begin`, and what happens.

    Asks when the service has sent something, at most once a second, and not at all while nothing does.
    """
    uneventful = {f"{BUS_NAME}.Gpu", f"{BUS_NAME}.Manager"}
    news = asyncio.Event()

    async def listen() -> None:
        async for signal in signals:
            if signal.service_left:
                session.note("gpusupervisor has stopped; waiting until it is back.")
            elif signal.member != "PropertiesChanged" or signal.body[0] not in uneventful:
                news.set()

    async with session.client.signals() as signals:
        listening = asyncio.ensure_future(listen())
        telling = asyncio.ensure_future(_tell(session, begin, news, ask, show))
        try:
            await asyncio.wait({listening, telling}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (listening, telling):
                if ended.done():
                    ended.result()
        finally:
            listening.cancel()
            telling.cancel()


async def _tell(session: Session, begin: int, news: asyncio.Event, ask: Ask, show: Show) -> None:
    """Print what is new, for ever."""
    told: deque[str] = deque(maxlen=_REMEMBERED)
    found = await ask(session, begin)
    while True:
        for event in found:
            line = json.dumps(event, sort_keys=True)
            if line in told:
                continue
            told.append(line)
            begin = max(begin, event["at"])
            if session.json:
                session.emit(event, line=True)
            else:
                show(session, [event])
        sys.stdout.flush()
        await news.wait()
        await asyncio.sleep(_SETTLE)
        news.clear()
        try:
            found = await ask(session, begin)
        except CommandFailed as failure:
            if failure.exit_code != NOT_RUNNING:
                raise
            found = []  # it has stopped meanwhile; a signal tells when it is back
