"""Reservations: room just made is kept for its beneficiary until it has grown into it or the time is up."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpusupervisor.arbitration.situation import Reservation


@dataclass(frozen=True, slots=True)
class _Kept:
    gpu: str
    tenant: str
    size: int
    held: int
    """The most that the tenant has held since."""
    expires_at: int


class ReservationBook:
    """At most one reservation per GPU and beneficiary."""

    def __init__(self, duration: int) -> None:
        self.duration = duration
        """How long room is kept, in microseconds."""
        self._kept: dict[tuple[str, str], _Kept] = {}

    def keep(self, gpu: str, tenant: str, size: int, held: int, now: int) -> None:
        """Keep `size` bytes for a tenant that holds `held` bytes on the GPU now; 0 bytes: nothing any more."""
        if size <= 0:
            self._kept.pop((gpu, tenant), None)
        else:
            self._kept[gpu, tenant] = _Kept(gpu, tenant, size, held, now + self.duration)

    def current(self, holdings: Mapping[str, Mapping[str, int]], now: int) -> tuple[Reservation, ...]:
        """What is still kept, given each tenant's holdings by GPU; what was grown into once is used up for good."""
        current = []
        for key, kept in list(self._kept.items()):
            held = max(kept.held, holdings.get(kept.tenant, {}).get(kept.gpu, 0))
            left = kept.size - (held - kept.held)
            if now >= kept.expires_at or left <= 0:
                del self._kept[key]
            else:
                self._kept[key] = replace(kept, size=left, held=held)
                current.append(Reservation(kept.gpu, kept.tenant, left, kept.expires_at))
        return tuple(current)
