"""systemd is asked once, heard when something changes, and never waited for in vain."""

import asyncio
from pathlib import Path

import pytest
from dbus_fast import Variant

from gpusupervisor.peers import unit_client
from gpusupervisor.unit_environment import Given
from gpusupervisor.unit_syntax import expanded
from tests.bus.conftest import PrivateBus
from tests.peers.conftest import Follower
from tests.peers.fake_systemd import FakeSystemd, command

OLLAMA = "ollama.service"
PATTERNS = frozenset({OLLAMA, "comfyui@*.service"})


async def test_a_unit_is_told_with_its_files(systemd: FakeSystemd, follower: Follower, tmp_path: Path) -> None:
    drop_in, variables = tmp_path / "keep.conf", tmp_path / "ollama.env"
    drop_in.write_text("[Service]\nEnvironment=OLLAMA_KEEP_ALIVE=1h\n")
    variables.write_text("OLLAMA_NUM_PARALLEL=1\n")
    members = tmp_path / "cgroup/system.slice/ollama.service/cgroup.procs"
    members.parent.mkdir(parents=True)
    members.write_text("812\n811\n")
    systemd.has(
        OLLAMA,
        DropInPaths=Variant("as", [str(drop_in)]),
        Environment=Variant("as", ["OLLAMA_KEEP_ALIVE=1h", "PATH=/bin"]),
        EnvironmentFiles=Variant("a(sb)", [[str(variables), False], ["/nonexistent", True]]),
        ExecStart=command("/usr/bin/ollama", "serve"),
        MainPID=Variant("u", 811),
        ControlGroup=Variant("s", "/system.slice/ollama.service"),
        NeedDaemonReload=Variant("b", True),
    )
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    unit = follower.client.units[OLLAMA]
    assert unit.environment == {
        "OLLAMA_KEEP_ALIVE": Given("1h", str(drop_in)),
        "PATH": Given("/bin", OLLAMA),
        "OLLAMA_NUM_PARALLEL": Given("1", str(variables)),
    }
    assert (unit.active, unit.main_pid, unit.members, unit.needs_reload) == (True, 811, (811, 812), True)
    assert unit.commands == (("/usr/bin/ollama", "serve"),)


async def test_the_arguments_of_a_command_without_expansion_stay_as_they_stand(
    systemd: FakeSystemd, follower: Follower
) -> None:
    arguments = ["/usr/bin/ollama", "serve", "$ARGS", "a$$b"]
    flags = Variant("a(sasasttttuii)", [["/usr/bin/ollama", arguments, ["no-env-expand"], 0, 0, 0, 0, 0, 0, 0]])
    systemd.has(OLLAMA, ExecStart=command(*arguments), ExecStartEx=flags)
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    [found] = follower.client.units[OLLAMA].commands
    assert expanded(found, {"ARGS": "--port 1"}) == tuple(arguments)


async def test_a_reload_is_heard_and_not_polled_for(systemd: FakeSystemd, follower: Follower) -> None:
    systemd.has(OLLAMA)
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    systemd.has(OLLAMA, Environment=Variant("as", ["OLLAMA_HOST=:1"]))
    await systemd.reloads()
    await follower.until(lambda: follower.client.units[OLLAMA].environment)
    assert follower.client.units[OLLAMA].environment["OLLAMA_HOST"].value == ":1"


async def test_a_start_and_a_new_unit_are_heard(systemd: FakeSystemd, follower: Follower) -> None:
    systemd.has(OLLAMA)
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    systemd.has(OLLAMA, MainPID=Variant("u", 5))
    await systemd.changes(OLLAMA)
    await follower.until(lambda: follower.client.units[OLLAMA].main_pid == 5)
    systemd.has("comfyui@1.service")
    await systemd.loads("comfyui@1.service")
    await follower.until(lambda: "comfyui@1.service" in follower.client.units)


async def test_news_of_others_and_by_others_cost_nothing(
    systemd: FakeSystemd, follower: Follower, bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_client, "SETTLED", 60.0)
    systemd.has(OLLAMA)
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    asked = len(systemd.asked)
    await systemd.loads("session-3.scope")
    systemd.has("other.service", MainPID=Variant("u", 7))
    await systemd.changes("other.service")
    del systemd.units["other.service"]
    for signal in ("Reloading b false", "UnitNew so ollama.service /x"):
        await bus.busctl("emit", unit_client.PATH, unit_client.MANAGER, *signal.split())
    await follower.settle(systemd.bus)
    assert len(systemd.asked) == asked
    await follower.settle(systemd.bus)
    assert len(systemd.asked) == asked


async def test_missing_and_misshapen_properties_are_as_empty_ones(systemd: FakeSystemd, follower: Follower) -> None:
    systemd.has(OLLAMA, MainPID=Variant("s", "811"), Environment=Variant("s", "A=1"), ExecStart=Variant("as", ["x"]))
    for name in ("ControlGroup", "EnvironmentFiles", "UnsetEnvironment", "PassEnvironment", "NeedDaemonReload"):
        del systemd.units[OLLAMA][name]
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    unit = follower.client.units[OLLAMA]
    assert (unit.active, unit.main_pid, unit.environment, unit.commands, unit.needs_reload) == (True, 0, {}, (), False)


async def test_a_unit_that_is_gone_or_not_found_is_not_told(systemd: FakeSystemd, follower: Follower) -> None:
    systemd.has(OLLAMA)
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    systemd.load_state = "not-found"
    await systemd.reloads()
    await follower.until(lambda: not follower.client.units)


async def test_a_refusal_leaves_what_was_known(systemd: FakeSystemd, follower: Follower) -> None:
    systemd.has(OLLAMA)
    follower.client.want(PATTERNS)
    await follower.until(lambda: follower.client.units)
    systemd.refused.add("ListUnitsByPatterns")
    asked = systemd.asked.count("ListUnitsByPatterns")
    await systemd.reloads()
    async with asyncio.timeout(10):
        while systemd.asked.count("ListUnitsByPatterns") < asked + 1:
            await asyncio.sleep(0.01)
    assert OLLAMA in follower.client.units
    assert not follower.task.done()


async def test_a_machine_without_systemd_has_no_units_and_one_that_gets_it_later_has(
    follower: Follower, bus: PrivateBus
) -> None:
    follower.client.want(PATTERNS)
    assert follower.client.units == {}
    late = await FakeSystemd.start(bus.address)
    late.has(OLLAMA)
    await follower.until(lambda: follower.client.units)
    await late.stop()
