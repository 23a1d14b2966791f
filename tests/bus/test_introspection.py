"""The XML files are the contract: what is exported equals them, member by member."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gpusupervisor.bus import names
from gpusupervisor.jobs import Jobs, Report
from tests.bus.builders import CARD, make_state
from tests.bus.conftest import Client, PrivateBus, Starter

FILES = sorted(
    path
    for path in (Path(__file__).parents[2] / "dbus").glob("org.gpusupervisor1.*.xml")
    if path.stem not in (names.HELPER_NAME, names.READER_NAME)  # see tests/privileged
)
OBJECTS = {
    "Manager": names.ROOT,
    "Tenants": names.TENANTS_PATH,
    "Tenant": names.tenant_path("ollama"),
    "Engines": names.ENGINES_PATH,
    "Engine": names.engine_path("ollama"),
    "Gpu": names.gpu_path(CARD),
    "Fans": names.gpu_path(CARD),
    "Profile": names.gpu_path(CARD),
    "Health": names.HEALTH_PATH,
    "Telemetry": names.TELEMETRY_PATH,
    "Jobs": names.JOBS_PATH,
    "Job": names.job_path(1),
}


async def nothing(_report: Report) -> object:
    return None


Member = tuple[str, list[tuple[str, str]], list[tuple[str, list[tuple[str, str]]]]]


def members(interface: ET.Element) -> list[Member]:
    """Everything a client can see of an interface: members in any order, arguments in theirs."""
    seen = [
        (
            node.tag,
            sorted(node.attrib.items()),
            [(child.tag, sorted(child.attrib.items())) for child in node],
        )
        for node in interface
        if isinstance(node.tag, str)
    ]
    return sorted(seen)


def test_every_interface_has_a_file() -> None:
    assert {path.stem.removeprefix("org.gpusupervisor1.") for path in FILES} == OBJECTS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_live_introspection_equals_the_file(path: Path, start: Starter, client: Client, jobs: Jobs) -> None:
    service = await start()
    service.publish(make_state())
    jobs.start("autotune", nothing)
    target = OBJECTS[path.stem.rpartition(".")[2]]
    reply = await client.call(target, "org.freedesktop.DBus.Introspectable", "Introspect")
    live = {node.attrib["name"]: node for node in ET.fromstring(reply.body[0]).iter("interface")}
    [written] = ET.parse(path).getroot().iter("interface")
    assert written.attrib["name"] == path.stem
    assert members(live[path.stem]) == members(written)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_member_is_documented_right_before_it(path: Path) -> None:
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    [interface] = ET.parse(path, parser).getroot().iter("interface")
    nodes = list(interface)
    for comment, node in zip(nodes[::2], nodes[1::2], strict=True):
        kind: object = comment.tag
        assert kind is ET.Comment
        text = (comment.text or "").strip()
        assert text.startswith(f"{node.attrib['name']}:\n"), node.attrib["name"]
        assert len(text.splitlines()[1].split()) > 1
        for argument in node.iter("arg"):
            assert f"@{argument.attrib['name']}:" in text, (node.attrib["name"], argument.attrib["name"])


async def test_busctl_shows_tree_and_annotations(start: Starter, shared_bus: PrivateBus, jobs: Jobs) -> None:
    service = await start()
    service.publish(make_state())
    jobs.start("autotune", nothing)
    tree = await shared_bus.run("busctl", f"--address={shared_bus.address}", "tree", "--list", names.BUS_NAME)
    assert set(OBJECTS.values()) <= set(tree.output.split())
    shown = await shared_bus.run(
        "busctl", f"--address={shared_bus.address}", "introspect", names.BUS_NAME, names.tenant_path("ollama"),
        "org.gpusupervisor1.Tenant",
    )  # fmt: skip
    lines = {line.split()[0]: line for line in shown.output.splitlines()}
    assert "emits-change" in lines[".Activity"]
    assert "emits-invalidation" in lines[".Processes"]
    assert "const" in lines[".Id"]
    assert "emits" not in lines[".ActivityObservedAt"]


async def test_gdbus_can_introspect_everything(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    service.publish(make_state())
    result = await shared_bus.run(
        "gdbus", "introspect", "--address", shared_bus.address, "--dest", names.BUS_NAME, "--object-path", names.ROOT,
        "--recurse",
    )  # fmt: skip
    assert result.status == 0
    assert "readonly s Activity = 'busy';" in result.output
    assert "interface org.freedesktop.DBus.ObjectManager" in result.output


async def test_what_leads_to_objects_can_be_introspected_and_nothing_else(start: Starter, client: Client) -> None:
    await start()
    for path, below in (("/", ["org"]), ("/org", ["freedesktop", "gpusupervisor1"])):
        reply = await client.call(path, "org.freedesktop.DBus.Introspectable", "Introspect")
        assert [node.attrib["name"] for node in ET.fromstring(reply.body[0]).findall("node")] == below
    reply = await client.call("/org/nothing", "org.freedesktop.DBus.Introspectable", "Introspect")
    assert reply.error_name == "org.freedesktop.DBus.Error.UnknownObject"


async def test_only_the_root_has_the_object_manager(start: Starter, client: Client) -> None:
    await start()
    reply = await client.call(names.TENANTS_PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
    assert reply.error_name == "org.freedesktop.DBus.Error.UnknownInterface"
