"""What a card takes of a profile."""

import pytest

from gpusupervisor.helper.profile.fit import fit
from gpusupervisor.helper.values import Capability, FanSetting, Profile
from tests.helper.profile.station import capabilities

CURVE = FanSetting("curve", points=((40, 30), (80, 100)))


def reason(profile: Profile, **able: Capability) -> str:
    """Why the profile's one item is refused; empty when it is taken."""
    taken, refused = fit(profile, capabilities(**able))  # type: ignore[arg-type]
    assert (taken == profile) is (not refused)
    return refused[0].detail if refused else ""


def test_what_is_within_the_range_is_taken_as_it_is() -> None:
    profile = Profile(300_000, {"graphics": 120}, {"memory": (405, 3105)}, True, {0: CURVE, 1: FanSetting("fixed", 30)})
    assert fit(profile, capabilities()) == (profile, ())


def test_what_is_out_of_range_is_refused_and_the_rest_is_taken() -> None:
    taken, refused = fit(Profile(power_limit=600_000, offsets={"graphics": 120, "memory": 501}), capabilities())
    assert taken == Profile(offsets={"graphics": 120})
    assert [(result.item, result.ok, result.asked, result.accepted, result.detail) for result in refused] == [
        ("power-limit", False, "600 W", "", "600 W is out of range: this card takes 150 W to 480 W"),
        ("offset-memory", False, "+501 MHz", "", "+501 MHz is out of range: this card takes -500 MHz to +500 MHz"),
    ]


def test_a_read_only_power_limit_is_refused_with_its_reason() -> None:
    read_only = Capability("read-only", "the firmware governs it", 5_000, 95_000)
    assert reason(Profile(power_limit=35_000), power=read_only) == "can be read but not set: the firmware governs it"


def test_a_laptop_without_fans_says_so() -> None:
    laptop = Capability("unsupported", "laptop fans are the firmware's")
    assert reason(Profile(fans={0: CURVE}), fans=laptop) == "not supported: laptop fans are the firmware's"


def test_an_unknown_range_takes_nothing() -> None:
    assert "does not tell" in reason(Profile(offsets={"memory": 1}), offset=Capability("supported"))
    assert "has no value in it" in reason(Profile(power_limit=1), power=Capability("supported", "", 9, 5))


def test_what_cannot_be_verified_can_be_set() -> None:
    assert reason(Profile(offsets={"memory": 1}), offset=Capability("unverifiable", "not reported", -9, 9)) == ""


@pytest.mark.parametrize(
    ("fans", "part"),
    [
        ({2: CURVE}, "no fan 2: this card has 2"),
        ({0: FanSetting("fixed", 29)}, "29 % is out of range: this card takes 30 % to 100 %"),
        ({0: FanSetting("curve", points=((40, 0), (80, 100)))}, "0 % is out of range"),
    ],
)
def test_fans_are_refused_with_the_reason(fans: dict[int, FanSetting], part: str) -> None:
    assert part in reason(Profile(fans=fans))


def test_automatic_fans_need_no_range() -> None:
    assert reason(Profile(fans={1: FanSetting()}), fans=Capability("supported")) == ""
