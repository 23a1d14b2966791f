"""Memory changes hands: Ollama, ComfyUI, a stranger and the real daemon, seen over D-Bus alone."""

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.engine_proxy import EngineProxy, nothing
from tests.daemon.observer import PATIENCE, CallFailed, Observer
from tests.daemon.station import Daemon, Engine, Station, wait_until

GIB = 1 << 30
CARD = SimulatedGpu().uuid
MODEL = "llama3.1:13b"
AT_ONCE = 'min-residency = "0"\ncooldown = "0"\nrelease-budget = 1000\n'
OLLAMA = AT_ONCE + 'less-helps = false\n[endpoint]\nurl = "{url}"\n[[activity.probes]]\nkind = "ollama"\n'
COMFYUI = (
    AT_ONCE + 'needs-vram = "14G"\nfloor = "500M"\n[match]\ncommand-lines = ["*engines.comfyui*"]\n'
    '[endpoint]\nurl = "{url}"\nport-flags = []\n[[activity.probes]]\nkind = "comfyui"\n'
)
RENDERBOX = """\
title = "Renderbox"
priority = 20
min-residency = "0"
[match]
executables = ["*/renderbox"]
[endpoint]
url = "{url}"
[[activity.probes]]
kind = "http"
get = "/status"
busy-when = "jobs > `0`"
"""
RELEASE = '[[release]]\nmethod = "http"\ntimeout = "1min"\npost = "/drop"\nsuccess-when = "dropped"\n'
NEEDLESS = 'title = "Needless"\n[match]\nexecutables = ["/opt/needless"]\n'


@dataclass
class Scene:
    """Who is there."""

    station: Station
    daemon: Daemon
    ollama: Engine
    proxy: EngineProxy
    comfyui: Engine
    renderbox: Engine
    renderbox_proxy: EngineProxy

    def load(self) -> None:
        """Have a short prompt answered, which loads the model."""
        body = {"model": MODEL, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
        self.ollama.post("/api/generate", body)

    def begin_to_generate(self, tokens: int) -> None:
        """Returns when the request is running."""
        body = {"model": MODEL, "prompt": "x", "options": {"num_predict": tokens}}
        request = urllib.request.Request(f"{self.ollama.url}/api/generate", json.dumps(body).encode(), method="POST")
        self._answer = urllib.request.urlopen(request, timeout=20)
        assert self._answer.readline()

    def end_of_generation(self) -> None:
        self._answer.read()
        self._answer.close()

    def queue(self, *nodes: tuple[float, str]) -> None:
        """Queue a job whose nodes take so many seconds and so much memory."""
        prompt = {
            str(number): {"class_type": "SimulatedSampler", "inputs": {"seconds": seconds, "vram": vram}}
            for number, (seconds, vram) in enumerate(nodes)
        }
        self.comfyui.post("/prompt", {"prompt": prompt})

    def queue_is_empty(self) -> bool:
        with urllib.request.urlopen(f"{self.comfyui.url}/prompt", timeout=5) as answer:
            return bool(json.load(answer)["exec_info"]["queue_remaining"] == 0)

    def clear(self) -> None:
        """Back to the beginning: no model, no job, ComfyUI with its context alone."""
        self.proxy.before_release = nothing
        wait_until(self.queue_is_empty, "the end of ComfyUI's job")
        self.comfyui.post("/free", {"unload_models": True})
        self.ollama.post("/api/generate", {"model": MODEL, "keep_alive": 0})


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    one = Station()
    yield one
    one.close()


@pytest.fixture(scope="module")
def stage(station: Station) -> Iterator[Scene]:
    home = station.folder / "ollama"
    ollama = station.engine(
        "ollama", "--port", "0", "--model", f"{MODEL}=13G", "--home", home, "--load-time", "100ms",
        executable=disguised_python(home / "bin" / "ollama"),
    )  # fmt: skip
    comfyui = station.engine("comfyui", "--port", "0", "--return-delay", "100ms")
    renderbox = station.engine(
        "third_app", "--port", "0", "--hold", "4G", "--return-delay", "100ms",
        executable=disguised_python(station.folder / "bin" / "renderbox"),
    )  # fmt: skip
    proxy = EngineProxy(ollama.url)
    station.describe({"ollama": OLLAMA.format(url=proxy.url), "comfyui": COMFYUI.format(url=comfyui.url)})
    station.describe({"needless": NEEDLESS})
    renderbox_proxy = EngineProxy(renderbox.url)
    yield Scene(station, station.daemon().wait_ready(), ollama, proxy, comfyui, renderbox, renderbox_proxy)
    proxy.close()
    renderbox_proxy.close()


@pytest.fixture
async def scene(stage: Scene, observer: Observer) -> Scene:
    """The stage as it was at the beginning, as the daemon sees it."""
    await asyncio.to_thread(stage.clear)
    for name in ("ollama", "comfyui"):
        await observer.sees_tenant(name, "calm", Activity=is_idle, Holding=lambda held: held < GIB)
    await observer.sees(names.gpu_path(CARD), "Gpu", "nothing under way", Plan=lambda plan: not plan)
    observer.signals.clear()
    return stage


@pytest.fixture
async def loaded_scene(stage: Scene, observer: Observer) -> Scene:
    """Ollama is idle and has its model in VRAM."""
    if (await observer.tenant("ollama"))["Holding"] < GIB:
        await asyncio.to_thread(stage.clear)
        await observer.sees_tenant("comfyui", "out of the way", Holding=lambda held: held < GIB)
        await asyncio.to_thread(stage.load)
    await observer.sees_tenant("ollama", "an idle model", Activity=is_idle, Holding=lambda held: held > 12 * GIB)
    observer.signals.clear()
    return stage


def is_idle(state: str) -> bool:
    return state == "idle"


async def test_room_that_is_there_is_not_made(scene: Scene, observer: Observer) -> None:
    result = await observer.make_room(CARD, "", GIB)
    assert (result["outcome"], result["steps"]) == ("satisfied", [])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("", "", 30 * GIB), "WontFit", "can never fit"),
        (("", "", 23 * GIB), "Blocked", "renderbox"),
        (("GPU-nope", "", GIB), "NoSuchGpu", CARD),
        (("", "nobody", GIB), "NoSuchTenant", "comfyui"),
        (("", "", 0), "InvalidArgument", "Give a size in bytes"),
        (("", "needless", 0), "InvalidArgument", "The need of needless is unknown"),
        (("", "", 2**64 - 1), "InvalidArgument", "unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_room_that_cannot_be_made_is_an_error_that_says_why(
    arguments: tuple[str, str, int], error: str, text: str, scene: Scene, observer: Observer
) -> None:
    with pytest.raises(CallFailed, match=text) as failure:
        await observer.make_room(*arguments)
    assert failure.value.name == error
    assert "ReleaseStarted" not in observer.heard()


async def test_a_tenant_at_work_is_not_released(scene: Scene, observer: Observer) -> None:
    scene.queue((0.8, "2G"))
    await observer.sees_tenant("comfyui", "at work", Activity=lambda state: state == "busy")
    with pytest.raises(CallFailed, match="comfyui cannot be released: ") as failure:
        await observer.release("comfyui")
    assert failure.value.name == "Busy"
    assert "ReleaseStarted" not in observer.heard()


async def test_an_unknown_tenant_is_not_released(scene: Scene, observer: Observer) -> None:
    with pytest.raises(CallFailed) as failure:
        await observer.release("nobody")
    assert failure.value.name == "NoSuchTenant"


async def test_a_tenant_with_nothing_to_give_back_says_so(scene: Scene, observer: Observer) -> None:
    with pytest.raises(CallFailed, match="nothing to give back") as failure:
        await observer.release("comfyui")
    assert failure.value.name == "NotReclaimable"


async def test_a_starved_tenant_gets_room_that_is_planned_freed_measured_and_kept(
    loaded_scene: Scene, observer: Observer
) -> None:
    loaded_scene.queue((1.5, "5G"), (0.3, "13G"))
    _, plan = await observer.hears("ReleasePlanned", "a plan")
    assert (plan["cause"], plan["beneficiary"], plan["gpu"]) == ("starved", "comfyui", CARD)
    assert [step["tenant"] for step in plan["steps"]] == ["ollama"]
    assert plan["sufficient"]
    assert any(blocker["reason"] == "unmanaged" for blocker in plan["blockers"])
    _, outcome, freed, details = await observer.hears("ReleaseFinished", "its end")
    assert (outcome, freed) == ("satisfied", 13 * GIB)
    (step,) = details["steps"]
    assert (step["tenant"], step["outcome"], step["late"]) == ("ollama", "freed", False)
    assert observer.heard() == ["ReleasePlanned", "ReleaseStarted", "ReleaseStep", "ReleaseFinished"]
    gpu = await observer.sees(names.gpu_path(CARD), "Gpu", "a reservation", Reservations=bool)
    (kept,) = gpu["Reservations"]
    assert (kept["tenant"], kept["size"]) == ("comfyui", 14 * GIB - (5 * GIB + (500 << 20)))
    await observer.sees_tenant("comfyui", "grown into its room", Holding=lambda held: held > 13 * GIB)
    shown = await observer.sees_tenant("ollama", "released", Holding=lambda held: held == 0)
    assert not shown["Starved"]
    assert "Traceback" not in loaded_scene.daemon.log


async def test_an_idle_minute_sends_no_signal_at_all(loaded_scene: Scene, observer: Observer) -> None:
    """Sixty looks at a machine on which models are loaded and nobody works."""
    await asyncio.to_thread(loaded_scene.daemon.wait_ticks, 15)
    await observer.settle()
    observer.signals.clear()
    said = len(loaded_scene.daemon.systemd.statuses())
    await asyncio.to_thread(loaded_scene.daemon.wait_ticks, 60)
    await observer.settle()
    assert [(signal.path, signal.member, signal.body) for signal in observer.signals] == []
    assert len(loaded_scene.daemon.systemd.statuses()) - said <= 1, "at most one that was withheld before"


async def test_an_unload_behind_a_generation_is_deferred_and_credited_when_it_comes(
    loaded_scene: Scene, observer: Observer
) -> None:
    loaded_scene.proxy.before_release = lambda: loaded_scene.begin_to_generate(tokens=40)
    with pytest.raises(CallFailed, match="when it is done") as failure:
        await observer.release("ollama")
    assert failure.value.name == "Deferred"
    body = await observer.hears("ReleaseStep", "its outcome")
    assert (body[1], body[2], body[3]) == ("ollama", "pending", 0)
    await asyncio.to_thread(loaded_scene.end_of_generation)
    late = await observer.hears("ReleaseStep", "the late return", lambda body: body[4]["late"])
    assert (late[1], late[2], late[3]) == ("ollama", "freed", 13 * GIB)
    assert late[0] == body[0]


async def test_an_application_that_a_file_describes_is_a_tenant_and_gives_its_memory_back(
    scene: Scene, observer: Observer
) -> None:
    """The last one on this stage: what the stranger holds is gone afterwards."""
    (stranger,) = (await observer.gpu(CARD))["Unmanaged"]
    assert (stranger["name"].split()[0], stranger["used"]) == ("renderbox", 4 * GIB)
    scene.station.describe({"renderbox": RENDERBOX.format(url=scene.renderbox_proxy.url)})
    await observer.manager("Reload")
    shown = await observer.sees_tenant("renderbox", "a tenant", Activity=lambda state: state == "idle")
    assert (shown["Title"], shown["Holding"], shown["Reclaimable"]) == ("Renderbox", 4 * GIB, 0)
    assert (await observer.gpu(CARD))["Unmanaged"] == []
    with pytest.raises(CallFailed, match="no way to ask it") as failure:
        await observer.release("renderbox")
    assert failure.value.name == "NotReclaimable"

    scene.station.describe({"renderbox": RENDERBOX.format(url=scene.renderbox_proxy.url) + RELEASE})
    await observer.manager("Reload")
    await observer.sees_tenant("renderbox", "askable", Reclaimable=lambda size: size == 4 * GIB)
    observer.signals.clear()
    preview = await observer.manager("PlanRelease", "sst", "", "", 22 * GIB)
    assert [step["tenant"] for step in preview["steps"]] == ["renderbox"]
    assert not observer.heard()
    may_go_on = threading.Event()

    def hold_up() -> None:
        may_go_on.wait(PATIENCE)

    scene.renderbox_proxy.before_release = hold_up
    making = asyncio.ensure_future(observer.make_room(size=22 * GIB))
    started = await observer.hears("ReleaseStarted", "the plan")
    for attempt in (observer.release("renderbox"), observer.make_room(size=23 * GIB), observer.release("comfyui")):
        with pytest.raises(CallFailed, match=started[0]) as failure:
            await attempt
        assert failure.value.name == "Busy"
    assert (await observer.gpu(CARD))["Plan"] in ("", started[0])
    may_go_on.set()
    result = await making
    assert result["available"] >= 22 * GIB
    assert observer.heard() == ["ReleasePlanned", "ReleaseStarted", "ReleaseStep", "ReleaseFinished"]
    (step,) = result["steps"]
    assert (result["outcome"], step["outcome"]) == ("satisfied", "freed")
    assert step["freed"] == 4 * GIB - (200 << 20)
    assert step["duration"] >= 100_000, "until the memory was back"
    await observer.sees_tenant("renderbox", "its floor is learned", Floor=lambda floor: floor == 200 << 20)


async def test_a_plan_is_logged_before_anybody_is_asked(loaded_scene: Scene, observer: Observer) -> None:
    logs: list[str] = []
    loaded_scene.proxy.before_release = lambda: logs.append(loaded_scene.daemon.log)
    before = len(loaded_scene.daemon.log)
    await observer.release("ollama")
    made, started = logs[0][before:].splitlines()
    assert "(release): Ask ollama for 13.0 GiB" in made
    assert "Steps: ollama (" in made
    assert started.endswith(" is being carried out")
    _, _, step, ended = loaded_scene.daemon.log[before:].splitlines()
    assert ": ollama freed, 13.0 GiB in " in step
    assert " ended, satisfied: 13.0 GiB came back in " in ended
