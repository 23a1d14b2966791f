"""`autotune`: the power limit that saves energy where an engine stays nearly as fast."""

from typing import TYPE_CHECKING

from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

if TYPE_CHECKING:
    from dbus_fast import Variant


_NUMBERS = ("steps", "tokens", "tolerance")


async def autotune(session: Session) -> int:
    """Start the job, follow it, show its curve, as far as it came; Ctrl-C cancels it."""
    from gpusupervisor.cli.cards import card
    from gpusupervisor.cli.client import BUS_NAME
    from gpusupervisor.cli.following import follow

    path, uuid = await card(session, session.options.gpu)
    arguments = [session.options.engine, _options(session)]
    profile = f"{BUS_NAME}.Profile"
    job_path = await session.client.call("Autotune", "sa{sv}", arguments, path=path, interface=profile)
    job, code = await follow(session, job_path, "the state before is being set again")
    if session.json:
        session.emit(job)
    else:
        from gpusupervisor.cli.screens.autotune import curve, proposal

        session.show(*curve(job["result"]))
        for line in proposal(job["result"], uuid):
            session.say(line)
    return code


def _options(session: Session) -> "dict[str, Variant]":
    """What was given; the service has defaults for the rest."""
    from dbus_fast import Variant

    given = session.options
    asked = {"model": ("s", given.model)} | {name: ("u", getattr(given, name)) for name in _NUMBERS}
    asked["clock-offsets"] = ("ai", given.clock_offsets)
    return {name: Variant(signature, value) for name, (signature, value) in asked.items() if value is not None}


COMMANDS = (
    Command(
        "autotune",
        "find an engine's most efficient power limit",
        autotune,
        (
            argument("gpu", metavar="GPU", help="its index, name or UUID", completes="gpu"),
            argument("engine", metavar="ENGINE", help="an idle engine on it: Ollama or llama.cpp", completes="engine"),
            argument("--model", help="the model to run; required for Ollama", completes="model"),
            argument("--steps", help="number of power limits to try; default: 8", type=int),
            argument("--tokens", help="tokens to generate in one run; default: 256", type=int),
            argument("--tolerance", metavar="PERCENT", help="how much slower it may become; default: 5", type=int),
            argument(
                "--clock-offsets",
                metavar="MHZ",
                nargs="+",
                type=int,
                help="offsets of the graphics clock, each tried with every limit",
            ),
        ),
    ),
)
