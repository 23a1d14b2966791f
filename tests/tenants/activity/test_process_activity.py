"""Probes `vram`, `sm-utilization` and `cpu`: idle only after quiet that was watched."""

from collections.abc import Mapping, Sequence

from gpusupervisor.tenants.activity.probes.process_activity import NEVER, ProcessActivity
from gpusupervisor.tenants.activity.verdict import ActivityState
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec
from tests.tenants.activity.builders import GIB, SECOND, holder, presence

MIB = 1 << 20
NOBODY: frozenset[str] = frozenset()
VRAM = ProbeSpec("vram", threshold=16 * MIB, idle_after=10 * SECOND)
SM = ProbeSpec("sm-utilization", threshold=5, idle_after=10 * SECOND)
CPU = ProbeSpec("cpu", threshold=10, idle_after=10 * SECOND)


class Watch:
    """One probe over one tenant's processes."""

    def __init__(self, spec: ProbeSpec) -> None:
        self.spec = spec
        self.processes = ProcessActivity(ActivitySpec((spec,)))

    def at(self, second: float, who: TenantPresence, cpu: int | None = None) -> ActivityState:
        instant = int(second * SECOND)
        self.processes.take_census(who, instant, NOBODY, NOBODY)
        self.processes.cpu.update(who, cpu, instant)
        seen = self.processes.observe(self.spec, who)
        return seen.state


def vram(sizes: Mapping[int, int] | Mapping[float, int], watch: Watch | None = None) -> list[ActivityState]:
    watch = watch or Watch(VRAM)
    return [watch.at(at, presence("", holder(used=size))) for at, size in sizes.items()]


def test_vram_that_stays_is_idle_after_the_window() -> None:
    assert vram(dict.fromkeys((1, 6, 11, 60), GIB)) == ["unknown", "unknown", "idle", "idle"]


def test_vram_that_grew_stirs_for_the_window() -> None:
    sizes = {1: GIB, 20: GIB, 21: 2 * GIB, 30: 2 * GIB, 32: 2 * GIB, 40: 2 * GIB}
    assert vram(sizes) == ["unknown", "idle", "stirring", "stirring", "unknown", "idle"]


def test_vram_that_fell_does_not_stir() -> None:
    assert vram({1: 2 * GIB, 20: 2 * GIB, 21: GIB}) == ["unknown", "idle", "idle"]


def test_slow_drift_of_vram_adds_up() -> None:
    assert "stirring" in vram({at: GIB + at * MIB for at in range(1, 20)})


def test_small_movement_of_vram_is_no_life() -> None:
    assert vram({at: GIB + at % 2 * MIB for at in range(1, 40)})[-1] == "idle"


def test_slow_growth_between_fast_samples_is_a_rise() -> None:
    watch = Watch(VRAM)
    vram({1 + step * 0.05: GIB + step * 10 * MIB for step in range(12)}, watch)
    assert watch.processes.signs().rose_at > NEVER


def test_one_jump_is_a_rise_and_only_steps_in_several_samples_are_sustained() -> None:
    jump, load = Watch(VRAM), Watch(VRAM)
    vram({1: GIB, 2: 9 * GIB, 3: 9 * GIB, 4: 9 * GIB}, jump)
    vram({1: GIB, 2: 3 * GIB, 3: 5 * GIB, 4: 5 * GIB}, load)
    assert jump.processes.signs().rose_at == 2 * SECOND
    assert jump.processes.signs().rise_sustained_at == NEVER
    assert load.processes.signs().rise_sustained_at == 3 * SECOND


def test_unknown_holdings_are_unknown_and_start_the_window_anew() -> None:
    known, unknown = presence("", holder()), presence("", holder(used=None), held={}, unknown=True)
    looks = [(1, known), (12, known), (13, unknown), (14, known), (25, known)]
    watch = Watch(VRAM)
    assert [watch.at(at, who) for at, who in looks] == ["unknown", "idle", "unknown", "unknown", "idle"]
    assert watch.processes.signs().rose_at == NEVER, "a size that becomes known has not grown"


def test_memory_that_could_not_be_read_has_not_grown_when_it_is_seen_again() -> None:
    watch, who = Watch(VRAM), presence("", holder(used=8 * GIB))
    watch.at(1, who)
    for at in (2, 3):
        watch.processes.take_census(presence(""), at * SECOND, frozenset({"GPU-1"}), NOBODY)
    watch.at(4, who)
    assert watch.processes.signs().rose_at == NEVER


def sm(shares: Sequence[tuple[float, int | None]], watch: Watch | None = None) -> list[ActivityState]:
    watch = watch or Watch(SM)
    return [watch.at(at, presence("", holder(sm=share))) for at, share in shares]


def test_gpu_time_above_the_threshold_stirs() -> None:
    assert sm([(1, 40), (2, 5), (12, 5), (13, 6)]) == ["stirring", "stirring", "idle", "stirring"]


def test_gpu_time_that_is_not_told_is_unknown() -> None:
    assert sm([(1, None), (20, None), (40, None)])[-1] == "unknown"


def test_gpu_time_that_is_not_told_any_more_protects_for_the_window() -> None:
    assert sm([(1, 40), (2, None), (12, None)]) == ["stirring", "stirring", "unknown"]


def test_one_process_that_computes_is_enough_though_another_is_not_known() -> None:
    assert Watch(SM).at(1, presence("", holder(1, sm=None), holder(2, sm=50))) == "stirring"


def test_quiet_of_one_process_says_nothing_of_another() -> None:
    watch, who = Watch(SM), presence("", holder(1, sm=None), holder(2, sm=0))
    assert {watch.at(at, who) for at in (1, 20, 40)} == {"unknown"}


def test_gpu_time_in_one_sample_is_a_glimpse_and_in_two_sustained() -> None:
    watch = Watch(SM)
    sm([(1, 40), (2, 0), (3, 40)], watch)
    assert watch.processes.signs().sm_sustained_at == NEVER
    sm([(3.2, 40), (4, 40)], watch)
    assert watch.processes.signs().sm_sustained_at == 4 * SECOND


def cpu(
    used: Mapping[int, int] | Mapping[int, None] | Mapping[float, int], watch: Watch | None = None
) -> list[ActivityState]:
    """used: CPU milliseconds until then."""
    watch = watch or Watch(CPU)
    return [watch.at(at, presence("", holder()), None if ms is None else ms * 1000) for at, ms in used.items()]


def test_cpu_share_between_two_looks_decides() -> None:
    used = {1: 0, 2: 500, 3: 505, 12: 520, 20: 530}
    assert cpu(used) == ["unknown", "stirring", "stirring", "unknown", "idle"]


def test_a_new_process_has_no_cpu_share_yet() -> None:
    watch = Watch(CPU)
    watch.at(1, presence("", holder(1)), 900 * SECOND)
    assert watch.at(2, presence("", holder(2)), 0) == "unknown"


def test_cpu_time_that_cannot_be_read_is_unknown() -> None:
    assert cpu({1: None, 2: None}) == ["unknown", "unknown"]


def test_cpu_time_is_sustained_over_three_readings_and_outlasts_one_pause() -> None:
    watch = Watch(CPU)
    cpu({1: 0, 2: 500, 3: 1000}, watch)
    assert watch.processes.signs().cpu_at == NEVER
    cpu({4: 1500, 5: 1500, 6: 2000}, watch)
    signs = watch.processes.signs()
    assert (signs.cpu_at, signs.cpu_since) == (6 * SECOND, 2 * SECOND)
    cpu({7: 2000, 8: 2000, 9: 2500, 10: 3000}, watch)
    assert watch.processes.signs().cpu_at == 6 * SECOND, "two pauses end it"


def test_readings_at_a_fast_pace_are_no_more_than_at_a_slow_one() -> None:
    watch = Watch(CPU)
    cpu({1 + step * 0.1: step * 50 for step in range(20)}, watch)
    assert watch.processes.signs().cpu_at == NEVER, "they span two seconds"


def test_evidence_is_as_old_as_the_measurement() -> None:
    watch, who = Watch(VRAM), presence("", holder())
    watch.at(2, who)
    assert watch.processes.observe(VRAM, who).observed_at == 2 * SECOND


def test_who_holds_nothing_is_absent() -> None:
    for spec in (VRAM, SM, CPU):
        assert Watch(spec).at(1, presence()) == "absent"
