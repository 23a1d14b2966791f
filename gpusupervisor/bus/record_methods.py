"""Recording: the lines of a film, for whoever takes them away."""

from typing import Protocol

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.wire import size
from gpusupervisor.errors import NotSupported


class Recorder(Protocol):
    """Who takes down what the service sees."""

    def record(self, after: int) -> tuple[list[str], int]:
        """The lines after a number, and the number of the last one. Raises SupervisorErrors only."""


class RecordMethods:
    """Handler of the root object."""

    def __init__(self, recorder: Recorder | None, admission: Admission) -> None:
        """recorder: None where nothing can be recorded."""
        self._recorder = recorder
        self._admission = admission

    def manager(self) -> Handlers:
        """Of the root object, beside its others."""
        return {"Record": self._record}

    async def _record(self, call: Call, after: int) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_INSPECT_PROCESS):
            if self._recorder is None:
                raise NotSupported("Nothing can be recorded here.")
            lines, last = self._recorder.record(after)
            return [[lines, size(last)]]  # JSON in ASCII: nothing that a terminal or a marshaller could stumble over
