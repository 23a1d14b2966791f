"""What holds for every verdict, whatever was observed."""

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.tenants.activity.combine import judge
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, Observation
from gpusupervisor.tenants.census import TenantPresence
from tests.tenants.activity.builders import holder, presence

STATES = st.sampled_from(("absent", "idle", "busy", "stuck", "unknown"))
KINDS = st.sampled_from(("ollama", "comfyui", "http", "prometheus", "vram", "sm-utilization", "cpu"))
INSTANTS = st.integers(0, 100)
OBSERVATIONS = st.lists(
    st.builds(
        Observation,
        probe=KINDS,
        state=STATES,
        reason=st.sampled_from(("a", "b")),
        observed_at=INSTANTS,
        need=st.none() | st.integers(0, 1 << 40),
        pinned=st.booleans(),
        unreachable=st.booleans(),
    ),
    max_size=5,
)
PRESENCES = st.sampled_from((presence(""), presence("", holder()), presence("", holder(used=None), unknown=True)))
PREVIOUS = st.just(UNOBSERVED) | st.builds(
    Activity, state=STATES, reason=st.just("x"), evidence=st.just(()), observed_at=INSTANTS, since=INSTANTS
)
NOW, FRESHNESS = 100, 30


def decide(observations: list[Observation], who: TenantPresence, previous: Activity, growth: bool) -> Activity:
    return judge(observations, who, previous, growth=growth, now=NOW, freshness=FRESHNESS)


def fresh(observation: Observation) -> bool:
    return NOW - observation.observed_at <= FRESHNESS


@given(OBSERVATIONS, PRESENCES, PREVIOUS, st.booleans())
def test_idle_is_never_said_without_a_fresh_idle_authority(
    observations: list[Observation], who: TenantPresence, previous: Activity, growth: bool
) -> None:
    if decide(observations, who, previous, growth).state == "idle":
        assert observations[0].state == "idle"
        assert fresh(observations[0])
        assert not growth


@given(OBSERVATIONS, PRESENCES, PREVIOUS, st.booleans())
def test_idle_is_never_said_while_any_probe_sees_work(
    observations: list[Observation], who: TenantPresence, previous: Activity, growth: bool
) -> None:
    if any(fresh(seen) and seen.state in ("busy", "stuck") for seen in observations):
        assert decide(observations, who, previous, growth).state != "idle"


@given(OBSERVATIONS, PRESENCES, PREVIOUS, st.booleans())
def test_absent_is_never_said_of_a_holder_of_vram(
    observations: list[Observation], who: TenantPresence, previous: Activity, growth: bool
) -> None:
    if who.holders:
        assert decide(observations, who, previous, growth).state != "absent"


@given(OBSERVATIONS, PRESENCES, PREVIOUS, st.booleans())
def test_every_verdict_has_a_reason_a_line_per_probe_and_a_start(
    observations: list[Observation], who: TenantPresence, previous: Activity, growth: bool
) -> None:
    activity = decide(observations, who, previous, growth)
    assert activity.reason
    assert len(activity.evidence) == len(observations)
    assert activity.since <= NOW
    assert activity.observed_at <= NOW


@given(OBSERVATIONS, PRESENCES, PREVIOUS, st.booleans())
def test_the_same_again_changes_nothing(
    observations: list[Observation], who: TenantPresence, previous: Activity, growth: bool
) -> None:
    first = decide(observations, who, previous, growth)
    assert decide(observations, who, first, growth) == first
