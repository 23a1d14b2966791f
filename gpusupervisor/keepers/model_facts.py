"""What telemetry has learned of engines' models, as models are spoken of: load speeds, needs, use."""

from collections.abc import Iterator

from gpusupervisor.foreign_text import harmless
from gpusupervisor.models.load_speed import LoadSpeeds
from gpusupervisor.models.model import Model
from gpusupervisor.models.warm_plan import Usage
from gpusupervisor.telemetry.service import Telemetry

_NAME = 256
"""Characters of a model's name that are kept."""


class ModelFacts:
    """Of all engines; what an earlier life of the service learned counts too."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def speeds(self, engine: str) -> LoadSpeeds:
        """How fast an engine was seen to load."""
        cold, warm = (self._telemetry.facts.get(kind, engine) for kind in ("load-cold", "load-warm"))
        return LoadSpeeds(
            tuple(each.value for each in cold.evidence) if cold else (),
            tuple(each.value for each in warm.evidence) if warm else (),
        )

    def measured(self, engine: str, model: Model, size: int) -> None:
        """A whole load took so many bytes of VRAM."""
        self._telemetry.learn_model_need(engine, harmless(model.name, _NAME), size, model.context)

    def need(self, engine: str, model: str) -> int | None:
        """What the last whole load took, in bytes; None when none was measured."""
        fact = self._telemetry.facts.get("model-need", engine, model=harmless(model, _NAME))
        return fact.value if fact else None

    def note_use(self, engine: str, model: str, *, begins: bool) -> None:
        """A model is loaded from now on, or was until now."""
        self._telemetry.learn_model_use(engine, harmless(model, _NAME), begins=begins)

    def uses(self, engine: str) -> Iterator[tuple[str, Usage]]:
        """Every model that was seen in use, by the name that its engine's API has for it."""
        for fact in self._telemetry.facts.of_kind("model-use", engine):
            yield fact.model, Usage(fact.learned_at, fact.value, tuple(each.at for each in fact.evidence))
