"""Reservations: room just made is kept for its beneficiary until it has grown into it or the time is up."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpusupervisor.arbitration.situation import Reservation


@dataclass(frozen=True, slots=True)
class _Kept:
    gpu: str
    tenant: str
    size: int
    held_before: int
    expires_at: int


class ReservationBook:
    """At most one reservation per GPU and beneficiary."""

    def __init__(self, duration: int) -> None:
        self.duration = duration
        """How long room is kept, in microseconds."""
        self._kept: dict[tuple[str, str], _Kept] = {}

    def keep(self, gpu: str, tenant: str, size: int, held: int, now: int) -> None:
        """Keep `size` bytes for a tenant that holds `held` bytes on the GPU now."""
        if size > 0:
            self._kept[gpu, tenant] = _Kept(gpu, tenant, size, held, now + self.duration)

    def current(self, holdings: Mapping[str, Mapping[str, int]], now: int) -> tuple[Reservation, ...]:
        """What is still kept, given each tenant's holdings by GPU; what is used up or expired is forgotten."""
        current = []
        for key, kept in list(self._kept.items()):
            grown = max(0, holdings.get(kept.tenant, {}).get(kept.gpu, 0) - kept.held_before)
            if now >= kept.expires_at or grown >= kept.size:
                del self._kept[key]
            else:
                current.append(Reservation(kept.gpu, kept.tenant, kept.size - grown, kept.expires_at))
        return tuple(current)
