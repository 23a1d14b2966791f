"""org.gpusupervisor1(5): every member of every interface and every polkit action, and no page names others."""

import re
import xml.etree.ElementTree as ET

import pytest

from gpusupervisor.bus import names
from gpusupervisor.errors import SupervisorError
from tests.manual.pages import SOURCES, page, parts, section
from tests.system.machine import REPOSITORY

PAGE = "org.gpusupervisor1.5"
INTERFACES = sorted(path.stem for path in (REPOSITORY / "dbus").glob("*.xml"))
ACTIONS = {action.attrib["id"] for action in ET.parse(REPOSITORY / "polkit/org.gpusupervisor1.policy").iter("action")}
OTHERS = {"Error", "Helper.conf", "toml", "policy"}


def members(interface: str) -> set[tuple[str, str]]:
    root = ET.parse(REPOSITORY / f"dbus/{interface}.xml").getroot()
    return {(kind, node.attrib["name"]) for kind in ("method", "signal", "property") for node in root.iter(kind)}


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_interface_is_described_member_by_member(interface: str) -> None:
    sections = parts(page(PAGE), "#")
    assert interface in sections, f"{PAGE} has no line: @interface {interface.rpartition('.')[2]}"
    kinds = {"Methods": "method", "Signals": "signal", "Properties": "property"}
    told = {
        (kinds[title], name)
        for title, text in parts(sections[interface], "##").items()
        if title
        for name in re.findall(r"(?m)^\*(\w+)\*[ (]", text)
    }
    assert told == members(interface)


def test_what_is_said_of_a_member_is_what_the_file_says() -> None:
    text = parts(parts(page(PAGE), "#")["org.gpusupervisor1.Manager"], "##")["Methods"]
    assert (
        "*PlanRelease*(in s _gpu_, in s _tenant_, in t _size_, out a{sv} _plan_)\n\tMakes a release plan without"
        in text
    )
    assert "\n\t_plan_: the plan, as described for ReleasePlanned.\n" in text


def test_every_object_is_named() -> None:
    text = section(PAGE, "OBJECTS")
    for path in (value for name, value in vars(names).items() if name.endswith("PATH") and isinstance(value, str)):
        assert f"*{path}" in text, f"{PAGE} does not name the object {path}"


def test_every_polkit_action_is_described() -> None:
    told = set(re.findall(r"(?m)^\*(org\.gpusupervisor1\.[a-z-]+)\*$", section(PAGE, "AUTHORIZATION")))
    assert told == ACTIONS


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_is_named_that_is_not_there(name: str) -> None:
    """Interfaces, members, errors and actions, wherever a page names them with their whole name."""
    there = ACTIONS | set(INTERFACES) | {f"{each}.{member}" for each in INTERFACES for _, member in members(each)}
    there |= {f"org.gpusupervisor1.Error.{error.__name__}" for error in every_error()}
    named = set(re.findall(r"\borg\.gpusupervisor1\.[A-Za-z][\w.-]*\w", page(name)))
    unknown = {each for each in named - there if each.split(".", 2)[2] not in OTHERS}
    assert unknown == set(), f"{name} names what is not there"


def test_every_error_is_named() -> None:
    told = parts(page(PAGE), "#")["org.gpusupervisor1.Manager"]
    codes = {error.code for error in every_error() if error.__module__ == SupervisorError.__module__}
    missing = {code for code in codes - {SupervisorError.code} if not re.search(rf"\b{code}\b", told)}
    assert missing == set(), "dbus/org.gpusupervisor1.Manager.xml does not name these errors"


def every_error() -> list[type[SupervisorError]]:
    found = [SupervisorError]
    for kind in found:
        found += kind.__subclasses__()
    return found
