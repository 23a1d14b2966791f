"""Unloading a model: only an idle engine's, and believed only when it was measured."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.arbitration.verify import COMPLETE, Measurement, credited
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engines.model_apis.listing import Reply
from gpusupervisor.errors import Busy, NotReclaimable, ReleaseFailed
from gpusupervisor.foreign_text import harmless
from gpusupervisor.models.catalogue import EngineModels
from gpusupervisor.models.model import Model
from gpusupervisor.quantities import format_bytes

POLL = 0.1
"""Seconds between two measurements."""
SETTLE = 20 * MICROSECONDS
"""Within this the model is gone from the engine's list and its memory is back."""
QUIET = 1 * MICROSECONDS
"""How long nothing more must come back where nobody knows how much should."""


class Unloader(Protocol):
    """What an unload may do to the world; see `load.Loader`."""

    async def look(self, engine: str) -> Situation:
        """The situation, measured now, with a fresh look at the engine's activity."""

    async def measure(self, engine: str) -> Mapping[str, Measurement]:
        """Every GPU now, as far as the engine goes. Raises GpuUnavailable."""

    async def list_models(self, engine: str) -> EngineModels:
        """What the engine says of its models now."""

    async def unload(self, engine: str, model: str) -> Reply:
        """Ask the engine."""


@dataclass(frozen=True, slots=True)
class UnloadResult:
    """What an unload brought, as NVML measured it."""

    engine: str
    model: str
    freed: int
    """Bytes."""
    duration: int
    """Microseconds from the request to the verdict."""
    detail: str


async def unload(engine: str, model: Model, world: Unloader, clock: Clock) -> UnloadResult:
    """Have an idle engine unload a model, and measure; one that is not loaded needs nothing.

    Raises Busy, NotReclaimable when nobody knows whether it works, ReleaseFailed when it did not.
    """
    model = (await world.list_models(engine)).find(model.name) or model
    if model.state == "not-loaded":
        return UnloadResult(engine, model.name, 0, 0, "it was not loaded")
    _require_idle(engine, await world.look(engine))
    before, started = await world.measure(engine), clock.now()
    reply = await world.unload(engine, model.name)
    name = harmless(model.name, 60)
    if reply.outcome not in ("done", "started"):
        raise ReleaseFailed(f"{engine} did not unload {name}: {reply.detail or 'it gave no reason'}.")
    freed, changed_at = 0, started
    while True:
        known, now = await world.list_models(engine), clock.now()
        after = await world.measure(engine)
        brought = sum(credited(before[gpu], after[gpu]) for gpu in before if gpu in after)
        if abs(brought - freed) >= WORTHWHILE:
            changed_at = now
        freed = brought
        gone = _is_gone(known, model.name)
        if gone and _is_back(model, freed, before, now - changed_at):
            break
        if now - started >= SETTLE:
            raise ReleaseFailed(_failure(engine, name, model, freed, gone=gone))
        await asyncio.sleep(POLL)
    detail = (
        f"{format_bytes(freed)} came back" if freed >= WORTHWHILE else "it was unloaded, but had held hardly any VRAM"
    )
    return UnloadResult(engine, model.name, freed, clock.now() - started, detail)


def _require_idle(engine: str, situation: Situation) -> None:
    tenant = situation.tenants.get(engine)
    if tenant is None or tenant.activity in ("unknown", "absent"):
        why = tenant.activity_reason if tenant else "it is gone"
        raise NotReclaimable(f"It is unknown whether {engine} is working, so nothing is unloaded: {why}.")
    if tenant.activity != "idle":
        raise Busy(f"{engine} is {tenant.activity}, so nothing is unloaded: {tenant.activity_reason}.")


def _is_gone(known: EngineModels, name: str) -> bool:
    if known.cannot("resident"):
        return True
    model = known.find(name)
    return model is None or model.state in ("not-loaded", "asleep")


def _is_back(model: Model, freed: int, before: Mapping[str, Measurement], quiet: int) -> bool:
    """Whether what it held has come back: what the engine said that it held, or all that will come."""
    most = sum(seen.holding or 0 for seen in before.values())
    expected = min(model.held, most) if model.held is not None else None
    if expected is not None and freed >= expected * COMPLETE:
        return True
    return quiet >= QUIET and (freed >= WORTHWHILE or most < WORTHWHILE)


def _failure(engine: str, name: str, model: Model, freed: int, *, gone: bool) -> str:
    if not gone:
        return f"{engine} agreed to unload {name}, but still lists it as loaded."
    back = f"only {format_bytes(freed)} of its memory came back" if freed >= WORTHWHILE else "no memory came back"
    held = f" (it was said to hold {format_bytes(model.held)})" if model.held else ""
    return f"{engine} unloaded {name}, but {back}{held}."
