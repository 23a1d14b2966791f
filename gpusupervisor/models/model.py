"""One model of one engine."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpusupervisor.engines.model_apis.listing import ModelState
from gpusupervisor.models.load_speed import LoadEstimate

__all__ = ["Model", "ModelState"]


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of a model. Bytes; None = nobody says."""

    name: str
    """As the engine's API takes it."""
    state: ModelState = "unknown"
    size: int | None = None
    """Of its files."""
    needs: int | None = None
    """VRAM to run it whole on one GPU."""
    needs_source: str = ""
    """"measured", "reported", "estimated from its size", or empty."""
    held: int | None = None
    """VRAM that the engine says it holds now: names the model, and is never believed as a measurement."""
    spilled: bool = False
    """Part of it is in system memory for want of VRAM."""
    pinned: bool = False
    """Its user asked that it stays loaded."""
    remote: bool = False
    """It runs on another machine: it needs no VRAM here."""
    failed: str = ""
    """Why its last load failed, where the engine says so."""
    context: int | None = None
    """Tokens of context that it is loaded with."""
    file: str = ""
    """Absolute path of its weights, as its engine names it: a claim, by which nothing is ever opened."""
    cached: int | None = None
    """Of its files in RAM."""
    cached_problem: str = ""
    """Why that is not known, or not wholly."""
    load_estimate: LoadEstimate | None = None
    """How long a load would take now; None until loads were measured."""


def find_model(models: Iterable[Model], name: str) -> Model | None:
    """The model of that name; Ollama's ":latest" may be left out."""
    wanted = (name, f"{name}:latest")
    return next((model for model in models if model.name in wanted), None)
