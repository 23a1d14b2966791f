"""`automatic`, `reload` and `health`: the service itself."""

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, FAILED
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

_NOW = {
    True: "Automatic: memory is released for whoever lacks it.",
    False: "Observe-only: plans are made and shown, nothing is released.",
}


async def set_automatic(session: Session) -> None:
    """Act by itself, or only observe."""
    on = session.options.state == "on"
    await session.client.call("SetAutomatic", "b", [on])
    if session.json:
        return session.emit({"automatic": on})
    return session.say(_NOW[on])


async def reload(session: Session) -> None:
    """Read the configuration again."""
    await session.client.call("Reload")
    if session.json:
        return session.emit({"reloaded": True})
    return session.say("The configuration was read again.")


async def show_health(session: Session) -> int:
    """Every check. Ends with `exits.FAILED` unless the state is "ok", so that a script can ask."""
    if session.options.now:
        from gpusupervisor.cli.client import BUS_NAME, ROOT

        await session.client.call("Check", path=f"{ROOT}/health", interface=f"{BUS_NAME}.Health")
    shape = shapes.health(await session.client.objects())
    if session.json:
        session.emit(shape)
    else:
        from gpusupervisor.cli.screens.health import screen

        session.show(*screen(shape))
    return DONE if shape["state"] == "ok" else FAILED


COMMANDS = (
    Command(
        "automatic",
        "release memory automatically, or only observe",
        set_automatic,
        (argument("state", help="on or off", choices=("on", "off")),),
    ),
    Command("reload", "read the configuration again", reload),
    Command(
        "health",
        "show every self-check: what is wrong, what to do",
        show_health,
        (argument("--now", help="also repeat checks that run only once a minute", action="store_true"),),
    ),
)
