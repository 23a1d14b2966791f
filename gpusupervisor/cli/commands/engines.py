"""`engines` and `engine`: which there are, and what one is set to."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session


async def show_all(session: Session) -> None:
    """Every engine."""
    shape = shapes.engines(await session.client.objects())
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.engines import all_engines

    return session.show(*all_engines(shape))


async def show_one(session: Session) -> None:
    """One engine with its settings."""
    from gpusupervisor.cli.client import BUS_NAME, ROOT

    name, where = session.options.engine, f"{ROOT}/engines"
    shape = shapes.properties(
        await session.client.call("Get", "s", [name], path=where, interface=f"{BUS_NAME}.Engines")
    )
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.engines import details

    return session.show(*details(shape))


COMMANDS = (
    Command("engines", "list engines: version, endpoint, whether they answer", show_all),
    Command(
        "engine",
        "show an engine's settings and what they mean",
        show_one,
        (argument("engine", metavar="NAME", help="its id", completes="engine"),),
    ),
)
