"""The helper's interface equals its file, and its bus policy lets in whom it should and nobody else."""

import os
import pwd
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.bus import names
from gpusupervisor.helper.interface import HELPER
from tests.bus.conftest import NOBODY, PrivateBus
from tests.bus.test_introspection import members, test_every_member_is_documented_right_before_it
from tests.bus.test_policy import OWNER, SYSTEM

DBUS = Path(__file__).parents[2] / "dbus"
FILE = DBUS / f"{names.HELPER_NAME}.xml"
OWN = ("call", "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", "su", names.HELPER_NAME, "4")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to call as other users")


def test_what_is_served_equals_the_file() -> None:
    [written] = ET.parse(FILE).getroot().iter("interface")
    assert members(HELPER.introspection().to_xml()) == members(written)


def test_every_member_of_it_is_documented() -> None:
    test_every_member_is_documented_right_before_it(FILE)


@pytest.fixture
def system_bus() -> Iterator[PrivateBus]:
    """A bus that denies by default as the system bus does; `OWNER` stands for the user gpusupervisor."""
    text = (DBUS / f"{names.HELPER_NAME}.conf").read_text()
    rules = text[text.index("<busconfig>") + len("<busconfig>") :].replace('user="gpusupervisor"', f'user="{OWNER}"')
    everywhere = '<policy context="default"><allow send_interface="org.freedesktop.DBus.Peer"/></policy>'
    bus = PrivateBus(SYSTEM + everywhere + rules)
    yield bus
    bus.stop()


@as_root
async def test_only_root_may_be_the_helper(system_bus: PrivateBus) -> None:
    for uid in (NOBODY, pwd.getpwnam(OWNER).pw_uid):
        assert "Access denied" in (await system_bus.busctl(*OWN, uid=uid)).errors
    assert (await system_bus.busctl(*OWN)).json == [1]


@as_root
@pytest.mark.parametrize("interface", ["org.gpusupervisor1.Helper", "org.freedesktop.DBus.Peer", "org.anything"])
async def test_only_root_and_the_supervisor_reach_it(system_bus: PrivateBus, interface: str) -> None:
    from dbus_fast.aio import MessageBus

    owner = await MessageBus(system_bus.address).connect()
    try:
        await owner.request_name(names.HELPER_NAME)
        call = ("call", names.HELPER_NAME, names.HELPER_PATH, interface, "Ping")
        denied = "not allowed|denied|AccessDenied|rejected"
        for uid, admitted in ((0, True), (pwd.getpwnam(OWNER).pw_uid, True), (NOBODY, False)):
            done = await system_bus.busctl(*call, uid=uid)
            refused = any(word in done.errors for word in denied.split("|"))
            assert refused is not admitted, (uid, done.errors)
    finally:
        owner.disconnect()
        await owner.wait_for_disconnect()  # type: ignore[no-untyped-call]
