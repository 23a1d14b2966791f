"""Lemonade: starts a server of its own for each model, and unloads by name."""

import asyncio
from collections.abc import Mapping

from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply

_LOADED = "which models are loaded"


class LemonadeModels:
    """Its chat API loads whatever is named, so only its lists are looked at."""

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        names, health = await asyncio.gather(reading.openai_names(), reading.get("/v1/health", _LOADED))
        loaded = {
            name for entry in reading.entries(health, "all_models_loaded", _LOADED)
            if (name := name_of(entry.get("model_name")))
        }  # fmt: skip
        rest: ModelState = "unknown" if health is None else "not-loaded"
        every = dict.fromkeys((*names, *sorted(loaded)))
        return Listing(
            tuple(Listed(name, "loaded" if name in loaded else rest) for name in every), tuple(reading.problems)
        )

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`: answered when it is loaded."""
        return await door.order("POST", "/v1/load", {"model_name": model}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/v1/unload", {"model_name": model})
