"""The live screen on a real terminal: over the real service and a simulated card, over ssh, without colours."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.simulation.engines.launch import disguised_python
from tests.bus.builders import GIB, make_state
from tests.bus.conftest import PrivateBus, need
from tests.cli.conftest import COMMAND
from tests.cli.pseudo_terminal import INTERRUPT, PseudoTerminal
from tests.cli.test_remote import SSH
from tests.daemon.station import Station, wait_until
from tests.daemon.test_hand_off import RELEASE, RENDERBOX

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    one = Station()
    executable = disguised_python(one.folder / "bin" / "renderbox")
    app = one.engine("third_app", "--port", "0", "--hold", "4G", executable=executable)
    one.describe({"renderbox": RENDERBOX.format(url=app.url) + RELEASE})
    daemon = one.daemon().wait_ready()
    wait_until(lambda: any("renderbox idle" in text for text in daemon.systemd.statuses()), "an idle application")
    yield one
    one.close()


async def test_memory_is_asked_back_and_what_came_of_it_is_seen(station: Station) -> None:
    environment = {"DBUS_SYSTEM_BUS_ADDRESS": station.bus.address}
    terminal = await PseudoTerminal.run(*COMMAND, "top", environment=environment, columns=110, rows=30)
    await terminal.wait_for("renderbox")
    terminal.press(b"r")
    await terminal.wait_for("Ask renderbox for its memory?")
    terminal.press(b"y")
    await terminal.wait_for("satisfied")
    terminal.press(b"\r")
    terminal.press(b"3")
    await terminal.wait_for("renderbox freed")
    terminal.resize(80, 24)
    terminal.press(b"6")
    await terminal.wait_for("CHECK")
    terminal.press(b"q")
    assert await terminal.end() == 0
    assert "Traceback" not in terminal.written
    past = await station.bus.run(*COMMAND, "events", "--kind", "outcome")
    assert "finished, satisfied: 3.8 GiB came back" in past.output


async def test_history_of_the_real_service_is_plotted(station: Station) -> None:
    async with asyncio.timeout(30):  # samples are written in batches
        while (shown := await station.bus.run(*COMMAND, "history", "--tenant", "renderbox")).status:
            await asyncio.sleep(0.5)
    assert shown.output.splitlines()[0] == "memory held, GiB"
    assert "renderbox, NVIDIA GeForce RTX 4090" in shown.output


async def test_no_color_is_heard(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    given = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    coloured = await PseudoTerminal.run(*COMMAND, "top", environment=given)
    plain = await PseudoTerminal.run(*COMMAND, "top", environment={**given, "NO_COLOR": "1"})
    for terminal in (coloured, plain):
        await terminal.wait_for("ollama")
        await terminal.wait_for("Quit")
        terminal.press(INTERRUPT)
        assert await terminal.end() == 0
    assert COLOUR.search(coloured.written)
    assert not COLOUR.search(plain.written)
    assert "AAAA" in plain.written


async def test_the_console_is_sent_only_what_its_fonts_have(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    given = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address, "TERM": "linux"}
    terminal = await PseudoTerminal.run(*COMMAND, "top", environment=given)
    await terminal.wait_for("ollama")
    terminal.press(b"?")
    await terminal.wait_for("sparkline")
    terminal.press(INTERRUPT)
    assert await terminal.end() == 0
    assert set(filter(lambda char: not char.isascii(), terminal.written)) <= set("…─│┌┐└┘")


async def test_another_machine_is_named_and_found_again(tmp_path: Path, bus: PrivateBus, service: BusService) -> None:
    need("systemd-stdio-bridge")
    log, ssh = tmp_path / "log", tmp_path / "ssh"
    ssh.write_text(SSH.format(log=log, address=bus.address))
    ssh.chmod(0o755)
    service.publish(make_state())
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent"}
    terminal = await PseudoTerminal.run(*COMMAND, "-H", "me@box", "top", environment=given)
    await terminal.wait_for("me@box: ")
    await terminal.wait_for("ollama")
    bridge = int(log.read_text().splitlines()[1])
    await asyncio.create_subprocess_exec("kill", str(bridge))
    await terminal.wait_for("is lost")
    service.publish(make_state({"newcomer": GIB}))
    await terminal.wait_for("newcomer")
    assert log.read_text().splitlines()[0] == "-q -o BatchMode=yes -xT me@box systemd-stdio-bridge"
    terminal.press(b"q")
    assert await terminal.end() == 0
