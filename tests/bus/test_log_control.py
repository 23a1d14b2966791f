"""org.freedesktop.LogControl1, as `systemctl service-log-level` uses it, on a bus that denies by default too."""

import logging
import os
from collections.abc import Iterator

import pytest

from gpusupervisor.bus import names
from tests.bus.builders import make_state
from tests.bus.conftest import NOBODY, PrivateBus, Starter
from tests.bus.test_policy import PROPERTIES, system_bus  # noqa: F401  (a fixture)

PATH = names.LOG_CONTROL_PATH
INTERFACE = "org.freedesktop.LogControl1"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to call as other users")


@pytest.fixture(autouse=True)
def informational() -> Iterator[logging.Logger]:
    ours = logging.getLogger("gpusupervisor")
    before = ours.level
    ours.setLevel(logging.INFO)
    yield ours
    ours.setLevel(before)


def set_level(value: str, kind: str = "s") -> tuple[str, ...]:
    return (PATH, PROPERTIES, "Set", "ssv", INTERFACE, "LogLevel", kind, value)


async def test_the_level_is_read_and_set(start: Starter, shared_bus: PrivateBus, informational: logging.Logger) -> None:
    await start()
    get = (PATH, PROPERTIES, "GetAll", "s", INTERFACE)
    shown = {name: each["data"] for name, each in (await shared_bus.call(*get)).json[0].items()}
    assert shown == {"LogLevel": "info", "LogTarget": "console", "SyslogIdentifier": "gpusupervisord"}
    done = await shared_bus.call(*set_level("debug"))
    assert done.status == 0, done.errors
    assert informational.level == logging.DEBUG
    assert (await shared_bus.call(*get)).json[0]["LogLevel"]["data"] == "debug"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (set_level("loud"), "one of: emerg, alert, crit, err, warning, notice, info, debug"),
        (set_level("7", "u"), 'LogLevel is a "s"'),
        ((PATH, PROPERTIES, "Set", "ssv", INTERFACE, "LogTarget", "s", "kmsg"), "LogTarget is read-only"),
        ((PATH, PROPERTIES, "Set", "ssv", INTERFACE, "Nothing", "s", "x"), "no property Nothing"),
        ((PATH, PROPERTIES, "Set", "ssv", "", "LogLevel", "s", "debug"), "LogLevel is read-only"),
        ((names.ROOT, PROPERTIES, "Set", "ssv", "org.gpusupervisor1.Manager", "Automatic", "b", "false"), "read-only"),
    ],
)
async def test_what_cannot_be_set_is_refused_with_the_reason(
    call: tuple[str, ...], why: str, start: Starter, shared_bus: PrivateBus, informational: logging.Logger
) -> None:
    await start()
    refused = await shared_bus.call(*call)
    assert refused.status != 0
    assert why in refused.errors
    assert informational.level == logging.INFO


@as_root
async def test_another_user_may_read_and_not_set(
    start: Starter, shared_bus: PrivateBus, informational: logging.Logger
) -> None:
    await start()
    assert (await shared_bus.call(PATH, PROPERTIES, "Get", "ss", INTERFACE, "LogLevel", uid=NOBODY)).status == 0
    assert "Access denied" in (await shared_bus.call(*set_level("debug"), uid=NOBODY)).errors
    assert informational.level == logging.INFO


@as_root
async def test_the_policy_lets_root_set_that_and_nothing_else(
    start: Starter,
    system_bus: PrivateBus,  # noqa: F811
    informational: logging.Logger,
) -> None:
    await start(bus=system_bus)
    assert (await system_bus.call(*set_level("warning"))).status == 0
    assert informational.level == logging.WARNING
    assert "Access denied" in (await system_bus.call(*set_level("debug"), uid=NOBODY)).errors
    elsewhere = (names.ROOT, PROPERTIES, "Set", "ssv", "org.gpusupervisor1.Manager", "Automatic", "b", "false")
    assert "Access denied" in (await system_bus.call(*elsewhere)).errors
    assert (await system_bus.call(PATH, PROPERTIES, "Get", "ss", INTERFACE, "LogLevel", uid=NOBODY)).status == 0


async def test_the_object_is_found_by_looking_and_is_not_among_ours(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    service.publish(make_state())
    tree = await shared_bus.busctl("tree", "--list", names.BUS_NAME)
    assert PATH in tree.output.splitlines()
    introspected = (await shared_bus.call(PATH, "org.freedesktop.DBus.Introspectable", "Introspect")).json[0]
    assert '<property name="LogLevel" type="s" access="readwrite">' in introspected
    assert '<property name="LogTarget" type="s" access="read">' in introspected
    managed = await shared_bus.call(names.ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
    assert PATH not in managed.json[0]
    assert names.tenant_path("ollama") in managed.json[0]
