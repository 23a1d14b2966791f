"""NVML opened for control: handles by UUID, and the Xid errors that the driver reported. NVML thread only."""

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu.calls import ask, initialise
from gpusupervisor.gpu.device import identify
from gpusupervisor.gpu.errors import DriverError, plain
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.handle import Handle

XID = 8
"""nvmlEventTypeXidCriticalError."""
AT_MOST = 64
"""Xids that are taken in at once."""


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that the driver reported."""

    uuid: str
    """Empty when the GPU is not known (any more)."""
    code: int
    """NVIDIA's number, e.g. 79: the GPU has fallen off the bus."""


def every_gpu() -> None:
    """Nothing is to be left alone."""


class HardwareSession:
    """NVML over time. Whoever meets a lifecycle error closes it, and opens it again with a back-off of his own."""

    def __init__(self, *, may_write: bool = True, which: Callable[[], tuple[str, ...] | None] = every_gpu) -> None:
        """may_write: False keeps even the capability probe from writing (what stands, to see whether it is taken).

        which: tells, when NVML is opened, the PCI bus ids of the GPUs that may be touched; None for all. Looking one
        up wakes it.
        """
        self._may_write = may_write
        self._which = which
        self._opened_with: tuple[str, ...] | None = None
        self.is_open = False
        self.generation = 0
        """Counts initialisations: what was found out about a GPU holds for one."""
        self._gpus: dict[str, GpuHardware] = {}
        self._pointers: dict[int, str] = {}
        self._events: object | None = None

    def open(self) -> None:
        """Initialise NVML and find its GPUs; raises DriverError. Nothing when it is open already."""
        if self.is_open:
            return
        initialise()
        self.is_open = True
        self.generation += 1
        try:
            handles = self._find()
        except DriverError:
            self.close()
            raise
        self._watch_events([handle for handle in handles if handle is not None])

    def close(self) -> None:
        """Shut NVML down: the GPUs can sleep, be given away, or get another driver. Never raises."""
        self._gpus, self._pointers = {}, {}
        events, self._events = self._events, None
        if not self.is_open:
            return
        self.is_open = False
        with contextlib.suppress(DriverError):
            if events is not None:
                ask("nvmlEventSetFree", events)
        with contextlib.suppress(DriverError):
            ask("nvmlShutdown")

    def reopen_when_others_may_be_touched(self) -> None:
        """NVML is opened, anew where other GPUs may be touched than when it was opened; raises DriverError."""
        if self.is_open and self._which() != self._opened_with:
            self.close()
        self.open()

    def identities(self) -> tuple[GpuIdentity, ...]:
        """The GPUs of this initialisation, ordered by PCI bus id."""
        return tuple(
            sorted((gpu.identity for gpu in self._gpus.values()), key=lambda each: (each.pci_bus_id, each.uuid))
        )

    def gpu(self, uuid: str) -> GpuHardware:
        """A GPU by its UUID, NVML opened when it is not; raises NoSuchGpu, or DriverError when it cannot be opened."""
        self.open()
        found = self._gpus.get(uuid)
        if found is None:
            self.reopen_when_others_may_be_touched()
            found = self._gpus.get(uuid)
        if found is None:
            raise NoSuchGpu(f"The NVIDIA driver has no GPU {plain(uuid)!r} now: see gpusupervisorctl status")
        return found

    def xids(self) -> tuple[Xid, ...]:
        """What the driver reported since the last call; never waits, never raises."""
        found: list[Xid] = []
        while self._events is not None and len(found) < AT_MOST:
            try:
                event = ask("nvmlEventSetWait_v2", self._events, 0)
            except DriverError:  # a timeout: there is none. Anything else is met by whoever asks for figures
                break
            found.append(Xid(self._pointers.get(_address(event.device), ""), int(event.eventData)))
        return tuple(found)

    def _find(self) -> list[object | None]:
        which = self._opened_with = self._which()
        if which is None:
            return [self._add("nvmlDeviceGetHandleByIndex", index) for index in range(ask("nvmlDeviceGetCount"))]
        return [self._add("nvmlDeviceGetHandleByPciBusId", pci) for pci in which]

    def _add(self, lookup: str, which: int | str) -> object | None:
        """The handle; None for a GPU that cannot be opened and is left out: the others can be controlled."""
        try:
            handle: object = ask(lookup, which)
            identity = identify(handle)
        except DriverError as error:
            if error.ends_session:
                raise
            return None
        self._gpus[identity.uuid] = GpuHardware(identity, Handle(handle), may_write=self._may_write)
        self._pointers[_address(handle)] = identity.uuid
        return handle

    def _watch_events(self, handles: list[object]) -> None:
        """Xids are told where they can be: asking for one kind too many registers none, and is no ill health."""
        try:
            self._events = ask("nvmlEventSetCreate")
        except DriverError:
            return
        for handle in handles:
            with contextlib.suppress(DriverError):
                ask("nvmlDeviceRegisterEvents", handle, XID, self._events)


def _address(handle: Any) -> int:  # noqa: ANN401  (a pointer of pynvml's)
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
