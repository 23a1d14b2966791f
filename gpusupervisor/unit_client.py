"""What system units declare of themselves, asked of systemd: the Environment= that root has written for them.

Not of their processes, which may have been started with anything. Nothing waits for it: what is not known yet is there
at a later look. A unit is asked about when something of it appears, and again when systemd reloads.
"""

import asyncio
import logging
from collections.abc import Mapping

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import driver_call
from gpusupervisor.tenants.declared import PREFIX, Variables

SYSTEMD_NAME = "org.freedesktop.systemd1"
SYSTEMD_PATH = "/org/freedesktop/systemd1"
MANAGER = f"{SYSTEMD_NAME}.Manager"
PATIENCE = 10.0
"""Seconds for an answer."""
REMEMBERED = 256
"""Units at most."""
LONGEST_VALUE = 256

_LOG = logging.getLogger(__name__)


class UnitClient:
    """Knows what units declare. Everything in the thread of the loop."""

    def __init__(self) -> None:
        self._declared: dict[str, Variables] = {}
        self._snapshot: Mapping[str, Variables] = {}
        self._present: frozenset[str] = frozenset()
        self._due: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._systemd = ""
        """The unique name of who was answering as systemd."""

    def declared(self, present: frozenset[str]) -> Mapping[str, Variables]:
        """What is known of all units so far; the same mapping until that changes. present: units seen right now."""
        for unit in sorted(present - self._present):
            self._ask_about(unit)
        self._present = present
        return self._snapshot

    async def follow_for_ever(self, bus: MessageBus) -> None:
        """Find out about units whenever some are new, and about all of them when systemd reloads."""

        def take(message: Message) -> None:
            if (
                message.message_type is MessageType.SIGNAL
                and message.member == "Reloading"
                and message.interface == MANAGER
                and message.sender == self._systemd
                and message.body == [False]
            ):
                for unit in (*self._declared, *self._present):
                    self._ask_about(unit)

        bus.add_message_handler(take)
        try:
            rule = (
                f"type='signal',sender='{SYSTEMD_NAME}',path='{SYSTEMD_PATH}',interface='{MANAGER}',member='Reloading'"
            )
            await bus.call(driver_call("AddMatch", rule))
            subscribed = await _call(bus, SYSTEMD_PATH, MANAGER, "Subscribe", "", [])
            self._systemd = (subscribed and subscribed.sender) or ""
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                asked, self._due = list(self._due), {}
                for unit in asked:
                    await self._learn(bus, unit)
        finally:
            bus.remove_message_handler(take)

    def _ask_about(self, unit: str) -> None:
        self._due[unit] = None
        self._wanted.set()

    async def _learn(self, bus: MessageBus, unit: str) -> None:
        found = await _environment(bus, unit)
        if found is None:
            return  # systemd does not answer: what was known stands
        if found and (unit in self._declared or len(self._declared) < REMEMBERED):
            self._declared[unit] = found
        else:
            self._declared.pop(unit, None)
        if self._declared != self._snapshot:
            _LOG.info("units that declare themselves tenants: %s", ", ".join(sorted(self._declared)) or "none")
            self._snapshot = dict(self._declared)


async def _environment(bus: MessageBus, unit: str) -> Variables | None:
    """The unit's GPUSUPERVISOR_ variables, none when there is no such unit; None when systemd cannot be asked."""
    loaded = await _call(bus, SYSTEMD_PATH, MANAGER, "GetUnit", "s", [unit])
    if loaded is None or loaded.signature != "o":
        return None
    question: list[object] = [f"{SYSTEMD_NAME}.Service", "Environment"]
    answer = await _call(bus, loaded.body[0], "org.freedesktop.DBus.Properties", "Get", "ss", question)
    if answer is None or answer.signature != "v" or answer.body[0].signature != "as":
        return {}
    pairs = (entry.partition("=") for entry in answer.body[0].value)
    return {name: value[:LONGEST_VALUE] for name, _, value in pairs if name.startswith(PREFIX)}


async def _call(
    bus: MessageBus, path: str, interface: str, member: str, signature: str, body: list[object]
) -> Message | None:
    """systemd's reply; None when it gives none."""
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await bus.call(Message(SYSTEMD_NAME, path, interface, member, signature=signature, body=body))
    except (OSError, EOFError):  # TimeoutError is an OSError
        return None
    return answer if answer is not None and answer.message_type is MessageType.METHOD_RETURN else None
