"""What was learned and noted outlives the daemon: seen over D-Bus alone, with a real SIGKILL in between."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.conftest import hang_up
from tests.daemon.observer import CallFailed, Observer, observer_of
from tests.daemon.station import Daemon, Engine, Station, wait_until

GIB = 1 << 30
CARD = SimulatedGpu().uuid
MODEL = "llama3.1:13b"
AT_ONCE = 'min-residency = "0"\ncooldown = "0"\nrelease-budget = 1000\n'
OLLAMA = AT_ONCE + 'less-helps = false\n[endpoint]\nurl = "{url}"\n[[activity.probes]]\nkind = "ollama"\n'
COMFYUI = (
    AT_ONCE + '[match]\ncommand-lines = ["*engines.comfyui*"]\n'
    '[endpoint]\nurl = "{url}"\nport-flags = []\n[[activity.probes]]\nkind = "comfyui"\n'
)
TELEMETRY = f"{names.BUS_NAME}.Telemetry"


class Asked(Observer):
    """An observer that asks about telemetry."""

    async def telemetry(self, member: str, signature: str = "", *body: object) -> Any:
        return await self.ask(names.TELEMETRY_PATH, TELEMETRY, member, signature, *body)

    async def learned(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(fact["kind"], fact["tenant"]): fact for fact in await self.telemetry("Learned")}

    async def learns(self, kind: str, tenant: str, what: str) -> dict[str, Any]:
        """Wait until something is learned and on the disk."""
        async with asyncio.timeout(15):
            while not (found := (await self.learned()).get((kind, tenant))) or not found["stored"]:
                await asyncio.sleep(0.02)
        assert found, what
        return found


@pytest.fixture
async def asked(lonely_station: Station) -> AsyncIterator[Asked]:
    one = Asked((await observer_of(lonely_station.bus.address)).bus)
    yield one
    await hang_up(one)


def queue(comfyui: Engine, seconds: float, vram: str) -> None:
    node = {"class_type": "SimulatedSampler", "inputs": {"seconds": seconds, "vram": vram}}
    comfyui.post("/prompt", {"prompt": {"1": node}})


def kill(daemon: Daemon) -> None:
    """As the kernel does when memory is short."""
    daemon.process.kill()
    daemon.process.wait()


@pytest.fixture
def engines(lonely_station: Station) -> tuple[Engine, Engine]:
    """A ComfyUI that is described, and an Ollama that is not."""
    comfyui = lonely_station.engine("comfyui", "--port", "0", "--return-delay", "100ms")
    home = lonely_station.folder / "ollama"
    ollama = lonely_station.engine(
        "ollama", "--port", "0", "--model", f"{MODEL}=13G", "--home", home, "--load-time", "100ms",
        executable=disguised_python(home / "bin" / "ollama"),
    )  # fmt: skip
    lonely_station.describe({"comfyui": COMFYUI.format(url=comfyui.url)})
    return comfyui, ollama


async def test_comfyui_whose_need_nobody_told_gets_room_after_a_restart(
    lonely_station: Station, engines: tuple[Engine, Engine], asked: Asked
) -> None:
    """It worked once with 14 GiB; the daemon was killed; Ollama filled the card; it works again."""
    comfyui, ollama = engines
    first = lonely_station.daemon().wait_ready()
    await asked.sees_tenant("comfyui", "an idle ComfyUI", Activity=lambda word: word == "idle")
    queue(comfyui, 1.0, "14G")
    await asked.sees_tenant("comfyui", "what it needs", Need=lambda size: 14 * GIB <= size < 15 * GIB)
    shown = await asked.tenant("comfyui")
    assert shown["NeedSource"] == "learned"
    need = await asked.learns("need", "comfyui", "its need")
    await asked.sees_tenant("comfyui", "the end of its job", Activity=lambda word: word == "idle")
    await asked.ask(names.TENANTS_PATH, f"{names.BUS_NAME}.Tenants", "Release", "s", "comfyui")
    floor = await asked.learns("floor", "comfyui", "its floor")
    assert floor["value"] < GIB
    assert "plan-1 " in floor["source"]
    kill(first)

    body = {"model": MODEL, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
    await asyncio.to_thread(ollama.post, "/api/generate", body)
    lonely_station.describe({"ollama": OLLAMA.format(url=ollama.url)})
    lonely_station.daemon().wait_ready()
    await asked.sees_tenant(
        "comfyui",
        "what was learned",
        NeedSource=lambda source: source == "learned",
        Need=lambda size: size == need["value"],
        Floor=lambda size: size == floor["value"],
    )
    await asked.sees_tenant("ollama", "an idle Ollama", Activity=lambda word: word == "idle", Reclaimable=bool)
    queue(comfyui, 8.0, "14G")
    plan_id, plan = await asked.hears(
        "ReleasePlanned", "a plan for ComfyUI", lambda body: body[1]["beneficiary"] == "comfyui"
    )
    assert plan["need"] <= need["value"], "what was learned is an upper bound"
    assert [step["tenant"] for step in plan["steps"]] == ["ollama"]
    assert plan_id == "plan-2", "plans are counted on"
    finished = await asked.hears("ReleaseFinished", "room", lambda body: body[0] == "plan-2")
    assert finished[1] == "satisfied"


async def test_what_happened_can_be_asked_after_a_restart(lonely_station: Station, asked: Asked) -> None:
    app = lonely_station.engine("third_app", "--port", "0", "--hold", "4G", "--return-delay", "50ms")
    lonely_station.describe(
        {
            "app": 'title = "App"\npriority = 20\nmin-residency = "0"\n[match]\ncommand-lines = ["*third_app*"]\n'
            f'[endpoint]\nurl = "{app.url}"\n[[activity.probes]]\nkind = "http"\nget = "/status"\n'
            'busy-when = "jobs > `0`"\n[[release]]\nmethod = "http"\npost = "/drop"\nsuccess-when = "dropped"\n'
        }
    )
    began = time.time_ns() // 1000
    first = lonely_station.daemon().wait_ready()
    await asked.sees_tenant("app", "an idle tenant", Reclaimable=lambda size: size > 3 * GIB)
    await asked.release("app")
    code, _ = first.terminate()
    assert (code, "Traceback" in first.log) == (0, False)

    second = lonely_station.daemon().wait_ready()
    second.wait_ticks(2)
    events = await asked.telemetry("Events", "ttsu", 0, 0, "", 0)
    assert [event["kind"] for event in reversed(events)][:4] == ["plan", "plan-started", "step", "outcome"]
    assert {event["plan"] for event in events if event["kind"] == "step"} == {"plan-1"}
    step = json.loads(next(event["details"] for event in events if event["kind"] == "step"))
    assert step["outcome"] == "freed"
    assert step["freed"] > 3 * GIB
    assert all(began <= event["at"] <= time.time_ns() // 1000 for event in events)
    holding = await asked.telemetry("Query", "sssttu", "holding", CARD, "app", began, 0, 500)
    assert max(most for _, _, _, most in holding) > 3 * GIB
    assert min(least for _, least, _, _ in holding) < GIB
    series = {tuple(each[:3]) for each in await asked.telemetry("Series")}
    assert {("used", CARD, ""), ("holding", CARD, "app"), ("activity", "", "app")} <= series
    assert {(name, CARD, "") for name in ("power", "temperature", "utilization")} <= series
    assert (await asked.telemetry("Query", "sssttu", "power", CARD, "", began, 0, 1))[0][1] == 60_000
    for wrong in (("nonsense", CARD, ""), ("power", CARD, "app"), ("power", "", ""), ("holding", CARD, "")):
        with pytest.raises(CallFailed, match=r"allowed: used, free|needs a gpu") as failure:
            await asked.telemetry("Query", "sssttu", *wrong, 0, 0, 10)
        assert failure.value.name == "InvalidArgument"
    for count in (0, 2001):
        with pytest.raises(CallFailed, match="allowed: 1 to 2000"):
            await asked.telemetry("Query", "sssttu", "power", CARD, "", 0, 0, count)
    assert await asked.telemetry("Forget", "ss", "app", "floor") == 1
    with pytest.raises(CallFailed, match="allowed: floor, need"):
        await asked.telemetry("Forget", "ss", "app", "everything")
    kill(second)
    lonely_station.daemon().wait_ready().wait_ticks(1)
    assert ("floor", "app") not in await asked.learned()


async def test_drift_that_is_repaired_at_once_is_an_event_all_the_same(lonely_station: Station, asked: Asked) -> None:
    gpu, profile = names.gpu_path(CARD), f"{names.BUS_NAME}.Profile"
    lonely_station.helper()
    lonely_station.daemon().wait_ready()
    await asked.sees(gpu, "Profile", "what can be set", Support=lambda support: support == "supported")
    await asked.ask(gpu, profile, "Apply", "s", json.dumps({"power-limit": "300W"}))
    await asyncio.to_thread(lonely_station.card.reload_driver)
    await asked.ask(gpu, profile, "CheckDrift")
    await asked.hears("DriftRepaired", "its repair")
    async with asyncio.timeout(15):
        while len(events := await asked.telemetry("Events", "ttsu", 0, 0, "drift", 0)) < 2:
            await asyncio.sleep(0.02)
    told = [json.loads(event["details"]) for event in reversed(events)]
    assert [(each["id"], each["state"]) for each in told] == [("power-limit", "drifted"), ("power-limit", "repaired")]
    assert told[0]["detail"]
    assert {event["gpu"] for event in events} == {CARD}


async def test_damage_and_a_folder_that_cannot_be_written_are_told_and_do_not_stop_it(
    lonely_station: Station, asked: Asked
) -> None:
    async def check() -> dict[str, Any]:
        return next(iter(c for c in (await asked.health()).get("Checks", []) if c["id"] == "telemetry"), {})

    async def becomes(state: str) -> dict[str, Any]:
        async with asyncio.timeout(15):
            while (found := await check()).get("state") != state:
                await asyncio.sleep(0.02)
        return found

    store = lonely_station.state / "telemetry.sqlite"
    store.write_bytes(b"not a database at all, and long enough to be looked at as one " * 100)
    first = lonely_station.daemon().wait_ready()
    found = await becomes("degraded")
    assert "was damaged" in found["summary"]
    assert await asked.telemetry("Learned") == []
    assert first.terminate()[0] == 0
    assert len(list(lonely_station.state.glob("telemetry.sqlite.damaged-*"))) == 1
    second = lonely_station.daemon().wait_ready()
    await becomes("ok")
    assert second.terminate()[0] == 0

    store.unlink()
    store.mkdir()
    third = lonely_station.daemon().wait_ready()
    found = await becomes("failed")
    assert "cannot be written" in found["summary"]
    third.wait_ticks(2)
    store.rmdir()
    await becomes("ok")
    assert third.terminate()[0] == 0
    assert wait_until(store.exists, "the store")
