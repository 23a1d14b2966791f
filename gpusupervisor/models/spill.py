"""Models that spilled into system memory: they stay there though room has come since. Pure."""

from collections.abc import Mapping, Sequence

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.models.model import Model

AGAIN_AFTER = 600 * MICROSECONDS
"""A spilled model is not unloaded again sooner, whatever room there is: no thrash."""


def to_reload(
    situation: Situation, engine: str, models: Sequence[Model], tried: Mapping[str, int]
) -> tuple[Model, ...]:
    """Spilled models of an idle engine that would fit whole now, were they loaded anew.

    tried: when each was last unloaded for that, by name.
    """
    tenant = situation.tenants.get(engine)
    if tenant is None or tenant.activity != "idle" or tenant.remote or tenant.used_by:
        return ()
    if tenant.pinned and not tenant.release_pinned:
        return ()
    room = max((situation.available(uuid, engine) + tenant.holdings.get(uuid, 0) for uuid in situation.gpus), default=0)
    others = sum(model.held or 0 for model in models if model.state == "loaded" and not model.spilled)
    return tuple(
        model
        for model in models
        if model.spilled
        and model.needs is not None
        and model.needs <= room - others
        and situation.now - tried.get(model.name, -AGAIN_AFTER) >= AGAIN_AFTER
    )


def spilled_part(model: Model) -> int | None:
    """Bytes of a spilled model that are in system memory; None when nobody knows."""
    return None if model.needs is None or model.held is None else max(0, model.needs - model.held)
