"""`monitor`: signals as they come."""

import time

from gpusupervisor.cli import shapes
from gpusupervisor.cli.registry import Command
from gpusupervisor.cli.session import Session


async def monitor(session: Session) -> None:
    """One line for each signal, until Ctrl-C; over restarts of the service too."""
    from gpusupervisor.cli.client import MANAGER, ROOT
    from gpusupervisor.cli.signals import line

    async with session.client.signals() as signals:
        # Or nothing would ever come, and nobody would say why.
        await session.client.properties(ROOT, MANAGER)
        async for signal in signals:
            if session.json:
                shape = shapes.signal(signal.path, signal.interface, signal.member, signal.body)
                session.emit({"received_at": time.time_ns() // 1000, **shape}, line=True)
            elif text := line(signal.path, signal.member, signal.body):
                session.say(text)


COMMANDS = (Command("monitor", "show the service's signals until Ctrl-C", monitor),)
