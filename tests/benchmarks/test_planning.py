"""What planning costs for many tenants."""

import pytest

from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.situation import GpuSituation, Situation, TenantSituation
from tests.arbitration.builders import GIB, NOW, starving, tenant
from tests.benchmarks.conftest import Report
from tests.benchmarks.test_bus import Benchmark

pytestmark = pytest.mark.benchmark_suite

GPUS = tuple(f"GPU-{number}" for number in range(8))


def crowd(count: int) -> Situation:
    holders: list[TenantSituation] = [
        tenant(f"t{number}", holdings={GPUS[number % 8]: GIB // 8}, priority=number % 45) for number in range(count)
    ]
    askers = [starving(f"asker{number}", holdings={gpu: GIB}, need=16) for number, gpu in enumerate(GPUS)]
    cards = {gpu: GpuSituation(gpu, "card", 80 * GIB, 0) for gpu in GPUS}
    return Situation(NOW, cards, {each.id: each for each in (*holders, *askers)})


def test_plans_for_8_gpus_among_1000_tenants(benchmark: Benchmark, figure: Report) -> None:
    def decide() -> int:
        now = crowd_of_1000()
        starved = [verdict for verdict in assess(now).values() if verdict.starved]
        return sum(
            len(make_plan(now, Request("starved", verdict.gpu, verdict.tenant, 16 * GIB), "p").steps)
            for verdict in starved
        )

    template = crowd(1000)

    def crowd_of_1000() -> Situation:
        return Situation(template.now, template.gpus, template.tenants)  # nothing cached

    assert benchmark(decide) == 8 * 120
    median = benchmark.stats.stats.median * 1000  # type: ignore[attr-defined]
    figure("assess and plan, 1000 tenants on 8 GPUs, all starved, median", median, "ms", 10)
