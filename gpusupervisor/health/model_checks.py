"""Self-checks over the models of engines."""

from collections.abc import Mapping

from gpusupervisor.foreign_text import harmless
from gpusupervisor.models.model import Model
from gpusupervisor.models.spill import spilled_part
from gpusupervisor.quantities import format_bytes
from gpusupervisor.state import Check, EngineStatus

NAMED = 4
"""Models named in one check."""


def check_models(engines: Mapping[str, EngineStatus]) -> tuple[Check, ...]:
    """No model is partly in system memory for want of VRAM."""
    checks = []
    for status in engines.values():
        spilled = [model for model in status.models if model.spilled]
        if spilled:
            named = ", ".join(_named(model) for model in spilled[:NAMED])
            more = f" and {len(spilled) - NAMED} more" if len(spilled) > NAMED else ""
            checks.append(
                Check(
                    f"models-{status.id}",
                    "degraded",
                    f"{status.id}: {named}{more} in system memory for lack of VRAM",
                    "the CPU computes that part, which makes answers several times slower, and it stays there even "
                    "after room has been made",
                    f"gpusupervisorctl load {status.id} {harmless(spilled[0].name, 60)} reloads it when it is idle; "
                    "reload-spilled = true in its tenant file unloads it for that automatically",
                )
            )
    return tuple(checks)


def _named(model: Model) -> str:
    part = spilled_part(model)
    how_much = f"{format_bytes(part)} of {format_bytes(model.needs or 0)}" if part else "part of it"
    return f"{harmless(model.name, 60)} has {how_much}"
