"""Short hands for situations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.pressure import Pressure
from gpusupervisor.arbitration.situation import (
    GpuSituation,
    Reservation,
    Situation,
    TenantSituation,
    UnmanagedHolder,
)
from gpusupervisor.arbitration.worthwhile import WORTHWHILE

GIB = 1024**3
MINUTE = 60_000_000
NOW = 10_000 * MINUTE
CARD = "GPU-1"


def tenant(name: str, held: float = 0, activity: str = "idle", **more: Any) -> TenantSituation:
    """A tenant that holds `held` GiB on the only card, idle and askable unless said otherwise."""
    base = TenantSituation(
        id=name,
        title=name.title(),
        priority=25 if activity == "idle" else 50,
        activity=activity,  # type: ignore[arg-type]
        activity_reason=f"{name} is {activity}",
        holdings={CARD: round(held * GIB)} if held else {},
        has_release=True,
        idle_since=NOW - 30 * MINUTE if activity == "idle" else None,
        resident_since=NOW - 60 * MINUTE if held else None,
        min_residency=MINUTE,
    )
    return replace(base, **more)


def needing(need: float, **more: Any) -> Need:
    """A need in GiB that a person has written down."""
    return replace(Need(round(need * GIB), round(need * GIB), "needs-vram"), **more)


def starving(name: str = "asker", held: float = 0, need: float = 0, **more: Any) -> TenantSituation:
    """A busy tenant of priority 50 with a need in GiB."""
    more.setdefault("working_priority", more.get("priority", 50))
    return tenant(name, held, "busy", need=needing(need), **more)


def pressed(name: str = "asker", held: float = 2, **more: Any) -> TenantSituation:
    """A busy tenant that has filled the card and lacks more, nobody knows how much."""
    low = round(held * GIB) + WORTHWHILE
    need = Need(low, None, "pressed", is_open=True)
    pressure = Pressure("pressed", NOW, round(held * GIB), round(held * GIB))
    return tenant(name, held, "busy", need=need, pressure=pressure, **more)


def situation(
    *tenants: TenantSituation,
    free: float = 0,
    total: float = 24,
    reserve: float = 0,
    unmanaged: tuple[UnmanagedHolder, ...] = (),
    reservations: tuple[Reservation, ...] = (),
    gpus: Mapping[str, GpuSituation] | None = None,
) -> Situation:
    """One 24 GiB card and these tenants."""
    card = GpuSituation(CARD, "RTX 4090", round(total * GIB), round(free * GIB), unmanaged)
    return Situation(
        now=NOW,
        gpus=gpus or {CARD: card},
        tenants={t.id: t for t in tenants},
        reserve=round(reserve * GIB),
        reservations=reservations,
    )
