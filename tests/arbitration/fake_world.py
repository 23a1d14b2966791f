"""A world whose memory moves in simulated time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpusupervisor.arbitration.execute import ReleaseReply, Unfinished
from gpusupervisor.arbitration.situation import ReleasePlan, Situation, StepResult
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.errors import GpuUnavailable
from tests.arbitration.builders import CARD, NOW

SECOND = 1_000_000


@dataclass
class FakeWorld:
    """Tenants whose memory comes back after a delay, on a clock that only sleeping moves."""

    situation: Situation
    replies: dict[str, ReleaseReply] = field(default_factory=dict)
    comes_back: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tenant to (microseconds after the request, bytes)."""
    on_look: Callable[[Situation], Situation] = lambda s: s
    defers: bool = False
    gpu_gone: bool = False
    time: int = NOW
    ticking: int = 0
    """Microseconds that each measurement takes."""
    requested: list[tuple[str, int]] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    measured: int = 0
    left: dict[str, Mapping[str, int]] = field(default_factory=dict)
    unfinished: list[Unfinished] = field(default_factory=list)

    def now(self) -> int:
        return self.time

    def realtime(self, instant: int) -> int:
        return instant

    async def sleep(self, seconds: float) -> None:
        self.time += round(seconds * SECOND)

    def _update(self) -> None:
        tenants, free = dict(self.situation.tenants), self.situation.gpus[CARD].free
        for name, at in self.requested:
            delay, size = self.comes_back.get(name, (0, 0))
            if size and self.time >= at + delay:
                holder = tenants[name]
                tenants[name] = replace(holder, holdings={CARD: holder.holdings[CARD] - size})
                free += size
                del self.comes_back[name]
        card = replace(self.situation.gpus[CARD], free=free)
        self.situation = replace(self.situation, tenants=tenants, gpus={CARD: card}, now=self.time)

    async def look(self, tenant: str) -> Situation:
        self._update()
        self.situation = self.on_look(self.situation)
        return self.situation

    async def request(self, tenant: str) -> ReleaseReply:
        self.requested.append((tenant, self.time))
        return self.replies.get(tenant, ReleaseReply("accepted", "ok"))

    async def measure(self, tenant: str, gpus: tuple[str, ...]) -> Mapping[str, Measurement]:
        self.measured += 1
        self.time += self.ticking
        if self.gpu_gone:
            raise GpuUnavailable("the GPU is lost")
        self._update()
        others = {t.id: t.holdings.get(CARD, 0) for t in self.situation.tenants.values() if t.id != tenant}
        held = self.situation.tenants[tenant].holdings.get(CARD, 0)
        return {gpu: Measurement(held, self.situation.gpus[CARD].free, others) for gpu in gpus}

    def settle_time(self, tenant: str) -> int:
        return 10 * SECOND

    def defers_when_busy(self, tenant: str) -> bool:
        return self.defers

    def cooldown(self, tenant: str) -> int:
        return 30 * SECOND

    def holdings(self, tenant: str) -> Mapping[str, int]:
        return self.situation.tenants[tenant].holdings if tenant in self.situation.tenants else {}

    def asked(self, plan: ReleasePlan, tenant: str) -> None:
        pass

    def watch(self, unfinished: Unfinished) -> None:
        self.unfinished.append(unfinished)

    def finished(self, plan: ReleasePlan, result: StepResult, left: Mapping[str, int]) -> None:
        self.results.append(result)
        self.left[result.tenant] = left
