"""What fits, and who is named for what does not."""

from dataclasses import replace

import pytest

from gpusupervisor.arbitration.situation import GpuSituation, Situation, UnmanagedHolder
from gpusupervisor.errors import Blocked
from gpusupervisor.models.fit import Ceiling, Fit, Manners, ceiling_of, fit_of, fit_summary
from gpusupervisor.models.load import room_for
from gpusupervisor.models.model import Model
from tests.arbitration.builders import CARD, GIB, situation, tenant
from tests.models.builders import model

ENGINE = tenant("ollama", 0, "idle", working_priority=50)
COMFYUI = tenant("comfyui", 8, default_floor=GIB // 2)
DESKTOP = tenant("desktop", 1, "idle", protected=True)


def fit(now: Situation, wanted: Model, manners: Manners = Manners()) -> Fit:  # noqa: B008
    return fit_of(now, "ollama", wanted, manners, [ceiling_of(now, uuid) for uuid in now.gpus])


def test_a_model_that_free_memory_covers_fits_now() -> None:
    assert fit(situation(ENGINE, COMFYUI, free=5), model(needs=5)).verdict == "now"


def test_reserve_and_other_reservations_are_not_room() -> None:
    assert fit(situation(ENGINE, free=5, total=8, reserve=1), model(needs=5)).verdict == "blocked"


def test_a_model_that_a_plan_makes_room_for_names_who_would_be_asked() -> None:
    found = fit(situation(ENGINE, COMFYUI, free=5), model(needs=10))
    assert found.verdict == "after-release"
    assert "comfyui" in found.detail


def test_a_model_that_a_busy_tenant_stands_in_the_way_of_is_blocked_by_it() -> None:
    found = fit(situation(ENGINE, replace(COMFYUI, activity="busy", priority=50), free=5), model(needs=10))
    assert found.verdict == "blocked"
    assert "comfyui (busy)" in found.detail


def test_what_the_desktop_and_strangers_keep_blocks_and_is_named() -> None:
    stranger = UnmanagedHolder(42, "train.py", 2 * GIB)
    now = situation(ENGINE, DESKTOP, free=13, total=16, unmanaged=(stranger,))
    found = fit(now, model(needs=14))
    assert found.verdict == "blocked"
    assert "train.py (pid 42) (2.0 GiB), desktop (1.0 GiB)" in found.detail


def test_a_model_too_large_for_the_card_is_blamed_on_nobody() -> None:
    found = fit(situation(ENGINE, COMFYUI, DESKTOP, free=5, reserve=1), model(needs=30))
    assert found.verdict == "never"
    assert found.detail == (
        "it needs 30.0 GiB, and RTX 4090 offers 23.0 GiB at most: 24.0 GiB minus 1.0 GiB kept by the driver and "
        "for the reserve"
    )


def test_of_shared_memory_host_programs_keep_what_the_driver_keeps_elsewhere() -> None:
    now = situation(ENGINE, free=5, reserve=1)
    card = replace(now.gpus[CARD], shared=True, reserved=4 * GIB)
    found = fit(replace(now, gpus={CARD: card}), model(needs=30))
    assert found.detail.endswith("24.0 GiB minus 5.0 GiB taken by host programs and for the reserve")


def test_an_engine_that_evicts_its_own_needs_nobody_else() -> None:
    engine = replace(ENGINE, holdings={CARD: 10 * GIB})
    now = situation(engine, COMFYUI, free=5)
    assert fit(now, model(needs=12)).verdict == "after-release"
    assert fit(now, model(needs=12), Manners(evicts=True)).verdict == "now"
    assert fit(now, model(needs=12), Manners(replaces=True)).verdict == "now"


def test_one_that_fits_but_for_what_its_engine_holds_is_blamed_on_nobody_else() -> None:
    engine = replace(ENGINE, holdings={CARD: 14 * GIB})
    now = situation(engine, COMFYUI, free=1)
    assert fit(now, model(needs=12)) == Fit(
        "blocked", "it does not fit on RTX 4090 next to what ollama already holds: unload one of its models first"
    )
    with pytest.raises(Blocked, match=r"There is no room for m, which needs 12\.0 GiB; it does not fit on RTX 4090"):
        room_for(now, "ollama", model(needs=12), Manners())
    busy = replace(COMFYUI, activity="busy", priority=50)
    found = fit(situation(engine, busy, free=1), model(needs=16), Manners(evicts=True))
    assert found == Fit("blocked", "in the way on RTX 4090: comfyui (busy)"), "in the place of its others"


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        (model(needs=None), "unknown"),
        (model(needs=99, state="loaded"), "now"),
        (model(needs=99, state="loading"), "now"),
        (model(needs=None, remote=True), "now"),
        (model(needs=9, state="loaded", held=2 * GIB, spilled=True), "blocked"),
    ],
)
def test_what_is_loaded_elsewhere_or_unknown(wanted: Model, verdict: str) -> None:
    engine = replace(ENGINE, holdings={CARD: 2 * GIB}) if wanted.spilled else ENGINE
    assert fit(situation(engine, free=3, total=10), wanted).verdict == verdict


def test_without_a_gpu_nothing_is_known() -> None:
    assert fit(Situation(0, {}, {"ollama": ENGINE}), model()).verdict == "unknown"


def test_of_several_gpus_the_best_counts() -> None:
    second = GpuSituation("GPU-2", "RTX 3060", 12 * GIB, 11 * GIB)
    now = situation(ENGINE, COMFYUI, gpus={CARD: GpuSituation(CARD, "RTX 4090", 24 * GIB, GIB), "GPU-2": second})
    found = fit(now, model(needs=10))
    assert (found.verdict, found.detail) == ("now", "there is room on RTX 3060")


def test_the_ceiling_counts_the_least_and_not_what_is_held_now() -> None:
    now = situation(COMFYUI, DESKTOP, free=14, reserve=1)
    before = ceiling_of(now, CARD)
    assert before.limit == 23 * GIB
    assert before.size == 23 * GIB - GIB // 2 - GIB
    watched = ceiling_of(now, CARD, lambda tenant, _gpu: {"desktop": GIB // 4, "comfyui": GIB}.get(tenant))
    assert watched.size == 23 * GIB - GIB // 4 - GIB


def test_a_tenant_that_is_not_there_keeps_nothing() -> None:
    away = replace(COMFYUI, holdings={})
    assert ceiling_of(situation(away, free=24), CARD).size == 24 * GIB


def test_the_drivers_part_and_what_is_nobodys_lower_the_ceiling() -> None:
    card = GpuSituation(CARD, "RTX 4090", 24 * GIB, 20 * GIB, unattributed=GIB, reserved=GIB // 2)
    ceiling = ceiling_of(situation(gpus={CARD: card}), CARD)
    assert ceiling.limit == 24 * GIB - GIB // 2
    assert ceiling.size == ceiling.limit - GIB


def test_the_summary_counts_what_fits_but_for_who_keeps_part() -> None:
    now = situation(DESKTOP, free=15, total=16, reserve=0.5)
    ceiling = ceiling_of(now, CARD)
    needs = [("a", GIB), ("b", 15 * GIB), ("c", 15 * GIB), ("d", 40 * GIB)]
    assert fit_summary(ceiling, needs) == (
        "2 models fit within 15.5 GiB but not the 14.5 GiB actually available: b, c; the difference is held by "
        "desktop (1.0 GiB)"
    )
    assert fit_summary(ceiling, [("a", GIB), ("d", 40 * GIB)]) == ""
    many = [(f"m{number}", 15 * GIB) for number in range(7)]
    assert "m0, m1, m2, m3, m4 and 2 more; the difference" in fit_summary(ceiling, many)
    assert fit_summary(Ceiling(CARD, "x", 0, 0, 0, ()), []) == ""
