"""Profiles, whatever they say and whatever the card is."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.configuration.document import Table
from gpusupervisor.helper.profile.apply import Applied, apply_profile
from gpusupervisor.helper.profile.document import check_profile, profile_table
from gpusupervisor.helper.profile.fit import fit
from gpusupervisor.helper.profile.items import items, overlay, part, shown
from gpusupervisor.helper.values import Capabilities, Capability, ClockDomain, FanSetting, Profile, Support
from tests.helper.profile.station import RecordingCard, RecordingFans, capabilities

SUPPORTS: tuple[Support, ...] = ("supported", "read-only", "unsupported", "unverifiable")
DOMAINS: tuple[ClockDomain, ...] = ("graphics", "memory")


@st.composite
def curves(draw: st.DrawFn) -> FanSetting:
    degrees = sorted(draw(st.sets(st.integers(0, 120), min_size=2, max_size=8)))
    percents = sorted(draw(st.lists(st.integers(0, 100), min_size=len(degrees), max_size=len(degrees))))
    delay, zero = draw(st.integers(0, 600_000_000)), draw(st.integers(0, 120))
    return FanSetting(
        "curve",
        points=tuple(zip(degrees, percents, strict=True)),
        hysteresis=draw(st.integers(0, 30)),
        spin_down_delay=delay,
        zero_rpm_below=zero,
    )


settings = st.one_of(st.just(FanSetting()), st.builds(FanSetting, st.just("fixed"), st.integers(0, 100)), curves())
pairs = st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)).map(lambda pair: (min(pair), max(pair)))
profiles = st.builds(
    Profile,
    power_limit=st.none() | st.integers(1, 10_000_000),
    offsets=st.dictionaries(st.sampled_from(DOMAINS), st.integers(-20_000, 20_000)),
    locked_clocks=st.dictionaries(st.sampled_from(DOMAINS), pairs),
    persistence=st.none() | st.booleans(),
    fans=st.dictionaries(st.integers(0, 15), settings),
)


def abilities(low: int, high: int) -> st.SearchStrategy[Capability]:
    bound = st.none() | st.integers(low, high)
    return st.builds(Capability, st.sampled_from(SUPPORTS), st.just("a reason"), bound, bound, st.none())


cards = st.builds(
    capabilities,
    power=abilities(0, 10_000_000),
    offset=abilities(-20_000, 20_000),
    locked=abilities(0, 20_000),
    fans=abilities(0, 100),
    fan_count=st.integers(0, 4),
    persistence=st.sampled_from(SUPPORTS),
)


def apply(card: RecordingCard, fans: RecordingFans, profile: Profile) -> Applied:
    return asyncio.run(apply_profile(card, fans, profile))


@given(profiles)
def test_a_profile_survives_being_a_document(profile: Profile) -> None:
    assert check_profile(profile_table(profile)) == (profile, [])


@given(st.recursive(st.integers() | st.text(max_size=8) | st.booleans() | st.floats(allow_nan=False),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
                        ["power-limit", "persistence", "offsets", "locked-clocks", "fans", "graphics", "memory", "0",
                         "mode", "percent", "points", "x"]), inner, max_size=5), max_leaves=12)
       .filter(lambda value: isinstance(value, dict)))  # fmt: skip
def test_any_table_is_a_profile_or_has_findings(table: Table) -> None:
    profile, findings = check_profile(table)
    if not findings:
        assert check_profile(profile_table(profile)) == (profile, [])
    assert all(path and message for path, message in findings)


@given(profiles, cards)
def test_each_item_is_taken_unchanged_or_refused_with_a_reason(profile: Profile, able: Capabilities) -> None:
    taken, refused = fit(profile, able)
    assert sorted((*items(taken), *(result.item for result in refused))) == sorted(items(profile))
    assert all(shown(taken, item) == shown(profile, item) for item in items(taken))
    assert all(result.detail and not result.ok for result in refused)
    assert fit(taken, able) == (taken, ())


@given(profiles, cards)
def test_no_item_is_ever_set_outside_of_its_range(profile: Profile, able: Capabilities) -> None:
    card, fans = RecordingCard(able), RecordingFans()
    results = apply(card, fans, profile).results
    assert tuple(result.item for result in results) == items(profile)
    for name, *values in card.calls:
        assert isinstance(name, str)
        if name == "persistence":
            assert able.persistence.support in ("supported", "unverifiable")
            continue
        kind, _, domain = name.rpartition("-")
        capability = {
            "power-limit": able.power_limit,
            "offset": able.offsets["graphics"],
            "locked-clocks": able.locked_clocks["graphics"],
        }[name if name == "power-limit" else kind]
        assert capability.support in ("supported", "unverifiable"), domain
        assert capability.minimum is not None
        assert capability.maximum is not None
        assert all(capability.minimum <= value <= capability.maximum for value in values if isinstance(value, int))
    for _, setting in fans.calls:
        assert isinstance(setting, FanSetting)
        percents = [setting.percent] if setting.mode == "fixed" else [percent for _, percent in setting.points]
        assert able.fans.support in ("supported", "unverifiable")
        low, high = able.fans.minimum, able.fans.maximum
        assert not percents or (low is not None and high is not None)
        assert all((low or 0) <= percent <= (high or 0) for percent in percents)


@given(profiles, cards)
def test_what_is_accepted_is_what_the_card_is_set_to(profile: Profile, able: Capabilities) -> None:
    card, fans = RecordingCard(able), RecordingFans()
    applied = apply(card, fans, profile)
    accepted = applied.accepted
    assert accepted.power_limit in (None, card.power)
    assert accepted.persistence in (None, card.persistent)
    assert all(card.offsets[domain] == value for domain, value in accepted.offsets.items())
    assert {result.item for result in applied.results if result.ok} == set(items(applied.in_force))


@given(profiles, profiles)
def test_parts_make_the_whole(profile: Profile, other: Profile) -> None:
    assert part(profile, items(profile)) == profile
    assert part(profile, ()) == Profile()
    both = overlay(other, profile)
    assert part(both, items(profile)) == profile
    assert set(items(both)) == {*items(profile), *items(other)}
