"""May this caller do that? Asked of polkit for the caller's unique bus name, before anything else; no means no."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol

from dbus_fast import DBusError, ErrorType, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError

from gpusupervisor.bus.connection import DRIVER_NAME, answer_of, disconnection, driver_call, send, user_of
from gpusupervisor.bus.objects import Call
from gpusupervisor.bus.questions import Questions
from gpusupervisor.bus.transport import BusConnection
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

    async def close(self) -> None:
        """Nobody asks any more."""


async def known_user(bus: MessageBus, name: str) -> int:
    """The uid of a caller. Raises AccessDenied when the bus cannot tell who calls."""
    uid = await user_of(bus, name, PATIENCE)
    if uid is None:
        raise DBusError(ErrorType.ACCESS_DENIED, "The bus cannot tell who is calling, so nothing was done")
    return uid


class PolkitAuthority:
    """polkit decides; the superuser may always, also where no polkit runs.

    It is asked on a connection of its own: the bus lets one wait for 128 answers, and those of polkit may never come.
    """

    def __init__(self, bus: BusConnection) -> None:
        """bus: on which callers are; another connection to the same bus is made when polkit is first asked."""
        self._bus = bus
        self._questions = Questions()
        self._own: BusConnection | None = None
        self._connecting = asyncio.Lock()
        self._refusal = ""
        """What it said in place of its last verdict; empty when it gave one."""
        self._refused_by = ""
        """The unique name of the polkit that did."""

    async def close(self) -> None:
        """See `Authority`."""
        async with self._connecting:
            if self._own is not None and self._own.connected:
                self._own.disconnect()
                await disconnection(self._own)
            self._own = None

    async def require(self, call: Call, action: str, details: Mapping[str, str]) -> None:
        """See `Authority`."""
        uid = await known_user(self._bus, call.sender)
        if uid == 0:
            return
        with self._questions.asked(uid, person=call.interactive):
            answer = await self._check(call, action, details)
        if answer.message_type is not MessageType.METHOD_RETURN or answer.signature != "(bba{ss})":
            self._refusal = f"it answered {harmless(answer.error_name or 'oddly', 80)}: {harmless(_first_text(answer))}"
            self._refused_by = answer.sender or ""
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
        if self._refusal and self._refused_by != await self._bus_says("GetNameOwner", POLKIT_NAME):
            self._refusal = ""  # another one runs by now, which was not asked yet
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

    async def _connection(self, action: str) -> BusConnection:
        """The one on which polkit is asked; refuses when there is none to be had."""
        async with self._connecting:
            if self._own is None or not self._own.connected:
                try:
                    self._own = await self._bus.another()
                except (OSError, EOFError, AuthError) as error:
                    _unavailable(action, f"no connection to the bus for it: {error or type(error).__name__}")
            return self._own

    async def _check(self, call: Call, action: str, details: Mapping[str, str]) -> Message:
        """polkit's answer; cancels the question when the caller goes away or nobody answers in time."""
        bus = await self._connection(action)
        cancellation = secrets.token_hex(16)
        question = _check_authorization(call, action, details, cancellation)
        async with _vanishing(bus, call.sender) as vanished:
            answer = asyncio.ensure_future(bus.call(question))
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
                    send(bus, _cancel_check(cancellation))
        if answer.exception() or answer.result() is None:
            _unavailable(action, "the connection to the bus is lost")
        return answer.result()


@asynccontextmanager
async def _vanishing(bus: MessageBus, name: str) -> "AsyncIterator[asyncio.Future[None]]":
    """A future that is done once the bus name is gone."""
    vanished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watch(message: Message) -> None:
        gone = message.member == "NameOwnerChanged" and message.sender == DRIVER_NAME
        if gone and message.body[0] == name and not message.body[2] and not vanished.done():
            vanished.set_result(None)

    rule = f"type='signal',sender='{DRIVER_NAME}',member='NameOwnerChanged',arg0='{name}',arg2=''"
    bus.add_message_handler(watch)
    send(bus, driver_call("AddMatch", rule, reply=False))
    try:
        yield vanished
    finally:
        send(bus, driver_call("RemoveMatch", rule, reply=False))
        bus.remove_message_handler(watch)


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
