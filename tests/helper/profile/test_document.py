"""Profiles as documents."""

import pytest

from gpusupervisor.configuration.document import Table, parse_document
from gpusupervisor.configuration.layers import key_text
from gpusupervisor.helper.profile.document import check_profile, profile_table
from gpusupervisor.helper.values import FanSetting, Profile

WHOLE = """
power-limit = "285.5W"
persistence = true
[offsets]
graphics = -120
memory = 1000
[locked-clocks]
graphics = [210, 1800]
[fans.0]
mode = "curve"
points = [[40, 30], [80, 100]]
hysteresis = 4
spin-down-delay = "8s"
zero-rpm-below = 45
[fans.1]
mode = "fixed"
percent = 60
[fans.2]
mode = "automatic"
"""


def problems(text: str) -> dict[str, str]:
    """By key: what is wrong with a TOML profile."""
    _, findings = check_profile(parse_document("x.toml", text))
    return {key_text(path): message for path, message in findings}


def test_a_whole_profile_is_read() -> None:
    profile, findings = check_profile(parse_document("x.toml", WHOLE))
    assert not findings
    assert profile == Profile(
        power_limit=285_500,
        persistence=True,
        offsets={"graphics": -120, "memory": 1000},
        locked_clocks={"graphics": (210, 1800)},
        fans={
            0: FanSetting("curve", 0, ((40, 30), (80, 100)), 4, 8_000_000, 45),
            1: FanSetting("fixed", 60),
            2: FanSetting(),
        },
    )


def test_nothing_said_is_nothing_changed() -> None:
    assert check_profile({}) == (Profile(), [])


@pytest.mark.parametrize(
    ("text", "milliwatts"), [("300W", 300_000), ("300 W", 300_000), ("285.5W", 285_500), ("285500mW", 285_500)]
)
def test_power_needs_its_unit(text: str, milliwatts: int) -> None:
    profile, findings = check_profile({"power-limit": text})
    assert not findings
    assert profile.power_limit == milliwatts


@pytest.mark.parametrize(
    "value", [300, 300_000, "300", "300w", "-5W", "0W", "0.5mW", "99999999W", "1e3W", True, "\uff1300W"]
)
def test_a_power_that_could_be_meant_otherwise_is_refused(value: object) -> None:
    profile, findings = check_profile({"power-limit": value})
    assert profile.power_limit is None
    assert [key_text(path) for path, _ in findings] == ["power-limit"]
    assert '"300W"' in findings[0][1]


@pytest.mark.parametrize(
    ("text", "key", "part"),
    [
        ("powerlimit = 3", "powerlimit", 'did you mean "power-limit"?'),
        ("persistence = 1", "persistence", "allowed: true, false"),
        ("offsets = 3", "offsets", "a table"),
        ("[offsets]\ngraphics = 1.5", "offsets.graphics", "a whole number"),
        ("[offsets]\nvideo = 1", "offsets.video", "allowed here: graphics, memory"),
        ("[locked-clocks]\ngraphics = [1800, 210]", "locked-clocks.graphics", "[lowest, highest]"),
        ("[locked-clocks]\nmemory = 5001", "locked-clocks.memory", "[lowest, highest]"),
        ("[locked-clocks]\nmemory = [true, true]", "locked-clocks.memory", "[lowest, highest]"),
        ('[fans.left]\nmode = "automatic"', "fans.left", "a fan's number"),
        ('[fans.99]\nmode = "automatic"', "fans.99", "0 to 15"),
        ('[fans.00]\nmode = "automatic"', "fans.00", "a fan's number"),
        ("[fans.0]\npercent = 60", "fans.0.mode", "is missing"),
        ('[fans.0]\nmode = "turbo"', "fans.0.mode", "automatic, fixed, curve"),
        ('[fans.0]\nmode = "fixed"', "fans.0.percent", "is missing"),
        ('[fans.0]\nmode = "fixed"\npercent = 101', "fans.0.percent", "from 0 to 100"),
        ('[fans.0]\nmode = "automatic"\npercent = 60', "fans.0.percent", "unknown key"),
        ('[fans.0]\nmode = "curve"', "fans.0.points", "is no curve"),
        ('[fans.0]\nmode = "curve"\npoints = [[40, 30]]', "fans.0.points", "2 to 32"),
        ('[fans.0]\nmode = "curve"\npoints = [[40, 30], [80]]', "fans.0.points", "a point that is none"),
        ('[fans.0]\nmode = "curve"\npoints = [[40, 30], [80, 101]]', "fans.0.points", "percent to 100"),
        ('[fans.0]\nmode = "curve"\npoints = [[40, 30], [40, 50]]', "fans.0.points", "does not rise"),
        ('[fans.0]\nmode = "curve"\npoints = [[40, 50], [60, 40]]', "fans.0.points", "does not rise"),
    ],
)
def test_every_problem_names_its_key(text: str, key: str, part: str) -> None:
    found = problems(text)
    assert list(found) == [key]
    assert part in found[key]


def test_all_problems_are_told_at_once() -> None:
    text = 'power-limit = 1\n[offsets]\ngraphics = "x"\n[fans.0]\nmode = "fixed"\npercent = -1'
    assert set(problems(text)) == {"power-limit", "offsets.graphics", "fans.0.percent"}


def test_a_profile_survives_being_written() -> None:
    profile, _ = check_profile(parse_document("x.toml", WHOLE))
    table: Table = profile_table(profile)
    assert check_profile(table) == (profile, [])
