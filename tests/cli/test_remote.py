"""-H: the service of another machine, over a stand-in for ssh that runs the real bridge against the test's bus."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from tests.bus.builders import make_state
from tests.bus.conftest import PrivateBus, Result, need
from tests.bus.fakes import FakeController, FixedAuthority
from tests.cli.conftest import COMMAND

SSH = '#!/bin/sh\necho "$@" >"{log}"\necho $$ >>"{log}"\nexec systemd-stdio-bridge --bus-path="{address}"\n'


class Remote:
    """Another machine: this one, reached the long way round."""

    def __init__(self, folder: Path, bus: PrivateBus) -> None:
        self.log = folder / "log"
        self._ssh = folder / "ssh"
        self.path = f"{folder}:{os.environ['PATH']}"
        self.answer(SSH.format(log=self.log, address=bus.address))

    def answer(self, script: str) -> None:
        self._ssh.write_text(script)
        self._ssh.chmod(0o755)

    async def spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {
            "PATH": self.path, "LC_ALL": "C.UTF-8",
            "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent",
        }  # fmt: skip
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
        )

    async def run(self, *arguments: str) -> Result:
        process = await self.spawn(*arguments)
        output, errors = await process.communicate()
        return Result(process.returncode or 0, output.decode(), errors.decode())


@pytest.fixture
def remote(tmp_path: Path, bus: PrivateBus) -> Remote:
    need("systemd-stdio-bridge")
    return Remote(tmp_path, bus)


async def test_commands_work_as_here(remote: Remote, service: BusService) -> None:
    service.publish(make_state())
    shown = await remote.run("-H", "me@box:2222", "tenants")
    assert (shown.status, shown.errors) == (0, "")
    assert "ollama" in shown.output
    assert remote.log.read_text().splitlines()[0] == "-xT -p 2222 me@box systemd-stdio-bridge"


async def test_errors_say_which_machine(remote: Remote, bus: PrivateBus) -> None:
    shown = await remote.run("tenants", "--host", "box")
    assert (shown.status, shown.output) == (3, "")
    assert shown.errors.startswith("gpusupervisor is not running on box.\n")
    assert "ssh box systemctl status gpusupervisor" in shown.errors


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Permission denied (publickey).' >&2; exit 255", "ssh could not log in"),
        ("exit 127", "systemd-stdio-bridge was not found"),
        ("echo welcome; printf 'DATA\\r\\n'; exec cat >/dev/null", "unknown response from server: 'welcome"),
        ("read -r _; exit 1", "connection closed during authentication"),
    ],
)
async def test_without_a_connection_ssh_is_heard_and_the_next_step_told(
    remote: Remote, script: str, reason: str
) -> None:
    remote.answer(f"#!/bin/sh\n{script}\n")
    shown = await remote.run("tenants", "-H", "me@box:2222")
    assert shown.status == 3
    *heard, first, _, next_step = shown.errors.splitlines()
    assert heard == (["Permission denied (publickey)."] if "255" in script else [])
    assert first.startswith("No connection to the system bus of me@box:2222 (")
    assert reason in first
    assert next_step == "Try it with: ssh -p 2222 me@box systemd-stdio-bridge"


async def test_without_ssh_here_that_is_told(remote: Remote) -> None:
    remote.path = "/nonexistent"
    shown = await remote.run("tenants", "-H", "box")
    assert (shown.status, "(ssh does not start here: No such file or directory)" in shown.errors) == (3, True)


async def test_what_is_no_host_is_wrong_use(remote: Remote) -> None:
    shown = await remote.run("tenants", "--host=-oProxyCommand=touch")
    assert (shown.status, shown.output) == (2, "")
    assert "is not a machine" in shown.errors
    assert not remote.log.exists()


async def test_ctrl_c_is_not_for_ssh_which_still_carries_the_goodbye(
    remote: Remote, service: BusService, controller: FakeController
) -> None:
    controller.gate.clear()
    waiting = await remote.spawn("-H", "box", "release", "ollama")
    async with asyncio.timeout(10):
        while not controller.calls:
            await asyncio.sleep(0.01)
    ssh = int(remote.log.read_text().splitlines()[1])
    os.kill(ssh, signal.SIGINT)
    controller.gate.set()
    output, errors = await waiting.communicate()
    assert (waiting.returncode, errors) == (0, b"")
    assert b"came back" in output


async def test_editing_is_done_on_the_machine_itself(
    remote: Remote, service: BusService, authority: FixedAuthority
) -> None:
    shown = await remote.run("-H", "box", "edit", "ollama")
    assert shown.status == 2
    assert "ssh -t box sudo gpusupervisorctl edit ollama" in shown.errors
