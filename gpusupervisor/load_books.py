"""Who is told of a measured load: what is in RAM decides whether it came from there or from disk."""

from typing import Literal

from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.load_speed import COLD, WARM, MeasuredLoad
from gpusupervisor.models.residency import ModelResidency, find
from gpusupervisor.residency_keeper import ResidencyKeeper
from gpusupervisor.telemetry.records import Load
from gpusupervisor.telemetry.service import Telemetry


class LoadBooks:
    """Load speeds of the residency and of telemetry."""

    def __init__(self, residency: ResidencyKeeper, telemetry: Telemetry) -> None:
        self._residency = residency
        self._telemetry = telemetry

    async def before(self, engine: str, model: str) -> ModelResidency | None:
        """What is in RAM of a model's files right before it is loaded; None when nobody knows which they are."""
        if engine not in self._residency.residencies:
            return None
        return find(await self._residency.refresh(engine), model)

    def note(self, result: LoadResult, files: ModelResidency | None) -> None:
        """A load was measured. files: as they were before it."""
        self._residency.invalidate(result.engine)
        size, cached = (files.size, files.cached) if files else (result.taken, None)
        if cached is None or not size:
            source: Literal["cold", "warm", "unknown"] = "unknown"
        else:
            self._residency.learn(result.engine, MeasuredLoad(size, min(cached, size), result.duration))
            percent = cached * 100 // size
            source = "warm" if percent >= WARM else "cold" if percent <= COLD else "unknown"
        self._telemetry.note_load(Load(result.engine, result.gpu, result.model, size, result.duration, source))
