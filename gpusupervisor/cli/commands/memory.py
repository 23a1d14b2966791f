"""`plan`, `make-room` and `release`: memory asked back, and what came of it."""

from gpusupervisor.cli import exits, shapes
from gpusupervisor.cli.registry import Command, argument, size
from gpusupervisor.cli.session import Session

GOES_ON = (
    "No longer waiting. The service carries out what it has begun, and nothing that was given back is undone; if it "
    "was still waiting for a password, nothing is done. gpusupervisorctl status shows the current state."
)
"""A release cannot be taken back half-way: the applications have been asked already."""


async def plan(session: Session) -> int:
    """Show a plan; nothing is done. Ends with `exits.FAILED` when it does not suffice."""
    options = session.options
    gpu = await _gpu(session)
    shape = shapes.known(await session.client.call("PlanRelease", "sst", [gpu, options.tenant, options.size]))
    if session.json:
        session.emit(shape)
    else:
        from gpusupervisor.cli.screens.plans import plan_screen

        session.show(*plan_screen(shape))
    return exits.DONE if shape["sufficient"] else exits.FAILED


async def make_room(session: Session) -> None:
    """Plan, carry out, measure."""
    options = session.options
    await _ask(session, "MakeRoom", "sst", [await _gpu(session), options.tenant, options.size])


async def release(session: Session) -> None:
    """Ask one tenant for all it can give back."""
    from gpusupervisor.cli.client import ROOT, TENANTS

    await _ask(session, "Release", "s", [session.options.tenant], path=f"{ROOT}/tenants", interface=TENANTS)


async def _gpu(session: Session) -> str:
    """The UUID of the GPU that is named; empty when none is, which the service understands."""
    if not session.options.gpu:
        return ""
    from gpusupervisor.cli.cards import card

    return (await card(session, session.options.gpu))[1]


async def _ask(session: Session, member: str, signature: str, body: list[object], **where: str) -> None:
    from asyncio import CancelledError

    try:
        with session.waiting("waiting until the memory is back"):
            shape = shapes.known(await session.client.call(member, signature, body, **where))
    except CancelledError:
        session.note(GOES_ON)
        raise
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.plans import result_screen

    return session.show(*result_screen(shape))


_WANTED = (
    argument(
        "tenant", metavar="TENANT", help="who needs it; what it already holds counts", completes="tenant", nargs="?",
        default="",
    ),
    argument("--size", help='e.g. "13G"; default: what the tenant needs', type=size, default=0),
    argument(
        "--gpu", metavar="GPU", help="its index, name or UUID; default: the only one, or the tenant's", completes="gpu",
        default="",
    ),
)  # fmt: skip

COMMANDS = (
    Command("plan", "show what would be released, without doing it", plan, _WANTED),
    Command("make-room", "make room for a tenant or of a size, and measure", make_room, _WANTED),
    Command(
        "release",
        "ask a tenant for its memory, and measure",
        release,
        (argument("tenant", metavar="NAME", help="its id", completes="tenant"),),
    ),
)
