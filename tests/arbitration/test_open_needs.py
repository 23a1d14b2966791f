"""Plans for a shortfall that nobody knows, from whole looks at a card: pressed, out of memory, sizes unknown."""

from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.compose import Seen, compose
from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import Assessment, ReleasePlan, Situation
from gpusupervisor.tenants.activity.verdict import Activity, Placement
from gpusupervisor.tenants.definition import ReleaseMethod
from tests.arbitration.builders import CARD, GIB, NOW, pressed, situation, tenant
from tests.arbitration.seen import definition, doing, process, seen

SECOND = 1_000_000
RESERVE = 600 << 20
TOTAL = 23.5


class Machine:
    """Ollama and ComfyUI on one card, looked at once a second."""

    def __init__(self, ollama: float = 21) -> None:
        self.history = History()
        self.now = NOW
        self.ollama = ollama

    def look(self, held: float, image: Activity, chat: Activity | None = None, **definition_values: Any) -> Situation:
        self.now += SECOND
        what = seen(
            process(1, self.ollama, "ollama"),
            process(2, held, "comfyui"),
            tenants={"ollama": chat or doing("idle"), "comfyui": image},
            definitions={
                "ollama": replace(definition("ollama"), release=RELEASE),
                "comfyui": definition("comfyui", **definition_values),
            },
            free=TOTAL - self.ollama - held,
            now=self.now,
        )
        return compose(taken(what, self.now), frozenset(), self.history, ReservationBook(0), RESERVE)


RELEASE = (ReleaseMethod("http", "POST", "/unload"),)


def taken(what: Seen, at: int) -> Seen:
    return replace(what, sample=replace(what.sample, taken_at=at))


def of(now: Situation, name: str = "comfyui") -> Assessment:
    return assess(now)[name]


def served(now: Situation) -> ReleasePlan:
    verdict, need = of(now), now.tenants["comfyui"].need
    assert need is not None
    return make_plan(now, Request("starved", verdict.gpu, "comfyui", need.low, is_open=need.is_open), "p")


def test_with_nothing_learned_the_idle_neighbour_is_asked_as_soon_as_the_card_is_full() -> None:
    machine = Machine()
    machine.look(0.4, doing("idle"))
    assert not of(machine.look(1.5, doing("busy"))).starved
    now = machine.look(2.5, doing("busy"))
    verdict = of(now)
    assert (verdict.starved, verdict.is_open) == (True, True)
    plan = served(now)
    assert [step.tenant for step in plan.steps] == ["ollama"]
    assert plan.is_open


def test_a_dead_worker_claims_nothing() -> None:
    machine = Machine()
    machine.look(0.4, doing("idle"))
    for state in ("claimed", "claimed", "stuck", "stuck"):
        assert not of(machine.look(2.5, doing(state))).starved


def test_a_greedy_peak_is_no_reason_to_empty_a_neighbour_before_anything_is_pressed() -> None:
    machine = Machine(ollama=8)
    machine.history.learned.recall([fact(23)])
    machine.look(0.4, doing("idle"))
    assert not of(machine.look(3, doing("busy"))).starved
    verdict = of(machine.look(15.5, doing("busy")))
    assert verdict.starved


def fact(size: float) -> Fact:
    return Fact("need", "comfyui", "", round(size * GIB), 1, "a test")


def test_a_load_that_failed_for_lack_of_memory_is_served_although_it_rests_now() -> None:
    machine = Machine(ollama=16.5)
    machine.look(0.4, doing("idle"))
    machine.look(6.9, doing("unknown"))
    now = machine.look(0.4, doing("idle"))
    verdict = of(now)
    assert verdict.starved
    assert verdict.reason.startswith("it ran out of memory after it had grown by 6.5 GiB")
    assert [step.tenant for step in served(now).steps] == ["ollama"]


def test_what_the_engine_says_about_memory_is_enough() -> None:
    machine = Machine(ollama=16.5)
    machine.look(0.4, doing("idle"))
    now = machine.look(0.4, doing("idle", out_of_memory_at=machine.now))
    verdict = of(now)
    assert verdict.starved, "what is free was not enough, however much that is"
    assert "its engine says that it ran out of memory" in verdict.reason
    assert [step.tenant for step in served(now).steps] == ["ollama"]


def test_an_open_need_is_met_one_candidate_at_a_time() -> None:
    now = situation(pressed(held=2), tenant("first", 4, priority=1), tenant("second", 9, priority=2))
    need = now.tenants["asker"].need
    assert need is not None
    plan = make_plan(now, Request("starved", CARD, "asker", need.low, is_open=True), "p")
    assert [step.tenant for step in plan.steps] == ["first"]


def test_the_reserve_is_named_in_what_is_missing() -> None:
    machine = Machine(ollama=11.9)
    verdict = of(machine.look(11.6, doing("busy"), needs_vram=15 * GIB))
    assert verdict.shortfall == round(3.4 * GIB) + RESERVE
    assert "it needs 15.0 GiB; it holds 11.6 GiB, 0 B are free, and 600.0 MiB are the reserve" in verdict.reason


def test_a_busy_engine_whose_models_are_placed_is_content_on_a_full_card() -> None:
    machine = Machine(ollama=15)
    for size in (22, 33):
        placed = Placement(size * GIB, size * GIB)
        now = machine.look(8.5, doing("idle"), doing("busy", placement=placed))
        assert not of(now, "ollama").starved


def test_a_holder_of_unknown_size_is_asked_last_and_named_as_such() -> None:
    hidden = tenant("hidden", unknown_on=frozenset({CARD}))
    now = situation(pressed(held=2), hidden)
    card = replace(now.gpus[CARD], unattributed=12 * GIB)
    now = replace(now, gpus={CARD: card})
    plan = make_plan(now, Request("starved", CARD, "asker", 6 * GIB), "p")
    assert [(step.tenant, step.expected) for step in plan.steps] == [("hidden", None)]
    assert "hidden (size unknown)" in plan.summary
    known = replace(now, tenants={**now.tenants, "known": tenant("known", 9, priority=40)})
    plan = make_plan(known, Request("starved", CARD, "asker", 6 * GIB), "p")
    assert [step.tenant for step in plan.steps] == ["known"]
    impossible = make_plan(now, Request("starved", CARD, "asker", 20 * GIB), "p")
    assert impossible.steps == ()


def test_memory_that_no_living_process_explains_is_in_the_way_with_its_size_and_pids() -> None:
    now = situation(pressed(held=2))
    card = replace(now.gpus[CARD], unattributed=9 * GIB, dead_pids=(4711, 4712))
    plan = make_plan(replace(now, gpus={CARD: card}), Request("starved", CARD, "asker", 6 * GIB), "p")
    (blocker,) = plan.blockers
    assert (blocker.holder, blocker.reason, blocker.held) == (
        "no living process (pid 4711, 4712)", "unattributed", 9 * GIB,
    )  # fmt: skip
    assert "no living process (pid 4711, 4712) (9.0 GiB, unattributed)" in plan.summary
