"""A world that follows a card directory, cheaply: it looks before every NVML call."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusupervisor.simulation.nvml.allocation import ALLOCATIONS, stat_fields
from gpusupervisor.simulation.nvml.board import Settings
from gpusupervisor.simulation.nvml.card import CARD, Card, parse_card
from gpusupervisor.simulation.nvml.settings_file import SettingsFile
from gpusupervisor.simulation.nvml.world import SimulatedGpu, SimulatedProcess, World

RACY = 50_000_000
"""Nanoseconds: a change this soon after one that was seen may carry the same timestamp, so it is looked at again."""
SYS_ADMIN = 21
"""Number of CAP_SYS_ADMIN."""
LIVENESS = 0.005
"""Seconds for which a process that can be signalled is believed to be the same and no zombie."""


@dataclass
class _Holder:
    pid: int
    start_time: int
    holds: list[tuple[str, SimulatedProcess]]


@dataclass
class _FollowedGpu(SimulatedGpu):
    """A card with the processes that live, beside those that `card.json` lists."""

    living: list[SimulatedProcess] = field(default_factory=list)

    def listed(self) -> list[SimulatedProcess]:
        """Everything in the process lists."""
        return self.processes + self.living


class CardWorld(World):
    """The simulated machine as a card directory describes it."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__()
        self._card_file = os.fspath(Path(directory) / CARD)
        self._allocations = os.fspath(Path(directory) / ALLOCATIONS)
        self._card_seen: tuple[int, ...] = ()
        self._allocations_seen = -1
        self._holders: list[_Holder] = []
        self._alive: frozenset[int] = frozenset()
        self._checked_at = 0.0
        self._list_zombies = False
        self._settings_file = SettingsFile(directory)
        self._settings_seen: tuple[int, ...] = ()
        self._resumes = 0
        self.refresh()

    def refresh(self) -> None:
        """Take in what changed in the directory, and who has died."""
        super().refresh()
        with self.lock:
            changed = self._follow_card()
            changed |= self._follow_allocations()
            changed |= self._follow_processes(certainly=changed)
            if changed:
                self._place()
            self._follow_settings()

    @contextlib.contextmanager
    def setting(self, gpu: SimulatedGpu) -> Iterator[Settings]:
        """What is set on a GPU, to be changed; kept in the directory."""
        with self._settings_file.locked():
            self._read_settings()
            yield self.settings[gpu.uuid]
            self._settings_file.write(self.generation, self._resumes, self.settings)
            self._settings_seen = ()

    def _follow_settings(self) -> None:
        try:
            status = os.stat(self._settings_file.path)
            seen = (status.st_mtime_ns, status.st_ino, self.generation, self._resumes, len(self.gpus))
        except FileNotFoundError:
            seen = (0, 0, self.generation, self._resumes, len(self.gpus))
        if seen != self._settings_seen:
            self._settings_seen = seen if _settled(seen[0]) else ()
            self._read_settings()

    def _read_settings(self) -> None:
        boards = {gpu.uuid: gpu.board for gpu in self.gpus}
        self.settings = self._settings_file.read(self.generation, self._resumes, boards)

    def _follow_card(self) -> bool:
        status = os.stat(self._card_file)
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen == self._card_seen:
            return False
        self._card_seen = seen if _settled(status.st_mtime_ns) else ()
        self._adopt(parse_card(json.loads(Path(self._card_file).read_text("utf-8"))))
        return True

    def _adopt(self, card: Card) -> None:
        if card.generation != self.generation:
            self.references = 0
            self._energy.clear()
        self.generation = card.generation
        self.gpus = [_FollowedGpu(**vars(gpu)) for gpu in card.gpus]
        self.driver = card.driver
        self.kernel_driver = card.kernel_driver or card.driver
        self.library_present, self.driver_loaded = card.library_present, card.driver_loaded
        self.errors, self.latency = card.errors, card.latency
        self.hanging, self.missing_symbols = set(card.hanging), set(card.missing_symbols)
        self._list_zombies = card.list_zombies
        self._resumes = card.resumes
        self.windows, self.refusal, self.host_memory = card.windows, card.refusal, card.host_memory
        self.privileged = not card.unprivileged and (not card.root_only or _may_administer())

    def _follow_allocations(self) -> bool:
        modified = os.stat(self._allocations).st_mtime_ns
        if modified == self._allocations_seen:
            return False
        self._allocations_seen = modified if _settled(modified) else -1
        self._holders = []
        for entry in os.scandir(self._allocations):
            if entry.name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):
                    self._holders.append(_parse_holder(Path(entry.path).read_text("utf-8")))
        return True

    def _follow_processes(self, *, certainly: bool) -> bool:
        """Who lives. A signal that cannot be sent is cheap, so a death is seen at once; the rest every few ms."""
        now = time.monotonic()
        if not certainly and now - self._checked_at < LIVENESS:
            alive = frozenset(pid for pid in self._alive if _exists(pid))
        else:
            self._checked_at = now
            alive = frozenset(holder.pid for holder in self._holders if self._lives(holder))
        if alive == self._alive:
            return False
        self._alive = alive
        return True

    def _lives(self, holder: _Holder) -> bool:
        try:
            state, started = stat_fields(holder.pid)
        except ProcessLookupError:
            return False
        return started == holder.start_time and (state not in "ZX" or self._list_zombies)

    def _place(self) -> None:
        for gpu in self.gpus:
            if isinstance(gpu, _FollowedGpu):
                gpu.living = [
                    process
                    for holder in self._holders
                    if holder.pid in self._alive
                    for uuid, process in holder.holds
                    if uuid == gpu.uuid
                ]


def _settled(modified: int) -> bool:
    return time.time_ns() - modified > RACY


def _may_administer() -> bool:
    """CAP_SYS_ADMIN is effective: what the real driver asks for, of root too."""
    status = Path("/proc/self/status").read_text("ascii", "replace")
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> SYS_ADMIN & 1)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _parse_holder(text: str) -> _Holder:
    told: dict[str, Any] = json.loads(text)
    holds = [
        (hold["gpu"], SimulatedProcess(told["pid"], hold["bytes"], tuple(hold["kinds"]), hold["sm"]))
        for hold in told["holds"]
    ]
    return _Holder(told["pid"], told["start_time"], holds)
