"""What the commands print, also of names that other programs chose to be nasty."""

from typing import Any

import pytest

from gpusupervisor.cli import render
from gpusupervisor.cli.render import UNKNOWN

GIB = 1024**3
NASTY = "evil\x1b[2J\x07\r\nroot# \u202egnp.exe\x9b31m"
MANAGER = {"Version": "0.1.0", "Automatic": True, "Driver": "ok", "DriverVersion": "580.95.05"}
HEALTHY: dict[str, Any] = {"Summary": "healthy", "State": "ok", "Checks": []}


def gpu(**more: Any) -> dict[str, Any]:
    base = {
        "Name": "NVIDIA GeForce RTX 4090", "State": "ok", "StateDetail": "", "MemoryTotal": 24 * GIB,
        "MemoryUsed": 12 * GIB, "MemoryFree": 12 * GIB, "TenantHoldings": {}, "Unmanaged": [], "Unattributed": 0,
        "AttributionProblem": "", "Plan": "",
    }  # fmt: skip
    return {**base, **more}


def tenant(name: str = "ollama", **more: Any) -> dict[str, Any]:
    base = {
        "Id": name, "Activity": "idle", "ActivityReason": "no request is running", "Holding": 12 * GIB,
        "HoldingsIncomplete": False, "Need": UNKNOWN, "Reclaimable": 11 * GIB, "Starved": False, "StarvedReason": "",
    }  # fmt: skip
    return {**base, **more}


def status(
    *gpus: dict[str, Any],
    tenants: tuple[dict[str, Any], ...] = (),
    health: dict[str, Any] = HEALTHY,
    manager: dict[str, Any] = MANAGER,
) -> str:
    return render.status(manager, gpus, tenants, health)


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_the_screen_has_the_card_who_holds_it_and_why_they_are_busy() -> None:
    card = gpu(
        TenantHoldings={"comfyui": GIB, "ollama": 9 * GIB},
        Unmanaged=[{"name": "blender", "pid": 77, "used": 2 * GIB}],
        Unattributed=GIB // 2,
        Plan="plan-3",
    )
    starved = tenant("comfyui", Activity="busy", Starved=True, StarvedReason="3.0 GiB are missing", Holding=GIB)
    lines = status(card, tenants=(tenant(), starved)).splitlines()
    assert lines[0] == "gpusupervisor 0.1.0, automatic, driver 580.95.05, healthy"
    assert lines[2] == (
        "NVIDIA GeForce RTX 4090  [####################....................]  12.0 GiB of 24.0 GiB held, 12.0 GiB free"
    )
    assert [line.split() for line in lines[3:7]] == [
        ["9.0", "GiB", "ollama"],
        ["2.0", "GiB", "blender", "(pid", "77,", "unmanaged)"],
        ["1.0", "GiB", "comfyui"],
        ["512.0", "MiB", "unattributed"],
    ]
    assert lines[7] == "  plan plan-3 is being carried out"
    assert lines[9].split() == ["TENANT", "ACTIVITY", "HOLDS", "NEEDS", "RECLAIMABLE", "WHY"]
    assert lines[10].startswith("ollama")
    assert lines[-1] == "! comfyui is starved: 3.0 GiB are missing"


def test_nothing_at_all_is_a_screen_too() -> None:
    assert status() == "gpusupervisor 0.1.0, automatic, driver 580.95.05, healthy"


def test_without_a_driver_its_state_is_shown() -> None:
    broken = {**MANAGER, "Driver": "missing", "DriverVersion": "", "Automatic": False}
    check = {"state": "failed", "summary": "no library", "remedy": "install it"}
    passed = {"state": "ok", "summary": "all files are understood", "remedy": ""}
    shown = status(health={"Summary": "no library", "Checks": [check, passed]}, manager=broken)
    assert shown.splitlines() == [
        "gpusupervisor 0.1.0, observe-only, driver missing, no library",
        "",
        "! no library",
        "  install it",
    ]


@pytest.mark.parametrize("state", ["asleep", "lost", "failing"])
def test_a_card_that_cannot_be_read_shows_its_state_and_no_numbers(state: str) -> None:
    shown = status(gpu(State=state, StateDetail="because", MemoryTotal=UNKNOWN, MemoryUsed=UNKNOWN, MemoryFree=UNKNOWN))
    assert shown.splitlines()[2] == f"NVIDIA GeForce RTX 4090: {state} because"


def test_sizes_that_nobody_knows_are_question_marks_and_never_eighteen_exabytes() -> None:
    card = gpu(Unmanaged=[{"name": "x", "pid": 1, "used": UNKNOWN}], Unattributed=UNKNOWN)
    shown = status(card, tenants=(tenant(HoldingsIncomplete=True, Holding=GIB),))
    assert "           ?  x (pid 1, unmanaged)" in shown.splitlines()
    assert ">= 1.0 GiB" in shown
    assert "EiB" not in shown
    assert "unattributed" not in shown


def test_absent_tenants_are_left_out_of_the_screen_but_not_of_the_table() -> None:
    absent = tenant("vllm", Activity="absent", Holding=0)
    assert "vllm" not in status(gpu(), tenants=(absent,))
    assert "vllm" in render.tenant_table([absent])


def test_the_table_lists_the_largest_first() -> None:
    rows = render.tenant_table([tenant("a", Holding=1), tenant("b", Holding=3), tenant("c", Holding=2)]).splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["b", "c", "a"]


def test_nothing_that_others_named_can_steer_the_terminal() -> None:
    card = gpu(
        Name=NASTY, TenantHoldings={NASTY: GIB}, Unmanaged=[{"name": NASTY, "pid": 1, "used": GIB}],
        AttributionProblem=NASTY, Plan=NASTY,
    )  # fmt: skip
    lost = gpu(Name=NASTY, State="lost", StateDetail=NASTY)
    shown = tenant(NASTY, ActivityReason=NASTY, Starved=True, StarvedReason=NASTY)
    check = {"state": "failed", "summary": NASTY, "remedy": NASTY}
    texts = [
        status(card, lost, tenants=(shown,), health={"Summary": NASTY, "Checks": [check]}),
        render.plan(plan(NASTY)),
        render.result(result(NASTY)),
        *(render.event(member, body) for member, body in events(NASTY)),
        render.event("Unheard", [NASTY]),
        render.changes("/org/gpusupervisor1/tenants/x", "org.gpusupervisor1.Tenant", {"ActivityReason": NASTY}),
        render.safe_lines(f"{NASTY}\nsecond"),
    ]
    for text in texts:
        assert is_harmless(text), text


def plan(word: str = "ollama", *, empty: bool = False) -> dict[str, Any]:
    return {
        "summary": f"ask {word}",
        "steps": [] if empty else [{"tenant": word, "expected": 4 * GIB, "reason": f"{word} is idle"}],
        "blockers": [] if empty else [{"holder": word, "held": UNKNOWN, "reason": "unmanaged", "detail": word}],
        "sufficient": True,
    }


def result(word: str = "ollama") -> dict[str, Any]:
    step = {"tenant": word, "outcome": "freed", "freed": 4 * GIB, "duration": 1_234_567, "detail": word}
    return {"outcome": "satisfied", "freed": 4 * GIB, "steps": [step]}


def events(word: str = "plan-1") -> list[tuple[str, list[Any]]]:
    return [
        ("ReleasePlanned", [word, plan(word)]),
        ("ReleaseStarted", [word, plan(word)]),
        ("ReleaseStep", [word, word, "freed", 4 * GIB, {"detail": word}]),
        ("ReleaseFinished", [word, "satisfied", 4 * GIB, {"detail": word}]),
    ]


def test_a_plan_shows_whom_it_asks_and_who_is_in_the_way() -> None:
    lines = render.plan(plan()).splitlines()
    assert lines[0] == "ask ollama"
    assert lines[2].split() == ["ASK", "FOR", "BECAUSE"]
    assert lines[3].split() == ["ollama", "4.0", "GiB", "ollama", "is", "idle"]
    assert lines[6].split() == ["ollama", "?", "unmanaged", "ollama"]
    assert render.plan(plan(empty=True)) == "ask ollama"


def test_a_result_shows_each_step_as_it_was_measured() -> None:
    lines = render.result(result()).splitlines()
    assert lines[0] == "satisfied: 4.0 GiB came back"
    assert lines[3].split() == ["ollama", "freed", "4.0", "GiB", "1s", "234ms", "ollama"]
    nothing_done = {**result(), "steps": [], "detail": "there was room already"}
    assert render.result(nothing_done) == "satisfied: there was room already"


def test_every_signal_is_one_line() -> None:
    assert [render.event(member, body) for member, body in events()] == [
        "plan-1 planned: ask plan-1",
        "plan-1 started",
        "plan-1 plan-1 freed: plan-1",
        "plan-1 finished, satisfied: 4.0 GiB came back",
    ]


def test_a_signal_of_another_shape_is_shown_as_it_came() -> None:
    assert render.event("ReleaseStep", ["plan-1"]) == "ReleaseStep ['plan-1']"


def test_changed_properties_are_one_line_and_bulky_ones_left_out() -> None:
    line = render.changes(
        "/org/gpusupervisor1/tenants/ollama", "org.gpusupervisor1.Tenant", {"Activity": "busy", "Holdings": {}}
    )
    assert line == "ollama Tenant: Activity=busy"
    assert render.changes("/x", "y", {"Holdings": {}}) == ""


@pytest.mark.parametrize(("used", "full"), [(0, 0), (12, 20), (24, 40), (25, 40)])
def test_the_bar_is_as_full_as_the_card(used: int, full: int) -> None:
    assert render.bar(used, 24) == "#" * full + "." * (40 - full)


def test_a_card_without_memory_has_an_empty_bar() -> None:
    assert render.bar(0, 0) == "." * 40
