"""How NVML is called: by pynvml's name, with errors turned into DriverError where they arise. NVML thread only."""

from typing import Any

from gpusupervisor.gpu.errors import UNKNOWN_ERROR, DriverError, code_of


def ask(function: str, *arguments: object) -> Any:  # noqa: ANN401  (pynvml has no types)
    """Call a pynvml function; raises DriverError. pynvml is imported at the first call, for it is slow to import."""
    import pynvml

    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
        raise DriverError(function, code_of(error)) from None
    except UnicodeDecodeError:  # pynvml decodes names as UTF-8, whatever the driver wrote
        raise DriverError(function, UNKNOWN_ERROR) from None
