"""Colours, widths and encodings: on a terminal, without one, and where the locale has ASCII alone."""

import asyncio
import json

import pytest

from gpusupervisor.bus.service import BusService
from tests.bus.builders import make_state
from tests.bus.conftest import PrivateBus, Result
from tests.bus.fakes import FakeController
from tests.cli.conftest import COMMAND, Run
from tests.cli.pseudo_terminal import INTERRUPT, PseudoTerminal

ESCAPE = "\x1b["


async def on_terminal(bus: PrivateBus, *arguments: str, columns: int = 80, **environment: str) -> str:
    """What a command writes on a terminal; it ends well."""
    given = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address, **environment}
    terminal = await PseudoTerminal.run(*COMMAND, *arguments, environment=given, columns=columns)
    assert await terminal.end() == 0, terminal.written
    return terminal.written


async def in_locale(bus: PrivateBus, locale: str, *arguments: str, **more: str) -> Result:
    return await bus.run("env", f"LC_ALL={locale}", *(f"{k}={v}" for k, v in more.items()), *COMMAND, *arguments)


async def test_there_are_colours_on_a_terminal_and_nowhere_else(bus: PrivateBus, service: BusService, ctl: Run) -> None:
    service.publish(make_state())
    written = await on_terminal(bus)
    assert f"{ESCAPE}36mbusy" in written
    assert f"{ESCAPE}32m█" in written
    assert ESCAPE not in (await ctl()).output


async def test_no_color_is_heard_and_letters_take_the_place_of_colours(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    written = await on_terminal(bus, NO_COLOR="1")
    assert f"{ESCAPE}3" not in written
    assert "AAAA" in written


async def test_a_dumb_terminal_gets_no_codes_at_all(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    assert ESCAPE not in await on_terminal(bus, TERM="dumb")


@pytest.mark.parametrize("columns", [80, 100, 200])
async def test_the_bar_is_as_wide_as_the_terminal_up_to_what_makes_sense(
    columns: int, bus: PrivateBus, service: BusService
) -> None:
    service.publish(make_state())
    written = await on_terminal(bus, columns=columns, NO_COLOR="1", TERM="dumb")
    assert max(map(len, written.splitlines())) <= columns
    assert any(line.startswith("A" * (columns // 4 if columns < 200 else 25)) for line in written.splitlines())


async def test_nothing_is_cut_for_a_pipe(bus: PrivateBus, service: BusService, ctl: Run) -> None:
    service.publish(make_state({"t" * 60: 1 << 30}))
    assert "t" * 60 in (await ctl("tenants")).output
    assert "t" * 60 not in await on_terminal(bus, "tenants")


async def test_columns_is_heard_where_there_is_no_terminal(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state())
    shown = await in_locale(bus, "C.UTF-8", "status", COLUMNS="60")
    assert max(map(len, shown.output.splitlines())) <= 60


async def test_where_the_locale_has_only_ascii_so_has_the_output(bus: PrivateBus, service: BusService) -> None:
    service.publish(make_state({"日本": 1 << 30}))
    shown = await in_locale(bus, "C", "status")
    assert shown.output.isascii()
    assert "??" in shown.output
    data = await in_locale(bus, "C", "status", "--json")
    assert data.output.isascii()
    assert json.loads(data.output)["tenants"][0]["id"] == "日本"
    assert "日本" in (await in_locale(bus, "C.UTF-8", "status", "--json")).output
    assert "日本" in (await in_locale(bus, "C", "status", PYTHONUTF8="1")).output


async def test_ctrl_c_while_memory_is_asked_back_says_what_the_service_does_then(
    bus: PrivateBus, service: BusService, controller: FakeController
) -> None:
    controller.gate.clear()
    terminal = await PseudoTerminal.run(
        *COMMAND, "release", "ollama", environment={"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    )
    await terminal.wait_for("waiting until the memory is back")
    async with asyncio.timeout(10):
        while not controller.calls:
            await asyncio.sleep(0.01)
    terminal.press(INTERRUPT)
    assert await terminal.end() == 130
    assert "No longer waiting. The service carries out what it has begun" in terminal.written
    assert "Traceback" not in terminal.written
    controller.gate.set()
