"""Pure functions from what is known of models to D-Bus values."""

from functools import lru_cache

from dbus_fast import Variant

from gpusupervisor.bus.published import Values
from gpusupervisor.bus.wire import details
from gpusupervisor.models.fit import Fit
from gpusupervisor.models.fit_book import CardFit
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.model import Model
from gpusupervisor.models.unload import UnloadResult
from gpusupervisor.state import EngineStatus

NOT_RECKONED = Fit("unknown", "not reckoned yet")
ENGINES = 64
"""Of so many engines the list of models is kept ready."""


class _Shelf:
    """A list of models, known by its identity: a thousand models are not compared at every tick."""

    def __init__(self, models: tuple[Model, ...], fits: tuple[Fit, ...]) -> None:
        self.models = models
        self.fits = fits

    def __hash__(self) -> int:
        return hash((id(self.models), id(self.fits)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shelf) and self.models is other.models and self.fits is other.fits


def models_view(status: EngineStatus) -> Values:
    """The properties of an engine that tell of its models."""
    return {
        "Models": model_list(status),
        "ModelsProblem": status.models_problem,
        "Capabilities": status.capabilities,
        "Limits": status.limits,
    }


def model_list(status: EngineStatus) -> list[dict[str, Variant]]:
    """The models of an engine as `aa{sv}`; the very same list for as long as nothing changes."""
    return _shown(_Shelf(status.models, status.fits))


@lru_cache(maxsize=ENGINES)
def _shown(shelf: _Shelf) -> list[dict[str, Variant]]:
    missing = len(shelf.models) - len(shelf.fits)
    fits = (*shelf.fits, *(NOT_RECKONED,) * missing)
    return [_model(model, fit) for model, fit in zip(shelf.models, fits, strict=True)]


def _model(model: Model, fit: Fit) -> dict[str, Variant]:
    return details(
        name=("s", model.name),
        state=("s", model.state),
        size=("t", model.size),
        needs=("t", model.needs),
        needs_source=("s", model.needs_source),
        held=("t", model.held),
        spilled=("b", model.spilled),
        pinned=("b", model.pinned),
        remote=("b", model.remote),
        cached=("t", model.cached),
        cached_problem=("s", model.cached_problem),
        load_estimate=("s", str(model.load_estimate or "")),
        fit=("s", fit.verdict),
        fit_detail=("s", fit.detail),
    )


def card_view(card: CardFit | None) -> Values:
    """The properties of a GPU that tell what fits on it."""
    return {
        "Ceiling": card.ceiling if card else None,
        "FitSummary": card.summary if card else "",
        "Unreclaimable": {each.by: each.size for each in card.kept} if card else {},
    }


def load_details(result: LoadResult) -> dict[str, Variant]:
    """What a load took, as `a{sv}`."""
    return details(
        engine=("s", result.engine),
        model=("s", result.model),
        gpu=("s", result.gpu),
        taken=("t", result.taken),
        duration=("t", result.duration),
        speed=("t", result.speed),
        spilled=("b", result.spilled),
        retried=("b", result.retried),
    )


def unload_details(result: UnloadResult) -> dict[str, Variant]:
    """What an unload brought, as `a{sv}`."""
    return details(
        engine=("s", result.engine),
        model=("s", result.model),
        freed=("t", result.freed),
        duration=("t", result.duration),
        detail=("s", result.detail),
    )
