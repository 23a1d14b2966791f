"""Short hands for models."""

from typing import Any

from gpusupervisor.models.model import Model
from tests.arbitration.builders import GIB


def model(name: str = "m", needs: float | None = 4, state: str = "not-loaded", **more: Any) -> Model:
    """A model that needs so many GiB."""
    size = None if needs is None else round(needs * GIB)
    return Model(name, state, needs=size, needs_source="measured" if needs else "", **more)  # type: ignore[arg-type]


class NoEvidence:
    """Nothing was ever measured, and no files are known."""

    def need(self, engine: str, model: str) -> int | None:
        return None

    def size(self, engine: str, model: str) -> int | None:
        return None

    def revision(self) -> object:
        return None
