"""What NVML's errors mean for us, by class.

NVMLError is unhashable, its `==` raises for anything that has no `.value`, and its `str()` may call the driver.
So it is turned into a `DriverError` right where it is caught, and nothing else ever looks at it.
"""

from typing import Literal

from gpusupervisor.gpu.symbols import phrase, since

ErrorClass = Literal["lifecycle", "unsupported", "permission", "transient", "refused"]

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
INSUFFICIENT_POWER = 8
DRIVER_NOT_LOADED = 9
IRQ_ISSUE = 11
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
IN_USE = 19
UNKNOWN_ERROR = 999
IMPLAUSIBLE = -1
"""Ours: success, with an answer that cannot be true."""
MIG_HIDES = -2
"""Ours: permission denied, because MIG is enabled."""

_TEXTS = {
    UNINITIALIZED: "NVML is not initialised",
    INVALID_ARGUMENT: "Invalid argument (a handle of an earlier driver generation)",
    NOT_SUPPORTED: "Not supported",
    NO_PERMISSION: "Insufficient permissions",
    NOT_FOUND: "Not found",
    INSUFFICIENT_SIZE: "Insufficient size",
    INSUFFICIENT_POWER: "Insufficient external power",
    DRIVER_NOT_LOADED: "Driver not loaded",
    10: "Timeout",
    IRQ_ISSUE: "Interrupt request issue",
    LIBRARY_NOT_FOUND: "no library of the NVIDIA driver: libnvidia-ml.so.1 not found",
    FUNCTION_NOT_FOUND: "this driver's library lacks the function",
    14: "Corrupted infoROM",
    GPU_IS_LOST: "GPU is lost",
    RESET_REQUIRED: "GPU requires a reset",
    OPERATING_SYSTEM: "The operating system has blocked the request",
    LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    IN_USE: "GPU is in use elsewhere",
    20: "Insufficient memory",
    21: "No data",
    23: "Insufficient resources",
    25: "Argument version mismatch",
    26: "Deprecated",
    27: "Not ready",
    28: "GPU not found",
    29: "Invalid state",
    UNKNOWN_ERROR: "Unknown error",
    MIG_HIDES: "MIG is enabled, and the driver tells the memory of the whole GPU to privileged processes only",
}

# INVALID_ARGUMENT: our arguments never vary, so it is a handle from before the driver was loaded anew.
_PROCESS_WIDE = frozenset(
    {UNINITIALIZED, INVALID_ARGUMENT, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH}
)
_GPU_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED, IN_USE, 28, 29})
_UNSUPPORTED = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, 21, 22, 24, 25, 26, 30})
_PERMISSION = frozenset({NO_PERMISSION, OPERATING_SYSTEM, MIG_HIDES})


class DriverError(Exception):
    """A call to the driver failed; the text says what was being done, and what NVML answered."""

    def __init__(self, function: str, code: int, text: str = "") -> None:
        """function: its name in C or in pynvml. text: instead of NVML's."""
        self.function = function
        self.code = code
        self.text = text or _text(function, code)
        self.error_class = _class_of(code)
        super().__init__(f"{phrase(function)}: {self.text}")

    @property
    def ends_session(self) -> bool:
        """NVML as a whole is unusable until it is initialised again; the other GPUs fail too."""
        return self.code in _PROCESS_WIDE

    @property
    def gpu_is_gone(self) -> bool:
        """This one GPU is lost until it is reset or NVML is initialised again."""
        return self.code in _GPU_GONE

    @property
    def is_fatal(self) -> bool:
        """The GPU or NVML is gone.

        INVALID_ARGUMENT does not count: a handle that has gone stale shows when memory is read, and in any other
        question it is a quirk of that function.
        """
        return self.error_class == "lifecycle" and self.code != INVALID_ARGUMENT


class ValueRefused(DriverError):  # noqa: N818  (named as what happened)
    """INVALID_ARGUMENT although the handle is good: it is the value that this driver does not take for this GPU."""

    def __init__(self, function: str) -> None:
        super().__init__(function, INVALID_ARGUMENT, "the driver does not accept this value")
        self.error_class = "refused"

    @property
    def ends_session(self) -> bool:
        """Never: nothing is lost."""
        return False


def code_of(error: Exception) -> int:
    """nvmlReturn_t of an NVMLError; FUNCTION_NOT_FOUND for NVMLLibraryMismatchError, which is none."""
    return int(getattr(error, "value", FUNCTION_NOT_FOUND))


def _text(function: str, code: int) -> str:
    first = since(function) if code == FUNCTION_NOT_FOUND else ""
    return f"driver {first} or later is needed" if first else _TEXTS.get(code, f"error {code}")


def _class_of(code: int) -> ErrorClass:
    if code in _PROCESS_WIDE or code in _GPU_GONE:
        return "lifecycle"
    if code in _UNSUPPORTED:
        return "unsupported"
    if code in _PERMISSION:
        return "permission"
    return "transient"


def plain(text: str, limit: int = 96) -> str:
    """Text from the driver made fit for a log line or a terminal: printable, and bounded."""
    return "".join(character for character in text[:limit] if character.isprintable()).strip()
