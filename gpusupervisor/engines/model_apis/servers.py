"""Servers of one model: vLLM, which can sleep, and SGLang; and LocalAI, which has many."""

import asyncio
from collections.abc import Mapping

from gpusupervisor.engines.model_apis.api import NeverByName
from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply

_NO_SLEEP = (
    "it serves the one model that it was started with, and cannot sleep: that takes --enable-sleep-mode "
    "and VLLM_SERVER_DEV_MODE=1"
)


class VllmModels:
    """Unloading is sleeping at level 1 (weights go to system memory), loading is waking.

    Without --enable-sleep-mode its development mode has /sleep all the same: it then answers no request any more, and
    gives nothing back (vllm/v1/engine/core.py of 0.33.0).
    """

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = False

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        names = await reading.openai_names()
        answer = await reading.get("/is_sleeping", "whether its model is asleep", absent=(404,))
        state: ModelState = "unknown"
        if reading.status == 404 or "--enable-sleep-mode" in door.off:
            return Listing(
                tuple(Listed(name, "loaded") for name in names),
                tuple(reading.problems),
                {"load": _NO_SLEEP, "unload": _NO_SLEEP},
            )
        sleeping = answer.get("is_sleeping") if isinstance(answer, dict) else None
        if isinstance(sleeping, bool):
            state = "asleep" if sleeping else "loaded"
        elif answer is not None:
            reading.note("whether its model is asleep", "its API answered in another shape")
        return Listing(tuple(Listed(name, state) for name in names), tuple(reading.problems))

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/wake_up", timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """By query: a body would be ignored. It aborts what runs, so only an idle one is asked."""
        return await door.order("POST", "/sleep?level=1", timeout=LOAD_TIMEOUT)


class SglangModels(NeverByName):
    """Its memory calls end the whole server when it is not idle to the last request
    (https://github.com/sgl-project/sglang/pull/24123), so they are not used."""

    cannot: Mapping[Ability, str] = {
        "load": "it serves the one model that it was started with",
        "unload": "its call that gives memory back ends the whole server when a request comes in between",
    }
    replaces = False
    evicts = False

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        return Listing(tuple(Listed(name, "loaded") for name in await reading.openai_names()), tuple(reading.problems))


class LocalAiModels:
    """/system tells what is loaded. It has /backend/load since v4.6."""

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = False

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading, what = Reading(door), "which models are loaded"
        names, system = await asyncio.gather(reading.openai_names(), reading.get("/system", what))
        entries = reading.entries(system, "loaded_models", what)
        loaded = {name for entry in entries if (name := name_of(entry.get("id")))}
        rest: ModelState = "unknown" if system is None else "not-loaded"
        every = dict.fromkeys((*names, *sorted(loaded)))
        return Listing(
            tuple(Listed(name, "loaded" if name in loaded else rest) for name in every), tuple(reading.problems)
        )

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/backend/load", {"model": model}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """It waits up to 30 s for a busy model."""
        return await door.order("POST", "/backend/shutdown", {"model": model}, timeout=2 * 30_000_000)
