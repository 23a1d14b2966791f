"""What --json prints: the same for ever, but for keys that are added."""

import json
import os
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.arbitration.situation import Reservation
from gpusupervisor.bus.service import BusService
from gpusupervisor.cli import shapes
from tests.bus.builders import CARD, GIB, make_controls, make_state
from tests.cli.conftest import Run

GOLDEN = Path(__file__).parent / "golden" / "shapes.json"
INTERFACES = Path(__file__).parents[2] / "dbus"
COMMANDS = (
    ("status",), ("tenants",), ("tenant", "ollama"), ("plan", "ollama"), ("make-room",), ("release", "comfyui"),
    ("cat", "ollama"), ("lint",), ("automatic", "on"), ("reload",), ("health",), ("fans",), ("profile",),
    ("profile", "confirm"), ("profile", "revert"), ("profile", "reset"), ("jobs",),
)  # fmt: skip


def outline(value: Any) -> Any:
    """The keys of a shape with the types of their values; of a list the first entry."""
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, list):
        return [outline(value[0])] if value else []
    return type(value).__name__


async def test_every_shape_is_as_it_was(ctl: Run, service: BusService) -> None:
    """GOLDEN=write notes them anew: a key that goes, or changes its type, breaks somebody's script."""
    kept = Reservation(CARD, "comfyui", GIB, 5_100_000_000)
    service.publish(replace(make_state(reservations=(kept,)), controls=make_controls()))
    found = {}
    for command in COMMANDS:
        shown = await ctl(*command, "--json")
        assert shown.errors == "", command
        found[" ".join(command)] = outline(json.loads(shown.output))
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(GOLDEN.read_text())


async def test_json_may_be_asked_for_before_the_command_too(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    assert (await ctl("--json", "health")).output == (await ctl("health", "--json")).output
    assert json.loads((await ctl("--json")).output)["version"] == "1.2.3"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ActivitySince", "activity_since"),
        ("PciBusId", "pci_bus_id"),
        ("zero-rpm-below", "zero_rpm_below"),
        ("Id", "id"),
    ],
)
def test_keys_are_the_names_in_snake_case(name: str, key: str) -> None:
    assert shapes.snake(name) == key


def test_what_is_not_known_is_null_and_names_that_are_keys_stay() -> None:
    found = shapes.properties({"Need": 2**64 - 1, "TenantHoldings": {"My-Tenant": 1}, "Starved": True})
    assert found == {"need": None, "tenant_holdings": {"My-Tenant": 1}, "starved": True}


def test_signals_have_their_arguments_by_name() -> None:
    assert shapes.signal("/p", "i", "ReleaseFinished", ["p1", "failed", 2**64 - 1, {"detail": "x"}]) == {
        "path": "/p", "interface": "i", "signal": "ReleaseFinished", "plan_id": "p1", "outcome": "failed",
        "freed": None, "details": {"detail": "x"},
    }  # fmt: skip
    assert shapes.signal("/p", "i", "Unheard", [1])["arguments"] == [1]
    changed = shapes.signal("/p", "i", "PropertiesChanged", ["org.x", {"MemoryFree": 1}, ["Checks"]])
    assert (changed["of"], changed["changed"], changed["invalidated"]) == ("org.x", {"memory_free": 1}, ["checks"])
    assert shapes.signal("/p", "i", "NameOwnerChanged", ["n", "", ":1"])["running"] is True
    added = shapes.signal("/p", "i", "InterfacesAdded", ["/o", {"org.x": {"Id": "x"}}])
    assert (added["object"], added["interfaces"]) == ("/o", {"org.x": {"id": "x"}})
    assert shapes.signal("/p", "i", "InterfacesRemoved", ["/o", ["org.x"]])["interfaces"] == ["org.x"]


def test_the_arguments_of_every_signal_are_named_as_the_interfaces_name_them() -> None:
    documented = {
        signal.attrib["name"]: tuple(arg.attrib["name"] for arg in signal.iter("arg"))
        for file in INTERFACES.glob("*.xml")
        for signal in ET.parse(file).getroot().iter("signal")
        if not {"Helper", "Reader"} & set(file.name.split("."))
    }
    assert {name: shapes.ARGUMENTS.get(name) for name in documented} == documented


def test_a_profile_that_is_no_json_is_shown_as_it_is() -> None:
    interfaces = {
        "org.gpusupervisor1.Gpu": {"Uuid": "GPU-1", "Name": "x"},
        "org.gpusupervisor1.Profile": {"Profile": "{", "Accepted": "", "Trial": '{"a": 1}'},
    }
    (found,) = shapes.profiles({"/x": interfaces})
    assert (found["profile"], found["accepted"], found["trial"]) == ("{", None, {"a": 1})
