"""Verdicts on what is read, against what was accepted."""

from gpusupervisor.helper.drift.verdict import HEAT, Verdict, judge
from gpusupervisor.helper.profile.card import Reading, read_settings
from gpusupervisor.helper.values import FanSetting, Profile
from tests.helper.profile.station import RecordingCard, capabilities

ACCEPTED = Profile(300_000, {"graphics": 464}, {}, True, {0: FanSetting("fixed", 50)})
BLIND = Profile(offsets={"memory": 1000}, locked_clocks={"graphics": (210, 1800)})


def verdicts(reading: Reading, accepted: Profile = ACCEPTED, unreadable: Profile = BLIND) -> dict[str, Verdict]:
    return {verdict.item: verdict for verdict in judge(accepted, unreadable, reading, capabilities())}


def kind(reading: Reading, item: str) -> tuple[str, str]:
    verdict = verdicts(reading)[item]
    return verdict.verdict, verdict.cause


def test_what_reads_as_accepted_is_ok_and_fans_are_not_judged() -> None:
    found = verdicts(Reading(ACCEPTED, enforced_power_limit=300_000))
    assert {item: verdict.verdict for item, verdict in found.items()} == {
        "persistence": "ok",
        "power-limit": "ok",
        "offset-graphics": "ok",
        "offset-memory": "unverifiable",
        "locked-clocks-graphics": "unverifiable",
    }
    assert (found["power-limit"].accepted, found["power-limit"].found) == ("300 W", "300 W")


def test_what_is_at_its_default_was_reset() -> None:
    reset = Reading(Profile(450_000, {"graphics": 0}, {}, False))
    assert kind(reset, "power-limit") == ("drifted", "reset-to-default")
    assert kind(reset, "offset-graphics") == ("drifted", "reset-to-default")
    assert kind(reset, "persistence") == ("drifted", "reset-to-default")


def test_any_other_value_is_somebody_elses() -> None:
    other = Reading(Profile(250_000, {"graphics": 100}, {}, True))
    assert kind(other, "power-limit") == ("drifted", "changed-by-another")
    assert kind(other, "offset-graphics") == ("drifted", "changed-by-another")
    switched_on = judge(Profile(persistence=False), Profile(), Reading(Profile(persistence=True)), capabilities())
    assert (switched_on[0].verdict, switched_on[0].cause) == ("drifted", "changed-by-another")


def test_less_than_a_step_is_no_drift() -> None:
    assert kind(Reading(Profile(300_999, {"graphics": 465}, {}, True)), "power-limit") == ("ok", "")
    assert kind(Reading(Profile(300_999, {"graphics": 465}, {}, True)), "offset-graphics") == ("ok", "")
    assert kind(Reading(Profile(301_000, {"graphics": 466}, {}, True)), "power-limit")[0] == "drifted"
    assert kind(Reading(Profile(301_000, {"graphics": 466}, {}, True)), "offset-graphics")[0] == "drifted"


def test_a_lower_enforced_limit_overrides() -> None:
    reading = Reading(ACCEPTED, enforced_power_limit=250_000)
    assert kind(reading, "power-limit") == ("overridden", "enforced-limit")
    assert "250 W is enforced" in verdicts(reading)["power-limit"].detail


def test_a_higher_or_unknown_enforced_limit_does_not() -> None:
    assert kind(Reading(ACCEPTED, enforced_power_limit=450_000), "power-limit") == ("ok", "")
    assert kind(Reading(ACCEPTED), "power-limit") == ("ok", "")


def test_heat_overrides_clocks() -> None:
    for reason in HEAT:
        reading = Reading(ACCEPTED, slowdown=frozenset({reason, "idle"}))
        assert kind(reading, "offset-graphics") == ("overridden", "thermal-slowdown")
    assert kind(Reading(ACCEPTED, slowdown=frozenset({"idle", "sw-power-cap"})), "offset-graphics") == ("ok", "")


def test_drift_is_told_before_an_override() -> None:
    reading = Reading(Profile(450_000, {"graphics": 464}, {}, True), enforced_power_limit=200_000)
    assert kind(reading, "power-limit") == ("drifted", "reset-to-default")


def test_what_cannot_be_read_is_unverifiable_with_the_reason() -> None:
    reading = Reading(Profile(), {"power-limit": "nvmlDeviceGetPowerManagementLimit: Unknown error"})
    assert kind(reading, "power-limit") == ("unverifiable", "unreadable")
    assert "Unknown error" in verdicts(reading)["power-limit"].detail
    assert verdicts(reading)["persistence"].detail == "the driver reports nothing"
    assert "no getter" in verdicts(reading)["locked-clocks-graphics"].detail
    assert "does not report" in verdicts(reading)["offset-memory"].detail


async def test_only_what_is_wanted_is_read() -> None:
    card = RecordingCard(capabilities())
    card.enforced, card.reasons = 250_000, frozenset({"idle"})
    reading = await read_settings(card, ["power-limit", "offset-memory"])
    assert reading == Reading(Profile(450_000, {"memory": 0}), {}, 250_000, frozenset({"idle"}))
    assert (await read_settings(card, [])).values == Profile()
