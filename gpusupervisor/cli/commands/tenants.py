"""`tenants` and `tenant`: who can hold memory, and everything about one of them."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session


async def show_all(session: Session) -> None:
    """Every tenant, present or not."""
    shape = shapes.tenants(await session.client.objects())
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.tenants import all_tenants

    return session.show(*all_tenants(shape, session.canvas))


async def show_one(session: Session) -> None:
    """Everything that is known of one tenant."""
    from gpusupervisor.cli.client import ROOT, TENANTS

    name = session.options.tenant
    shape = shapes.properties(await session.client.call("Get", "s", [name], path=f"{ROOT}/tenants", interface=TENANTS))
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.tenants import details

    names = {gpu["uuid"]: gpu["name"] for gpu in shapes.gpus(await session.client.objects())}
    return session.show(*details(shape, names))


COMMANDS = (
    Command("tenants", "list every tenant: activity, holding, need", show_all),
    Command(
        "tenant",
        "show everything about one tenant, with the evidence",
        show_one,
        (argument("tenant", metavar="NAME", help="its id", completes="tenant"),),
    ),
)
