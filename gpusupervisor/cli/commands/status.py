"""`status`: one screen."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.registry import Command
from gpusupervisor.cli.session import Session


async def show(session: Session) -> None:
    """Cards, who holds what, who is busy and why, what is being done about it, health."""
    shape = shapes.status(*await session.client.everything())
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.status import screen

    return session.show(*screen(shape, session.canvas))


COMMANDS = (Command("status", "cards, who holds what, who is busy and why, health", show),)
