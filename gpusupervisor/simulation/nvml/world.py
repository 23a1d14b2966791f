"""The simulated machine: driver, GPUs, who holds what on them, and what goes wrong."""

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from gpusupervisor.gpu.driver_access import Refusal
from gpusupervisor.simulation.nvml.board import ALL_SETTINGS, Board, Settings, power_drawn

GIB = 1 << 30
MIB = 1 << 20
KINDS = ("compute", "graphics", "mps")
CALLS_KEPT = 10_000
HANG_POLL = 0.01

Unified = Literal["", "not-supported", "zero"]


@dataclass
class SimulatedProcess:
    """An entry of the process lists. The same PID may stand here twice, with other kinds and another size."""

    pid: int
    used: int | None
    """Bytes; None is listed as "not available"."""
    kinds: tuple[str, ...] = ("compute",)
    """The lists it stands in: compute, graphics, mps."""
    sm: int = 0
    """Percent of SM time; 0 gives no utilisation sample. Garbage beyond 100 is passed on."""


@dataclass
class SimulatedGpu:
    """One card. Sizes in bytes."""

    uuid: str = "GPU-11111111-2222-3333-4444-555555555555"
    name: str = "NVIDIA GeForce RTX 4090"
    pci: str = "00000000:01:00.0"
    total: int = 24 * GIB
    reserved: int = 400 * MIB
    other_used: int = 0
    """Used by nobody that is listed: managed memory, the driver's own."""
    unified: Unified = ""
    """A machine that shares memory with the host: how GetMemoryInfo refuses to answer."""
    mig: bool | None = None
    """MIG mode; None where the card has no MIG."""
    sizes_told: bool = True
    """False: the process lists say of nobody how much it holds, as in a guest of Windows."""
    addressing: int | None = None
    """nvmlDeviceAddressingModeType_t: 2 where Linux manages its memory; None answers NOT_SUPPORTED."""
    utilization_supported: bool = True
    lost: bool = False
    processes: list[SimulatedProcess] = field(default_factory=list)
    """Listed whether or not such a process lives."""
    errors: dict[str, int] = field(default_factory=dict)
    """Function name to the nvmlReturn_t that it always answers for this GPU."""
    board: Board = field(default_factory=Board)
    """Fans, sensors, power and clocks."""
    xids: list[int] = field(default_factory=list)
    """Xid errors so far; appended ones are told as events."""

    def listed(self) -> list[SimulatedProcess]:
        """Everything in the process lists."""
        return self.processes

    def used(self) -> int:
        """Bytes in use: every process once, with its largest size."""
        sizes: dict[int, int] = {}
        for process in self.listed():
            sizes[process.pid] = max(sizes.get(process.pid, 0), process.used or 0)
        return sum(sizes.values()) + self.other_used


class World:
    """All of it, and the record of what was asked. Attributes may be changed at any time, from any thread."""

    def __init__(self, gpus: Iterable[SimulatedGpu] = (), driver: str = "580.95.05") -> None:
        self.gpus = list(gpus)
        """In index order."""
        self.driver = driver
        """Version of the library that is loaded next."""
        self.kernel_driver = driver
        """Version of the kernel module; initialisation fails when it is not the loaded library's."""
        self.library_present = True
        self.driver_loaded = True
        self.windows = False
        """A WSL2 guest: there is no kernel module and no control device."""
        self.refusal: Refusal = ""
        """What refuses to have the control device opened; initialisation answers UNKNOWN then."""
        self.generation = 1
        self.errors: dict[str, int] = {}
        """Function name to the nvmlReturn_t that it always answers."""
        self.latency: dict[str, float] = {}
        """Function name, or "*", to seconds."""
        self.hanging: set[str] = set()
        """Functions that do not return while they stand here."""
        self.missing_symbols: set[str] = set()
        self.references = 0
        """nvmlInit less nvmlShutdown."""
        self.uninstalled = False
        """Nothing hangs any more: whoever installed the world is done with it."""
        self.lock = threading.RLock()
        self.calls: deque[str] = deque(maxlen=CALLS_KEPT)
        """Names of the functions called, in order."""
        self.touched: Counter[str] = Counter()
        """GPU UUID to the number of calls that reached (and so woke) it."""
        self.threads: set[int] = set()
        """Idents of the threads that called."""
        self.host_memory: tuple[int, int] | None = None
        """Bytes of the machine's memory, and what its host programs hold of it; None for the real machine's."""
        self.privileged = True
        """False: setters answer NO_PERMISSION."""
        self.time = time.monotonic
        """Seconds by which fans ramp and energy is counted."""
        self.settings: dict[str, Settings] = {}
        """What is set, by UUID; a GPU that is not there has its defaults."""
        self._energy: dict[str, float] = {}
        """mJ by UUID, since this world began: another process of the same card counts for itself."""
        self._counted_at = self.time()
        self._failures: dict[str, deque[int | None]] = {}
        self._released = threading.Condition()

    def refresh(self) -> None:
        """Take in what changed outside; called before every function, so that energy is counted at the power so far."""
        with self.lock:
            now = self.time()
            passed, self._counted_at = max(0.0, now - self._counted_at), now
            for gpu in self.gpus:
                drawn = power_drawn(gpu.board, self.settings_of(gpu))
                self._energy[gpu.uuid] = self._energy.get(gpu.uuid, 0.0) + drawn * passed

    def fail_next(self, function: str, *codes: int | None) -> None:
        """Let the next calls of a function answer these codes, in order; None lets one call pass."""
        with self.lock:
            self._failures.setdefault(function, deque()).extend(codes)

    def failure(self, function: str) -> int | None:
        """The code that this call has to answer; None for none."""
        queue = self._failures.get(function)
        if queue:
            code = queue.popleft()
            if code is not None:
                return code
        return self.errors.get(function)

    def hang(self, function: str) -> None:
        """Let calls of a function not return until `release_hanging`."""
        self.hanging.add(function)

    def release_hanging(self) -> None:
        """Let the calls that hang return."""
        with self._released:
            self.hanging.clear()
            self._released.notify_all()

    def wait_while_hanging(self, function: str) -> None:
        """Return when the function does not hang (any more)."""
        while function in self.hanging and not self.uninstalled:
            with self._released:
                self._released.wait(HANG_POLL)
            self.refresh()

    def settings_of(self, gpu: SimulatedGpu) -> Settings:
        """What is set on a GPU now."""
        return self.settings.setdefault(gpu.uuid, Settings.of(gpu.board))

    def energy_of(self, gpu: SimulatedGpu) -> int:
        """mJ that a GPU has used up to the last `refresh`."""
        return int(self._energy.get(gpu.uuid, 0.0))

    @contextlib.contextmanager
    def setting(self, gpu: SimulatedGpu) -> Iterator[Settings]:
        """What is set on a GPU, to be changed."""
        yield self.settings_of(gpu)

    def last_client_left(self) -> None:
        """NVML was shut down for the last time: a driver without persistence forgets what is set on idle cards."""
        for gpu in self.gpus:
            if gpu.board.deinitialises_idle and not gpu.listed() and not self.settings_of(gpu).persistence:
                with self.setting(gpu) as settings:
                    settings.lose(gpu.board, list(ALL_SETTINGS))

    def resume(self) -> None:
        """The machine wakes from a suspend, and what does not survive one is gone."""
        with self.lock:
            for gpu in self.gpus:
                self.settings_of(gpu).lose(gpu.board, gpu.board.lost_on_resume)

    def reload_driver(self, version: str = "") -> None:
        """Unload the kernel module and load it again, perhaps of another release: every client has lost it."""
        with self.lock:
            self.generation += 1
            self.settings.clear()
            self._energy.clear()
            self.kernel_driver = version or self.kernel_driver
            self.references = 0

    def install_driver(self, version: str) -> None:
        """Install the packages of another release: what is loaded and mapped stays as it is."""
        with self.lock:
            self.driver = version

    def upgrade_driver(self, version: str) -> None:
        """Upgrade the packages in place: library file and reloaded module are new, what is mapped stays old."""
        with self.lock:
            self.driver = version
            self.reload_driver(version)
