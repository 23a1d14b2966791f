"""On which cards room helps whom."""

from dataclasses import replace

import pytest

from gpusupervisor.arbitration.assess import assess_tenant
from gpusupervisor.arbitration.cards import cards_of, visible_cards
from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.situation import GpuSituation
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from tests.arbitration.builders import GIB, needing, situation, starving, tenant
from tests.arbitration.seen import card

ONE, TWO = "GPU-1", "GPU-2"
FREE = {ONE: 2 * GIB, TWO: 5 * GIB}
BOTH = (ONE, TWO)


def set_to(**variables: str) -> ProcessIdentity:
    return ProcessIdentity(ProcessKey(1, 1), 1, 1, "x", environment=tuple(variables.items()))


def test_a_tenant_that_cannot_spread_is_judged_on_the_card_where_it_holds_most() -> None:
    assert cards_of({ONE: GIB}, FREE, None, spreads=False) == (ONE,)
    assert cards_of({}, FREE, None, spreads=False) == (TWO,)


def test_one_that_spreads_may_use_every_card_it_can_see_the_one_with_most_of_it_first() -> None:
    assert cards_of({ONE: GIB}, FREE, None, spreads=True) == (ONE, TWO)
    assert cards_of({}, FREE, frozenset({TWO}), spreads=True) == (TWO,)


def test_without_a_card_there_is_no_set() -> None:
    assert cards_of({}, {}, None, spreads=True) == ()
    assert cards_of({}, {}, None, spreads=False) == ()


@pytest.mark.parametrize(
    ("value", "more", "expected"),
    [
        ("1", {}, {TWO}),
        ("0,1", {}, {ONE, TWO}),
        ("0,7,1", {}, {ONE}),
        (TWO, {}, {TWO}),
        ("", {}, None),
        ("MIG-1", {}, None),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value: str, more: dict[str, str], expected: set[str] | None) -> None:
    gpus = (card(1, ONE), card(1, TWO))
    assert visible_cards([set_to(CUDA_VISIBLE_DEVICES=value, **more)], gpus) == expected


def test_an_index_says_nothing_where_the_order_of_different_cards_is_not_certain() -> None:
    gpus = (card(1, ONE), card(1, TWO, identity=GpuIdentity(TWO, "RTX 3060", "")))
    assert visible_cards([set_to(CUDA_VISIBLE_DEVICES="1")], gpus) is None
    ordered = set_to(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert visible_cards([ordered], gpus) == frozenset({TWO})


def two_cards(one: float, two: float) -> dict[str, GpuSituation]:
    return {
        ONE: GpuSituation(ONE, "RTX 4090", 24 * GIB, round(one * GIB)),
        TWO: GpuSituation(TWO, "RTX 4090", 24 * GIB, round(two * GIB)),
    }


def test_room_on_any_card_of_its_set_helps_a_model_that_spilled() -> None:
    spilled = starving(need=40, holdings={ONE: 21 * GIB, TWO: 10 * GIB}, cards=BOTH)
    idle = tenant("idle", holdings={TWO: 12 * GIB})
    now = situation(spilled, idle, gpus=two_cards(3, 2))
    verdict = assess_tenant(now, spilled)
    assert (verdict.starved, verdict.shortfall) == (True, 4 * GIB)
    plan = make_plan(now, Request("starved", ONE, "asker", 40 * GIB, gpus=BOTH), "p")
    assert plan.fits
    assert [(step.tenant, step.frees) for step in plan.steps] == [("idle", {TWO: 12 * GIB})]


def test_never_fitting_is_said_of_the_whole_set_only() -> None:
    asker = starving(need=40, cards=BOTH)
    now = situation(asker, gpus=two_cards(24, 24))
    assert make_plan(now, Request("starved", ONE, "asker", 40 * GIB, gpus=BOTH), "p").fits
    too_much = make_plan(now, Request("starved", ONE, "asker", 50 * GIB, gpus=BOTH), "p")
    assert not too_much.fits
    assert "RTX 4090 and RTX 4090: they offer 48.0 GiB at most" in too_much.summary


def test_a_card_without_its_reserve_takes_nothing_from_another() -> None:
    asker = starving(need=10, cards=BOTH)
    now = situation(asker, gpus=two_cards(0, 8), reserve=1)
    assert assess_tenant(now, asker).shortfall == 3 * GIB


def test_one_that_is_on_several_cards_is_asked_for_all_of_them_in_one_step() -> None:
    wide = tenant("wide", holdings={ONE: 6 * GIB, TWO: 6 * GIB})
    now = situation(starving(need=10, cards=BOTH), wide, gpus=two_cards(0, 0))
    plan = make_plan(now, Request("starved", ONE, "asker", 10 * GIB, gpus=BOTH), "p")
    (step,) = plan.steps
    assert (step.expected, set(step.gpus)) == (12 * GIB, set(BOTH))
    assert sum(step.frees.values()) == step.expected


def test_a_process_that_outlived_its_server_on_one_card_stays_while_the_other_card_is_asked_for() -> None:
    half = tenant("half", holdings={ONE: 6 * GIB, TWO: 5 * GIB}, orphan_on=frozenset({ONE}))
    now = situation(starving(need=4, cards=BOTH), half, gpus=two_cards(0, 0))
    plan = make_plan(now, Request("starved", ONE, "asker", 4 * GIB, gpus=BOTH), "p")
    assert [step.frees for step in plan.steps] == [{TWO: 5 * GIB}]
    assert [(b.reason, b.held) for b in plan.blockers] == [("orphan", 6 * GIB)]


def test_a_need_that_is_met_elsewhere_is_met() -> None:
    asker = replace(starving(holdings={ONE: 8 * GIB, TWO: 8 * GIB}, cards=BOTH), need=needing(16))
    assert not assess_tenant(situation(asker, gpus=two_cards(0, 0)), asker).starved
