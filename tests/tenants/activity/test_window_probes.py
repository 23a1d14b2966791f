"""Probes `vram`, `sm-utilization` and `cpu`: idle only after quiet that was watched."""

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.probes.cpu import cpu_probe
from gpusupervisor.tenants.activity.probes.sm_utilization import sm_utilization_probe
from gpusupervisor.tenants.activity.probes.vram import vram_probe
from gpusupervisor.tenants.definition import ProbeSpec
from tests.tenants.activity.builders import GIB, SECOND, context, holder, presence

MIB = 1 << 20
VRAM = ProbeSpec("vram", threshold=16 * MIB, idle_after=10 * SECOND)
SM = ProbeSpec("sm-utilization", threshold=5, idle_after=10 * SECOND)
CPU = ProbeSpec("cpu", threshold=10, idle_after=10 * SECOND)


async def test_vram_that_stays_is_idle_after_the_window(http: EngineHttp) -> None:
    probe = vram_probe(VRAM)
    who = presence("", holder(used=GIB))
    states = [(await probe.observe(context(http, who, at * SECOND))).state for at in (1, 6, 11, 60)]
    assert states == ["unknown", "unknown", "idle", "idle"]


async def test_vram_that_moved_is_busy_for_the_window(http: EngineHttp) -> None:
    probe = vram_probe(VRAM)
    sizes = {1: GIB, 20: GIB, 21: 2 * GIB, 30: 2 * GIB, 32: 2 * GIB, 40: 2 * GIB}
    states = [
        (await probe.observe(context(http, presence("", holder(used=size)), at * SECOND))).state
        for at, size in sizes.items()
    ]
    assert states == ["unknown", "idle", "busy", "busy", "unknown", "idle"]


async def test_slow_drift_of_vram_adds_up(http: EngineHttp) -> None:
    probe = vram_probe(VRAM)
    states = [
        (await probe.observe(context(http, presence("", holder(used=GIB + at * MIB)), at * SECOND))).state
        for at in range(1, 20)
    ]
    assert "busy" in states


async def test_small_movement_of_vram_is_no_life(http: EngineHttp) -> None:
    probe = vram_probe(VRAM)
    for at in range(1, 40):
        seen = await probe.observe(context(http, presence("", holder(used=GIB + at % 2 * MIB)), at * SECOND))
    assert seen.state == "idle"


async def test_unknown_holdings_are_unknown_and_start_the_window_anew(http: EngineHttp) -> None:
    probe = vram_probe(VRAM)
    known, unknown = presence("", holder()), presence("", holder(used=None), unknown=True)
    looks = [(1, known), (12, known), (13, unknown), (14, known), (25, known)]
    states = [(await probe.observe(context(http, who, at * SECOND))).state for at, who in looks]
    assert states == ["unknown", "idle", "unknown", "unknown", "idle"]


async def test_gpu_time_above_the_threshold_is_busy(http: EngineHttp) -> None:
    probe = sm_utilization_probe(SM)
    shares = {1: 40, 2: 5, 12: 5, 13: 6}
    states = [
        (await probe.observe(context(http, presence("", holder(sm=share)), at * SECOND))).state
        for at, share in shares.items()
    ]
    assert states == ["busy", "busy", "idle", "busy"]


async def test_gpu_time_that_is_not_told_is_unknown(http: EngineHttp) -> None:
    probe = sm_utilization_probe(SM)
    for at in (1, 20, 40):
        seen = await probe.observe(context(http, presence("", holder(sm=None)), at * SECOND))
    assert seen.state == "unknown"


async def test_one_process_that_computes_is_enough_though_another_is_not_known(http: EngineHttp) -> None:
    who = presence("", holder(1, sm=None), holder(2, sm=50))
    assert (await sm_utilization_probe(SM).observe(context(http, who, 1))).state == "busy"


async def test_quiet_of_one_process_says_nothing_of_another(http: EngineHttp) -> None:
    probe = sm_utilization_probe(SM)
    who = presence("", holder(1, sm=None), holder(2, sm=0))
    states = {(await probe.observe(context(http, who, at * SECOND))).state for at in (1, 20, 40)}
    assert states == {"unknown"}


async def test_cpu_share_between_two_looks_decides(http: EngineHttp) -> None:
    probe = cpu_probe(CPU)
    who = presence("", holder())
    used = {1: 0, 2: 500_000, 3: 505_000, 12: 520_000, 20: 530_000}
    states = [(await probe.observe(context(http, who, at * SECOND, cpu=cpu))).state for at, cpu in used.items()]
    assert states == ["unknown", "busy", "busy", "unknown", "idle"]


async def test_a_new_process_has_no_cpu_share_yet(http: EngineHttp) -> None:
    probe = cpu_probe(CPU)
    await probe.observe(context(http, presence("", holder(1)), SECOND, cpu=900_000_000))
    seen = await probe.observe(context(http, presence("", holder(2)), 2 * SECOND, cpu=0))
    assert seen.state == "unknown"


async def test_cpu_time_that_cannot_be_read_is_unknown(http: EngineHttp) -> None:
    seen = await cpu_probe(CPU).observe(context(http, presence("", holder()), SECOND, cpu=None))
    assert seen.state == "unknown"


async def test_evidence_is_as_old_as_the_measurement(http: EngineHttp) -> None:
    seen = await vram_probe(VRAM).observe(context(http, presence("", holder()), 9 * SECOND, measured=2 * SECOND))
    assert seen.observed_at == 2 * SECOND


async def test_the_same_measurement_twice_is_not_two(http: EngineHttp) -> None:
    probe = vram_probe(VRAM)
    who = presence("", holder())
    for now in (2, 30, 60):
        seen = await probe.observe(context(http, who, now * SECOND, measured=2 * SECOND))
    assert seen.state == "unknown"


async def test_who_holds_nothing_is_absent(http: EngineHttp) -> None:
    for probe in (vram_probe(VRAM), sm_utilization_probe(SM), cpu_probe(CPU)):
        assert (await probe.observe(context(http, presence(), 1))).state == "absent"
