"""May this caller do that? Asked of polkit for the caller's unique bus name, before anything else; no means no."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol

from dbus_fast import DBusError, ErrorType, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import DRIVER_NAME, answer_of, driver_call, send, user_of
from gpusupervisor.bus.objects import Call
from gpusupervisor.bus.wire import text
from gpusupervisor.foreign_text import harmless
from gpusupervisor.health.surroundings import PolkitSeen
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import AuthorityUnavailable

POLKIT_NAME = "org.freedesktop.PolicyKit1"
POLKIT_PATH = "/org/freedesktop/PolicyKit1/Authority"
POLKIT_INTERFACE = "org.freedesktop.PolicyKit1.Authority"
PATIENCE = 5.0
"""Seconds to wait for an answer that needs no person."""
PATIENCE_WITH_A_PERSON = 120.0
"""Seconds to wait while somebody may be typing a password."""


class Authority(Protocol):
    """Who decides."""

    async def require(self, call: Call, action: str, details: Mapping[str, str]) -> None:
        """Returns when the caller may; raises `DBusError` (AccessDenied, InteractiveAuthorizationRequired) if not."""

    async def seen(self) -> PolkitSeen:
        """How it is: looked up passively, it is neither started nor asked about anybody."""


async def known_user(bus: MessageBus, name: str) -> int:
    """The uid of a caller. Raises AccessDenied when the bus cannot tell who calls."""
    uid = await user_of(bus, name, PATIENCE)
    if uid is None:
        raise DBusError(ErrorType.ACCESS_DENIED, "The bus cannot tell who is calling, so nothing was done")
    return uid


class PolkitAuthority:
    """polkit decides; the superuser may always, also where no polkit runs."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._refusal = ""
        """What it said in place of its last verdict; empty when it gave one."""

    async def require(self, call: Call, action: str, details: Mapping[str, str]) -> None:
        """See `Authority`."""
        if await self._is_root(call.sender):
            return
        answer = await self._check(call, action, details)
        if answer.message_type is not MessageType.METHOD_RETURN or answer.signature != "(bba{ss})":
            self._refusal = f"it answered {harmless(answer.error_name or 'oddly', 80)}: {harmless(_first_text(answer))}"
            _unavailable(action, self._refusal)
        self._refusal = ""
        allowed, challenge, _ = answer.body[0]
        if allowed:
            return
        if challenge and not call.interactive:
            raise DBusError(
                ErrorType.INTERACTIVE_AUTHORIZATION_REQUIRED,
                f"{action} needs a password: allow interactive authorization (busctl does, gdbus call --interactive) "
                f"where an authentication agent runs, or call as root",
            )
        raise DBusError(
            ErrorType.ACCESS_DENIED,
            f"polkit does not let you do {action}. `pkaction --verbose --action-id {action}` shows who may; "
            f"an administrator can add a rule, or call as root",
        )

    async def seen(self) -> PolkitSeen:
        """See `Authority`."""
        if not await self._bus_says("NameHasOwner", POLKIT_NAME):
            startable = await self._bus_says("ListActivatableNames")
            there = isinstance(startable, list) and POLKIT_NAME in startable
            return PolkitSeen("startable" if there else "missing")
        if not await self._lives():
            return PolkitSeen("silent", f"not within {PATIENCE:.0f} s")
        return PolkitSeen("refusing", self._refusal) if self._refusal else PolkitSeen("answers")

    async def _bus_says(self, member: str, *arguments: str) -> object:
        """What the bus answers; None when it does not."""
        answer = await answer_of(self._bus, driver_call(member, *arguments), PATIENCE)
        return answer.body[0] if answer is not None and answer.body else None

    async def _lives(self) -> bool:
        """Whether it answers anything at all, be it an error."""
        ping = Message(
            destination=POLKIT_NAME,
            path=POLKIT_PATH,
            interface="org.freedesktop.DBus.Peer",
            member="Ping",
            flags=MessageFlag.NO_AUTOSTART,
        )
        return await answer_of(self._bus, ping, PATIENCE) is not None

    async def _is_root(self, name: str) -> bool:
        """Is the caller the superuser? Raises AccessDenied when the bus cannot tell who calls."""
        return await known_user(self._bus, name) == 0

    async def _check(self, call: Call, action: str, details: Mapping[str, str]) -> Message:
        """polkit's answer; cancels the question when the caller goes away or nobody answers in time."""
        cancellation = secrets.token_hex(16)
        question = _check_authorization(call, action, details, cancellation)
        async with self._vanishing(call.sender) as vanished:
            answer = asyncio.ensure_future(self._bus.call(question))
            awaited: set[asyncio.Future[Any]] = {answer, vanished}
            patience = PATIENCE_WITH_A_PERSON if call.interactive else PATIENCE
            try:
                await asyncio.wait(awaited, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if vanished.done():
                    raise DBusError(ErrorType.ACCESS_DENIED, f"The caller left before polkit answered {action}")
                if not answer.done():
                    _unavailable(action, f"it did not answer within {patience:.0f} s")
            finally:
                if not answer.done():
                    answer.cancel()
                    send(self._bus, _cancel_check(cancellation))
        if answer.exception() or answer.result() is None:
            _unavailable(action, "the connection to the bus is lost")
        return answer.result()

    @asynccontextmanager
    async def _vanishing(self, name: str) -> "AsyncIterator[asyncio.Future[None]]":
        """A future that is done once the bus name is gone."""
        vanished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def watch(message: Message) -> None:
            gone = message.member == "NameOwnerChanged" and message.sender == DRIVER_NAME
            if gone and message.body[0] == name and not message.body[2] and not vanished.done():
                vanished.set_result(None)

        rule = f"type='signal',sender='{DRIVER_NAME}',member='NameOwnerChanged',arg0='{name}',arg2=''"
        self._bus.add_message_handler(watch)
        send(self._bus, driver_call("AddMatch", rule, reply=False))
        try:
            yield vanished
        finally:
            send(self._bus, driver_call("RemoveMatch", rule, reply=False))
            self._bus.remove_message_handler(watch)


def _check_authorization(call: Call, action: str, details: Mapping[str, str], cancellation: str) -> Message:
    subject = ["system-bus-name", {"name": Variant("s", call.sender)}]
    flags = 1 if call.interactive else 0
    return Message(
        destination=POLKIT_NAME,
        path=POLKIT_PATH,
        interface=POLKIT_INTERFACE,
        member="CheckAuthorization",
        signature="(sa{sv})sa{ss}us",
        body=[subject, action, dict(details), flags, cancellation],
    )


def _cancel_check(cancellation: str) -> Message:
    return Message(
        destination=POLKIT_NAME,
        path=POLKIT_PATH,
        interface=POLKIT_INTERFACE,
        member="CancelCheckAuthorization",
        signature="s",
        body=[cancellation],
        flags=MessageFlag.NO_REPLY_EXPECTED,
    )


def _unavailable(action: str, why: str) -> NoReturn:
    """polkit gave no verdict, which is a refusal."""
    write(AuthorityUnavailable(action, why))
    raise DBusError(
        ErrorType.ACCESS_DENIED,
        f"{action} is refused because polkit gave no answer ({why}). Check systemctl status polkit. "
        f"Root does not need it",
    )


def _first_text(answer: Message) -> str:
    return text(answer.body[0]) if answer.signature.startswith("s") else "no text"
