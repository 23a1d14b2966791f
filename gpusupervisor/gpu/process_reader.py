"""The processes on one GPU, from the lists that its driver provides. NVML thread only."""

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

from gpusupervisor.gpu.calls import ask, ask_c
from gpusupervisor.gpu.errors import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, DriverError
from gpusupervisor.gpu.plausibility import PREFIX, UPDATE, Doubt, doubt_of_driver, doubt_of_list
from gpusupervisor.gpu.process_lists import ListedProcess, merge
from gpusupervisor.gpu.sample import GpuMemory, GpuProcess, ProcessKind

LISTS: tuple[tuple[ProcessKind, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
LIST_ATTEMPTS = 4
NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE."""
MIG = Doubt(
    PREFIX + "MIG is enabled, and the processes of its instances are not told apart",
    "a GPU with MIG can only be observed; disable MIG (nvidia-smi -i GPU -mig 0, as root) to have it supervised",
)
WINDOWS = Doubt(
    PREFIX + "in a WSL2 guest the driver does not tell how much memory a process holds",
    "run the programs and the supervisor on Linux itself to have the GPU supervised; here it can only be observed",
)
NO_LISTS = Doubt(
    PREFIX + "the driver does not list the processes of this GPU, as on Jetson",
    "nothing can be done with this driver; the memory of this GPU is shown as a whole",
)
NOT_ALLOWED = (
    "run the service on the host and not in a container, and check whether nvidia-smi lists processes for a user "
    "who is not root"
)
PASSING = "the list is read again at the next look; if this persists, check journalctl -k for NVRM messages"
NAMES: dict[ProcessKind, str] = {"compute": "compute processes", "graphics": "graphics processes", "mps": "MPS clients"}


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What the reading of every GPU depends on, constant while NVML is open."""

    version: str
    pid_max: int
    windows: bool = False
    """The machine is a WSL2 guest."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The processes, or why there are none to be believed."""

    processes: tuple[GpuProcess, ...] = ()
    doubt: Doubt | None = None
    gap: Doubt | None = None
    """What is missing of the list although it can be believed."""
    passing: bool = False
    """It is to be read again at once."""


class _InfoV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t, of the functions without a version."""

    _fields_: ClassVar = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]
    pid: int
    usedGpuMemory: int  # noqa: N815  (as in nvml.h)


class ProcessReader:
    """Of one GPU in one initialisation of NVML."""

    def __init__(self, handle: object, facts: DriverFacts) -> None:
        self._handle = handle
        self._facts = facts
        self._versions = {function: 3 for _, function in LISTS}
        self._has_mig: bool | None = None
        """None while the driver has not answered; what it could once is not given up."""

    def read(self, memory: GpuMemory) -> Listed:
        """Every process once; raises DriverError when the GPU or the driver is gone."""
        try:
            return self._read(memory)
        except DriverError as error:
            if error.is_fatal:
                raise
            return Listed(doubt=Doubt(f"{PREFIX}{error}", PASSING), passing=True)

    def mig_enabled(self) -> bool:
        """Whether MIG is; raises DriverError."""
        if self._has_mig is False:
            return False
        try:
            enabled = bool(ask("nvmlDeviceGetMigMode", self._handle)[0])
        except DriverError as error:
            if error.error_class != "unsupported" or self._has_mig:
                raise
            self._has_mig = False
            return False
        self._has_mig = True
        return enabled

    def _read(self, memory: GpuMemory) -> Listed:
        doubt = doubt_of_driver(self._facts.version) or (WINDOWS if self._facts.windows else None)
        if doubt is None and self.mig_enabled():
            doubt = MIG
        if doubt is not None:
            return Listed(doubt=doubt)
        found, refusals = self._all_lists()
        if len(refusals) == len(LISTS):
            return Listed(doubt=_why_none(list(refusals.values())))
        processes = merge(found)
        doubt = doubt_of_list(processes, total=memory.total, pid_max=self._facts.pid_max)
        return Listed(doubt=doubt) if doubt else Listed(processes, gap=_gap(refusals))

    def _all_lists(self) -> tuple[list[ListedProcess], dict[ProcessKind, DriverError]]:
        found: list[ListedProcess] = []
        refusals: dict[ProcessKind, DriverError] = {}
        for kind, function in LISTS:
            try:
                found.extend((pid, used, kind) for pid, used in self._one_list(function))
            except DriverError as error:
                if error.error_class not in ("unsupported", "permission"):
                    raise
                refusals[kind] = error
        return found, refusals

    def _one_list(self, function: str) -> list[tuple[int, int | None]]:
        """One list, by an older name where the driver lacks the newer, again when it grew between NVML's two calls."""
        attempts = LIST_ATTEMPTS
        while True:
            try:
                return self._ask_list(function)
            except DriverError as error:
                if error.code == FUNCTION_NOT_FOUND and self._versions[function] > 1:
                    self._versions[function] -= 1
                    continue
                attempts -= 1
                if error.code != INSUFFICIENT_SIZE or not attempts:
                    raise

    def _ask_list(self, function: str) -> list[tuple[int, int | None]]:
        version = self._versions[function]
        if version == 1:
            return _list_v1(self._handle, function)
        entries: list[Any] = ask(function if version == 3 else f"{function}_v2", self._handle)
        return [(entry.pid, entry.usedGpuMemory) for entry in entries]


def _list_v1(handle: object, function: str) -> list[tuple[int, int | None]]:
    """By the function of drivers before 450.66, for which pynvml has no wrapper."""
    count = ctypes.c_uint(0)
    try:
        ask_c(function, handle, ctypes.byref(count), None)
    except DriverError as error:
        if error.code != INSUFFICIENT_SIZE:
            raise
    else:
        return []
    count.value = 2 * count.value + 5
    entries = (_InfoV1 * count.value)()
    ask_c(function, handle, ctypes.byref(count), entries)
    return [
        (entry.pid, None if entry.usedGpuMemory == NOT_AVAILABLE else entry.usedGpuMemory)
        for entry in entries[: count.value]
    ]


def _why_none(refusals: list[DriverError]) -> Doubt:
    refused = next((error for error in refusals if error.error_class == "permission"), None)
    if refused is not None:
        return Doubt(f"{PREFIX}the driver does not let this process list those of others ({refused.text})", NOT_ALLOWED)
    if all(error.code == FUNCTION_NOT_FOUND for error in refusals):
        return Doubt(f"{PREFIX}this driver cannot list processes", UPDATE)
    return NO_LISTS


def _gap(refusals: dict[ProcessKind, DriverError]) -> Doubt | None:
    """What is not listed for lack of permission; a list that the driver does not have leaves no gap."""
    names = [NAMES[kind] for kind, error in refusals.items() if error.error_class == "permission"]
    if not names:
        return None
    return Doubt(
        f"the driver does not let this process list {' and '.join(names)}: what they hold counts as unattributed "
        "unless another list has them",
        NOT_ALLOWED,
    )
