"""The proxy that `setup` offers: for which units, with which files, and what is done and undone."""

import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.cli.setup.findings import Tenant, Unit
from gpusupervisor.cli.setup.front import Front, front_of
from gpusupervisor.cli.setup.systemd import services
from gpusupervisor.cli.setup.toml_text import CannotExtend
from tests.bus.conftest import PrivateBus
from tests.cli.fake_systemd import FakeSystemd
from tests.cli.fake_systemd import Unit as FakeUnit
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.daemon.station import Station

COMMAND = ("/usr/bin/llama-server", "-m", "/srv/a b%.gguf", "--port", "8080")
PROXYD = Path("/usr/lib/systemd/systemd-socket-proxyd")


def tenant(engine: str = "llama.cpp", **more: Any) -> Tenant:
    base = Tenant("llm", engine, "idle", False, 1, True, None, "http://127.0.0.1:8080", True, "", (), {"title": "x"})
    return replace(base, **more)


def unit(*command: str, **more: Any) -> Unit:
    words = command or COMMAND
    base = Unit("llm.service", False, "active", "llm", "http://127.0.0.1:8080", words, {}, (), words)
    return replace(base, **more)


def front(**more: Any) -> Front:
    found = front_of(unit(**more), tenant(), ())
    assert found is not None
    return found


def test_the_socket_takes_the_usual_address_and_the_engine_another_port_of_this_machine_alone() -> None:
    files = front().unit_files(PROXYD)
    assert list(files) == ["llm-proxy.socket", "llm-proxy.service", "llm.service.d/50-gpusupervisor-proxy.conf"]
    assert "ListenStream=127.0.0.1:8080\n" in files["llm-proxy.socket"]
    assert f"ExecStart={PROXYD} 127.0.0.1:18080\n" in files["llm-proxy.service"]
    assert "http://127.0.0.1:18080/health\n" in files["llm-proxy.service"]
    assert files["llm.service.d/50-gpusupervisor-proxy.conf"].endswith(
        'ExecStart=\nExecStart=/usr/bin/llama-server -m "/srv/a b%%.gguf" --port 18080 --host 127.0.0.1\n'
    )


@pytest.mark.parametrize(
    ("engine", "words", "environment", "listen"),
    [
        ("llama.cpp", ("llama-server", "--host", "0.0.0.0"), {}, "8080"),
        ("llama.cpp", ("llama-server", "--host=::1"), {}, "[::1]:8080"),
        ("llama.cpp", ("llama-server", "--host", "localhost"), {}, "127.0.0.1:8080"),
        ("llama.cpp", ("llama-server",), {"LLAMA_ARG_HOST": "192.168.1.2"}, "192.168.1.2:8080"),
        ("llama.cpp", ("llama-server", "--host", "1.1.1.1", "--host", "192.168.1.2"), {}, "192.168.1.2:8080"),
        ("vllm", ("vllm", "serve", "m"), {}, "8080"),
        ("koboldcpp", ("koboldcpp",), {}, "8080"),
        ("sglang", ("sglang",), {}, "127.0.0.1:8080"),
    ],
)
def test_the_proxy_is_reached_from_where_the_engine_was(
    engine: str, words: tuple[str, ...], environment: dict[str, str], listen: str
) -> None:
    found = front_of(unit(*words, environment=environment), tenant(engine), ())
    assert found is not None
    assert found.listen == listen
    assert "127.0.0.1" in " ".join(found.command)


@pytest.mark.parametrize(
    ("one", "whose"),
    [
        (unit(), tenant("ollama")),
        (unit(), tenant(definition={"release": [{"post": "/free"}]})),
        (unit(), tenant(protected=True)),
        (unit(of_user=True), tenant()),
        (unit(state="stopped"), tenant()),
        (unit(command=()), tenant()),
        (unit(endpoint="unix:/run/llm"), tenant()),
        (unit(endpoint=""), tenant()),
        (unit(name="a b.service"), tenant()),
        (unit("llama-server", "--host", "llm.example"), tenant()),
        (unit("python3", "-m", "llama_cpp.server"), tenant()),
    ],
)
def test_where_there_is_no_sure_way_or_nothing_to_gain_none_is_offered(one: Unit, whose: Tenant) -> None:
    assert front_of(one, whose, ()) is None


def test_a_port_that_something_has_is_not_taken() -> None:
    found = front_of(unit(), tenant(), (18080, 18081))
    assert found is not None
    assert found.port == 18082
    high = front_of(unit(endpoint="http://127.0.0.1:60000"), tenant(), ())
    assert high is not None
    assert high.port == 50000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (("s", "--port=1", "$ARGS"), 's --port=18080 "$ARGS" --host 127.0.0.1'),
        (("s", "${P}", "a$$b"), 's "${P}" "a$$b" --port 18080 --host 127.0.0.1'),
        (("s", ";", 'q"\\'), 's ";" "q\\"\\\\" --port 18080 --host 127.0.0.1'),
    ],
)
def test_the_command_stays_what_it_was_but_for_where_it_listens(written: tuple[str, ...], expected: str) -> None:
    conf = front(command=written).unit_files(PROXYD)["llm.service.d/50-gpusupervisor-proxy.conf"]
    assert conf.splitlines()[-1] == f"ExecStart={expected}"


def test_the_tenants_file_says_where_it_is_and_how_it_is_released() -> None:
    text = front().tenant_text("priority = 7\n[endpoint]\nprefix-flags = []\n")
    assert tomllib.loads(text) == {
        "priority": 7,
        "endpoint": {"url": "http://127.0.0.1:18080", "prefix-flags": []},
        "release": [{"method": "unit", "unit": "llm.service"}],
    }
    for there in ('[[release]]\npost = "/x"\n', "release = []\n", '[endpoint]\nurl = "http://127.0.0.1:1"\n'):
        with pytest.raises(CannotExtend):
            front().tenant_text(there)


@pytest.mark.parametrize(
    ("one", "command"),
    [
        (FakeUnit("a.service", command=COMMAND), COMMAND),
        (FakeUnit("a.service", command=COMMAND, prefixes=["ignore-failure"]), ()),
        (FakeUnit("a.service", command=COMMAND, triggers=["a.socket"]), ()),
    ],
)
async def test_a_command_with_prefixes_or_a_socket_of_its_own_is_left_alone(
    one: FakeUnit, command: tuple[str, ...], bus: PrivateBus
) -> None:
    systemd = await FakeSystemd.on(bus.address, [one])
    client = await FakeSystemd.connection(bus.address)
    [found] = await services(client) or []
    client.disconnect()
    await systemd.leave()
    assert found.command == command


CODE = """
import sys
from pathlib import Path
from gpusupervisor.cli import main, overrides
from gpusupervisor.cli.setup import front_writing
folder = Path(sys.argv.pop(1))
overrides.FOLDER, front_writing.UNITS = folder / "tenants", folder / "units"
front_writing.SYSTEMCTL = str(folder / "systemctl")
front_writing.CURL = front_writing.PROXYD[0].__class__("/bin/sh")
front_writing.PROXYD = (Path("/bin/sh"),)
main.main()
"""
SYSTEMCTL = '#!/bin/sh\nshift\necho "$@" >> "$(dirname "$0")/done"\nif [ "$1" = "$FAILS" ]; then exit 1; fi\n'


@pytest.fixture
def prepared() -> Iterator[tuple[Station, Path]]:
    """A service, and folders of ours for what setup writes and runs."""
    station = Station()
    folder = station.folder / "setup"
    (folder / "units").mkdir(parents=True)
    (folder / "tenants").symlink_to(station.tenants)
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    station.daemon().wait_ready()
    yield station, folder
    station.close()


@pytest.fixture
async def machine(prepared: tuple[Station, Path]) -> AsyncIterator[tuple[Station, Path]]:
    """With a llama-server that runs as a unit."""
    station, folder = prepared
    systemd = await FakeSystemd.on(station.bus.address, [FakeUnit("llama-server.service", command=COMMAND)])
    yield station, folder
    await systemd.leave()


async def on_a_terminal(station: Station, folder: Path, fails: str = "") -> PseudoTerminal:
    environment = {
        "DBUS_SYSTEM_BUS_ADDRESS": station.bus.address, "FAILS": fails,
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent",
    }  # fmt: skip
    terminal = await PseudoTerminal.run(sys.executable, "-c", CODE, str(folder), "setup", environment=environment)
    await terminal.wait_for("restart llama-server.service behind it now? [y/n/q]")
    return terminal


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder / "units")) for each in (folder / "units").rglob("*")}


async def test_it_is_put_in_place_after_a_yes_in_steps_that_leave_no_request_unanswered(
    machine: tuple[Station, Path],
) -> None:
    station, folder = machine
    terminal = await on_a_terminal(station, folder)
    assert files(folder) == set()
    terminal.press(b"n\n")
    assert await terminal.end() == 0, terminal.written
    assert files(folder) == set()
    terminal = await on_a_terminal(station, folder)
    terminal.press(b"y\n")
    assert await terminal.end() == 0, terminal.written
    assert "-> written" in terminal.written
    assert (folder / "done").read_text().splitlines() == [
        "daemon-reload", "stop llama-server.service", "enable --now llama-server-proxy.socket",
    ]  # fmt: skip
    assert len(files(folder)) == 4
    assert 'unit = "llama-server.service"' in (station.tenants / "llama-server.toml").read_text()


@pytest.mark.parametrize("fails", ["stop", "enable"])
async def test_when_a_step_fails_all_is_undone(machine: tuple[Station, Path], fails: str) -> None:
    station, folder = machine
    terminal = await on_a_terminal(station, folder, fails)
    terminal.press(b"y\n")
    assert await terminal.end() == 1, terminal.written
    assert "-> failed" in terminal.written
    assert files(folder) == set()
    assert (folder / "done").read_text().splitlines()[-2:] == ["daemon-reload", "start llama-server.service"]
    assert not (station.tenants / "llama-server.toml").exists()
