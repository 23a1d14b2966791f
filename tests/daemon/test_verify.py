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
COMFYUI = (
    'min-residency = "0"\ncooldown = "0"\n[match]\ncommand-lines = ["*engines.comfyui*"]\n'
    '[endpoint]\nurl = "{url}"\nport-flags = []\n[[activity.probes]]\nkind = "comfyui"\n'
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
        only = "persistence mode of NVIDIA GeForce RTX 4090 is off, and a profile sets power-limit"
        await observer.sees(names.HEALTH_PATH, "Health", "nothing else wrong", Summary=lambda summary: summary == only)
        after = await observer.sees(gpu, "Profile", "no trial", Trial=lambda trial: not trial)
        assert (after["Profile"], after["Accepted"]) == (before["Profile"], before["Accepted"])
        assert await asyncio.to_thread(lambda: station.card.settings(CARD).power_limit) == 300_000
    finally:
        await hang_up(observer)


async def test_a_hand_off_is_tried_with_a_real_model_and_measured_and_undone(lonely_station: Station) -> None:
    station = lonely_station
    home = station.folder / "ollama"
    program = await asyncio.to_thread(disguised_python, home / "bin" / "ollama")
    ollama = await asyncio.to_thread(
        station.engine, "ollama", "--port", "0", "--model=large:latest=18G", "--model=larger:latest=20G",
        "--model=small:latest=2G", "--home", home, "--load-time", "200ms", executable=program,
    )  # fmt: skip
    comfyui = await asyncio.to_thread(station.engine, "comfyui", "--port", "0", "--return-delay", "100ms")
    described = {"ollama": OLLAMA.format(url=ollama.url), "comfyui": COMFYUI.format(url=comfyui.url)}
    await asyncio.to_thread(station.describe, described)
    await asyncio.to_thread(lambda: station.daemon().wait_ready())
    observer = await observer_of(station.bus.address)
    command = (sys.executable, "-m", "gpusupervisor.cli.main", "verify", "--hand-off", "--json")
    try:
        prompt = {"1": {"class_type": "SimulatedSampler", "inputs": {"seconds": 0.2, "vram": "12G"}}}
        await asyncio.to_thread(comfyui.post, "/prompt", {"prompt": prompt})
        await observer.sees_tenant(
            "comfyui", "idle with its model", Activity=lambda a: a == "idle", Reclaimable=lambda r: r >= 11 * GIB
        )
        await observer.sees_tenant("ollama", "idle", Activity=lambda a: a == "idle")
        preview = json.loads((await station.bus.run(*command, "--dry-run")).output)["steps"][0]
        assert (preview["step"], preview["target"], preview["model"]) == ("hand-off", "ollama", "large:latest")
        assert preview["verdict"] == "planned"
        done = await station.bus.run(*command, "--yes")
        told = json.loads(done.output)
        first = told["steps"][0]
        assert (first["step"], first["verdict"]) == ("hand-off", "ok"), told
        assert first["measured"] == 18 * GIB
        assert "comfyui gave up 12.0 GiB" in first["detail"]
        released = next(each for each in told["steps"][1:] if each["target"] == "comfyui")
        assert (released["verdict"], released["detail"]) == ("skipped", "it gave up its memory in the hand-off")
        assert (done.status, told["outcome"]) == (0, "passed")
        await observer.sees_tenant("ollama", "as it was", Holding=lambda held: held == 0)
        last = json.loads((await station.bus.run(*command, "--dry-run")).output)["steps"][0]
        assert last["verdict"] == "skipped", "nobody is left to give way"
    finally:
        await hang_up(observer)
