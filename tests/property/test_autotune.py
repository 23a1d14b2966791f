"""Sweeps of any range, curves of any shape, and anything that may go wrong on the way."""

import asyncio
import contextlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusupervisor.autotune.curve import Measured, Work, propose
from gpusupervisor.autotune.points import Point, steps, subsample, sweep
from gpusupervisor.errors import SupervisorError
from tests.autotune.rig import BEFORE, Rig

CURVES = st.lists(
    st.builds(
        Measured,
        point=st.builds(Point, st.integers(1, 600_000), st.none() | st.integers(-500, 500)),
        work=st.builds(Work, st.integers(1, 5000), st.integers(1, 10**9)),
        power=st.integers(0, 10**6),
        hottest=st.integers(20, 90),
        reasons=st.just(frozenset()),
    ),
    min_size=1,
    max_size=20,
)
TOLERANCES = st.integers(0, 99)


@given(st.integers(-1000, 1000), st.integers(0, 2000), st.integers(1, 700), st.integers(1, 300))
def test_a_sub_sample_keeps_the_ends_and_has_the_right_number(low: int, width: int, step: int, count: int) -> None:
    values = tuple(steps(low, low + width, step))
    assert (values[0], values[-1]) == (low, low + width)
    taken = subsample(values, count)
    assert len(taken) == min(count, len(values))
    assert all(one < other for one, other in pairwise(taken))
    assert set(taken) <= set(values)
    assert taken[-1] == values[-1]
    assert count == 1 or taken[0] == values[0]


@given(st.sets(st.integers(1, 600), min_size=1), st.sets(st.integers(-500, 500)))
def test_every_limit_is_tried_at_every_offset_once(limits: set[int], offsets: set[int]) -> None:
    points = sweep(sorted(limits), sorted(offsets))
    assert len(points) == len(set(points)) == len(limits) * max(len(offsets), 1)


@given(CURVES, TOLERANCES)
def test_a_proposal_was_measured_and_is_fast_enough(curve: list[Measured], tolerance: int) -> None:
    proposal = propose(curve, tolerance)
    assert proposal in curve
    assert proposal is not None
    best = max(each.throughput for each in curve)
    assert proposal.throughput >= best * (100 - tolerance) / 100 * (1 - 1e-9)


@given(CURVES, TOLERANCES, TOLERANCES)
def test_who_tolerates_more_never_pays_more_energy(curve: list[Measured], one: int, other: int) -> None:
    strict, lax = (propose(curve, tolerance) for tolerance in sorted((one, other)))
    assert strict is not None
    assert lax is not None
    assert lax.energy_per_unit <= strict.energy_per_unit


@pytest.mark.filterwarnings("error")
@settings(max_examples=150)
@given(
    st.dictionaries(
        st.integers(1, 150),
        st.sampled_from(["xid", "hot", "blind", "throttle", "gone", "cancel", "no-power", "mistake"]),
        max_size=3,
    ),
    st.sets(st.sampled_from([150_000, 250_000, 350_000]), max_size=1),
    st.integers(0, 5),
    st.booleans(),
)
def test_the_state_before_is_set_again_exactly_once(
    happens: dict[int, str], refused: set[int], load_fails_at: int, restore_fails: bool
) -> None:
    rig = Rig(at_look=happens, refused=frozenset(refused), load_fails_at=load_fails_at, restore_fails=restore_fails)

    async def tune() -> None:
        with contextlib.suppress(SupervisorError, asyncio.CancelledError, ZeroDivisionError):
            await rig.tune(*sweep([150_000, 250_000, 350_000]))

    asyncio.run(tune())
    touched = any(done.startswith("set") for done in rig.done)
    assert rig.done.count("restore") == touched
    assert rig.done[-1:] in ([], ["prepare"], ["restore"])
    assert restore_fails or rig.now_set == BEFORE
    assert not rig.working
