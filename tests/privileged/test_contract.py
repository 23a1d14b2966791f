"""The privileged interfaces equal their files, and their bus policies let in whom they should and nobody else."""

import asyncio
import os
import pwd
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.helper.daemon import FACE as HELPER
from gpusupervisor.privileged.service import Face
from gpusupervisor.reader.daemon import FACE as READER
from tests.bus.conftest import NOBODY, PrivateBus
from tests.bus.test_introspection import members, test_every_member_is_documented_right_before_it
from tests.bus.test_policy import OWNER, SYSTEM

DBUS = Path(__file__).parents[2] / "dbus"
FACES = {"helper": HELPER, "reader": READER}
busctl_own = ("call", "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", "su")
READING = "backup"
"""Stands for the user gpusupervisor-reader."""
HOLD = """
import asyncio, sys
from dbus_fast.aio import MessageBus
async def main():
    bus = await MessageBus(sys.argv[1]).connect()
    await bus.request_name(sys.argv[2])
    print("owned", flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to call as other users")


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    return FACES[request.param]


def file(face: Face) -> Path:
    return DBUS / f"{face.name}.xml"


def test_what_is_served_equals_the_file(face: Face) -> None:
    [written] = ET.parse(file(face)).getroot().iter("interface")
    assert members(face.interface.introspection().to_xml()) == members(written)


def test_every_member_of_it_is_documented(face: Face) -> None:
    test_every_member_is_documented_right_before_it(file(face))


@pytest.fixture
def system_bus(face: Face) -> Iterator[PrivateBus]:
    """A bus that denies by default as the system bus does; `OWNER` is the supervisor, `READING` the reader."""
    text = (DBUS / f"{face.name}.conf").read_text()
    rules = text[text.index("<busconfig>") + len("<busconfig>") :].replace('user="gpusupervisor"', f'user="{OWNER}"')
    rules = rules.replace('user="gpusupervisor-reader"', f'user="{READING}"')
    everywhere = '<policy context="default"><allow send_interface="org.freedesktop.DBus.Peer"/></policy>'
    bus = PrivateBus(SYSTEM + everywhere + rules)
    yield bus
    bus.stop()


@as_root
async def test_only_the_service_may_own_its_name(system_bus: PrivateBus, face: Face) -> None:
    owner = pwd.getpwnam(READING).pw_uid if face is READER else 0
    for uid in {NOBODY, pwd.getpwnam(OWNER).pw_uid, pwd.getpwnam(READING).pw_uid, 0} - {owner}:
        assert "Access denied" in (await system_bus.busctl(*busctl_own, face.name, "4", uid=uid)).errors
    assert (await system_bus.busctl(*busctl_own, face.name, "4", uid=owner)).json == [1]


@as_root
@pytest.mark.parametrize("interface", ["", "org.freedesktop.DBus.Peer", "org.anything"])
async def test_only_root_and_the_supervisor_reach_it(system_bus: PrivateBus, face: Face, interface: str) -> None:
    owner = pwd.getpwnam(READING).pw_uid if face is READER else 0
    holding = [
        "setpriv",
        f"--reuid={owner}",
        "--clear-groups",
        sys.executable,
        "-c",
        HOLD,
        system_bus.address,
        face.name,
    ]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"owned\n"
        call = ("call", face.name, face.path, interface or face.name, "Ping")
        denied = "not allowed|denied|AccessDenied|rejected"
        for uid, admitted in ((0, True), (pwd.getpwnam(OWNER).pw_uid, True), (NOBODY, False)):
            done = await system_bus.busctl(*call, uid=uid)
            refused = any(word in done.errors for word in denied.split("|"))
            assert refused is not admitted, (uid, done.errors)
        holder.stdin.close()
