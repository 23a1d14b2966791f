from dataclasses import replace

from gpusupervisor.arbitration.assess import assess, assess_tenant
from gpusupervisor.arbitration.situation import GpuSituation, Reservation
from tests.arbitration.builders import CARD, GIB, NOW, needing, situation, starving, tenant


def test_what_a_tenant_already_holds_counts_towards_its_need() -> None:
    asker = starving(held=6, need=13)
    assert not assess_tenant(situation(asker, free=7), asker).starved
    verdict = assess_tenant(situation(asker, free=5), asker)
    assert verdict.starved
    assert verdict.shortfall == 2 * GIB


def test_an_idle_tenant_is_never_starved() -> None:
    verdict = assess_tenant(situation(lazy := tenant("lazy", 1, need=needing(20))), lazy)
    assert not verdict.starved
    assert "not busy" in verdict.reason


def test_a_busy_tenant_of_which_nothing_shows_that_it_lacks_memory_is_not_starved() -> None:
    verdict = assess_tenant(situation(asker := tenant("asker", 1, "busy")), asker)
    assert not verdict.starved
    assert "nothing shows that it lacks memory" in verdict.reason


def test_holdings_of_unknown_size_make_no_starvation() -> None:
    asker = starving(held=1, need=13, unknown_on=frozenset({CARD}))
    verdict = assess_tenant(situation(asker), asker)
    assert not verdict.starved
    assert "does not tell" in verdict.reason


def test_without_attribution_nobody_is_starved() -> None:
    asker = starving(need=13)
    card = GpuSituation(CARD, "RTX", 24 * GIB, 0, attribution_problem="attribution unavailable: scrambled")
    verdict = assess_tenant(situation(asker, gpus={CARD: card}), asker)
    assert not verdict.starved
    assert "scrambled" in verdict.reason


def test_without_a_readable_gpu_the_reason_says_so() -> None:
    asker = starving(need=13)
    blind = replace(situation(asker), gpus={})
    assert "no GPU can be read" in assess(blind)["asker"].reason


def test_the_desktops_reserve_is_not_available() -> None:
    asker = starving(need=10)
    assert assess_tenant(situation(asker, free=10, reserve=1), asker).shortfall == GIB


def test_a_tenant_that_holds_all_it_needs_is_content_even_when_the_reserve_is_undercut() -> None:
    asker = starving(held=10, need=10)
    assert not assess_tenant(situation(asker, free=0, reserve=1), asker).starved


def test_room_kept_for_somebody_else_is_not_available_but_ones_own_is() -> None:
    kept = Reservation(CARD, "other", 4 * GIB, NOW + 1)
    asker, other = starving("asker", need=10), starving("other", need=10)
    now = situation(asker, other, free=10, reservations=(kept,))
    assert assess_tenant(now, asker).shortfall == 4 * GIB
    assert not assess_tenant(now, other).starved


def test_the_verdict_is_about_the_gpu_on_which_most_is_held() -> None:
    asker = starving(need=20, holdings={"GPU-2": 4 * GIB})
    gpus = {
        CARD: GpuSituation(CARD, "big", 24 * GIB, 24 * GIB),
        "GPU-2": GpuSituation("GPU-2", "small", 8 * GIB, GIB),
    }
    verdict = assess_tenant(situation(asker, gpus=gpus), asker)
    assert verdict.gpu == "GPU-2"
    assert verdict.shortfall == 15 * GIB
