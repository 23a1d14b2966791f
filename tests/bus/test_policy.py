"""The shipped bus policy, on a real dbus-daemon that denies by default as the system bus does."""

import os
import pwd
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.bus import interfaces, names
from gpusupervisor.bus.unread import STATISTICS
from tests.bus.builders import CARD, make_state
from tests.bus.conftest import NOBODY, PrivateBus, Starter

SHIPPED = Path(__file__).parents[2]
SYSTEM = """\
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow user="*"/><deny own="*"/><deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/>
    <allow receive_type="error"/><allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
  </policy>
"""
OWNER = "daemon" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
"""Stands for the user gpusupervisor, who need not exist here."""
PROPERTIES = "org.freedesktop.DBus.Properties"


def policy_rules(owner: str) -> str:
    """The shipped policy with another user in the place of gpusupervisor."""
    text = (SHIPPED / "dbus" / "org.gpusupervisor1.conf").read_text()
    assert text.count('<policy user="gpusupervisor">') == 1
    rules = text[text.index("<busconfig>") + len("<busconfig>") :]
    return rules.replace('user="gpusupervisor"', f'user="{owner}"')


@pytest.fixture
def system_bus() -> Iterator[PrivateBus]:
    bus = PrivateBus(SYSTEM + policy_rules(OWNER))
    yield bus
    bus.stop()


OWN = ("call", "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", "su", names.BUS_NAME, "4")


async def test_only_its_own_user_and_root_may_have_the_name(system_bus: PrivateBus) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to call as other users")
    assert (await system_bus.busctl(*OWN)).json == [1]
    assert (await system_bus.busctl(*OWN, uid=pwd.getpwnam(OWNER).pw_uid)).json == [1]
    refused = await system_bus.busctl(*OWN, uid=NOBODY)
    assert "Access denied" in refused.errors


async def test_anyone_may_read_and_ask(start: Starter, system_bus: PrivateBus) -> None:
    service = await start(bus=system_bus)
    service.publish(make_state())
    for path, interface, member, *arguments in (
        (names.ROOT, "org.freedesktop.DBus.Introspectable", "Introspect"),
        (names.ROOT, "org.freedesktop.DBus.Peer", "Ping"),
        (names.ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"),
        (names.ROOT, PROPERTIES, "Get", "ss", "org.gpusupervisor1.Manager", "Status"),
        (names.gpu_path(CARD), PROPERTIES, "GetAll", "s", "org.gpusupervisor1.Gpu"),
        (names.ROOT, "Manager", "PlanRelease", "sst", "", "", "1"),
        (names.TENANTS_PATH, "Tenants", "List"),
        (names.tenant_path("comfyui"), "Tenant", "Release"),
        (names.ENGINES_PATH, "Engines", "List"),
    ):
        result = await system_bus.call(path, interface, member, *arguments, uid=NOBODY)
        assert result.status == 0, (interface, member, result.errors)


@pytest.mark.parametrize(
    ("interface", "member", "arguments"),
    [
        (PROPERTIES, "Set", ("ssv", "org.gpusupervisor1.Manager", "Automatic", "b", "true")),
        (PROPERTIES, "Anything", ()),
        ("org.freedesktop.LogControl1", "Anything", ()),
        ("org.example.Anything", "Anything", ()),
    ],
)
async def test_the_rest_is_withheld(
    start: Starter, system_bus: PrivateBus, interface: str, member: str, arguments: tuple[str, ...]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to call as another user")
    await start(bus=system_bus)
    result = await system_bus.call(names.ROOT, interface, member, *arguments, uid=NOBODY)
    assert "Access denied" in result.errors


def test_every_interface_of_ours_is_in_the_policy() -> None:
    rules = ET.fromstring(policy_rules(OWNER).join(("<busconfig>", "")))
    named = {rule.get("send_interface") for rule in rules.iter("allow")}
    ours = (
        interfaces.MANAGER, interfaces.TENANTS, interfaces.TENANT, interfaces.ENGINES, interfaces.ENGINE,
        interfaces.GPU, interfaces.FANS, interfaces.PROFILE, interfaces.HEALTH, interfaces.TELEMETRY, interfaces.JOBS,
        interfaces.JOB,
    )  # fmt: skip
    assert {interface.name for interface in ours} <= named
    others = [rule for rule in rules.iter("allow") if rule.get("send_destination") not in (None, names.BUS_NAME)]
    assert [(rule.get("send_interface"), rule.get("send_member")) for rule in others] == [
        (STATISTICS, "GetConnectionStats")
    ]


def test_activation_goes_through_systemd_and_its_alias() -> None:
    text = (SHIPPED / "dbus" / "org.gpusupervisor1.service").read_text()
    entries = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    assert entries == {
        "Name": names.BUS_NAME, "Exec": "/bin/false", "User": "root",
        "SystemdService": f"dbus-{names.BUS_NAME}.service",
    }  # fmt: skip


def test_polkit_actions_have_their_defaults_and_their_owner() -> None:
    shown = {}
    for action in ET.parse(SHIPPED / "polkit" / "org.gpusupervisor1.policy").getroot().iter("action"):
        defaults = action.find("defaults")
        assert defaults is not None
        shown[action.get("id")] = [element.text for element in defaults]
        [annotation] = action.iter("annotate")
        assert annotation.get("key") == "org.freedesktop.policykit.owner"
        assert annotation.text == "unix-user:gpusupervisor"
        assert all(action.findtext(name) for name in ("description", "message", "icon_name"))
    assert shown == {
        names.ACTION_MAKE_ROOM: ["auth_admin", "auth_admin", "yes"],
        names.ACTION_RELEASE: ["auth_admin", "auth_admin", "yes"],
        names.ACTION_LOAD_MODEL: ["auth_admin", "auth_admin", "yes"],
        names.ACTION_UNLOAD_MODEL: ["auth_admin", "auth_admin", "yes"],
        names.ACTION_WARM_MODEL: ["auth_admin", "auth_admin", "yes"],
        names.ACTION_RELOAD: ["auth_admin", "auth_admin", "auth_admin_keep"],
        names.ACTION_SET_AUTOMATIC: ["auth_admin", "auth_admin", "auth_admin_keep"],
        names.ACTION_FORGET: ["auth_admin", "auth_admin", "auth_admin_keep"],
        names.ACTION_INSPECT_PROCESS: ["auth_admin", "auth_admin", "auth_admin_keep"],
        names.ACTION_CONTROL_FANS: ["auth_admin"] * 3,
        names.ACTION_CONTROL_PROFILE: ["auth_admin"] * 3,
        names.ACTION_DETACH: ["auth_admin"] * 3,
        names.ACTION_CANCEL_JOB: ["auth_admin", "auth_admin", "auth_admin_keep"],
    }
