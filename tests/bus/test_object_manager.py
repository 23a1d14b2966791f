"""Objects come and go where clients look for it: at the ObjectManager's path."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from gpusupervisor.bus import names
from tests.bus.builders import CARD, GIB, make_state
from tests.bus.conftest import Client, PrivateBus, Starter

SYSTEM_PYTHON = "/usr/bin/python3"
GDBUS_CLIENT = """
import json, sys
from gi.repository import Gio, GLib
flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
bus = Gio.DBusConnection.new_for_address_sync(sys.argv[1], flags, None, None)
manager = Gio.DBusObjectManagerClient.new_sync(
    bus, Gio.DBusObjectManagerClientFlags.NONE, "org.gpusupervisor1", "/org/gpusupervisor1", None, None, None)
def say(**what):
    print(json.dumps(what), flush=True)
def added(_manager, found):
    proxy = found.get_interface("org.gpusupervisor1.Tenant")
    say(event="added", path=found.get_object_path(), holding=proxy and proxy.get_cached_property("Holding").unpack())
def changed(_manager, found, proxy, properties, invalidated):
    say(event="changed", path=found.get_object_path(), properties=properties.unpack(), invalidated=invalidated)
manager.connect("object-added", added)
manager.connect("object-removed", lambda _m, found: say(event="removed", path=found.get_object_path()))
manager.connect("interface-proxy-properties-changed", changed)
say(event="there", paths=[found.get_object_path() for found in manager.get_objects()])
GLib.MainLoop().run()
"""


def has_gi() -> bool:
    return (
        Path(SYSTEM_PYTHON).exists()
        and subprocess.run([SYSTEM_PYTHON, "-c", "from gi.repository import Gio"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not has_gi(), reason="python3-gi is not installed for /usr/bin/python3")
async def test_a_gdbus_object_manager_sees_tenants_come_change_and_go(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    service.publish(make_state({"ollama": 12 * GIB}))
    process = await shared_bus.spawn(SYSTEM_PYTHON, "-c", GDBUS_CLIENT, shared_bus.address)

    async def heard() -> dict[str, object]:
        assert process.stdout is not None
        async with asyncio.timeout(10):
            line = await process.stdout.readline()
        return dict(json.loads(line))

    try:
        there = await heard()
        assert names.tenant_path("ollama") in there["paths"]  # type: ignore[operator]
        path = names.tenant_path("comfyui")
        service.publish(make_state({"ollama": 12 * GIB, "comfyui": 5 * GIB}, engines={}))
        while (news := await heard()) != {"event": "added", "path": path, "holding": 5 * GIB}:
            assert news["path"] != path
        service.publish(make_state({"ollama": 12 * GIB, "comfyui": 5 * GIB}, states={"comfyui": "busy"}, engines={}))
        while (news := await heard())["path"] != path:
            pass
        assert news["event"] == "changed"
        assert news["properties"]["Activity"] == "busy"  # type: ignore[index]
        service.publish(make_state({"ollama": 12 * GIB}, engines={}))
        while (news := await heard())["event"] != "removed":
            pass
        assert news["path"] == path
    finally:
        process.kill()
        await process.communicate()


async def test_objects_are_announced_from_the_root_with_all_their_properties(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state({}))
    await client.settle()
    client.signals.clear()
    service.publish(make_state({"comfyui": 5 * GIB}))
    await client.settle()
    added = {s.body[0]: s for s in client.signals if s.member == "InterfacesAdded"}
    assert set(added) == {names.tenant_path("comfyui"), names.engine_path("comfyui")}
    assert {signal.path for signal in added.values()} == {names.ROOT}
    shown = added[names.tenant_path("comfyui")].body[1]["org.gpusupervisor1.Tenant"]
    assert shown["Holding"].value == 5 * GIB
    service.publish(make_state({}))
    await client.settle()
    removed = [s for s in client.signals if s.member == "InterfacesRemoved"]
    assert {signal.body[0] for signal in removed} == set(added)
    assert {signal.path for signal in removed} == {names.ROOT}


async def test_managed_objects_are_all_objects_below_the_root(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state())
    reply = await client.call(names.ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
    objects = reply.body[0]
    assert set(objects) == {
        names.TENANTS_PATH, names.ENGINES_PATH, names.HEALTH_PATH, names.JOBS_PATH, names.TELEMETRY_PATH,
        names.gpu_path(CARD),
        names.tenant_path("ollama"), names.tenant_path("comfyui"),
        names.engine_path("ollama"), names.engine_path("comfyui"),
    }  # fmt: skip
    assert objects[names.gpu_path(CARD)]["org.gpusupervisor1.Gpu"]["Uuid"].value == CARD
