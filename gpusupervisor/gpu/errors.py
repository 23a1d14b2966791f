"""What NVML's errors mean for us, by class.

NVMLError is unhashable, its `==` raises for anything that has no `.value`, and its `str()` may call the driver.
So it is turned into a `DriverError` right where it is caught, and nothing else ever looks at it.
"""

from typing import Literal

ErrorClass = Literal["lifecycle", "unsupported", "permission", "transient", "refused"]

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN_ERROR = 999

_TEXTS = {
    UNINITIALIZED: "NVML is not initialised",
    INVALID_ARGUMENT: "Invalid argument (a handle of an earlier driver generation)",
    3: "Not supported",
    NO_PERMISSION: "Insufficient permissions",
    NOT_FOUND: "Not found",
    INSUFFICIENT_SIZE: "Insufficient size",
    8: "Insufficient external power",
    DRIVER_NOT_LOADED: "Driver not loaded",
    10: "Timeout",
    11: "Interrupt request issue",
    LIBRARY_NOT_FOUND: "no library of the NVIDIA driver: libnvidia-ml.so.1 not found",
    FUNCTION_NOT_FOUND: "Function not found in this driver's library",
    14: "Corrupted infoROM",
    15: "GPU is lost",
    16: "GPU requires a reset",
    OPERATING_SYSTEM: "The operating system has blocked the request",
    LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    19: "GPU is in use elsewhere",
    20: "Insufficient memory",
    21: "No data",
    23: "Insufficient resources",
    25: "Argument version mismatch",
    26: "Deprecated",
    27: "Not ready",
    28: "GPU not found",
    29: "Invalid state",
    UNKNOWN_ERROR: "Unknown error",
}

# INVALID_ARGUMENT: our arguments never vary, so it is a handle from before the driver was loaded anew.
_PROCESS_WIDE = frozenset(
    {UNINITIALIZED, INVALID_ARGUMENT, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH}
)
_GPU_GONE = frozenset({15, 16, 19, 28, 29})
_UNSUPPORTED = frozenset({3, FUNCTION_NOT_FOUND, 21, 22, 24, 25, 26, 30})
_PERMISSION = frozenset({NO_PERMISSION, OPERATING_SYSTEM})


class DriverError(Exception):
    """A call to the driver failed; the text names the call and what NVML answered."""

    def __init__(self, function: str, code: int) -> None:
        self.function = function
        self.code = code
        self.text = _TEXTS.get(code, f"error {code}")
        self.error_class = _class_of(code)
        super().__init__(f"{function}: {self.text}")

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
        super().__init__(function, INVALID_ARGUMENT)
        self.text = "the driver does not accept this value"
        self.error_class = "refused"
        self.args = (f"{function}: {self.text}",)

    @property
    def ends_session(self) -> bool:
        """Never: nothing is lost."""
        return False


def code_of(error: Exception) -> int:
    """nvmlReturn_t of an NVMLError; FUNCTION_NOT_FOUND for NVMLLibraryMismatchError, which is none."""
    return int(getattr(error, "value", FUNCTION_NOT_FOUND))


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
