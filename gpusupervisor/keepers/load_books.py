"""Who is told of a measured load: what is in RAM decides whether it came from there or from disk."""

from typing import Literal

from gpusupervisor.arbitration.learned import FactKind, LearnedFacts
from gpusupervisor.foreign_text import harmless
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.load_speed import COLD, WARM, LoadSpeeds, MeasuredLoad, SpeedKind, measured_speed
from gpusupervisor.models.residency import ModelResidency, find
from gpusupervisor.telemetry.records import Load
from gpusupervisor.telemetry.service import Telemetry

_FACTS: dict[SpeedKind, FactKind] = {"cold": "load-cold", "warm": "load-warm"}
_NAME = 256
"""Characters of a model's name that are kept."""


def speeds_of(facts: LearnedFacts, engine: str) -> LoadSpeeds:
    """How fast an engine was seen to load, in an earlier life of the service too."""
    cold, warm = (facts.get(kind, engine) for kind in ("load-cold", "load-warm"))
    return LoadSpeeds(
        tuple(each.value for each in cold.evidence) if cold else (),
        tuple(each.value for each in warm.evidence) if warm else (),
    )


class LoadBooks:
    """What loads teach, kept by telemetry; and the residency, which a load makes old."""

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
        source: Literal["cold", "warm", "unknown"] = "unknown"
        if cached is not None and size:
            load = MeasuredLoad(size, min(cached, size), result.duration)
            taught = measured_speed(speeds_of(self._telemetry.facts, result.engine), load)
            if taught is not None:
                self._telemetry.learn_speed(result.engine, _FACTS[taught[0]], taught[1])
            percent = load.cached * 100 // size
            source = "warm" if percent >= WARM else "cold" if percent <= COLD else "unknown"
        self._telemetry.note_load(Load(result.engine, result.gpu, result.model, size, result.duration, source))

    def measured(self, engine: str, model: str, size: int) -> None:
        """A whole load took so many bytes of VRAM."""
        self._telemetry.learn_model_need(engine, harmless(model, _NAME), size)

    def need(self, engine: str, model: str) -> int | None:
        """What the last whole load took, in an earlier life of the service too; None when none was measured."""
        fact = self._telemetry.facts.get("model-need", engine, model=harmless(model, _NAME))
        return fact.value if fact else None
