"""What the self-checks cost on a large machine, and what a look around does."""

import asyncio
import time
from dataclasses import replace

import pytest

from gpusupervisor.arbitration.situation import GpuSituation, Situation
from gpusupervisor.clock import SystemClock
from gpusupervisor.controls import Controls
from gpusupervisor.engines.setting import Setting
from gpusupervisor.health.facts import Facts
from gpusupervisor.health.look_around import Roots, look_around
from gpusupervisor.health.self_check import SelfCheck
from gpusupervisor.models.model import Model
from tests.arbitration.builders import GIB, NOW, tenant
from tests.arbitration.seen import card, doing, process, seen
from tests.benchmarks.conftest import Report
from tests.bus.builders import make_controls
from tests.health.builders import engine, facts

pytestmark = pytest.mark.benchmark_suite

GPUS, TENANTS, ENGINES, MODELS, STRANGERS = 8, 40, 15, 200, 10
ROUNDS = 50


def large() -> Facts:
    """8 GPUs, 40 tenants, 15 engines with 200 models each, and strangers on every card."""
    uuids = [f"GPU-{number}" for number in range(GPUS)]
    names = [f"t{number}" for number in range(TENANTS)]
    holders = [process(1000 + n, 2, name, uuids[n % GPUS]) for n, name in enumerate(names)]
    holders += [process(5000 + n, 2, "", uuids[n % GPUS]) for n in range(GPUS * STRANGERS)]
    found = seen(*holders, tenants={name: doing("idle") for name in names}, cards=tuple(card(1, u) for u in uuids))
    settings = tuple(Setting(f"S{n}", "1", "environment", "it means something") for n in range(20))
    models = tuple(Model(f"m{n}", needs=n * GIB // 8) for n in range(MODELS))
    controls = make_controls()
    (board,) = controls.gpus.values()
    return replace(
        facts(),
        sample=found.sample,
        census=found.census,
        situation=Situation(
            NOW,
            {uuid: GpuSituation(uuid, "RTX 4090", 24 * GIB, GIB) for uuid in uuids},
            {name: tenant(name, 2) for name in names},
        ),
        definitions=found.definitions,
        activities=found.activities,
        engines={name: engine(name, settings=settings, models=models, version="1.2.3") for name in names[:ENGINES]},
        controls=Controls(dict.fromkeys(uuids, board), problem=""),
    )


async def test_cpu_of_all_checks(figure: Report) -> None:
    found = large()
    runner = SelfCheck(SystemClock(), asyncio.create_task)
    for second in (0, 61):  # from now on what is unmanaged lasts, and is named with what it costs
        runner.run(replace(found, now=NOW + second * 1_000_000))
        await asyncio.sleep(0)
    before, worst = time.process_time(), 0.0
    for number in range(ROUNDS):
        started = time.perf_counter()
        checks = runner.run(replace(found, now=NOW + (62 + number) * 1_000_000))
        worst = max(worst, time.perf_counter() - started)
    spent = (time.process_time() - before) / ROUNDS * 1000
    assert sum(check.id.startswith("unmanaged-") and check.state == "degraded" for check in checks) == GPUS
    figure(f"CPU of all {len(checks)} checks, {GPUS} GPUs, {TENANTS} tenants, {ENGINES} engines", spent, "ms", 10)
    figure("the same, the longest that a tick was held up", worst * 1000, "ms", 50)


def test_cpu_of_a_look_around(figure: Report) -> None:
    before = time.process_time()
    for _ in range(ROUNDS):
        look_around(Roots())
    figure("CPU of a look around, this machine", (time.process_time() - before) / ROUNDS * 1000, "ms", 100)
