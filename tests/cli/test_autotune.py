"""`gpusupervisorctl autotune`: followed to its end, or cancelled, on the real processes over a simulated card."""

import asyncio
import json
import signal
from typing import Any

from gpusupervisor.bus import names
from gpusupervisor.cli.screens.autotune import curve, proposal
from tests.bus.conftest import Result
from tests.cli.conftest import COMMAND
from tests.cli.screens import NASTY, drawn, is_harmless
from tests.daemon.conftest import lonely_station  # noqa: F401  (a fixture)
from tests.daemon.test_autotune import BEFORE, Bench, bench, no_blocking_calls  # noqa: F401  (fixtures)
from tests.daemon.test_hand_off import CARD, MODEL, is_idle

SHORT = ("--model", MODEL, "--tokens", "40", "--steps", "3")
POINT = {
    "power_limit": 150_500, "units": 256, "duration": 4_000_000, "throughput": 64.04, "power": 150_400,
    "energy_per_unit": 2350.0, "hottest": 71, "reasons": [],
}  # fmt: skip


async def ctl(bench: Bench, *arguments: str) -> Result:  # noqa: F811
    return await bench.station.bus.run(*COMMAND, "autotune", *arguments)


async def shell(bench: Bench, line: str) -> Result:  # noqa: F811
    """Run a line that was proposed."""
    return await bench.station.bus.run("sh", "-c", line.replace("gpusupervisorctl", " ".join(COMMAND)))


async def test_it_shows_how_far_it_is_and_how_to_try_what_it_found(bench: Bench) -> None:  # noqa: F811
    done = await ctl(bench, "GPU-1111", "ollama", *SHORT)
    assert done.status == 0, done.errors
    assert "preparing the engine" in done.errors
    header, *rows = done.output.split("\n\n")[0].splitlines()
    assert header.split() == ["LIMIT", "TOKENS/S", "POWER", "J/TOKEN", "HOTTEST"]
    assert [row.split()[:2] for row in rows] == [["150", "W"], ["315", "W"], ["480", "W"]]
    assert sum("<- proposed" in row for row in rows) == 1
    assert "least energy per token of those that are at most 5 % slower" in done.output
    assert bench.limit() == BEFORE
    tried, kept = done.output.splitlines()[-2:]
    assert (await shell(bench, tried)).status == 0
    assert bench.limit() in (150_000, 315_000, 480_000)
    assert (await shell(bench, kept)).status == 0


async def test_its_result_is_there_as_data(bench: Bench) -> None:  # noqa: F811
    done = await ctl(bench, CARD, "ollama", *SHORT, "--tolerance", "40", "--json")
    told = json.loads(done.output)
    assert told["result"]["tolerance"] == 40
    assert told["result"]["proposal"]["power_limit"] == 150_000  # the slowest, and good enough
    assert told["state"] == "succeeded"
    assert [point["power_limit"] for point in told["result"]["curve"]] == [150_000, 315_000, 480_000]


async def test_clock_offsets_can_be_tried_too(bench: Bench) -> None:  # noqa: F811
    done = await ctl(bench, CARD, "ollama", *SHORT[:4], "--steps", "1", "--clock-offsets", "0", "-50", "--json")
    assert done.status == 0, done.errors
    assert [point["offset_graphics"] for point in json.loads(done.output)["result"]["curve"]] == [-50, 0]


async def test_what_goes_wrong_is_an_error(bench: Bench) -> None:  # noqa: F811
    nobody = await ctl(bench, "GPU-9", "ollama", *SHORT)
    assert nobody.status == 2
    assert CARD in nobody.errors
    assert "name of the model" in (await ctl(bench, CARD, "ollama")).errors
    await bench.observer.sees_tenant("ollama", "calm", Activity=is_idle)
    failed = await ctl(bench, CARD, "ollama", "--model", "nothing")
    assert (failed.status, failed.output) == (1, "Nothing was measured; the card is as it was.\n")
    assert "model 'nothing' not found" in failed.errors


async def test_an_interrupt_cancels_the_job_and_waits_until_the_card_is_as_it_was(bench: Bench) -> None:  # noqa: F811
    process = await bench.station.bus.spawn(
        *COMMAND, "autotune", CARD, "ollama", "--model", MODEL, "--tokens", "200", "--steps", "64"
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"point 3 of 64" not in (line := await process.stderr.readline()):
            assert line, "it has ended"
        process.send_signal(signal.SIGINT)
        output, errors = await process.communicate()
    assert process.returncode == 130, errors
    assert bench.limit() == BEFORE
    assert "It ended early; the card is as it was." in output.decode()
    assert (await bench.job(names.job_path(1)))["State"] == "cancelled"


async def test_a_service_that_ends_meanwhile_does_not_keep_it_waiting(bench: Bench) -> None:  # noqa: F811
    process = await bench.station.bus.spawn(
        *COMMAND, "autotune", CARD, "ollama", "--model", MODEL, "--tokens", "200", "--steps", "64"
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        await process.stderr.readline()
        bench.daemon.process.kill()
        _, errors = await process.communicate()
    assert process.returncode == 3, errors


def test_a_curve_with_offsets_shows_them_and_is_harmless() -> None:
    result: dict[str, Any] = {"unit": NASTY, "curve": [POINT | {"offset_graphics": -30}]}
    shown = drawn(curve(result), 200)
    assert is_harmless(shown)
    assert all(is_harmless(line) for line in proposal(result, CARD))
    assert shown.splitlines()[1].split() == ["150.5", "W", "-30", "MHz", "64.0", "150", "W", "2.35", "71", "°C"]
