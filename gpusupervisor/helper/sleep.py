"""Learning that the machine goes to sleep and that it woke up.

logind's PrepareForSleep tells both; a delay inhibitor makes it wait until we are ready. Waking is also seen without
it, by a jump of CLOCK_BOOTTIME (which counts sleep) against CLOCK_MONOTONIC (which does not): so a sleep that logind
knows nothing of, or a machine without logind, does not go unnoticed, though only after the fact.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable

from dbus_fast import AuthError, DBusError, InvalidAddressError, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import DRIVER_NAME, driver_call
from gpusupervisor.foreign_text import harmless

_LOG = logging.getLogger(__name__)

LOGIND = "org.freedesktop.login1"
LOGIND_PATH = "/org/freedesktop/login1"
MANAGER = "org.freedesktop.login1.Manager"

LOOK = 5.0
"""Seconds between two looks at the clocks."""
TRY_AGAIN = 60.0
"""Seconds until logind is asked again after it failed."""
ANSWER = 10.0
"""Seconds that logind has to answer."""
USUAL_DELAY = 5.0
"""Seconds that logind waits for inhibitors unless it tells otherwise (InhibitDelayMaxSec= in logind.conf(5))."""
MARGIN = 0.5
"""Seconds before logind's patience ends at which the inhibitor is let go in any case."""
SLEPT = 2_000_000
"""Microseconds of sleep that count as one."""


def time_asleep() -> int:
    """Microseconds that the machine has slept since it booted."""
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1000


class LogindError(Exception):
    """logind cannot be used; the text says why."""


_FAILURES = (LogindError, DBusError, AuthError, InvalidAddressError, OSError, EOFError, TimeoutError)


class SleepWatch:
    """Calls `before` and waits for it, within logind's patience, before the machine sleeps; `after` when it woke up.

    `after` may come without `before` (no logind), and more than once.
    """

    def __init__(
        self,
        address: str,
        before: Callable[[], Awaitable[None]],
        after: Callable[[], Awaitable[None]],
        asleep: Callable[[], int] = time_asleep,
        look: float = LOOK,
    ) -> None:
        self._address = address
        self._before = before
        self._after = after
        self._time_asleep = asleep
        self._look = look
        self._seen_asleep = asleep()
        self._going_to_sleep = False
        self._inhibitor: int | None = None
        self._logind = ""
        """Its unique name."""
        self._patience = USUAL_DELAY

    @property
    def holds_inhibitor(self) -> bool:
        """Will logind wait for us?"""
        return self._inhibitor is not None

    async def run(self) -> None:
        """Watch until cancelled. Never raises for D-Bus: without it the clocks are looked at."""
        told = False
        while True:
            try:
                await self._follow_logind()
            except _FAILURES as error:
                if not told:
                    _LOG.info("Sleep is only noticed afterwards, for logind cannot be followed: %s", _shown(error))
                told = True
            if self._going_to_sleep:
                await self._woke_up()
            await self._look_at_clocks(TRY_AGAIN)

    async def _follow_logind(self) -> None:
        """Until the connection breaks or logind fails, which raises."""
        bus = MessageBus(bus_address=self._address, negotiate_unix_fd=True)
        self._logind, told = "", asyncio.Queue[bool]()
        try:
            async with asyncio.timeout(ANSWER):  # wait_for would pass over a cancellation that comes with the answer
                await bus.connect()
            bus.add_message_handler(lambda message: self._take(message, told))
            for rule in (
                f"type='signal',sender='{LOGIND}',path='{LOGIND_PATH}',interface='{MANAGER}',member='PrepareForSleep'",
                f"type='signal',sender='{DRIVER_NAME}',member='NameOwnerChanged',arg0='{LOGIND}'",
            ):
                await _call(bus, driver_call("AddMatch", rule))
            self._patience = await _patience(bus)
            owner = str((await _call(bus, driver_call("GetNameOwner", LOGIND))).body[0])
            self._logind = self._logind or owner  # another one may have told its name meanwhile
            self._inhibitor = await _inhibit(bus)
            while True:
                try:
                    async with asyncio.timeout(self._look):
                        start = await told.get()
                except TimeoutError:
                    if not bus.connected:
                        raise LogindError("the connection to the system bus broke") from None
                    await self._look_at_clocks(0)
                    continue
                await self._told(bus, start=start)
        finally:
            self._release()
            bus.disconnect()

    def _take(self, message: Message, told: "asyncio.Queue[bool]") -> None:
        """Anybody can send us signals, and descriptors with them: only the bus and logind are believed."""
        if message.message_type is not MessageType.METHOD_RETURN:
            for descriptor in message.unix_fds:
                os.close(descriptor)
        if message.sender == DRIVER_NAME and message.member == "NameOwnerChanged" and message.body[0] == LOGIND:
            self._logind = message.body[2]
        elif message.sender == self._logind and message.member == "PrepareForSleep" and message.signature == "b":
            told.put_nowait(message.body[0])

    async def _told(self, bus: MessageBus, *, start: bool) -> None:
        """PrepareForSleep came."""
        if not start:
            if self._inhibitor is None:
                self._inhibitor = await _inhibit(bus)
            await self._woke_up()
            return
        self._going_to_sleep = True
        try:
            async with asyncio.timeout(max(self._patience - MARGIN, MARGIN)):
                await self._before()
        except TimeoutError:
            _LOG.warning("The machine goes to sleep before the GPUs' settings were left in order: it took too long")
        finally:
            self._release()

    async def _woke_up(self) -> None:
        self._going_to_sleep = False
        self._seen_asleep = self._time_asleep()
        await self._after()

    async def _look_at_clocks(self, duration: float) -> None:
        """Look once, and again as long as `duration` is not over."""
        ends = asyncio.get_running_loop().time() + duration
        while True:
            if self._time_asleep() - self._seen_asleep >= SLEPT:
                await self._woke_up()
            if asyncio.get_running_loop().time() >= ends:
                return
            await asyncio.sleep(min(self._look, duration))

    def _release(self) -> None:
        """Let logind go on."""
        if self._inhibitor is not None:
            os.close(self._inhibitor)
            self._inhibitor = None


async def _call(bus: MessageBus, message: Message) -> Message:
    async with asyncio.timeout(ANSWER):
        reply = await bus.call(message)
    if reply is None:
        raise LogindError("no answer")
    if reply.message_type is MessageType.ERROR:
        raise LogindError(f"{reply.error_name}: {reply.body[0] if reply.signature == 's' else ''}")
    return reply


async def _inhibit(bus: MessageBus) -> int:
    """A delay inhibitor: logind waits before sleep until this descriptor is closed."""
    reply = await _call(
        bus,
        Message(
            destination=LOGIND,
            path=LOGIND_PATH,
            interface=MANAGER,
            member="Inhibit",
            signature="ssss",
            body=["sleep", "gpusupervisor", "Leaving the GPUs' fans and settings in order", "delay"],
        ),
    )
    if reply.signature != "h" or not reply.unix_fds:
        raise LogindError("Inhibit returned no descriptor")
    first, *others = reply.unix_fds
    for other in others:
        os.close(other)
    os.set_inheritable(first, False)
    return first


async def _patience(bus: MessageBus) -> float:
    """Seconds that logind waits for delay inhibitors."""
    try:
        reply = await _call(
            bus,
            Message(
                destination=LOGIND,
                path=LOGIND_PATH,
                interface="org.freedesktop.DBus.Properties",
                member="Get",
                signature="ss",
                body=[MANAGER, "InhibitDelayMaxUSec"],
            ),
        )
    except LogindError:
        return USUAL_DELAY
    value = reply.body[0] if reply.signature == "v" else None
    return value.value / 1e6 if isinstance(value, Variant) and value.signature == "t" else USUAL_DELAY


def _shown(error: BaseException) -> str:
    return harmless(str(error) or type(error).__name__)
