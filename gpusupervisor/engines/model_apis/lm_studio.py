"""LM Studio: /api/v1 since 0.4, the older /api/v0 only tells."""

from collections.abc import Mapping

from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, count, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply

_ALL = "which models there are"
_TOO_OLD = "its API can do that since LM Studio 0.4"


class LmStudioModels:
    """Its chat API loads whatever is named, so only its lists are looked at."""

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = False

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        answer = await reading.get("/api/v1/models", _ALL, absent=(404,))
        if reading.status == 404:
            return await self._list_of_old(reading)
        models = []
        for entry in reading.entries(answer, "models", _ALL):
            if name := name_of(entry.get("key")):
                loaded = entry.get("loaded_instances")
                state: ModelState = "unknown"
                if isinstance(loaded, list):
                    state = "loaded" if loaded else "not-loaded"
                models.append(Listed(name, state, count(entry.get("size_bytes"))))
        return Listing(tuple(models), tuple(reading.problems))

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/api/v1/models/load", {"model": model}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """Every instance of it."""
        reading = Reading(door)
        entries = reading.entries(await reading.get("/api/v1/models", _ALL), "models", _ALL)
        loaded = next((entry.get("loaded_instances") for entry in entries if entry.get("key") == model), None)
        reply = Reply("done", "it is not loaded")
        for each in loaded if isinstance(loaded, list) else ():
            instance = name_of(each.get("id")) if isinstance(each, dict) else ""
            reply = await door.order("POST", "/api/v1/models/unload", {"instance_id": instance})
            if reply.outcome != "done":
                return reply
        return reply

    async def _list_of_old(self, reading: Reading) -> Listing:
        models = []
        for entry in reading.entries(await reading.get("/api/v0/models", _ALL), "data", _ALL):
            if name := name_of(entry.get("id")):
                told = entry.get("state")
                state: ModelState = (
                    "loaded" if told == "loaded" else "not-loaded" if told == "not-loaded" else "unknown"
                )
                models.append(Listed(name, state))
        return Listing(tuple(models), tuple(reading.problems), {"load": _TOO_OLD, "unload": _TOO_OLD})
