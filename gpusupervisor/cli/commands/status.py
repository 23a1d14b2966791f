"""`status`: one screen."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session


async def show(session: Session) -> None:
    """Show the GPUs, what holds their memory and works, what is being done, and health; or one tenant."""
    if session.options.tenant:
        from gpusupervisor.cli.commands.tenants import show_one

        return await show_one(session)
    from asyncio import gather

    from gpusupervisor.cli.client import MANAGER, ROOT

    asked = session.client.properties(ROOT, MANAGER), session.client.objects()
    manager, objects, _ = await gather(*asked, _get_ready(session))
    shape = shapes.status(manager, objects)
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.status import screen

    return session.show(*screen(shape, session.canvas))


async def _get_ready(session: Session) -> None:
    """Import the screen while the service answers."""
    if not session.json:
        import gpusupervisor.cli.screens.status  # noqa: F401


COMMANDS = (
    Command(
        "status",
        "show who holds what, who is busy and why, health",
        show,
        (argument("tenant", metavar="NAME", help="only this tenant", completes="tenant", nargs="?", default=""),),
    ),
)
