"""The verification against the real daemon, the real helper, and an engine whose model leaves and comes back."""

import asyncio
import json
import sys

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.conftest import hang_up
from tests.daemon.observer import observer_of
from tests.daemon.station import Station

GIB = 1 << 30
CARD = SimulatedGpu().uuid
MODEL = "small:latest"
OLLAMA = (
    'min-residency = "0"\ncooldown = "0"\nrelease-budget = 1000\n'
    '[endpoint]\nurl = "{url}"\n[[activity.probes]]\nkind = "ollama"\n'
)
PROFILE = json.dumps({"power-limit": "300W"})


async def test_everything_that_is_tried_is_measured_and_put_back(lonely_station: Station) -> None:
    station = lonely_station
    home = station.folder / "ollama"
    program = await asyncio.to_thread(disguised_python, home / "bin" / "ollama")
    ollama = await asyncio.to_thread(
        station.engine, "ollama", "--port", "0", f"--model={MODEL}=3G", "--home", home, "--load-time", "200ms",
        executable=program,
    )  # fmt: skip
    await asyncio.to_thread(station.describe, {"ollama": OLLAMA.format(url=ollama.url)})
    await asyncio.to_thread(station.helper)
    await asyncio.to_thread(lambda: station.daemon().wait_ready())
    observer = await observer_of(station.bus.address)
    gpu = names.gpu_path(CARD)
    try:
        await observer.sees(gpu, "Profile", "what can be set", Support=lambda support: support == "supported")
        await observer.ask(gpu, f"{names.BUS_NAME}.Profile", "Apply", "s", PROFILE)
        body = {"model": MODEL, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
        await asyncio.to_thread(ollama.post, "/api/generate", body)
        await observer.sees_tenant(
            "ollama", "idle with its model", Activity=lambda a: a == "idle", Reclaimable=lambda r: r >= 3 * GIB
        )
        before = await observer.properties(gpu, "Profile")
        command = (sys.executable, "-m", "gpusupervisor.cli.main", "verify", "--yes", "--json")
        done = await station.bus.run(*command)
        assert done.status == 0, (done.output, done.errors)
        told = json.loads(done.output)
        assert [(each["step"], each["verdict"]) for each in told["steps"]] == [
            ("release", "ok"), ("load", "ok"), ("profile", "ok"), ("fans", "skipped"),
        ]  # fmt: skip
        assert [each["measured"] for each in told["steps"][:2]] == [3 * GIB, 3 * GIB]
        assert told["steps"][1]["duration"] >= 200_000
        tenant = await observer.sees_tenant("ollama", "its model again", Holding=lambda held: held == 3 * GIB)
        assert tenant["Holding"] == 3 * GIB
        assert (await observer.properties(names.HEALTH_PATH, "Health"))["Summary"] == "healthy"
        after = await observer.sees(gpu, "Profile", "no trial", Trial=lambda trial: not trial)
        assert (after["Profile"], after["Accepted"]) == (before["Profile"], before["Accepted"])
        assert await asyncio.to_thread(lambda: station.card.settings(CARD).power_limit) == 300_000
    finally:
        await hang_up(observer)
