"""A few commands from one end to the other: the command line, the bus, the daemon, an application, the card."""

from collections.abc import Iterator

import pytest

from gpusupervisor.simulation.engines.launch import disguised_python
from tests.cli.conftest import COMMAND
from tests.daemon.station import Station, wait_until
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


async def test_lint_knows_the_schema_and_what_is_installed(running: Station) -> None:
    good = running.folder / "newcomer.toml"
    good.write_text('title = "Newcomer"\n[match]\nexecutables = ["/opt/newcomer"]\n')
    bad = running.folder / "renderbox.toml"
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
