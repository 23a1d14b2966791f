"""llama-swap: starts a server per model when a request names it."""

import asyncio
from collections.abc import Mapping
from urllib.parse import quote

from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply

_RUNNING = "which models are loaded"
_STATES: Mapping[str, ModelState] = {
    "ready": "loaded", "starting": "loading", "stopping": "loaded", "stopped": "not-loaded", "shutdown": "not-loaded",
}  # fmt: skip


class LlamaSwapModels:
    """/upstream/MODEL starts a model, so it is the way to load one, and never looked at otherwise."""

    cannot: Mapping[Ability, str] = {}
    replaces = True
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        names, running = await asyncio.gather(reading.openai_names(), reading.get("/running", _RUNNING))
        states = {
            name: _STATES.get(str(entry.get("state")), "unknown")
            for entry in reading.entries(running, "running", _RUNNING)
            if (name := name_of(entry.get("model")))
        }
        elsewise: ModelState = "unknown" if running is None else "not-loaded"
        every = dict.fromkeys((*names, *states))
        return Listing(tuple(Listed(name, states.get(name, elsewise)) for name in every), tuple(reading.problems))

    async def load(self, door: Door, model: str) -> Reply:
        """Answered by the model's own server when it is up."""
        return await door.order("GET", f"/upstream/{quote(model, safe='')}/health", timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", f"/api/models/unload/{quote(model, safe='')}")
