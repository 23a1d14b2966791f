"""The card directory: `card.json` describes driver, GPUs and faults; `allocations/` is written by the holders."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from gpusupervisor.gpu.driver_access import Refusal
from gpusupervisor.simulation.nvml.allocation import ALLOCATIONS, write_atomically
from gpusupervisor.simulation.nvml.board import Board, Settings
from gpusupervisor.simulation.nvml.settings_file import SettingsFile
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
    windows: bool = False
    """A guest of Windows (WSL2)."""
    refusal: Refusal = ""
    """What refuses to have the control device opened."""
    host_memory: tuple[int, int] | None = None
    """Bytes of the machine's memory, and what host programs hold of it; None for the real machine's."""
    resumes: int = 0
    """Counted up when the machine wakes from a suspend."""
    root_only: bool = False
    """Setters answer NO_PERMISSION to a process without CAP_SYS_ADMIN, as in life."""
    unprivileged: bool = False
    """To every process, whatever it may."""
    list_zombies: bool = False
    """Zombies stay in the process lists, as they do with some drivers."""


class SimulatedCard:
    """Writes and changes a card directory; any process may."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._file = self.directory / CARD

    def write_card(self, gpus: Iterable[SimulatedGpu] = (SimulatedGpu(),), **settings: Setting) -> None:
        """Lay the directory out, or describe the card anew. settings: the fields of Card."""
        self.write(Card(list(gpus), **settings))

    def write(self, card: Card) -> None:
        """Lay the directory out, or describe the card anew."""
        allocations = self.directory / ALLOCATIONS
        allocations.mkdir(parents=True, exist_ok=True)
        if allocations.stat().st_mode & 0o7777 != 0o1777:
            allocations.chmod(0o1777)  # every user's process may hold memory
        self._save(card)

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

    def change_board(self, uuid: str, **settings: Setting) -> None:
        """Change some fields of a GPU's board, e.g. change_board(uuid, temperature=91)."""
        (gpu,) = (gpu for gpu in self.read().gpus if gpu.uuid == uuid)
        for name in settings:
            if not hasattr(gpu.board, name):
                raise AttributeError(f"a simulated board has no {name!r}")
        self.change_gpu(uuid, board=replace(gpu.board, **settings))

    def raise_xid(self, uuid: str, code: int) -> None:
        """Let the driver report an Xid error of a GPU."""
        (gpu,) = (gpu for gpu in self.read().gpus if gpu.uuid == uuid)
        self.change_gpu(uuid, xids=[*gpu.xids, code])

    def resume(self) -> None:
        """The machine wakes from a suspend: what does not survive one is gone."""
        self.change(resumes=self.read().resumes + 1)

    def reload_driver(self) -> None:
        """Unload the driver and load it again: clients are lost, and so is all that was set."""
        self.change(generation=self.read().generation + 1)

    def settings(self, uuid: str) -> Settings:
        """What is set on a GPU now, whoever set it."""
        card = self.read()
        (gpu,) = (gpu for gpu in card.gpus if gpu.uuid == uuid)
        return SettingsFile(self.directory).read(card.generation, card.resumes, {uuid: gpu.board})[uuid]

    def read(self) -> Card:
        """What the directory says now."""
        return parse_card(json.loads(self._file.read_text("utf-8")))

    def _save(self, card: Card) -> None:
        write_atomically(self._file, json.dumps(asdict(card), indent=2))


def parse_card(text: Mapping[str, Any]) -> Card:
    """A card from its JSON; raises TypeError for a field that there is not."""
    host = text.get("host_memory")
    gpus = [parse_gpu(gpu) for gpu in text.get("gpus", ())]
    return Card(**{**text, "gpus": gpus, "host_memory": None if host is None else (host[0], host[1])})


def parse_gpu(text: Mapping[str, Any]) -> SimulatedGpu:
    """A GPU from its JSON; raises TypeError for a field that there is not."""
    processes = [
        SimulatedProcess(**{**process, "kinds": tuple(process.get("kinds", ("compute",)))})
        for process in text.get("processes", ())
    ]
    return SimulatedGpu(**{**text, "processes": processes, "board": Board(**text.get("board", {}))})
