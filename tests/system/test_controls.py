"""Fans and profiles through the installed units, on a simulated card: what is set, and what a kill leaves."""

import json
from typing import Any

import pytest

from tests.system.conftest import BUS_NAME, HELPER_UNIT, ROOT, UNIT, USER
from tests.system.machine import Machine
from tests.system.test_simulated_card import CARD, PYTHON, card, properties  # noqa: F401  (card is a fixture)

HELPER = (f"{BUS_NAME}.Helper", f"{ROOT}/Helper", f"{BUS_NAME}.Helper")
LOOK = (
    "import json, sys\nfrom gpusupervisor.simulation.nvml import SimulatedCard\n"
    "card = SimulatedCard(sys.argv[1])\ngpu = card.read().gpus[0]\n"
    "print(json.dumps({'uuid': gpu.uuid, **card.settings(gpu.uuid).to_json()}))"
)
RELOAD = "import sys\nfrom gpusupervisor.simulation.nvml import SimulatedCard as C\nC(sys.argv[1]).reload_driver()"
PROFILE = '{"power-limit": "300W"}'


def on_card(machine: Machine) -> dict[str, Any]:
    """What is set on the card."""
    told: dict[str, Any] = json.loads(machine.output(PYTHON, "-c", LOOK, CARD))
    return told


def path(machine: Machine) -> str:
    """The card's object."""
    return machine.wait_until("the card is shown", lambda: path_or_nothing(machine), UNIT)


def path_or_nothing(machine: Machine) -> str:
    """The same; empty while there is none."""
    tree = machine.run("busctl", "tree", "--list", BUS_NAME, check=False).stdout.splitlines()
    return next((each for each in tree if each.startswith(f"{ROOT}/gpus/")), "")


def call(machine: Machine, interface: str, member: str, *arguments: str, user: str = "root") -> str:
    """Call a method of the card's object; what went wrong, empty for nothing."""
    full = ("busctl", "call", BUS_NAME, path(machine), f"{BUS_NAME}.{interface}", member)
    return machine.run(*full, *arguments, user=user, check=False).stderr


def fix_a_fan(machine: Machine) -> None:
    assert call(machine, "Fans", "SetFixed", "uu", "0", "60") == ""
    fan = on_card(machine)["fans"][0]
    assert (fan["manual"], fan["target"]) == (True, 60)


def public(machine: Machine, interface: str) -> dict[str, Any]:
    return properties(machine, path(machine), f"{BUS_NAME}.{interface}")


def test_a_fan_set_by_root_is_set_on_the_card_and_shown_to_everybody(card: Machine) -> None:  # noqa: F811
    card.wait_until("the helper has told", lambda: public_or_nothing(card).get("Support") == "supported", UNIT)
    fix_a_fan(card)
    assert public(card, "Fans")["Control"] == "controlling"
    card.wait_until(
        "its status says so", lambda: "controls fans of" in card.property(HELPER_UNIT, "StatusText"), HELPER_UNIT
    )


def test_a_helper_that_is_killed_leaves_no_fan_at_its_last_speed(card: Machine) -> None:  # noqa: F811
    fix_a_fan(card)
    old = card.property(HELPER_UNIT, "MainPID")
    card.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", HELPER_UNIT)
    card.wait_until("the fans are automatic", lambda: not on_card(card)["fans"][0]["manual"], HELPER_UNIT)
    card.wait_until("it runs again", lambda: card.property(HELPER_UNIT, "MainPID") not in ("0", old), HELPER_UNIT)
    card.wait_until("that is shown", lambda: public(card, "Fans").get("Control") == "idle", UNIT)


def test_a_supervisor_that_is_killed_leaves_the_fans_in_good_hands(card: Machine) -> None:  # noqa: F811
    fix_a_fan(card)
    helper, supervisor = card.property(HELPER_UNIT, "MainPID"), card.property(UNIT, "MainPID")
    card.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", UNIT)
    card.wait_until("it runs again", lambda: card.property(UNIT, "MainPID") not in ("0", supervisor), UNIT)
    card.wait_until("it shows them", lambda: public_or_nothing(card).get("Control") == "controlling", UNIT)
    assert card.property(HELPER_UNIT, "MainPID") == helper
    assert on_card(card)["fans"][0]["manual"]


def public_or_nothing(machine: Machine) -> dict[str, Any]:
    """The fans as shown, while the object may be missing."""
    found = path_or_nothing(machine)
    return properties(machine, found, f"{BUS_NAME}.Fans") if found else {}


def test_a_stop_gives_the_fans_back(card: Machine) -> None:  # noqa: F811
    fix_a_fan(card)
    card.run("systemctl", "stop", HELPER_UNIT)
    assert not on_card(card)["fans"][0]["manual"]
    card.wait_until("it is shown that it is gone", lambda: public(card, "Fans")["Support"] == "unsupported", UNIT)
    assert card.property(HELPER_UNIT, "ActiveState") == "inactive", "whoever stops it means it"


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_an_ordinary_user_sets_nothing(card: Machine, user: str) -> None:  # noqa: F811
    before = on_card(card)
    for interface, member, *arguments in (
        ("Fans", "SetFixed", "uu", "0", "60"),
        ("Profile", "Apply", "s", PROFILE),
        ("Gpu", "Detach"),
    ):
        refused = call(card, interface, member, *arguments, user=user).lower()
        assert "denied" in refused or "interactive authorization" in refused
    uuid = before["uuid"]
    direct = card.run("busctl", "call", *HELPER, "ApplyProfile", "ss", uuid, PROFILE, user=user, check=False)
    assert "denied" in direct.stderr
    assert on_card(card) == before


def test_a_stored_profile_is_applied_at_start_although_nobody_calls(card: Machine) -> None:  # noqa: F811
    assert call(card, "Profile", "Apply", "s", PROFILE) == ""
    assert on_card(card)["power_limit"] == 300_000
    card.run("systemctl", "stop", UNIT, HELPER_UNIT)
    card.run(PYTHON, "-c", RELOAD, CARD)
    assert on_card(card)["power_limit"] is None
    card.run("systemctl", "start", UNIT)
    card.wait_until("it is applied", lambda: on_card(card)["power_limit"] == 300_000, HELPER_UNIT)
    card.wait_until("the object is there", lambda: public_or_nothing(card).get("Support"), UNIT)
    assert public(card, "Profile")["Profile"] == PROFILE
    assert "Profile" not in call(card, "Profile", "Reset")
    assert on_card(card)["power_limit"] == 450_000


def test_a_card_given_away_is_left_alone_until_it_is_taken_back(card: Machine) -> None:  # noqa: F811
    fix_a_fan(card)
    assert call(card, "Gpu", "Detach") == ""
    assert not on_card(card)["fans"][0]["manual"]
    shown = public(card, "Gpu")
    assert (shown["State"], "detached" in shown["StateDetail"]) == ("asleep", True)
    card.wait_until("the helper ends", lambda: card.property(HELPER_UNIT, "ActiveState") == "inactive", HELPER_UNIT)
    assert "detached" in call(card, "Fans", "SetFixed", "uu", "0", "60"), "known to the next helper"
    assert call(card, "Gpu", "Attach") == ""
    card.wait_until("it is looked at again", lambda: public(card, "Gpu")["State"] == "ok", UNIT)


def test_when_nothing_is_held_the_helper_ends(card: Machine) -> None:  # noqa: F811
    call(card, "Fans", "SetAutomatic", "u", "0")
    card.wait_until("it has ended", lambda: card.property(HELPER_UNIT, "ActiveState") == "inactive", HELPER_UNIT)
    assert card.property(HELPER_UNIT, "Result") == "success"
    assert public(card, "Fans")["Support"] == "supported", "what is known stays"
    assert card.property(HELPER_UNIT, "ActiveState") == "inactive", "reading starts nobody"


def test_nothing_was_logged_as_a_defect(card: Machine) -> None:  # noqa: F811
    for unit in (UNIT, HELPER_UNIT):
        assert "Traceback" not in card.journal(unit)
