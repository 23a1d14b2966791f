"""The services of a systemd, over D-Bus: the system's, or a user's own."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, InvalidAddressError

from gpusupervisor.cli.client import PROPERTIES, plain

NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
PATIENCE = 5.0
"""Seconds for an answer."""
_SERVICES = "*.service"
_RUNNING = ("active", "reloading", "activating")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Service:
    """One service, running or not."""

    name: str
    state: str
    """Its ActiveState; "stopped" for one that is installed and not loaded."""
    executable: str = ""
    command_line: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """NAME=VALUE."""
    environment_files: tuple[str, ...] = ()


def user_bus(environment: Mapping[str, str], uid: int) -> str:
    """The address of the user's own bus; whose sudo it is, for root. Empty when there is none."""
    if address := environment.get("DBUS_SESSION_BUS_ADDRESS", ""):
        return address
    owner = environment.get("SUDO_UID", "") if uid == 0 else str(uid)
    socket = f"/run/user/{owner}/bus"
    return f"unix:path={socket}" if owner.isdecimal() and os.path.exists(socket) else ""


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[MessageBus | None]:
    """A connection to a user's bus; None when there is no way in."""
    try:
        async with asyncio.timeout(PATIENCE):
            bus = await MessageBus(address).connect()
    except (OSError, EOFError, AuthError, InvalidAddressError):  # TimeoutError is an OSError
        yield None
        return
    try:
        yield bus
    finally:
        bus.disconnect()


async def services(bus: MessageBus) -> list[Service] | None:
    """Every service that is installed or loaded, with how it is started where it runs; None when nobody answers."""
    loaded = await _ask(bus, PATH, "ListUnitsByPatterns", "asas", [], [_SERVICES])
    if loaded is None:
        return None
    installed = await _ask(bus, PATH, "ListUnitFilesByPatterns", "asas", [], [_SERVICES]) or []
    states = {str(name): str(active) for name, _, load, active, *_ in loaded if load == "loaded"}
    running = [(str(unit[0]), str(unit[6])) for unit in loaded if unit[3] in _RUNNING]
    found = list(await asyncio.gather(*(_started(bus, name, path, states[name]) for name, path in running)))
    names = {str(path).rpartition("/")[2] for path, state in installed if state not in ("masked", "alias")}
    here = {each.name for each in found}
    return found + [
        Service(name, "failed" if states.get(name) == "failed" else "stopped")
        for name in sorted((names | states.keys()) - here)
    ]


async def _started(bus: MessageBus, name: str, path: str, state: str) -> Service:
    """A service with how it is started."""
    properties = ("ExecStart", "Environment", "EnvironmentFiles")
    interface = f"{NAME}.Service"
    answers = await asyncio.gather(
        *(_ask(bus, path, "Get", "ss", interface, each, interface=PROPERTIES) for each in properties)
    )
    commands, environment, files = (answer or [] for answer in answers)
    variables = dict(str(entry).partition("=")[::2] for entry in environment)
    program, arguments = commands[0][:2] if commands else ("", [])
    return Service(
        name,
        state,
        str(program),
        tuple(_filled_in(str(argument), variables) for argument in arguments),
        tuple(map(str, environment)),
        tuple(str(entry[0]) for entry in files),
    )


def _filled_in(argument: str, variables: Mapping[str, str]) -> str:
    """An argument as systemd passes it on, with the variables that the unit itself sets."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), argument)


async def _ask(bus: MessageBus, path: str, member: str, signature: str, *body: Any, interface: str = "") -> Any:  # noqa: ANN401  (D-Bus values)
    """What systemd answers; None when it does not."""
    question = Message(NAME, path, interface or f"{NAME}.Manager", member, signature=signature, body=list(body))
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await bus.call(question)
    except (OSError, EOFError):  # TimeoutError is an OSError
        return None
    if answer is None or answer.message_type is not MessageType.METHOD_RETURN or not answer.body:
        return None
    return plain(answer.body[0])
