"""Whether a sweep can be made, and of which points. Pure; every refusal says what to do instead."""

from collections.abc import Mapping

from gpusupervisor.arbitration.situation import ReleasePlan, Situation, TenantSituation
from gpusupervisor.autotune.points import Point, steps, subsample, sweep
from gpusupervisor.controls import Ability, Controls, GpuControls, TuningWish
from gpusupervisor.errors import (
    Busy,
    EngineUnreachable,
    GpuUnavailable,
    InvalidArgument,
    NoSuchEngine,
    NotSupported,
)
from gpusupervisor.foreign_text import unknown_name
from gpusupervisor.state import EngineStatus

POWER_LIMIT, OFFSET = "power-limit", "offset-graphics"
POWER_STEP = 5_000
"""mW between the limits that are chosen from."""
MOST_STEPS = 64
MOST_OFFSETS = 16
MOST_POINTS = 256
UNAVAILABLE = {
    "given-away": "The GPU is detached: call Attach first",
    "asleep": "The GPU is asleep and is not woken for this: try again when the engine has its model loaded",
}


def require_engine(
    engines: Mapping[str, EngineStatus],
    situation: Situation,
    running: Mapping[str, ReleasePlan],
    gpu: str,
    engine: str,
) -> EngineStatus:
    """The engine, when it is idle and works on this GPU. running: release plans by GPU.

    Raises NoSuchEngine, EngineUnreachable, Busy, NotSupported, InvalidArgument, GpuUnavailable.
    """
    status, tenant = engines.get(engine), situation.tenants.get(engine)
    if status is None or tenant is None:
        raise NoSuchEngine(unknown_name("engine", engine, engines))
    if gpu not in situation.gpus:
        raise GpuUnavailable("The GPU cannot be read at the moment: see its State and StateDetail")
    if gpu in running:
        raise Busy(f"{running[gpu].id} is being carried out on this GPU: try again when it has ended")
    if tenant.remote:
        raise NotSupported(f"{engine} is not on this machine")
    if tenant.activity == "absent" or (tenant.activity == "unknown" and not status.reachable):
        raise EngineUnreachable(f"{engine} cannot be reached: {tenant.activity_reason}")
    if tenant.used_by:
        raise Busy(f"{engine} is in use: {tenant.used_by}")
    if tenant.activity != "idle":
        raise Busy(f"{engine} must be idle and is {tenant.activity}: {tenant.activity_reason}")
    _require_on(situation, tenant, gpu)
    return status


def _require_on(situation: Situation, tenant: TenantSituation, gpu: str) -> None:
    """It works on this GPU and on no other, or what was measured would not be its work."""
    on = {uuid for uuid, size in tenant.holdings.items() if size} | tenant.unknown_on
    if on - {gpu}:
        raise InvalidArgument(
            f"{tenant.id} does not use only this GPU: it also holds memory on {', '.join(sorted(on))}"
        )
    if not on and len(situation.gpus) > 1:
        raise InvalidArgument(
            f"{tenant.id} holds no memory, so it is unknown which GPU it would use: have it load the model first"
        )


def points_of(controls: Controls, gpu: str, wish: TuningWish) -> tuple[Point, ...]:
    """What is tried, within what the GPU allows. Raises GpuUnavailable, Busy, NotSupported, InvalidArgument."""
    if not 1 <= wish.steps <= MOST_STEPS:
        raise InvalidArgument(f"steps is {wish.steps}; allowed: 1 to {MOST_STEPS}")
    if not 0 <= wish.tolerance < 100:
        raise InvalidArgument(f"tolerance is {wish.tolerance}; allowed: 0 to 99 percent")
    if wish.steps * max(len(wish.offsets), 1) > MOST_POINTS or len(wish.offsets) > MOST_OFFSETS:
        raise InvalidArgument(
            f"clock-offsets has {len(wish.offsets)}; allowed: {MOST_OFFSETS}, {MOST_POINTS} points in all"
        )
    known = _controllable(controls, gpu)
    low, high = _range(known, POWER_LIMIT, "power limit")
    limits = subsample(steps(low, high, POWER_STEP), wish.steps)
    if wish.offsets:
        least, most = _range(known, OFFSET, "graphics clock's offset")
        if not all(least <= offset <= most for offset in wish.offsets):
            raise InvalidArgument(f"clock-offsets may be {least} to {most} MHz on this GPU")
    return sweep(limits, wish.offsets)


def _controllable(controls: Controls, gpu: str) -> GpuControls:
    known = controls.gpus.get(gpu)
    if controls.problem or known is None:
        raise GpuUnavailable(f"The GPU cannot be set: {controls.problem or 'the helper does not know it'}")
    if known.condition != "ok":
        raise GpuUnavailable(UNAVAILABLE.get(known.condition) or f"The GPU cannot be set: {known.detail}")
    if known.trial:
        raise Busy("A profile is on trial: confirm it or revert it first")
    return known


def _range(known: GpuControls, item: str, what: str) -> tuple[int, int]:
    ability = known.ability(item) or Ability(item, "unsupported", "it is not known yet what can be set")
    if ability.support not in ("supported", "unverifiable"):
        raise NotSupported(f"The {what} of this GPU cannot be set: {ability.reason}")
    if ability.minimum is None or ability.maximum is None:
        raise NotSupported(f"The driver does not report the range in which the {what} can be set")
    return ability.minimum, ability.maximum
