"""Who is told of a measured load: what is in RAM decides whether it came from there or from disk."""

from typing import Literal

from gpusupervisor.arbitration.learned import FactKind
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.load_speed import COLD, WARM, MeasuredLoad, SpeedKind, measured_speed
from gpusupervisor.models.residency import ModelResidency, find
from gpusupervisor.telemetry.records import Load
from gpusupervisor.telemetry.service import Telemetry

_FACTS: dict[SpeedKind, FactKind] = {"cold": "load-cold", "warm": "load-warm"}


class LoadBooks(ModelFacts):
    """What loads teach, kept by telemetry; and the residency, which a load makes old."""

    def __init__(self, residency: ResidencyKeeper, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._residency = residency

    async def before(self, engine: str, model: str) -> ModelResidency | None:
        """What is in RAM of a model's files right before it is loaded; None when nobody knows which they are."""
        if engine not in self._residency.residencies:
            return None
        return find(await self._residency.refresh(engine), model)

    def note(self, result: LoadResult, files: ModelResidency | None) -> None:
        """A load was measured. files: as they were before it."""
        self._residency.invalidate(result.engine)
        size, cached = (files.size, files.cached) if files else (result.taken, None)
        source: Literal["cold", "warm", "unknown"] = "unknown"
        if cached is not None and size:
            load = MeasuredLoad(size, min(cached, size), result.duration)
            taught = measured_speed(self.speeds(result.engine), load)
            if taught is not None:
                self._telemetry.learn_speed(result.engine, _FACTS[taught[0]], taught[1])
            percent = load.cached * 100 // size
            source = "warm" if percent >= WARM else "cold" if percent <= COLD else "unknown"
        self._telemetry.note_load(Load(result.engine, result.gpu, result.model, size, result.duration, source))

    def size(self, engine: str, model: str) -> int | None:
        """See `Evidence`."""
        residency = self._residency.residencies.get(engine)
        files = find(residency, model) if residency else None
        return files.size if files else None

    def revision(self) -> object:
        """See `Evidence`."""
        return self._telemetry.facts.revision("model-need"), self._residency.residencies
