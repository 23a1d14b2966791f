"""Engines of speech: Speaches (faster-whisper), whisper.cpp."""

import asyncio
from collections.abc import Mapping
from urllib.parse import quote

from gpusupervisor.engines.model_apis.api import NeverByName
from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply


class SpeachesModels:
    """/api/ps is a list of plain names here, unlike Ollama's."""

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = False

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading, what = Reading(door), "which models are loaded"
        names, ps = await asyncio.gather(reading.openai_names(), reading.get("/api/ps", what))
        loaded = reading.names(ps, "models", what)
        rest: ModelState = "unknown" if ps is None else "not-loaded"
        every = dict.fromkeys((*names, *loaded))
        return Listing(
            tuple(Listed(name, "loaded" if name in loaded else rest) for name in every), tuple(reading.problems)
        )

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", f"/api/ps/{quote(model)}", timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """It says no (409) while the model is in use."""
        return await door.order("DELETE", f"/api/ps/{quote(model)}")


class UnlistedModels(NeverByName):
    """An engine whose API says nothing of models."""

    replaces = False
    evicts = False

    def __init__(self, why: str) -> None:
        self.cannot: Mapping[Ability, str] = {"list": why, "resident": why, "load": why, "unload": why}

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`: nothing is asked."""
        return Listing()
