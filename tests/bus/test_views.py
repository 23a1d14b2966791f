from dataclasses import replace

import pytest

from gpusupervisor.arbitration.situation import Assessment, Reservation
from gpusupervisor.bus import interfaces
from gpusupervisor.bus.declare import Interface
from gpusupervisor.bus.published import Values
from gpusupervisor.bus.realtime import SteadyRealtime
from gpusupervisor.bus.views import (
    dead_band,
    engine_view,
    gpu_view,
    health_view,
    manager_view,
    starting,
    tenant_view,
)
from gpusupervisor.bus.wire import variant
from gpusupervisor.clock import UNKNOWN
from gpusupervisor.state import Check, State
from tests.bus.builders import CARD, EPOCH, GIB, MIB, FakeClock, definition, identity, make_plan, make_state


def realtime(instant: int | None) -> int:
    return EPOCH + instant if instant else UNKNOWN


def tenant(state: State, name: str) -> Values:
    return tenant_view(state, name, realtime)


def gpu(state: State) -> Values:
    return gpu_view(state, state.sample.gpus[0], realtime)


def test_an_idle_tenant_shows_what_it_would_give_back() -> None:
    shown = tenant(make_state(), "comfyui")
    assert shown["Activity"] == "idle"
    assert shown["Holding"] == 5 * GIB
    assert shown["Holdings"] == {CARD: 5 * GIB}
    assert shown["Floor"] == 512 * MIB
    assert shown["Reclaimable"] == 5 * GIB - 512 * MIB
    assert shown["IdleSince"] == EPOCH + 3_000_000_000
    assert shown["ReleaseMethod"] == "http"


@pytest.mark.parametrize("state", ["busy", "unknown", "stuck"])
def test_nothing_is_reclaimable_from_a_tenant_that_is_not_idle(state: str) -> None:
    shown = tenant(make_state(states={"comfyui": state}), "comfyui")  # type: ignore[dict-item]
    assert shown["Reclaimable"] == 0
    assert shown["IdleSince"] == UNKNOWN


def test_what_the_driver_does_not_say_is_unknown_and_never_zero() -> None:
    shown = tenant(make_state({"comfyui": None}), "comfyui")
    assert shown["HoldingsIncomplete"] is True
    [process] = shown["Processes"]  # type: ignore[misc]
    assert process["used"].value == UNKNOWN  # type: ignore[has-type]
    assert shown["Need"] is None


def test_a_starved_tenant_shows_why() -> None:
    state = replace(
        make_state(), assessments={"ollama": Assessment("ollama", True, CARD, 2 * GIB, "it spills to the CPU")}
    )
    shown = tenant(state, "ollama")
    assert (shown["Starved"], shown["Shortfall"], shown["StarvedReason"]) == (True, 2 * GIB, "it spills to the CPU")
    assert (shown["Need"], shown["NeedAtLeast"], shown["NeedSource"]) == (14 * GIB, 14 * GIB, "needs-vram")


def test_a_tenant_that_was_only_defined_is_shown_with_nothing_known() -> None:
    state = replace(make_state({}), definitions={"vllm": definition("vllm", releasable=False)})
    shown = tenant(state, "vllm")
    assert shown["Activity"] == "unknown"
    assert shown["ActivityObservedAt"] == UNKNOWN
    assert (shown["Holding"], shown["Floor"], shown["Shortfall"]) == (0, None, None)
    assert shown["StarvedReason"] == "not assessed yet"
    assert shown["ReleaseMethod"] == ""


def test_a_process_says_what_it_was_recognised_by() -> None:
    [process] = tenant(make_state(), "ollama")["Processes"]  # type: ignore[misc]
    plain = {name: value.value for name, value in process.items()}  # type: ignore[has-type]
    assert plain == {
        "pid": 1000, "name": "ollama", "gpu": CARD, "used": 12 * GIB,
        "executable": "ollama", "unit": "", "user_unit": "", "container": "", "ports": [],
        "recognised_by": "unit ollama.service", "orphan": False,
    }  # fmt: skip


def test_a_gpu_names_who_is_nobodys() -> None:
    state = make_state(reservations=(Reservation(CARD, "ollama", GIB, 6_000_000_000), Reservation("X", "b", 1, 1)))
    shown = gpu(replace(state, running={CARD: make_plan("p7")}))
    assert shown["MemoryTotal"] == 24 * GIB
    assert shown["Unattributed"] == 100 * MIB
    assert shown["TenantHoldings"] == {"ollama": 12 * GIB, "comfyui": 5 * GIB}
    [stranger] = shown["Unmanaged"]  # type: ignore[misc]
    assert (stranger["pid"].value, stranger["name"].value) == (4242, "train.py")  # type: ignore[has-type]
    [reservation] = shown["Reservations"]  # type: ignore[misc]
    assert reservation["expires_at"].value == EPOCH + 6_000_000_000  # type: ignore[has-type]
    assert shown["Plan"] == "p7"


def test_a_sleeping_gpu_has_unknown_memory() -> None:
    state = make_state({})
    shown = gpu_view(state, replace(state.sample.gpus[0], state="asleep", memory=None), realtime)
    assert shown["State"] == "asleep"
    assert [shown[name] for name in ("MemoryTotal", "MemoryUsed", "MemoryFree", "Unattributed")] == [None] * 4
    assert shown["MemorySource"] == ""


def test_health_is_as_bad_as_its_worst_check() -> None:
    good, bad = Check("driver", "ok", "fine"), Check("bus", "degraded", "the clock is off")
    worse = Check("gpu", "failed", "the card is lost", "no memory is managed", "reboot")
    assert health_view(make_state(checks=(good,)), realtime)["State"] == "ok"
    assert health_view(make_state(checks=(good,)), realtime)["Summary"] == "healthy"
    shown = health_view(make_state(checks=(bad, good, worse)), realtime)
    assert shown["State"] == "failed"
    assert shown["Summary"] == "the card is lost (and 1 more)"


def test_health_is_not_ok_before_anything_was_checked() -> None:
    assert health_view(starting(), realtime)["State"] == "degraded"


def test_skipped_checks_do_not_hurt() -> None:
    assert health_view(make_state(checks=(Check("gpu", "skipped", "no driver"),)), realtime)["State"] == "ok"


def test_the_dead_band_follows_the_smallest_card() -> None:
    assert dead_band(make_state()) == 24 * GIB // 100
    assert dead_band(starting()) == 64 * MIB


@pytest.mark.parametrize(
    ("interface", "view"),
    [
        (interfaces.MANAGER, manager_view(make_state(), "1")),
        (interfaces.TENANT, tenant(make_state(), "ollama")),
        (interfaces.TENANT, tenant(make_state({"x": None}), "x")),
        (interfaces.GPU, gpu(make_state())),
        (interfaces.ENGINE, engine_view(make_state(), "ollama")),
        (interfaces.HEALTH, health_view(make_state(), realtime)),
    ],
)
def test_a_view_has_exactly_the_declared_properties(interface: Interface, view: Values) -> None:
    assert list(view.keys() - {p.name for p in interface.properties}) == []
    for declared in interface.properties:
        assert variant(declared.signature, view[declared.name]).signature == declared.signature


def test_times_stand_still_though_the_clocks_jitter() -> None:
    clock = FakeClock()
    steady = SteadyRealtime(clock)
    first = steady(1_000)
    for _ in range(20):
        steady.refresh()
        assert steady(1_000) == first


def test_times_follow_a_wall_clock_that_was_set() -> None:
    clock = FakeClock()
    steady = SteadyRealtime(clock)
    before = steady(1_000)
    clock.jitter = -3_600_000_000
    clock.realtime = lambda instant: EPOCH + instant + 3_600_000_000  # type: ignore[method-assign]
    steady.refresh()
    assert 3_599_000_000 < steady(1_000) - before < 3_601_000_000


def test_a_process_of_unknown_identity_has_no_name() -> None:
    state = make_state()
    [stranger] = state.census.gpus[CARD].unmanaged
    nameless = replace(state.census.gpus[CARD], unmanaged=(replace(stranger, identity=None),))
    shown = gpu(replace(state, census=replace(state.census, gpus={CARD: nameless})))
    assert shown["Unmanaged"][0]["name"].value == ""  # type: ignore[index]
    assert identity(1, "/bin/x").name == "x"
