"""Journal entries about tenants that lack memory: each situation once, its end once, however often it flips."""

from collections import deque
from collections.abc import Mapping

from gpusupervisor.arbitration.situation import Assessment, Situation, TenantSituation
from gpusupervisor.arbitration.swaps import Pair, Thrash
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages import plans
from gpusupervisor.quantities import format_bytes

RESTLESS = 3
"""So many entries of one tenant's want within `CALM`, and no more."""
CALM = 600 * MICROSECONDS


class WantChronicle:
    """Remembers what it has written."""

    def __init__(self) -> None:
        self._starved: dict[str, int] = {}
        """Since when, in microseconds of the domain clock."""
        self._written: set[str] = set()
        """Those of which the beginning was written, and so the end will be."""
        self._written_at: dict[str, deque[int]] = {}
        self._ran_out: dict[str, int] = {}
        """When a tenant last ran out of memory."""
        self._thrashing: frozenset[Pair] = frozenset()

    def assessed(
        self,
        situation: Situation,
        assessments: Mapping[str, Assessment],
        thrashing: tuple[Thrash, ...],
        engines: Mapping[str, str],
    ) -> None:
        """Write what is different from the look before. engines: the kind of each tenant's engine."""
        for tenant in situation.tenants.values():
            self._notice_out_of_memory(situation, tenant, engines.get(tenant.id, ""))
        for name, verdict in assessments.items():
            if verdict.starved and name not in self._starved:
                self._begins(situation.now, verdict, engines.get(name, ""))
            elif not verdict.starved and name in self._starved:
                self._ends(situation.now, verdict, engines.get(name, ""))
        for gone in self._starved.keys() - assessments.keys():
            del self._starved[gone]
            self._written.discard(gone)
        for thrash in thrashing:
            if thrash.pair not in self._thrashing:
                write(plans.MemoryThrash(*thrash.pair, thrash.swaps))
        self._thrashing = frozenset(thrash.pair for thrash in thrashing)

    def _begins(self, now: int, verdict: Assessment, engine: str) -> None:
        self._starved[verdict.tenant] = now
        self._written_at = {who: at for who, at in self._written_at.items() if now - at[-1] < CALM}
        lately = self._written_at.setdefault(verdict.tenant, deque(maxlen=RESTLESS))
        if len(lately) == RESTLESS and now - lately[0] < CALM:
            return
        lately.append(now)
        self._written.add(verdict.tenant)
        write(plans.TenantStarved(verdict.tenant, engine, verdict.gpu, verdict.shortfall, verdict.reason))

    def _ends(self, now: int, verdict: Assessment, engine: str) -> None:
        lasted = now - self._starved.pop(verdict.tenant)
        if verdict.tenant in self._written:
            self._written.discard(verdict.tenant)
            write(plans.TenantRelieved(verdict.tenant, engine, lasted, verdict.reason))

    def _notice_out_of_memory(self, situation: Situation, tenant: TenantSituation, engine: str) -> None:
        pressure = tenant.pressure
        if pressure is None or pressure.kind != "out-of-memory" or self._ran_out.get(tenant.id) == pressure.since:
            return
        self._ran_out[tenant.id] = pressure.since
        how = "its engine says so" if pressure.said else "it grew until the card was full, and fell right then"
        grown = f"; it had grown by {format_bytes(pressure.grown)}" if pressure.grown else ""
        gpu = tenant.cards[0] if tenant.cards else ""
        write(plans.RanOutOfMemory(tenant.id, engine, gpu, f"{how}{grown}", _resting(situation, tenant)))


def _resting(situation: Situation, beneficiary: TenantSituation) -> tuple[str, ...]:
    """The tenants that held memory on its cards and were idle."""
    found = {}
    for tenant in situation.tenants.values():
        held = sum(size for gpu, size in tenant.holdings.items() if not beneficiary.cards or gpu in beneficiary.cards)
        if tenant.activity == "idle" and tenant.id != beneficiary.id and held >= WORTHWHILE:
            found[tenant.id] = held
    return tuple(f"{name} ({format_bytes(found[name])})" for name in sorted(found, key=lambda each: -found[each]))
