"""A few commands from one end to the other: the command line, the bus, the daemon, an application, the card."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.nvml import SimulatedGpu
from gpusupervisor.simulation.nvml.allocation import Allocation
from tests.cli.conftest import COMMAND
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.daemon.crowd import crowd
from tests.daemon.station import Daemon, Station, wait_until
from tests.daemon.test_hand_off import RELEASE, RENDERBOX


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    one = Station()
    yield one
    one.close()


@pytest.fixture(scope="module")
def running(station: Station) -> Station:
    executable = disguised_python(station.folder / "bin" / "renderbox")
    app = station.engine("third_app", "--port", "0", "--hold", "4G", executable=executable)
    station.describe({"renderbox": RENDERBOX.format(url=app.url) + RELEASE})
    daemon = station.daemon().wait_ready()
    wait_until(lambda: any("renderbox idle" in text for text in daemon.systemd.statuses()), "an idle application")
    return station


async def test_release_brings_memory_back_and_status_shows_it(running: Station) -> None:
    before = await running.bus.run(*COMMAND)
    assert before.status == 0, before.errors
    (row,) = (line for line in before.output.splitlines() if "renderbox" in line)
    assert row.split()[1:5] == ["renderbox", "4.0", "GiB", "idle"]
    released = await running.bus.run(*COMMAND, "release", "renderbox")
    assert released.status == 0, released.errors
    assert released.output.splitlines()[-1].split()[:4] == ["renderbox", "freed", "3.8", "GiB"]
    again = await running.bus.run(*COMMAND, "release", "renderbox")
    assert (again.status, again.output) == (1, "")
    assert "nothing to give back" in again.errors


async def test_a_recording_of_the_running_service_can_be_replayed(running: Station) -> None:
    film = running.folder / "a.film.gz"
    recorded = await running.bus.run(*COMMAND, "record", "--for", "2s", str(film))
    assert recorded.status == 0, recorded.errors
    assert "Recording for 2s." in recorded.errors
    replayed = await running.bus.run(*COMMAND, "replay", "--json", str(film))
    assert replayed.status == 0, replayed.errors
    last = json.loads(replayed.output)["moments"][-1]
    [renderbox] = [each for each in last["tenants"] if each["tenant"] == "renderbox"]
    assert sum(renderbox["holdings"].values()) > 0
    again = await running.bus.run(*COMMAND, "record", "--for", "2s", str(film))
    assert (again.status, again.output) == (1, "")
    assert "exists" in again.errors


async def test_lint_knows_the_schema_and_what_is_installed(running: Station) -> None:
    good = running.folder / "newcomer.toml"
    good.write_text('title = "Newcomer"\n[match]\nexecutables = ["/opt/newcomer"]\n')
    bad = running.folder / "ollama.toml"  # over what is shipped
    bad.write_text('priority = 300\ncolour = "red"\n')
    fine = await running.bus.run(*COMMAND, "lint", str(good))
    assert (fine.status, fine.output) == (0, "No problems found.\n")
    wrong = await running.bus.run(*COMMAND, "lint", str(good), str(bad))
    assert wrong.status == 1
    first, second = sorted(wrong.output.splitlines())
    assert "colour" in first
    assert "priority" in second
    assert (await running.bus.run(*COMMAND, "lint")).status == 0


async def test_cat_names_the_source_of_every_value(running: Station) -> None:
    shown = await running.bus.run(*COMMAND, "cat", "renderbox")
    assert f'title = "Renderbox"  # from {running.tenants}/renderbox.toml' in shown.output.splitlines()
    missing = await running.bus.run(*COMMAND, "cat", "nobody")
    assert missing.status == 1
    assert "renderbox" in missing.errors


CARDS = [SimulatedGpu(uuid=f"GPU-0000000{n}-0000-4000-8000-000000000000", pci=f"0000:0{n}:00.0") for n in range(8)]


@pytest.fixture
def forty() -> Iterator[tuple[Station, list[Allocation], Daemon]]:
    """Tenants, five a card."""
    with crowd(40, *CARDS, settings='interval = "100ms"\nidle-interval = "100ms"\n') as all_of_it:
        yield all_of_it


async def test_forty_tenants_on_eight_cards_are_all_shown(forty: tuple[Station, list[Allocation], Daemon]) -> None:
    station, movers, daemon = forty
    bus, names = station.bus, {f"mover-{number}" for number in range(40)}
    status = json.loads((await bus.run(*COMMAND, "status", "--json")).output)
    assert [len(gpu["tenant_holdings"]) for gpu in status["gpus"]] == [5] * 8
    for command in ("status", "tenants"):
        assert names <= set((await bus.run(*COMMAND, command)).output.split())
    tree = await bus.run("busctl", f"--address={bus.address}", "tree", "--list", "org.gpusupervisor1")
    assert tree.output.count("/tenants/mover_2d") == 40
    planned = (await bus.run(*COMMAND, "plan", "mover-0", "--size", "23G")).output
    assert {"mover-8", "mover-16", "mover-24", "mover-32"} <= set(planned.split())
    top = await PseudoTerminal.run(
        *COMMAND, "top", environment={"DBUS_SYSTEM_BUS_ADDRESS": bus.address}, columns=100, rows=60
    )
    for name in names:
        await top.wait_for(name)
    await asyncio.to_thread(movers[7].hold, CARDS[7].uuid, 20 << 30)
    await top.wait_for("20.0 GiB")
    top.press(b"q")
    assert await top.end() == 0
    assert not [line for line in daemon.log.splitlines() if line.startswith(("<0>", "<1>", "<2>", "<3>"))], daemon.log
