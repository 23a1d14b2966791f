"""The helper stops and restarts units only by files of root's."""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.errors import NotSupported
from gpusupervisor.helper.units import UnitRelease, unit_release
from tests.helper.conftest import Bench

OWN = os.getuid()
FILE = 'title = "x"\n[[release]]\nmethod = "unit"\nunit = "llama.service"\n'


@pytest.fixture
def layers(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "etc", tmp_path / "run"]
    for each in found:
        each.mkdir(mode=0o755)
    return found


def test_the_unit_is_the_one_that_the_file_names(layers: list[Path]) -> None:
    (layers[0] / "llama.toml").write_text(FILE)
    assert unit_release("llama", layers, OWN) == UnitRelease("llama.service", "stop")
    assert unit_release("llama@8081", layers, OWN) == UnitRelease("llama.service", "stop")
    (layers[1] / "llama.toml").write_text(FILE + 'action = "restart"\n')
    assert unit_release("llama", layers, OWN).action == "restart"
    (layers[0] / "llama@8081.toml").write_text(FILE.replace("llama.service", "second.service"))
    assert unit_release("llama@8081", layers, OWN).unit == "second.service"


def test_a_file_that_others_could_have_written_names_nothing(layers: list[Path]) -> None:
    file = layers[0] / "llama.toml"
    file.write_text(FILE)
    file.chmod(0o666)
    with pytest.raises(NotSupported):
        unit_release("llama", layers, OWN)
    file.chmod(0o644)
    with pytest.raises(NotSupported):
        unit_release("llama", layers, OWN + 1)


@pytest.mark.parametrize(
    "unit",
    [
        "dbus.service", "gpusupervisor-helper.service", "systemd-logind.service", "user@1000.service", "x.socket",
        "../x.service", "a b.service", "sddm-display-manager.service", "",
    ],
)  # fmt: skip
def test_what_the_machine_needs_or_is_no_service_is_never_stopped(layers: list[Path], unit: str) -> None:
    (layers[0] / "llama.toml").write_text(FILE.replace("llama.service", unit))
    with pytest.raises(NotSupported):
        unit_release("llama", layers, OWN)


@pytest.mark.parametrize("tenant", ["", "../llama", "other", "llama.toml", "x" * 200])
def test_a_tenant_without_such_a_file_has_no_unit(layers: list[Path], tenant: str) -> None:
    (layers[0] / "llama.toml").write_text(FILE)
    with pytest.raises(NotSupported):
        unit_release(tenant, layers, OWN)


@pytest.fixture
async def systemd(bench: Bench) -> AsyncIterator[list[tuple[str, list[object]]]]:
    """What systemd is asked for; it knows llama.service alone."""
    asked: list[tuple[str, list[object]]] = []
    bus = await MessageBus(bench.bus.address).connect()

    def take(message: Message) -> bool:
        if message.message_type is not MessageType.METHOD_CALL or message.path != "/org/freedesktop/systemd1":
            return False
        asked.append((str(message.member), message.body))
        if message.body[:1] == ["llama.service"] or message.member == "StartTransientUnit":
            bus.send(Message.new_method_return(message, "o", ["/job/1"]))
        else:
            bus.send(Message.new_error(message, "org.freedesktop.systemd1.NoSuchUnit", "Unit not loaded"))
        return True

    bus.add_message_handler(take)
    await bus.request_name("org.freedesktop.systemd1")
    yield asked
    bus.disconnect()
    await asyncio.wait_for(bus.wait_for_disconnect(), 10)  # type: ignore[no-untyped-call]


async def test_the_helper_has_systemd_stop_it(bench: Bench, systemd: list[tuple[str, list[object]]]) -> None:
    bench.tenants.mkdir(exist_ok=True)
    (bench.tenants / "llama.toml").write_text(FILE)
    bench.start()
    answer = await bench.ask("ReleaseUnit", "s", "llama")
    assert answer.status == 0, answer.errors
    assert systemd == [("StopUnit", ["llama.service", "replace"])]
    (bench.tenants / "llama.toml").write_text(FILE.replace("llama.service", "gone.service"))
    assert "Unit not loaded" in (await bench.ask("ReleaseUnit", "s", "llama")).errors
    assert "No tenant file" in (await bench.ask("ReleaseUnit", "s", "other")).errors
    assert len(systemd) == 2


OF_A_USER = 'title = "x"\n[[release]]\nmethod = "unit"\nuser-unit = "llama.service"\nuser = "{}"\n'


async def test_a_users_unit_is_stopped_by_a_unit_with_that_users_rights_alone(
    bench: Bench, systemd: list[tuple[str, list[object]]]
) -> None:
    bench.tenants.mkdir(exist_ok=True)
    (bench.tenants / "llama.toml").write_text(OF_A_USER.format(OWN))
    bench.start()
    answer = await bench.ask("ReleaseUnit", "s", "llama")
    assert answer.status == 0, answer.errors
    [(member, body)] = systemd
    assert member == "StartTransientUnit"
    properties = {key: value.value for key, value in cast("list[tuple[str, Variant]]", body[2])}
    assert properties["User"] == pwd.getpwuid(OWN).pw_name
    assert properties["Environment"] == [f"XDG_RUNTIME_DIR=/run/user/{OWN}"]
    [(program, words, _)] = properties["ExecStart"]
    assert (program, words[1], words[-3:]) == ("/usr/bin/systemctl", "--user", ["stop", "--", "llama.service"])
    assert (properties["NoNewPrivileges"], properties["CapabilityBoundingSet"]) == (True, 0)
    assert properties["RuntimeMaxUSec"] > 0


async def test_a_unit_of_nobody_is_not_asked_for(bench: Bench, systemd: list[tuple[str, list[object]]]) -> None:
    bench.tenants.mkdir(exist_ok=True)
    (bench.tenants / "llama.toml").write_text(OF_A_USER.format("no-such-account"))
    bench.start()
    assert "no account no-such-account" in (await bench.ask("ReleaseUnit", "s", "llama")).errors
    assert systemd == []


@pytest.mark.parametrize("user", ["a b", "-x", "../x", "Root;"])
def test_what_is_no_account_names_no_unit(layers: list[Path], user: str) -> None:
    (layers[0] / "llama.toml").write_text(OF_A_USER.format(user))
    with pytest.raises(NotSupported):
        unit_release("llama", layers, OWN)


def test_a_system_unit_is_never_meant_by_a_users_and_the_other_way_round(layers: list[Path]) -> None:
    (layers[0] / "llama.toml").write_text(OF_A_USER.format("alice"))
    assert unit_release("llama", layers, OWN) == UnitRelease("llama.service", "stop", "alice")
    (layers[0] / "llama.toml").write_text(FILE + 'user = "alice"\n')
    with pytest.raises(NotSupported):
        unit_release("llama", layers, OWN)
    (layers[0] / "llama.toml").write_text(OF_A_USER.format("alice").replace('user = "alice"\n', ""))
    with pytest.raises(NotSupported):
        unit_release("llama", layers, OWN)
