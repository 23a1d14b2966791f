"""The services of a systemd, over D-Bus: the system's, or a user's own."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, InvalidAddressError

from gpusupervisor.cli.client import PROPERTIES, plain
from gpusupervisor.unit_environment import environment_of
from gpusupervisor.unit_syntax import NO_EXPANSION, expanded

NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
PATIENCE = 5.0
"""Seconds for an answer."""
_SERVICES = "*.service"
_RUNNING = ("active", "reloading", "activating")


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
    unreadable: tuple[str, ...] = ()
    """Its environment files that could not be read."""
    command: tuple[str, ...] = ()
    """Its one command, variables not filled in; empty where it has several, or prefixes such as "-" and "@"."""


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


async def services(bus: MessageBus, *, local: bool = True) -> list[Service] | None:
    """Return every service that is installed or loaded, with how it is started where it runs; None without an answer.

    local: it is this machine's systemd, so that the services' environment files are here.
    """
    loaded = await _ask(bus, PATH, "ListUnitsByPatterns", "asas", [], [_SERVICES])
    if loaded is None:
        return None
    installed = await _ask(bus, PATH, "ListUnitFilesByPatterns", "asas", [], [_SERVICES]) or []
    states = {str(name): str(active) for name, _, load, active, *_ in loaded if load == "loaded"}
    running = [(str(unit[0]), str(unit[6])) for unit in loaded if unit[3] in _RUNNING]
    found = list(
        await asyncio.gather(*(_started(bus, name, path, states[name], local=local) for name, path in running))
    )
    names = {str(path).rpartition("/")[2] for path, state in installed if state not in ("masked", "alias")}
    here = {each.name for each in found}
    return found + [
        Service(name, "failed" if states.get(name) == "failed" else "stopped")
        for name in sorted((names | states.keys()) - here)
    ]


async def _started(bus: MessageBus, name: str, path: str, state: str, *, local: bool) -> Service:
    """Return a service with the command line and environment that its next start has."""
    properties = ("ExecStart", "Environment", "EnvironmentFiles", "UnsetEnvironment", "ExecStartEx", "TriggeredBy")
    answers = await asyncio.gather(
        *(_ask(bus, path, "Get", "ss", _interface(each), each, interface=PROPERTIES) for each in properties)
    )
    commands, assignments, files, unset, with_prefixes, triggers = (answer or [] for answer in answers)
    found = [(str(file), bool(optional)) for file, optional in files]
    given, unreadable = await asyncio.to_thread(
        environment_of, name, [str(each) for each in assignments], (), found if local else (), map(str, unset)
    )
    variables = {variable: each.value for variable, each in given.items()}
    program, arguments = commands[-1][:2] if commands else ("", [])
    words = [str(argument) for argument in arguments]
    literal = bool(with_prefixes) and NO_EXPANSION in with_prefixes[-1][2]
    return Service(
        name,
        state,
        str(program),
        tuple(words) if literal else expanded(words, variables),
        tuple(f"{variable}={value}" for variable, value in variables.items()),
        unreadable if local else tuple(file for file, _ in found),
        () if triggers else _only(with_prefixes),
    )


def _interface(name: str) -> str:
    return f"{NAME}.Unit" if name == "TriggeredBy" else f"{NAME}.Service"


def _only(commands: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """The arguments of the one command that there is, if nothing is said of it that they do not."""
    if len(commands) != 1:
        return ()
    program, arguments, flags = commands[0][:3]
    return tuple(map(str, arguments)) if not flags and arguments[:1] == [program] else ()


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
