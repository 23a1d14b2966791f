"""The story, scene by scene. Each step is asked for, then witnessed on D-Bus; what does not happen ends it."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gpusupervisor.cli import signals
from gpusupervisor.cli.client import BUS_NAME, ROOT
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.quantities import format_bytes
from gpusupervisor.simulation.demo.stage import Stage
from gpusupervisor.simulation.demo.witness import DidNotHappenError, Signal, Witness
from gpusupervisor.simulation.engines.third_app import API_AS_TENANT

GIB = 1024**3
TIMEOUT = 30_000_000
QUESTION = b'{"model": "llama3.1:13b", "prompt": "hello", "stream": false, "options": {"num_predict": 5}}'
RENDERBOX = f"""\
title = "Renderbox"
priority = 20
min-residency = "0"

[match]
executables = ["*/renderbox"]

{API_AS_TENANT}"""


class Narrator:
    """Prints; in colour on a terminal only."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty()

    def scene(self, text: str) -> None:
        """A heading."""
        print(f"\n{self._paint('1;36', text)}")

    def says(self, text: str) -> None:
        """What is being done."""
        print(f"  {text}", flush=True)

    def saw(self, text: str) -> None:
        """What was witnessed."""
        print(f"  {self._paint('32', 'seen ')} {text}", flush=True)

    def signal(self, signal: Signal) -> None:
        """A signal, as it comes."""
        print(f"  {self._paint('33', 'D-Bus')} {signals.event(signal.member, signal.body)}", flush=True)

    def code(self, text: str) -> None:
        """Something to read or to type."""
        for line in text.splitlines():
            print(f"      {line}".rstrip(), flush=True)

    def _paint(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text


class Story:
    """What happens on the stage."""

    def __init__(self, stage: Stage, witness: Witness, narrator: Narrator) -> None:
        self._stage = stage
        self._witness = witness
        self._tell = narrator
        self._http = EngineHttp()

    async def play(self) -> None:
        """All scenes. Raises DidNotHappenError."""
        scenes: tuple[Callable[[], Awaitable[None]], ...] = (
            self._an_idle_model,
            self._a_starved_job,
            self._a_stranger_in_the_way,
            self._the_stranger_gets_a_name,
            self._a_dead_queue,
        )
        try:
            for scene in scenes:
                await scene()
        finally:
            await self._http.aclose()

    async def show(self) -> None:
        """How things stand, as `gpusupervisorctl status` shows it."""
        shown = await self._stage.command("status")
        self._tell.says("$ gpusupervisorctl status")
        self._tell.code(shown)

    async def _an_idle_model(self) -> None:
        self._tell.scene("1. An LLM server holds 13 GiB that it is not using")
        self._tell.says("A short chat: Ollama loads llama3.1:13b, answers, and keeps the model in VRAM.")
        await self._post(self._stage.ollama.url, "/api/generate", QUESTION)
        seen = await self._witness.sees(
            "/tenants/ollama", "Tenant", "Ollama idle with its model in VRAM",
            Activity=lambda state: state == "idle", Holding=lambda size: size >= 12 * GIB,
        )  # fmt: skip
        self._tell.saw(f"ollama is idle and holds {format_bytes(seen['Holding'])}: {seen['ActivityReason']}")
        await self.show()

    async def _a_starved_job(self) -> None:
        self._tell.scene("2. An image job fills the card and needs more: starved, planned, released, measured")
        await self._queue_image_job(seconds=4)
        _, plan = await self._hear_plan("a plan for ComfyUI", lambda plan: plan["beneficiary"] == "comfyui")
        if [step["tenant"] for step in plan["steps"]] != ["ollama"]:
            raise DidNotHappenError(f"the plan asks {plan['steps']} and not Ollama alone")
        body = await self._witness.hears("ReleaseStep", "Ollama's release", lambda body: body[1] == "ollama")
        if body[2] != "freed" or body[3] < 12 * GIB:
            raise DidNotHappenError(f"Ollama's release ended as {body[2]} with {format_bytes(body[3])}")
        milliseconds = body[4]["duration"] / 1000
        self._tell.saw(f"{format_bytes(body[3])} came back, measured by NVML {milliseconds:.0f} ms after the request")
        await self._witness.sees(
            "/tenants/comfyui", "Tenant", "ComfyUI grown into its room", Holding=lambda size: size >= 13 * GIB
        )
        self._tell.saw("comfyui grew into the room that was kept for it")

    async def _a_stranger_in_the_way(self) -> None:
        self._tell.scene("3. An application that nobody has described takes 9 GiB")
        await self._free_comfyui()
        await self._stage.start_stranger("9G")
        self._tell.says("It is called renderbox. ComfyUI gets another job.")
        await self._queue_image_job(seconds=5)
        _, plan = await self._hear_plan("a blocked plan", lambda plan: not plan["sufficient"])
        names = [blocker["holder"] for blocker in plan["blockers"] if blocker["reason"] == "unmanaged"]
        if plan["steps"] or not any(name.startswith("renderbox") for name in names):
            raise DidNotHappenError("the blocked plan does something, or does not name the stranger")
        self._tell.saw(f"nothing was done, and {names[0]} is named as being in the way")
        await self._free_comfyui()

    async def _the_stranger_gets_a_name(self) -> None:
        self._tell.scene("4. A file describes it: no code, no restart")
        text = RENDERBOX.format(url=self._stage.stranger.url)
        file = self._stage.tenants / "renderbox.toml"
        file.write_text(text)
        self._tell.says(f"{file}:")
        self._tell.code(text)
        await self._witness.manager("Reload")
        seen = await self._witness.sees(
            "/tenants/renderbox", "Tenant", "the new tenant", Activity=lambda state: state == "idle",
            Reclaimable=lambda size: size >= 8 * GIB,
        )  # fmt: skip
        self._tell.saw(f"{seen['Title']} is a tenant now: idle, {format_bytes(seen['Reclaimable'])} can be asked for")
        self._tell.says("ComfyUI gets its job once more.")
        await self._queue_image_job(seconds=3)
        body = await self._witness.hears("ReleaseStep", "its release", lambda body: body[1] == "renderbox")
        if body[2] != "freed":
            raise DidNotHappenError(f"the release of renderbox ended as {body[2]}")
        self._tell.saw(f"renderbox gave {format_bytes(body[3])} back")
        await self._free_comfyui()

    async def _a_dead_queue(self) -> None:
        self._tell.scene("5. A node kills ComfyUI's worker: its queue claims to run a job that nobody works on")
        self._tell.says("Ollama has loaded its model again, and renderbox its data: the card is full.")
        await self._post(self._stage.ollama.url, "/api/generate", QUESTION)
        await self._post(self._stage.stranger.url, "/work", b'{"seconds": 1}')
        for tenant, size in (("ollama", 12 * GIB), ("renderbox", 8 * GIB)):
            await self._witness.sees(
                f"/tenants/{tenant}", "Tenant", f"{tenant} idle with its memory",
                Activity=lambda state: state == "idle", Holding=size.__le__,
            )  # fmt: skip
        job = b'{"prompt": {"1": {"class_type": "SimulatedDefect", "inputs": {}}}}'
        await self._post(self._stage.comfyui.url, "/prompt", job)
        seen = await self._witness.sees(
            "/tenants/comfyui",
            "Tenant",
            "the claim of the stale queue entry",
            Activity=lambda state: state == "claimed",
        )
        self._tell.saw(f"comfyui is claimed: {seen['ActivityReason']}")
        seen = await self._witness.sees(
            "/tenants/comfyui", "Tenant", "the stale queue entry", patience=60, Activity=lambda state: state == "stuck"
        )
        self._tell.saw(f"comfyui is stuck: {seen['ActivityReason']}")
        self._tell.saw(f"what it breaks: {seen['Impact']}")
        self._tell.saw(f"what to do: {seen['Remedy']}")
        ollama = await self._witness.properties("/tenants/ollama", "Tenant")
        if ollama["Holding"] < 12 * GIB:
            raise DidNotHappenError("Ollama has lost its model to a job that never ran")
        self._tell.saw("nobody was asked for memory on behalf of a job that never ran")
        health = await self._witness.sees("/health", "Health", "health", State=lambda state: state == "degraded")
        self._tell.saw(f"health: {health['State']}, {health['Summary']}")
        await self.show()

    async def _queue_image_job(self, seconds: int) -> None:
        """A job that first takes what is there, and wants the rest when it samples."""
        job = (
            '{"prompt": {"1": {"class_type": "SimulatedSampler", "inputs": {"seconds": 5, "vram": "9G"}},'
            f' "2": {{"class_type": "SimulatedSampler", "inputs": {{"seconds": {seconds}, "vram": "14G"}}}}}}}}'
        )
        await self._post(self._stage.comfyui.url, "/prompt", job.encode())

    async def _free_comfyui(self) -> None:
        """Wait until its job is done, and ask it for its memory as anybody may."""
        await self._witness.sees(
            "/tenants/comfyui", "Tenant", "ComfyUI's job done", Activity=lambda state: state == "idle"
        )
        self._tell.says("ComfyUI's job is done. A person asks it for its memory: Tenant.Release")
        await self._witness.tenant_release("comfyui")
        await self._witness.sees("/tenants/comfyui", "Tenant", "its memory back", Holding=lambda size: size < GIB)

    async def _hear_plan(self, what: str, test: Callable[[dict[str, Any]], bool]) -> list[Any]:
        return await self._witness.hears("ReleasePlanned", what, lambda body: test(body[1]))

    async def _post(self, url: str, path: str, body: bytes) -> None:
        answer = await self._http.request("POST", url, path, timeout=TIMEOUT, body=body)
        if not answer.ok:
            raise DidNotHappenError(f"POST {path} was answered with {answer.status}")


def things_to_try(stage: Stage) -> str:
    """Commands that work as written while the demo runs."""
    ours = f"{Path(sys.executable).parent}/gpusupervisorctl"
    return f"""\
export DBUS_SYSTEM_BUS_ADDRESS={stage.bus_address}
busctl tree {BUS_NAME}
busctl introspect {BUS_NAME} {ROOT}/tenants/ollama
busctl get-property {BUS_NAME} {ROOT} {BUS_NAME}.Manager Status
busctl call {BUS_NAME} {ROOT} {BUS_NAME}.Manager PlanRelease sst "" "" $((20 << 30))
busctl call {BUS_NAME} {ROOT}/tenants {BUS_NAME}.Tenants Release s renderbox
gdbus call --system --dest {BUS_NAME} --object-path {ROOT}/tenants --method {BUS_NAME}.Tenants.List
gdbus monitor --system --dest {BUS_NAME}
{ours} top
{ours} monitor"""
