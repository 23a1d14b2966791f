"""From observations to one verdict."""

from dataclasses import replace

from gpusupervisor.tenants.activity.combine import judge
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, ActivityState, Observation
from gpusupervisor.tenants.census import TenantPresence
from tests.tenants.activity.builders import holder, presence

FRESHNESS = 20
HOLDING = presence("http://127.0.0.1:1", holder())
BARE = presence("http://127.0.0.1:1")


def seen(state: ActivityState, probe: str = "ollama", at: int = 100) -> Observation:
    return Observation(probe, state, f"{probe} says {state}", at, unreachable=state == "absent")


def verdict(
    *observations: Observation,
    who: TenantPresence = HOLDING,
    previous: Activity = UNOBSERVED,
    growth: bool = False,
    now: int = 100,
) -> Activity:
    return judge(observations, who, previous, growth=growth, now=now, freshness=FRESHNESS)


def test_the_authoritys_idle_stands_when_nothing_contradicts() -> None:
    activity = verdict(seen("idle"), seen("unknown", "sm-utilization"), seen("idle", "cpu", at=90))
    assert (activity.state, activity.reason) == ("idle", "ollama says idle")
    assert activity.observed_at == 90
    assert activity.evidence == (
        "ollama: idle: ollama says idle",
        "sm-utilization: unknown: sm-utilization says unknown",
        "cpu: idle: cpu says idle",
    )


def test_where_the_first_defers_the_next_is_the_authority() -> None:
    deferring = replace(seen("unknown", "http"), defers=True)
    quiet = verdict(deferring, seen("idle", "sm-utilization"), seen("unknown", "cpu"))
    assert (quiet.state, quiet.reason) == ("idle", "sm-utilization says idle")
    assert verdict(deferring, seen("unknown", "sm-utilization"), seen("idle", "cpu")).state == "unknown"
    assert verdict(deferring, seen("idle", "sm-utilization"), seen("busy", "cpu")).state == "busy"
    assert verdict(deferring).reason == "http says unknown"


def test_a_corroborator_that_sees_life_makes_it_busy() -> None:
    activity = verdict(seen("idle"), seen("busy", "sm-utilization", at=95))
    assert (activity.state, activity.reason) == ("busy", "sm-utilization says busy")
    assert activity.observed_at == 95


def test_an_unknown_authority_is_never_idle() -> None:
    assert verdict(seen("unknown"), seen("idle", "vram"), seen("idle", "cpu")).state == "unknown"


def test_an_unknown_authority_with_a_sign_of_life_is_busy() -> None:
    assert verdict(seen("unknown"), seen("busy", "vram")).state == "busy"


def test_memory_that_grows_is_loading_whatever_the_engine_says() -> None:
    activity = verdict(seen("idle"), growth=True)
    assert (activity.state, activity.reason) == ("busy", "it is loading (its memory grows)")


def test_stuck_stays_stuck_with_impact_and_remedy() -> None:
    stuck = replace(seen("stuck", "comfyui"), impact="no job runs", remedy="restart it")
    activity = verdict(stuck, seen("idle", "sm-utilization"), seen("busy", "http"))
    assert (activity.state, activity.impact, activity.remedy) == ("stuck", "no job runs", "restart it")


def test_a_sign_of_life_ends_stuck() -> None:
    assert verdict(seen("stuck", "comfyui"), seen("busy", "cpu")).state == "busy"


def test_an_idle_authority_does_not_outvote_a_stuck_corroborator() -> None:
    assert verdict(seen("idle"), seen("stuck", "comfyui")).state == "stuck"


def test_no_process_and_nobody_listening_is_absent() -> None:
    activity = verdict(seen("absent"), who=BARE)
    assert (activity.state, activity.unreachable) == ("absent", True)


def test_nobody_listening_while_processes_hold_vram_is_unknown() -> None:
    activity = verdict(seen("absent"))
    assert (activity.state, activity.unreachable) == ("unknown", True)
    assert activity.reason == "ollama says absent, though its processes hold VRAM"


def test_a_server_without_vram_is_idle_not_absent() -> None:
    assert verdict(seen("idle"), who=BARE).state == "idle"


def test_old_evidence_is_unknown() -> None:
    for state in ("idle", "busy", "stuck", "absent"):
        activity = verdict(seen(state), now=121)
        assert activity.state == "unknown", state
        assert activity.reason == f"last heard too long ago ({state} then)"


def test_old_corroboration_does_not_count() -> None:
    assert verdict(seen("idle", at=120), seen("busy", "cpu", at=90), now=120).state == "idle"


def test_without_a_probe_it_is_unknown_while_it_holds_vram_and_absent_otherwise() -> None:
    assert verdict().state == "unknown"
    assert verdict(who=BARE).state == "absent"


def test_since_stands_for_as_long_as_the_state_does() -> None:
    first = verdict(seen("idle"))
    later = verdict(seen("idle", at=110), previous=first, now=110)
    busy = verdict(seen("busy", at=120), previous=later, now=120)
    assert (first.since, later.since, busy.since) == (100, 100, 120)


def test_the_first_unknown_counts_from_now_not_from_boot() -> None:
    assert verdict(seen("unknown")).since == 100


def test_need_and_pin_are_the_engines() -> None:
    told = replace(seen("busy"), need=13, pinned=True)
    activity = verdict(told, seen("idle", "vram"))
    assert (activity.need, activity.pinned) == (13, True)


def test_an_engine_that_answers_one_probe_has_answered_whatever_it_said() -> None:
    def asked(answered: bool | None, at: int = 100) -> Observation:
        return replace(seen("unknown", at=at), answered=answered)

    assert verdict(seen("idle", "vram")).answered is None, "nobody asks it"
    assert verdict(asked(None), asked(False)).answered is False
    assert verdict(asked(False), asked(True)).answered is True
    assert verdict(asked(True, at=60)).answered is False, "that was too long ago"
