"""A GPU's handle, asked so that a value which the driver does not take is told apart from a handle that is stale."""

from typing import Any

from gpusupervisor.gpu.calls import ask, ask_c
from gpusupervisor.gpu.errors import INVALID_ARGUMENT, DriverError, ValueRefused


class Handle:
    """One GPU of this initialisation of NVML. NVML thread only; every call raises DriverError."""

    def __init__(self, handle: object) -> None:
        self._handle = handle

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  (pynvml has no types)
        """Call a pynvml function with the handle as its first argument."""
        try:
            return ask(function, self._handle, *arguments)
        except DriverError as error:
            raise self._told_apart(error) from None

    def ask_c(self, function: str, *arguments: object) -> None:
        """Call a function of libnvidia-ml itself, its answer checked, with the handle as its first argument."""
        try:
            ask_c(function, self._handle, *arguments)
        except DriverError as error:
            raise self._told_apart(error) from None

    def try_ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """As `ask`, None when only this cannot be told now; raises DriverError when the GPU or the driver is gone."""
        try:
            return self.ask(function, *arguments)
        except DriverError as error:
            if error.error_class == "lifecycle":
                raise
            return None

    def _told_apart(self, error: DriverError) -> DriverError:
        if error.code != INVALID_ARGUMENT:
            return error
        try:
            ask("nvmlDeviceGetUUID", self._handle)
        except DriverError as stale:
            return stale
        return ValueRefused(error.function)
