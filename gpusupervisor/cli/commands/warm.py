"""`warm`: a model's files read into RAM, or what is worth it."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, WRONG_USE, CommandFailed
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session


async def warm(session: Session) -> int:
    """Warm a model and follow it, or show the plan."""
    if not session.options.engine:
        return await _show_plan(session)
    if not session.options.model:
        raise CommandFailed(f"Which model of {session.options.engine}? gpusupervisorctl warm shows them.", WRONG_USE)
    from gpusupervisor.cli.client import BUS_NAME, ROOT
    from gpusupervisor.cli.following import follow

    wanted = [session.options.engine, session.options.model]
    path = await session.client.call("WarmModel", "ss", wanted, path=f"{ROOT}/engines", interface=f"{BUS_NAME}.Engines")
    job, code = await follow(session, path, "what was read so far stays in RAM")
    if session.json:
        session.emit(job)
    elif code == DONE:
        from gpusupervisor.cli.screens.warm import result

        session.show(result(job["result"]))
    return code


async def _show_plan(session: Session) -> int:
    from gpusupervisor.cli.client import BUS_NAME, ROOT

    plan = shapes.known(await session.client.call("WarmPlan", path=f"{ROOT}/engines", interface=f"{BUS_NAME}.Engines"))
    if session.json:
        session.emit(plan)
    else:
        from gpusupervisor.cli.screens.warm import plan_screen

        session.show(plan_screen(plan))
    return DONE


COMMANDS = (
    Command(
        "warm",
        "read a model into RAM, or show which are worth it",
        warm,
        (
            argument("engine", metavar="ENGINE", help="its id", completes="engine", nargs="?", default=""),
            argument("model", metavar="MODEL", help="its name in the engine", completes="model", nargs="?", default=""),
        ),
    ),
)
