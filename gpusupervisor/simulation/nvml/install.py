"""Puts a simulated world beneath pynvml, in the place where it would load the real library."""

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pynvml

from gpusupervisor.gpu import driver_access
from gpusupervisor.gpu.driver_access import DeviceAccess, SystemFiles
from gpusupervisor.simulation.nvml import (  # noqa: F401  (they register the functions)
    event_handlers,
    handlers,
    power_handlers,
    thermal_handlers,
)
from gpusupervisor.simulation.nvml.library import SimulatedLibrary
from gpusupervisor.simulation.nvml.world import World

SomeWorld = TypeVar("SomeWorld", bound=World)


@contextlib.contextmanager
def installed(world: SomeWorld) -> Iterator[SomeWorld]:
    """While inside, pynvml loads the simulated library instead of libnvidia-ml.so.1; afterwards all is as before."""

    def load(name: str) -> SimulatedLibrary:
        world.refresh()
        if not world.library_present:
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return SimulatedLibrary(world)

    files = driver_access.put(SimulatedFiles(world))
    before = (pynvml.CDLL, pynvml.nvmlLib, pynvml._nvmlLib_refcount)
    world.uninstalled = False
    _put(load, None, 0)
    try:
        yield world
    finally:
        world.uninstalled = True
        world.release_hanging()
        _put(*before)
        driver_access.put(files)


class SimulatedFiles:
    """What the file systems tell where this driver is, whatever the machine itself has."""

    def __init__(self, world: World) -> None:
        self._world = world

    def access(self) -> DeviceAccess:
        """As long as the driver is loaded, its node is there."""
        world, loaded = self._world, self._world.driver_loaded
        detail = f"/dev/{'dxg' if world.windows else 'nvidiactl'}: access denied" if world.refusal else ""
        return DeviceAccess(
            loaded and not world.windows, loaded and not world.windows, world.refusal, detail, world.windows
        )

    def loaded_library(self) -> str:
        """Of the library that pynvml has loaded."""
        return pynvml.nvmlLib.version if isinstance(pynvml.nvmlLib, SimulatedLibrary) else ""

    def installed_library(self) -> str:
        """Of the one that is loaded next."""
        return self._world.driver

    def host_memory(self) -> tuple[int, int]:
        """What GPU processes hold of shared memory is not available to anybody else."""
        if self._world.host_memory is None:
            return SystemFiles().host_memory()
        total, programs = self._world.host_memory
        held = sum(gpu.used() for gpu in self._world.gpus if gpu.unified)
        return total, max(0, total - programs - held)


def _put(loader: object, library: object, references: int) -> None:
    with pynvml.libLoadLock:
        pynvml.CDLL = loader
        pynvml.nvmlLib = library
        pynvml._nvmlLib_refcount = references
        pynvml._nvmlGetFunctionPointer_cache.clear()
