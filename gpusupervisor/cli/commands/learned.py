"""`learned` and `forget`: what the service has learned of tenants, from what, and how it is taken back."""

from typing import Any

from gpusupervisor.cli import shapes
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

KINDS = ("floor", "need", "need-usual", "model-need", "model-use", "load-cold", "load-warm")


async def show_learned(session: Session) -> None:
    """Every fact with when and from what it was learned."""
    tenant = session.options.tenant
    facts = [shapes.fact(each) for each in await _ask(session, "Learned")]
    found = [each for each in facts if tenant in ("", each["tenant"])]
    if tenant and not found:
        await _require(session, tenant)
    if session.json:
        return session.emit(found)
    if not found:
        return session.say("Nothing was learned yet." if not tenant else f"Nothing was learned of {tenant} yet.")
    from gpusupervisor.cli.screens.learned import all_facts

    names = {gpu["uuid"]: gpu["name"] for gpu in shapes.gpus(await session.client.objects())}
    return session.show(all_facts(found, names))


async def forget(session: Session) -> None:
    """Have it learned anew."""
    tenant, kind = session.options.tenant, session.options.kind
    count = await _ask(session, "Forget", "ss", tenant, kind)
    if not count:
        await _require(session, tenant)
    if session.json:
        return session.emit({"tenant": tenant, "forgotten": count})
    if not count:
        return session.say(f"Nothing was learned of {tenant}.")
    what = "1 fact" if count == 1 else f"{count} facts"
    return session.say(f"Forgot {what} of {tenant}; it will be learned again.")


async def _require(session: Session, tenant: str) -> None:
    """Raise CommandFailed, with the service's own words, if no such tenant exists."""
    from gpusupervisor.cli.client import ROOT, TENANTS

    await session.client.call("Get", "s", [tenant], path=f"{ROOT}/tenants", interface=TENANTS)


async def _ask(session: Session, member: str, signature: str = "", *body: object) -> Any:  # noqa: ANN401  (a D-Bus value)
    from gpusupervisor.cli.client import BUS_NAME, ROOT

    where = {"path": f"{ROOT}/telemetry", "interface": f"{BUS_NAME}.Telemetry"}
    return await session.client.call(member, signature, body, **where)


COMMANDS = (
    Command(
        "learned",
        "show what was learned: floors, needs, load speeds",
        show_learned,
        (argument("tenant", metavar="NAME", help="only about this one", completes="tenant", nargs="?", default=""),),
    ),
    Command(
        "forget",
        "forget what was learned about a tenant",
        forget,
        (
            argument("tenant", metavar="NAME", help="its id", completes="tenant"),
            argument("--kind", metavar="KIND", help=f"only these: {', '.join(KINDS)}", choices=KINDS, default=""),
        ),
    ),
)
