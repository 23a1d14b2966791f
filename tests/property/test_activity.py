"""What holds for every verdict, whatever was observed and in whatever order."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.tenants.activity.judgement import Course, Evidence, judge
from gpusupervisor.tenants.activity.probes.process_activity import NEVER, PROCESS_PROBES, Signs
from gpusupervisor.tenants.activity.verdict import LIVELY, UNOBSERVED, Activity, ActivityState, Observation
from tests.tenants.activity.builders import GIB, Onlooker, holder, presence

SECOND = 1_000_000
NOW, FRESHNESS = 1000 * SECOND, 30 * SECOND
INSTANTS = st.integers(NOW - 60 * SECOND, NOW)
SEEN_AT = st.just(NEVER) | INSTANTS
ENGINE_STATES = st.sampled_from(("absent", "idle", "busy", "stirring", "unknown"))
PROCESS_STATES = st.sampled_from(("absent", "idle", "stirring", "unknown"))


def observations(kinds: tuple[str, ...], states: st.SearchStrategy[str]) -> st.SearchStrategy[Observation]:
    return st.builds(
        Observation,
        probe=st.sampled_from(kinds),
        state=states,
        reason=st.sampled_from(("a", "b")),
        observed_at=INSTANTS,
        pinned=st.booleans(),
        unreachable=st.booleans(),
        progressed_at=st.none() | INSTANTS,
        defers=st.booleans(),
    )


OBSERVATIONS = st.lists(
    observations(("ollama", "comfyui", "http", "prometheus"), ENGINE_STATES)
    | observations(tuple(PROCESS_PROBES), PROCESS_STATES),
    max_size=5,
)
SIGNS = st.builds(
    Signs, sm_at=SEEN_AT, sm_sustained_at=SEEN_AT, sm_is_known=st.booleans(), cpu_at=SEEN_AT, cpu_since=SEEN_AT,
    rose_at=SEEN_AT, rise_sustained_at=SEEN_AT, fell_at=SEEN_AT, quiet_span=st.integers(-1, 200 * SECOND),
    live_at=SEEN_AT, out_of_memory_at=st.none() | INSTANTS,
)  # fmt: skip
PRESENCES = st.sampled_from((presence(""), presence("", holder()), presence("", holder(used=None), unknown=True)))
EVIDENCE = st.builds(
    Evidence, observations=OBSERVATIONS, presence=PRESENCES, signs=SIGNS, card_is_full=st.booleans(),
    stuck_after=st.none() | st.integers(10 * SECOND, 100 * SECOND),
)  # fmt: skip
COURSES = st.just(Course()) | st.builds(
    Course, judged_at=INSTANTS, word_since=st.none() | INSTANTS, word_ended_at=SEEN_AT, moved_at=INSTANTS,
    rested=st.booleans(), is_stuck=st.booleans(), pids=st.just(frozenset({100})),
)  # fmt: skip
PREVIOUS = st.just(UNOBSERVED) | st.builds(
    Activity, state=ENGINE_STATES, reason=st.just("x"), evidence=st.just(()), observed_at=INSTANTS, since=INSTANTS
)


def decide(evidence: Evidence, previous: Activity, course: Course) -> Activity:
    return judge(evidence, previous, course, now=NOW, freshness=FRESHNESS)[0]


def fresh(observation: Observation) -> bool:
    return NOW - observation.observed_at <= FRESHNESS


def engines_words(evidence: Evidence) -> set[str]:
    return {seen.state for seen in evidence.observations if seen.probe not in PROCESS_PROBES and fresh(seen)}


@given(EVIDENCE, PREVIOUS, COURSES)
def test_idle_is_never_said_without_a_fresh_idle_authority(
    evidence: Evidence, previous: Activity, course: Course
) -> None:
    if decide(evidence, previous, course).state == "idle":
        authority = next((seen for seen in evidence.observations if not seen.defers), evidence.observations[0])
        assert authority.state == "idle"
        assert fresh(authority)


@given(EVIDENCE, PREVIOUS, COURSES)
def test_any_sign_of_life_protects(evidence: Evidence, previous: Activity, course: Course) -> None:
    signs = evidence.signs
    moving = max(signs.rose_at, signs.sm_at) > NOW - 3 * SECOND or signs.fell_at > NOW - 2 * SECOND
    probed = any(fresh(seen) and seen.state in ("busy", "stirring") for seen in evidence.observations)
    if probed or (evidence.presence.holders and moving):
        assert decide(evidence, previous, course).state not in ("idle", "absent")


@given(EVIDENCE, PREVIOUS, COURSES)
def test_a_word_alone_is_never_busy(evidence: Evidence, previous: Activity, course: Course) -> None:
    signs = evidence.signs
    work = max(signs.rose_at, signs.sm_at, signs.cpu_at, signs.sm_sustained_at, signs.rise_sustained_at)
    if work < NOW - 3 * SECOND:
        assert decide(evidence, previous, course).state != "busy"


@given(EVIDENCE, PREVIOUS, COURSES)
def test_cpu_time_alone_is_never_busy(evidence: Evidence, previous: Activity, course: Course) -> None:
    signs = evidence.signs
    moved = max(signs.rose_at, signs.sm_at, signs.sm_sustained_at, signs.rise_sustained_at) >= NOW - 3 * SECOND
    if "busy" not in engines_words(evidence) and not moved:
        assert decide(evidence, previous, course).state != "busy"


@given(EVIDENCE, PREVIOUS, COURSES)
def test_what_an_engine_denies_is_not_busy_on_one_kind_of_motion(
    evidence: Evidence, previous: Activity, course: Course
) -> None:
    both = min(evidence.signs.sm_sustained_at, evidence.signs.rise_sustained_at) >= NOW - 3 * SECOND
    authority = next((seen for seen in evidence.observations if not seen.defers), None)
    denied = authority is not None and authority.state == "idle" and authority.probe not in PROCESS_PROBES
    if denied and authority and fresh(authority) and "busy" not in engines_words(evidence) and not both:
        assert decide(evidence, previous, course).state != "busy"


@given(EVIDENCE, PREVIOUS, COURSES)
def test_absent_is_never_said_of_a_holder_of_vram(evidence: Evidence, previous: Activity, course: Course) -> None:
    if evidence.presence.holders:
        assert decide(evidence, previous, course).state != "absent"


@given(EVIDENCE, PREVIOUS, COURSES)
def test_every_verdict_has_a_reason_a_branch_a_line_per_probe_and_a_start(
    evidence: Evidence, previous: Activity, course: Course
) -> None:
    activity = decide(evidence, previous, course)
    assert activity.reason or activity.state == "stuck"
    assert activity.branch
    assert len(activity.evidence) == len(evidence.observations)
    assert activity.since <= NOW
    assert activity.observed_at <= NOW


@given(EVIDENCE, PREVIOUS, COURSES)
def test_the_same_again_changes_nothing(evidence: Evidence, previous: Activity, course: Course) -> None:
    first, after = judge(evidence, previous, course, now=NOW, freshness=FRESHNESS)
    assert judge(evidence, first, after, now=NOW, freshness=FRESHNESS) == (first, after)


class Step(NamedTuple):
    word: ActivityState
    sm: int | None
    cpu: int | None
    held: int


STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(("idle", "busy", "unknown", "absent", "stirring")),
        st.sampled_from((None, 0, 0, 80)), st.sampled_from((None, 0, 0, 430, 1000)),
        st.sampled_from((GIB, GIB, 2 * GIB, 5 * GIB, 0)),
    ),
    max_size=60,
)  # fmt: skip


@given(STEPS, st.booleans())
def test_over_any_course_of_events_what_is_not_known_to_rest_is_protected(steps: list[Step], full: bool) -> None:
    engine = Onlooker(card_is_full=full)
    for step in steps:
        activity = engine.sees(step.word, sm=step.sm, cpu=step.cpu, held=step.held)
        if step.word == "busy":
            assert activity.state in LIVELY | {"stuck"}
        if step.word in ("unknown", "stirring") or (step.held and (step.sm or 0) > 0):
            assert activity.state != "idle"


@given(STEPS)
def test_over_any_course_of_events_cpu_time_without_a_word_makes_nobody_busy(steps: list[Step]) -> None:
    engine = Onlooker()
    for step in steps:
        word: ActivityState = "idle" if step.word == "busy" else step.word
        assert engine.sees(word, sm=0, cpu=step.cpu).state != "busy"


@given(STEPS)
def test_over_any_course_of_events_a_word_without_work_makes_nobody_busy(steps: list[Step]) -> None:
    engine = Onlooker()
    for step in steps:
        assert engine.sees(step.word, sm=step.sm and 0, cpu=step.cpu and 0).state != "busy"
