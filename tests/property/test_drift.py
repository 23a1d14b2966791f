"""Drift, whatever is read and however time goes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.helper.drift.keeper import (
    MOST_REPAIRS,
    WINDOW,
    DriftContested,
    DriftEnded,
    DriftKeeper,
    DriftRepaired,
    Trigger,
)
from gpusupervisor.helper.drift.verdict import OFFSET_STEP, POWER_STEP, Cause, Kind, Verdict, judge
from gpusupervisor.helper.profile.card import Reading
from gpusupervisor.helper.values import ItemResult, Profile
from tests.helper.profile.station import capabilities

ITEMS = ("power-limit", "offset-graphics", "locked-clocks-graphics")
KINDS: tuple[tuple[Kind, Cause], ...] = (
    ("ok", ""),
    ("drifted", "reset-to-default"),
    ("drifted", "changed-by-another"),
    ("overridden", "enforced-limit"),
    ("unverifiable", "no-getter"),
    ("unverifiable", "unreadable"),
)
TRIGGERS: tuple[Trigger, ...] = ("resume", "driver", "xid", "persistence")


def verdict(item: str, kind: Kind, cause: Cause) -> Verdict:
    return Verdict(item, kind, cause, "a", "" if kind == "unverifiable" else "b")


readings = st.tuples(*(st.sampled_from(KINDS) for _ in ITEMS)).map(
    lambda kinds: [verdict(item, *kind) for item, kind in zip(ITEMS, kinds, strict=True)]
)
looks = st.lists(
    st.tuples(st.integers(0, 300_000_000), readings, st.booleans(), st.none() | st.sampled_from(TRIGGERS)),
    min_size=1,
    max_size=40,
)


@given(looks)
def test_only_what_was_just_read_as_drifted_is_repaired(
    history: list[tuple[int, list[Verdict], bool, Trigger | None]],
) -> None:
    keeper, now = DriftKeeper(0), 0
    for passed, read, repair, trigger in history:
        now += passed
        if trigger is not None:
            keeper.trigger(trigger, now)
        decision = keeper.decide(read, now, repair=repair)
        drifted = {seen.item for seen in read if seen.verdict == "drifted"}
        blind = {seen.item for seen in read if seen.cause == "no-getter"}
        assert set(decision.repair) <= drifted
        assert set(decision.renew) <= blind
        assert repair or not (decision.repair or decision.renew)
        for seen, read_as in zip(decision.verdicts, read, strict=True):
            assert seen == read_as or (seen.verdict == "contested" and read_as.verdict == "drifted")
            assert not (seen.verdict == "contested" and seen.item in decision.repair)
        next_check = keeper.next_check()
        assert next_check is not None
        assert now <= next_check


@given(looks)
def test_no_item_is_repaired_more_often_than_the_window_allows(
    history: list[tuple[int, list[Verdict], bool, Trigger | None]],
) -> None:
    keeper, now = DriftKeeper(0), 0
    repairs: dict[str, list[int]] = {item: [] for item in ITEMS}
    contested: set[str] = set()
    told_of: set[str] = set()
    for passed, read, _, _ in history:
        now += passed
        decision = keeper.decide(read, now, repair=True)
        for item in decision.repair:
            repairs[item].append(now)
            recent = [then for then in repairs[item] if then > now - WINDOW]
            assert len(recent) <= MOST_REPAIRS
            assert item not in contested
        for event in decision.events:
            if isinstance(event, DriftContested):
                assert event.verdict.item not in told_of, "told once, until it is over"
                contested.add(event.verdict.item)
                told_of.add(event.verdict.item)
            if isinstance(event, DriftEnded):
                told_of.discard(event.item)
        told = keeper.repaired([ItemResult(item, True, "a", "a") for item in decision.repair])
        assert all(isinstance(event, DriftRepaired) for event in told)


@given(st.integers(1, 500_000), st.integers(1, 500_000), st.integers(-500, 500), st.integers(-500, 500), st.booleans())
def test_ok_is_what_reads_as_accepted_within_the_step(
    power: int, read_power: int, offset: int, read_offset: int, persistence: bool
) -> None:
    accepted = Profile(power, {"graphics": offset}, {}, True)
    reading = Reading(Profile(read_power, {"graphics": read_offset}, {}, persistence))
    found = {seen.item: seen.verdict for seen in judge(accepted, Profile(), reading, capabilities())}
    assert (found["power-limit"] == "ok") == (abs(power - read_power) < POWER_STEP)
    assert (found["offset-graphics"] == "ok") == (abs(offset - read_offset) < OFFSET_STEP)
    assert (found["persistence"] == "ok") == persistence
    assert set(found.values()) <= {"ok", "drifted"}


@given(st.integers(1, 500_000), st.integers(0, 500_000), st.integers(-500, 500))
def test_an_override_never_hides_drift(power: int, enforced: int, offset: int) -> None:
    accepted = Profile(power, {"graphics": offset})
    hot = Reading(accepted, enforced_power_limit=enforced, slowdown=frozenset({"hw-thermal-slowdown"}))
    calm = {seen.item: seen.verdict for seen in judge(accepted, Profile(), hot, capabilities())}
    assert calm["offset-graphics"] == "overridden"
    assert (calm["power-limit"] == "overridden") == (enforced <= power - POWER_STEP)
    moved = replace(hot, values=Profile(power + POWER_STEP, {"graphics": offset + OFFSET_STEP}))
    assert {seen.verdict for seen in judge(accepted, Profile(), moved, capabilities())} == {"drifted"}
