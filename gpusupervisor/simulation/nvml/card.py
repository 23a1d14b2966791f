"""The card directory: `card.json` describes driver, GPUs and faults; `allocations/` is written by the holders."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from gpusupervisor.simulation.nvml.allocation import ALLOCATIONS, write_atomically
from gpusupervisor.simulation.nvml.world import SimulatedGpu, SimulatedProcess

CARD = "card.json"

Setting: TypeAlias = Any
"""The value of a field; of which type, the dataclass says."""


@dataclass
class Card:
    """What `card.json` says. Functions are named as in C, codes are nvmlReturn_t."""

    gpus: list[SimulatedGpu] = field(default_factory=list)
    driver: str = "580.95.05"
    kernel_driver: str = ""
    """Version of the kernel module; empty for the same as `driver`."""
    library_present: bool = True
    driver_loaded: bool = True
    generation: int = 1
    """Counted up when the driver is reloaded."""
    errors: dict[str, int] = field(default_factory=dict)
    latency: dict[str, float] = field(default_factory=dict)
    hanging: list[str] = field(default_factory=list)
    missing_symbols: list[str] = field(default_factory=list)
    list_zombies: bool = False
    """Zombies stay in the process lists, as they do with some drivers."""


class SimulatedCard:
    """Writes and changes a card directory; any process may."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._file = self.directory / CARD

    def write_card(self, gpus: Iterable[SimulatedGpu] = (SimulatedGpu(),), **settings: Setting) -> None:
        """Lay the directory out, or describe the card anew. settings: the fields of Card."""
        allocations = self.directory / ALLOCATIONS
        allocations.mkdir(parents=True, exist_ok=True)
        if allocations.stat().st_mode & 0o7777 != 0o1777:
            allocations.chmod(0o1777)  # every user's process may hold memory
        self._save(Card(list(gpus), **settings))

    def change(self, **settings: Setting) -> None:
        """Change some fields of the card, e.g. change(hanging=["nvmlDeviceGetMemoryInfo_v2"])."""
        card = self.read()
        for name, value in settings.items():
            if not hasattr(card, name):
                raise AttributeError(f"a card has no {name!r}")
            setattr(card, name, value)
        self._save(card)

    def change_gpu(self, uuid: str, **settings: Setting) -> None:
        """Change some fields of one GPU, e.g. change_gpu(uuid, lost=True)."""
        card = self.read()
        (gpu,) = (gpu for gpu in card.gpus if gpu.uuid == uuid)
        for name, value in settings.items():
            if not hasattr(gpu, name):
                raise AttributeError(f"a simulated GPU has no {name!r}")
            setattr(gpu, name, value)
        self._save(card)

    def read(self) -> Card:
        """What the directory says now."""
        return parse_card(json.loads(self._file.read_text("utf-8")))

    def _save(self, card: Card) -> None:
        write_atomically(self._file, json.dumps(asdict(card), indent=2))


def parse_card(text: Mapping[str, Any]) -> Card:
    """A card from its JSON; raises TypeError for a field that there is not."""
    return Card(**{**text, "gpus": [_parse_gpu(gpu) for gpu in text.get("gpus", ())]})


def _parse_gpu(text: Mapping[str, Any]) -> SimulatedGpu:
    processes = [
        SimulatedProcess(**{**process, "kinds": tuple(process.get("kinds", ("compute",)))})
        for process in text.get("processes", ())
    ]
    return SimulatedGpu(**{**text, "processes": processes})
