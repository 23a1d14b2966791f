"""How NVML is called: by pynvml's name, with errors turned into DriverError where they arise. NVML thread only."""

from typing import Any

from gpusupervisor.gpu.driver_access import files
from gpusupervisor.gpu.errors import DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, UNKNOWN_ERROR, DriverError, code_of


def initialise() -> None:
    """nvmlInit; raises DriverError.

    A driver that somebody has unloaded stays unloaded: its device node is left behind, and whoever opens that makes
    the kernel load the driver again.
    """
    access = files().access()
    if access.node and not access.module:
        raise DriverError("nvmlInit", DRIVER_NOT_LOADED)
    ask("nvmlInit")


def ask(function: str, *arguments: object) -> Any:  # noqa: ANN401  (pynvml has no types)
    """Call a pynvml function; raises DriverError. pynvml is imported at the first call, for it is slow to import."""
    import pynvml

    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
        raise DriverError(function, code_of(error)) from None
    except UnicodeDecodeError:  # pynvml decodes names as UTF-8, whatever the driver wrote
        raise DriverError(function, UNKNOWN_ERROR) from None


def ask_c(function: str, *arguments: object) -> None:
    """Call a function of libnvidia-ml itself, for what pynvml cannot express or does not check; raises DriverError.

    Some pynvml wrappers (nvmlDeviceSetClockOffsets, nvmlDeviceGetClockOffsets) return success whatever was answered.
    Structures are passed as byref(structure).
    """
    import pynvml

    try:
        code = int(pynvml._nvmlGetFunctionPointer(function)(*arguments))  # noqa: SLF001  (there is no public name)
    except pynvml.NVMLError as error:
        raise DriverError(function, code_of(error)) from None
    if code:
        raise DriverError(function, code)


def getters() -> list[str]:
    """pynvml's functions that read something of a device and take nothing but its handle."""
    import inspect

    import pynvml

    found = []
    for name, function in sorted(vars(pynvml).items()):
        if name.startswith("nvmlDeviceGet") and inspect.isfunction(function):
            needed = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
            if len(needed) == 1 and needed[0].name in ("handle", "device"):
                found.append(name)
    return found


def has(function: str) -> bool:
    """Whether the loaded library has a function, by its name in C; raises DriverError when none is loaded."""
    import pynvml

    try:
        pynvml._nvmlGetFunctionPointer(function)  # noqa: SLF001
    except pynvml.NVMLError as error:
        if code_of(error) == FUNCTION_NOT_FOUND:
            return False
        raise DriverError(function, code_of(error)) from None
    return True
