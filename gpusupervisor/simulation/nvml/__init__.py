"""A simulated libnvidia-ml.so.1 beneath the real pynvml, for tests and the demo.

`World` is played from within the process, `CardWorld` from a card directory that other processes write to.
"""

from gpusupervisor.simulation.nvml.allocation import Allocation
from gpusupervisor.simulation.nvml.board import Board, FanState, Settings
from gpusupervisor.simulation.nvml.card import Card, SimulatedCard
from gpusupervisor.simulation.nvml.card_world import CardWorld
from gpusupervisor.simulation.nvml.install import installed
from gpusupervisor.simulation.nvml.world import GIB, MIB, SimulatedGpu, SimulatedProcess, World

__all__ = [
    "GIB",
    "MIB",
    "Allocation",
    "Board",
    "Card",
    "CardWorld",
    "FanState",
    "Settings",
    "SimulatedCard",
    "SimulatedGpu",
    "SimulatedProcess",
    "World",
    "installed",
]
