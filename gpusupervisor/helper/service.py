"""The helper on the bus: admits callers, answers them, and leaves when it is not needed."""

import asyncio
from collections.abc import Sequence

from dbus_fast import Variant

from gpusupervisor.bus.log_control import LogControl
from gpusupervisor.bus.names import HELPER_NAME, HELPER_PATH
from gpusupervisor.bus.objects import Call, ObjectServer
from gpusupervisor.bus.presence import Presence
from gpusupervisor.clock import Clock
from gpusupervisor.errors import Busy
from gpusupervisor.helper.callers import Callers
from gpusupervisor.helper.control import GpuEvent
from gpusupervisor.helper.controllers import Controls
from gpusupervisor.helper.departures import Departures
from gpusupervisor.helper.facts import FactTeller, Told
from gpusupervisor.helper.hardware_calls import HardwareCalls, signal_of
from gpusupervisor.helper.interface import HELPER
from gpusupervisor.helper.page_cache.calls import PageCacheCalls
from gpusupervisor.journal import setup as journal
from gpusupervisor.processes.identity import ProcessKey


class HelperService:
    """Made by `start`."""

    def __init__(
        self,
        presence: Presence,
        teller: FactTeller,
        controls: Controls,
        page_cache: PageCacheCalls,
        clock: Clock,
        allowed: frozenset[int],
    ) -> None:
        self._presence = presence
        self._callers = Callers(presence.bus, allowed)
        self._server = ObjectServer(presence.bus, HELPER_PATH, self._admit)
        self._teller = teller
        self._leaving = False
        self.last_call = asyncio.get_running_loop().time()
        """When it was last called by somebody who may (or was started): seconds of the event loop's clock."""
        handlers = {"Facts": self._facts, **page_cache.handlers()}
        handlers |= HardwareCalls(controls, clock, Departures(presence.bus)).handlers()
        self._server.export(HELPER_PATH, HELPER, handlers)
        LogControl(self._server, presence.bus, journal.HELPER)

    @classmethod
    async def start(
        cls,
        bus_address: str | None,
        teller: FactTeller,
        controls: Controls,
        page_cache: PageCacheCalls,
        clock: Clock,
        allowed: frozenset[int],
    ) -> "HelperService":
        """Connect (None: the system bus), export, then own the name. Raises `BusUnavailable`.

        allowed: uids that may call.
        """
        presence = await Presence.connect(bus_address, HELPER_NAME)
        service = cls(presence, teller, controls, page_cache, clock, allowed)
        try:
            await presence.own_name()
        except BaseException:
            await service.stop()
            raise
        return service

    async def wait_lost(self) -> str:
        """Waits until the connection or the name is lost, and says which."""
        return await self._presence.wait_lost()

    def tell(self, gpu: str, event: GpuEvent) -> None:
        """Tell listeners of something that happened to a GPU."""
        member, body = signal_of(gpu, event)
        self._server.emit(HELPER_PATH, HELPER, member, body)

    async def leave(self) -> None:
        """Give the name up: from now on calls activate a new helper. Those that came until then are refused.

        Whoever calls this has told systemd before that it stops; else systemd would think that it still runs and
        start no other.
        """
        self._leaving = True
        await self._presence.give_name_up()
        await self._server.served()

    async def stop(self) -> None:
        """Answer what is being served with an error and leave the bus."""
        await self._server.close()
        await self._presence.leave()

    async def _admit(self, call: Call) -> None:
        await self._callers.admit(call)
        if self._leaving:
            raise Busy("The helper was just about to end because it was idle: call again.")
        self.last_call = asyncio.get_running_loop().time()

    async def _facts(self, _call: Call, processes: Sequence[tuple[int, int]]) -> list[object]:
        told = await self._teller.tell([ProcessKey(pid, start_time) for pid, start_time in processes])
        return [[_entry(each) for each in told]]


def _entry(told: Told) -> dict[str, Variant]:
    entry = {"pid": Variant("u", told.key.pid), "start_time": Variant("t", told.key.start_time)}
    if told.facts is None:
        return {**entry, "refused": Variant("s", told.refusal)}
    return {
        **entry,
        "executable": Variant("s", told.facts.executable),
        "working_directory": Variant("s", told.facts.working_directory),
        "listening_ports": Variant("au", list(told.facts.listening_ports)),
        "listens_elsewhere": Variant("b", told.facts.listens_elsewhere),
        "environment": Variant("a{ss}", dict(told.facts.environment)),
    }
