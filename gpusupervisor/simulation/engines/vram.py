"""VRAM of one simulated card, as the process that holds it sees it."""

from collections.abc import Sequence
from pathlib import Path

from gpusupervisor.simulation.nvml.allocation import Allocation
from gpusupervisor.simulation.nvml.card_world import CardWorld
from gpusupervisor.simulation.nvml.power_handlers import running_at


class Vram:
    """What this process holds on one GPU, and what is free there."""

    def __init__(self, directory: Path, uuid: str = "", kinds: Sequence[str] = ("compute",)) -> None:
        """directory: the card directory. uuid: the GPU, the first one by default."""
        self._world = CardWorld(directory)
        self.uuid = uuid or self._world.gpus[0].uuid
        self._allocation = Allocation(directory)
        self._kinds = kinds
        self.held = 0
        """Bytes."""

    def hold(self, size: int, sm: int = 0) -> None:
        """Hold exactly so many bytes from now on, and use so many percent of the SMs."""
        self.held = size
        if size:
            self._allocation.hold(self.uuid, size, kinds=self._kinds, sm=sm)
        else:
            self._allocation.release()

    def free(self) -> int:
        """Bytes that nobody holds."""
        self._world.refresh()
        (gpu,) = (gpu for gpu in self._world.gpus if gpu.uuid == self.uuid)
        return max(0, gpu.total - gpu.reserved - gpu.used())

    def speed(self) -> float:
        """How fast the card lets it work: 1 for the clocks of its load, less under a power limit that holds them."""
        self._world.refresh()
        (gpu,) = (gpu for gpu in self._world.gpus if gpu.uuid == self.uuid)
        return running_at(gpu.board, self._world.settings_of(gpu), "graphics") / gpu.board.clocks["graphics"]

    def hold_what_fits(self, size: int, sm: int = 0) -> int:
        """Hold so many bytes, or as many of them as are free; returns how many."""
        fitting = min(size, self.held + self.free())
        self.hold(fitting, sm)
        return fitting
