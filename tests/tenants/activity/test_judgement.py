"""From what was seen to one verdict: an engine's word and its processes' work, apart and together."""

from dataclasses import replace

import pytest

from gpusupervisor.tenants.activity.judgement import Course, Evidence, judge
from gpusupervisor.tenants.activity.probes.process_activity import NOTHING_SEEN, Signs
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, ActivityState, Observation
from gpusupervisor.tenants.census import TenantPresence
from tests.tenants.activity.builders import GIB, SECOND, Onlooker, holder, presence

MIB = 1 << 20
FRESHNESS = 20
HOLDING = presence("http://127.0.0.1:1", holder())
BARE = presence("http://127.0.0.1:1")


def seen(state: ActivityState, probe: str = "ollama", at: int = 100) -> Observation:
    return Observation(probe, state, f"{probe} says {state}", at, unreachable=state == "absent")


def verdict(
    *observations: Observation,
    who: TenantPresence = HOLDING,
    previous: Activity = UNOBSERVED,
    signs: Signs = NOTHING_SEEN,
    now: int = 100,
) -> Activity:
    return judge(Evidence(observations, who, signs), previous, Course(), now=now, freshness=FRESHNESS)[0]


def test_the_authoritys_idle_stands_when_nothing_contradicts() -> None:
    activity = verdict(seen("idle"), seen("unknown", "sm-utilization"), seen("idle", "cpu", at=90))
    assert (activity.state, activity.reason) == ("idle", "ollama says idle")
    assert activity.observed_at == 90
    assert activity.evidence == (
        "ollama: idle: ollama says idle",
        "sm-utilization: unknown: sm-utilization says unknown",
        "cpu: idle: cpu says idle",
    )


@pytest.mark.parametrize(
    ("probe", "quiet", "sign", "state"),
    [
        ("ollama", 2 * SECOND, "sm-utilization", "idle"),
        ("ollama", 2 * SECOND, "cpu", "idle"),
        ("ollama", 2 * SECOND - 1, "sm-utilization", "stirring"),
        ("ollama", 2 * SECOND, "vram", "stirring"),
        ("comfyui", 2 * SECOND, "sm-utilization", "stirring"),
        ("http", 9 * SECOND, "sm-utilization", "stirring"),
    ],
)
def test_an_engine_whose_runners_say_that_they_rest_rests_two_seconds_after_it_worked(
    probe: str, quiet: int, sign: str, state: str
) -> None:
    now = 100 * SECOND
    signs = Signs(sm_is_known=True, live_at=now - quiet, quiet_span=quiet)
    word, past = seen("idle", probe, at=now), seen("stirring", sign, at=now)
    activity = judge(
        Evidence([word, past], HOLDING, signs), UNOBSERVED, Course(), now=now, freshness=FRESHNESS
    )[0]  # fmt: skip
    assert activity.state == state


def test_without_a_look_at_its_processes_the_word_of_rest_shortens_nothing() -> None:
    now = 100 * SECOND
    observed = [seen("idle", at=now), seen("stirring", "sm-utilization", at=now)]
    for signs in (NOTHING_SEEN, Signs(live_at=now - 9 * SECOND)):
        activity = judge(Evidence(observed, HOLDING, signs), UNOBSERVED, Course(), now=now, freshness=FRESHNESS)[0]
        assert activity.state == "stirring"


def test_where_the_first_defers_the_next_is_the_authority() -> None:
    deferring = replace(seen("unknown", "http"), defers=True)
    quiet = verdict(deferring, seen("idle", "sm-utilization"), seen("unknown", "cpu"))
    assert (quiet.state, quiet.reason) == ("idle", "sm-utilization says idle")
    assert verdict(deferring, seen("unknown", "sm-utilization"), seen("idle", "cpu")).state == "unknown"
    assert verdict(deferring, seen("idle", "sm-utilization"), seen("stirring", "cpu")).state == "stirring"
    assert verdict(deferring).reason == "http says unknown"


@pytest.mark.parametrize("kind", ["sm-utilization", "cpu", "vram", "http"])
def test_any_life_beside_an_idle_authority_protects_and_claims_nothing(kind: str) -> None:
    activity = verdict(seen("idle"), seen("stirring", kind, at=95))
    assert (activity.state, activity.reason) == ("stirring", f"{kind} says stirring")
    assert activity.observed_at == 95


def test_an_unknown_authority_is_never_idle() -> None:
    assert verdict(seen("unknown"), seen("idle", "vram"), seen("idle", "cpu")).state == "unknown"


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
    for state in ("idle", "busy", "stirring", "absent"):
        activity = verdict(seen(state), now=121)
        assert activity.state == "unknown", state
        assert activity.reason == f"last heard too long ago ({state} then)"


def test_old_corroboration_does_not_count() -> None:
    assert verdict(seen("idle", at=120), seen("stirring", "cpu", at=90), now=120).state == "idle"


def test_without_a_probe_it_is_unknown_while_it_holds_vram_and_absent_otherwise() -> None:
    assert verdict().state == "unknown"
    assert verdict(who=BARE).state == "absent"


def test_since_stands_for_as_long_as_the_state_does() -> None:
    first = verdict(seen("idle"))
    later = verdict(seen("idle", at=110), previous=first, now=110)
    claimed = verdict(seen("busy", at=120), previous=later, now=120)
    assert (first.since, later.since, claimed.since) == (100, 100, 120)


def test_the_first_unknown_counts_from_now_not_from_boot() -> None:
    assert verdict(seen("unknown")).since == 100


def test_need_pin_and_failures_are_the_engines() -> None:
    told = replace(seen("busy"), pinned=True, out_of_memory_at=70)
    activity = verdict(told, seen("idle", "vram"), signs=Signs(out_of_memory_at=60))
    assert (activity.pinned, activity.out_of_memory_at) == (True, 70)
    assert verdict(told, signs=Signs(out_of_memory_at=80)).out_of_memory_at == 80


def test_an_engine_that_answers_one_probe_has_answered_whatever_it_said() -> None:
    def asked(answered: bool | None, at: int = 100) -> Observation:
        return replace(seen("unknown", at=at), answered=answered)

    assert verdict(seen("idle", "vram")).answered is None, "nobody asks it"
    assert verdict(asked(None), asked(False)).answered is False
    assert verdict(asked(False), asked(True)).answered is True
    assert verdict(asked(True, at=60)).answered is False, "that was too long ago"


def test_a_word_with_gpu_time_is_busy_at_first_sight() -> None:
    engine = Onlooker()
    engine.rests()
    activity = engine.sees("busy", sm=90)
    assert (activity.state, activity.reason) == ("busy", "its queue reports 1 prompt")


def test_a_word_with_rising_vram_is_busy_at_first_sight() -> None:
    engine = Onlooker()
    engine.rests()
    assert engine.sees("busy", held=GIB + 60 * MIB).state == "busy"


def test_a_word_without_work_is_claimed_and_says_which_witness_is_missing() -> None:
    engine = Onlooker()
    engine.rests()
    activity = engine.sees("busy")
    assert (activity.state, activity.reason) == (
        "claimed", "its queue reports 1 prompt, but its processes show no work",
    )  # fmt: skip


def test_cpu_time_supports_a_word_once_it_is_sustained() -> None:
    engine = Onlooker()
    engine.rests()
    assert [engine.sees("busy", cpu=600).state for _ in range(4)] == ["claimed", "claimed", "busy", "busy"]


def test_cpu_time_just_before_a_word_counts_and_longer_before_does_not() -> None:
    near, far = Onlooker(), Onlooker()
    near.rests()
    far.rests()
    for _ in range(2):
        near.sees(cpu=600)
    assert near.sees("busy", cpu=600).state == "claimed", "the first reading began too early"
    assert near.sees("busy", cpu=600).state == "busy"
    for _ in range(20):
        far.sees(cpu=1000)
    assert far.sees("busy", cpu=0).state == "claimed", "a page was loaded for a long time"


def test_a_burst_of_half_a_second_is_no_work_wherever_it_falls() -> None:
    for first in range(0, 600, 50):
        engine = Onlooker()
        engine.rests()
        for _ in range(5):
            engine.sees("busy")
        states = {engine.sees("busy", cpu=cpu).state for cpu in (first, 500 - first if first < 500 else 0, 0, 0)}
        assert states == {"claimed"}, first


def test_work_that_stops_leaves_a_claim() -> None:
    engine = Onlooker()
    engine.rests()
    engine.sees("busy", sm=90)
    assert [engine.sees("busy").state for _ in range(5)] == ["busy", "busy", "busy", "claimed", "claimed"]


def test_work_of_an_earlier_word_does_not_support_the_next_one() -> None:
    engine = Onlooker()
    engine.rests()
    for _ in range(5):
        engine.sees("busy", cpu=900)
    engine.sees("idle", cpu=300)
    assert engine.sees("busy").state == "claimed"


@pytest.mark.parametrize(("full", "limit"), [(True, 30), (False, 120)])
def test_a_claim_that_nothing_bears_out_is_stuck_after_a_time_that_fits_the_card(full: bool, limit: int) -> None:
    engine = Onlooker(card_is_full=full)
    engine.rests()
    states = [engine.sees("busy").state for _ in range(limit + 20)]
    assert states[:limit] == ["claimed"] * limit
    assert states[limit:] == ["stuck"] * 20
    assert engine.activity.reason == (
        "its queue reports 1 prompt, but its processes show no work: its worker has died, or it waits for a service in "
        "the network"
    )
    assert "its memory cannot be asked for" in engine.activity.impact
    assert engine.activity.remedy.endswith("restart it: systemctl restart app.service")


def test_a_definition_may_say_how_long_a_claim_stands() -> None:
    engine = Onlooker(stuck_after=10 * SECOND)
    engine.rests()
    states = [engine.sees("busy").state for _ in range(12)]
    assert (states[9], states[10]) == ("claimed", "stuck")


def test_stuck_does_not_flap() -> None:
    engine = Onlooker(card_is_full=True)
    engine.rests()
    for _ in range(40):
        engine.sees("busy")
    reason = engine.activity.reason
    burst = [engine.sees("busy", cpu=900).state for _ in range(6)]
    unheard = [engine.sees("unknown").state for _ in range(3)]
    emptier = engine.sees("busy")
    engine.card_is_full = False
    again = [engine.sees("busy").state for _ in range(20)]
    assert {*burst, *unheard, *again, emptier.state} == {"stuck"}
    assert engine.activity.reason == reason


@pytest.mark.parametrize("sign", ["gpu time", "vram", "progress", "queue empty", "restart"])
def test_stuck_ends_when_work_is_seen_or_the_word_ends(sign: str) -> None:
    engine = Onlooker(card_is_full=True)
    engine.rests()
    for _ in range(40):
        engine.sees("busy")
    if sign == "restart":
        engine.pid = 200
    ended = {
        "gpu time": lambda: engine.sees("busy", sm=50),
        "vram": lambda: engine.sees("busy", held=2 * GIB),
        "progress": lambda: engine.sees("busy", progress=True),
        "queue empty": lambda: engine.sees("idle"),
        "restart": lambda: engine.sees("busy"),
    }[sign]()
    assert ended.state == {"gpu time": "busy", "vram": "busy", "queue empty": "idle"}.get(sign, "claimed")
    if sign == "progress":
        assert {engine.sees("busy").state for _ in range(20)} == {"claimed"}


def test_a_suspended_machine_makes_no_claim_stuck() -> None:
    engine = Onlooker(card_is_full=True)
    engine.rests()
    for _ in range(20):
        engine.sees("busy")
    assert engine.sees("busy", after=8 * 3600).state == "claimed"
    assert {engine.sees("busy").state for _ in range(25)} == {"claimed"}


def test_without_a_view_of_gpu_or_cpu_time_nothing_is_called_stuck() -> None:
    engine = Onlooker(card_is_full=True)
    states = {engine.sees("busy", sm=None, cpu=None).state for _ in range(200)}
    assert states == {"claimed"}


def test_a_page_that_is_loaded_while_the_worker_is_dead_makes_no_claim() -> None:
    engine = Onlooker()
    engine.rests()
    for _ in range(10):
        engine.sees("busy")
    assert {engine.sees("busy", cpu=1000).state for _ in range(8)} == {"claimed"}


def test_where_gpu_time_is_not_told_cpu_time_after_a_wait_is_work() -> None:
    engine = Onlooker()
    for _ in range(20):
        engine.sees("busy", sm=None)
    assert [engine.sees("busy", sm=None, cpu=900).state for _ in range(4)][-1] == "busy"


def test_a_job_of_an_engine_that_holds_its_bare_context_is_not_running() -> None:
    engine = Onlooker()
    for _ in range(15):
        engine.sees(held=500 * MIB)
    states = [engine.sees("busy", cpu=800, held=500 * MIB) for _ in range(8)]
    assert {each.state for each in states} == {"claimed"}
    assert states[-1].reason.endswith("its processes hold a bare context (500.0 MiB) that does not grow")
    assert engine.sees("busy", cpu=800, held=700 * MIB).state == "busy"


def test_the_level_of_memory_says_nothing_where_sizes_are_unknown() -> None:
    engine = Onlooker(sizes_are_known=False)
    for _ in range(15):
        engine.sees()
    assert [engine.sees("busy", cpu=800).state for _ in range(4)][-1] == "busy"
    assert "holds no VRAM" not in engine.activity.reason


def test_cpu_time_alone_is_stirring_however_long_it_lasts() -> None:
    engine = Onlooker()
    engine.rests()
    states = [engine.sees(cpu=1000) for _ in range(30)]
    assert {each.state for each in states} == {"stirring"}
    assert states[-1].reason == "its processes use the CPU"


def test_cpu_time_after_a_word_ended_is_its_aftermath() -> None:
    engine = Onlooker()
    engine.rests()
    for _ in range(3):
        engine.sees("busy", sm=80)
    engine.sees("idle")
    engine.rests(12)
    engine.sees("busy", sm=0)
    engine.sees("idle")
    after = engine.sees("idle", cpu=430)
    assert (after.state, after.reason) == ("stirring", "its processes clean up after its work")


def test_unloading_that_costs_cpu_time_is_no_work() -> None:
    engine = Onlooker()
    for _ in range(15):
        engine.sees(held=12 * GIB)
    sizes = [12 * GIB, 8 * GIB, GIB, GIB, GIB, GIB]
    assert {engine.sees(cpu=1000, held=size).state for size in sizes} == {"stirring"}


def test_memory_that_falls_protects_for_a_moment() -> None:
    engine = Onlooker("comfyui")
    for _ in range(3):
        engine.sees(held=2 * GIB)
    states = [engine.sees(held=GIB).state for _ in range(4)]
    assert states == ["stirring", "stirring", "idle", "idle"]


def test_an_engine_that_reports_no_work_rests_though_it_still_gives_memory_back() -> None:
    engine = Onlooker()
    for _ in range(15):
        engine.sees(held=12 * GIB)
    falling = engine.sees(cpu=1000, held=GIB)
    assert (falling.state, falling.says_rest) == ("stirring", True)
    assert not engine.sees("busy", sm=90, held=GIB).says_rest
    app = Onlooker("sm-utilization")
    for _ in range(15):
        app.sees()
    assert (app.activity.state, app.activity.says_rest) == ("idle", False)


def test_growing_memory_that_an_engine_denies_protects_and_claims_nothing() -> None:
    engine = Onlooker()
    engine.rests()
    states = {engine.sees(held=(2 + step) * GIB).state for step in range(6)}
    assert states == {"stirring"}


def test_two_kinds_of_sustained_motion_outweigh_a_denial() -> None:
    engine = Onlooker()
    engine.rests()
    states = [engine.sees(sm=90, held=(2 + step) * GIB).state for step in range(4)]
    assert states == ["stirring", "busy", "busy", "busy"]


@pytest.mark.parametrize("word", ["unknown", "absent"])
def test_where_no_api_tells_motion_that_lasts_is_work(word: ActivityState) -> None:
    computing, loading = Onlooker(), Onlooker()
    assert [computing.sees(word, sm=90).state for _ in range(3)] == ["stirring", "busy", "busy"]
    loading.sees(word)
    assert [loading.sees(word, held=(2 + step) * GIB).state for step in range(3)] == ["stirring", "busy", "busy"]
    assert computing.activity.reason == "its processes compute on the GPU"
    assert loading.activity.reason == "it is loading (its VRAM grows)"


def test_where_there_is_no_api_work_that_ended_protects_for_the_probes_window() -> None:
    app = Onlooker("sm-utilization", "cpu", "vram")
    for _ in range(15):
        app.sees()
    for _ in range(5):
        app.sees(sm=70)
    states = [app.sees().state for _ in range(14)]
    assert states[:3] == ["busy"] * 3
    assert states[3:9] == ["stirring"] * 6
    assert states[11:] == ["idle"] * 3


def test_gpu_time_protects_though_no_probe_of_the_definition_looks_at_it() -> None:
    app = Onlooker("http")
    app.sees()
    assert app.sees(sm=60).state == "stirring"
    assert [app.sees().state for _ in range(4)][-1] == "idle"


def test_a_process_that_ends_while_it_grows_on_a_full_card_ran_out_of_memory() -> None:
    engine = Onlooker()
    engine.sees(held=GIB)
    engine.sees(held=6 * GIB)
    engine.card_is_full = True
    engine.sees(held=12 * GIB)
    assert engine.sees(held=0).out_of_memory_at == engine.now


def test_a_process_that_is_seen_but_once_on_a_full_card_ran_out_of_memory_unless_it_had_loaded_nothing() -> None:
    for size, ran_out in ((7 * GIB, True), (600 << 20, False)):
        engine = Onlooker(card_is_full=True)
        engine.sees(held=0)
        engine.sees(held=size)
        assert (engine.sees(held=0).out_of_memory_at is not None) is ran_out


def test_what_already_ran_at_the_first_look_has_not_grown() -> None:
    engine = Onlooker(card_is_full=True)
    engine.sees(held=7 * GIB)
    assert engine.sees(held=0).out_of_memory_at is None


@pytest.mark.parametrize("why", ["the card had room", "it had not grown", "it lives on"])
def test_what_ends_otherwise_did_not_run_out_of_memory(why: str) -> None:
    engine = Onlooker(card_is_full=why != "the card had room")
    for size in (GIB, 6 * GIB, 12 * GIB):
        engine.sees(held=size)
    if why == "it had not grown":
        for _ in range(4):
            engine.sees(held=12 * GIB)
    assert engine.sees(held=GIB if why == "it lives on" else 0).out_of_memory_at is None
