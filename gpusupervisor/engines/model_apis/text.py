"""Engines of one language model at a time: TabbyAPI, KoboldCpp, text-generation-webui."""

import asyncio
from collections.abc import Mapping

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply

_LOADED = "which model is loaded"
_ALL = "which models there are"
_KOBOLDCPP_COMMANDS = ("unload_model", "initial_model")
"""What its list of configurations also holds."""
_PROTECTED = "koboldcpp/protected-model"
"""What it tells whoever does not have its password."""
RESTARTING = 1.0
"""Seconds that KoboldCpp is left alone while it starts anew, again and again."""


def _one_loaded(names: tuple[str, ...], loaded: str | None, problems: list[str]) -> Listing:
    """loaded: empty when none is, None when nobody knows."""
    rest: ModelState = "unknown" if loaded is None else "not-loaded"
    every = dict.fromkeys((*names, *((loaded,) if loaded else ())))
    return Listing(tuple(Listed(name, "loaded" if name == loaded else rest) for name in every), tuple(problems))


class TabbyApiModels:
    """Loading and unloading end what runs at once, and take its admin key where it has one."""

    cannot: Mapping[Ability, str] = {}
    replaces = True
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        names = await reading.openai_names()
        answer = await reading.get("/v1/model", _LOADED, absent=(400, 503))
        if answer is None:
            return _one_loaded(names, "" if reading.status in (400, 503) else None, reading.problems)
        loaded = name_of(answer.get("id")) if isinstance(answer, dict) else ""
        if not loaded:
            reading.note(_LOADED, "its API answered in another shape")
        return _one_loaded(names, loaded or None, reading.problems)

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/v1/model/load", {"model_name": model}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/v1/model/unload")


class KoboldCppModels:
    """Its admin mode starts it anew with another configuration; without that it keeps what it was started with."""

    cannot: Mapping[Ability, str] = {}
    replaces = True
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        answer = await reading.get("/api/v1/model", _LOADED)
        told = answer.get("result") if isinstance(answer, dict) else None
        loaded: str | None = None
        if told == "inactive":
            loaded = ""
        elif told == _PROTECTED:
            reading.note(_LOADED, "its API wants the password of --password: name its file in the tenant file")
        elif not (loaded := name_of(told).removeprefix("koboldcpp/") or None) and answer is not None:
            reading.note(_LOADED, "its API answered in another shape")
        options = await reading.get("/api/admin/list_options", _ALL, absent=(401, 403, 404))
        names = () if options is None else reading.names(options, "", _ALL)
        listing = _one_loaded(tuple(n for n in names if n not in _KOBOLDCPP_COMMANDS), loaded, reading.problems)
        if names:
            return listing
        why = "it was started without --admin and --admindir, or its admin password is not in the tenant file"
        return Listing(listing.models, listing.problems, {"load": why, "unload": why})

    async def load(self, door: Door, model: str) -> Reply:
        """It starts anew, and nobody listens for a while; then it names its model by another name than the
        configuration that was asked for, so it is followed here."""
        reply = await door.order("POST", "/api/admin/reload_config", {"filename": model})
        return reply if reply.outcome != "done" else await self._follow(door)

    async def _follow(self, door: Door) -> Reply:
        try:
            async with asyncio.timeout(LOAD_TIMEOUT / MICROSECONDS):
                while True:
                    await asyncio.sleep(RESTARTING)
                    answer = await Reading(door).get("/api/v1/model", _LOADED)
                    told = answer.get("result") if isinstance(answer, dict) else None
                    if told == "inactive":
                        return Reply("failed", "it restarted without a model")
                    if name_of(told):
                        return Reply("done")
        except TimeoutError:
            return Reply("failed", "it did not come up again in time")

    async def unload(self, door: Door, model: str) -> Reply:
        """It starts anew without a model."""
        reply = await door.order("POST", "/api/admin/reload_config", {"filename": "unload_model"})
        return Reply("started") if reply.outcome == "done" else reply


class TextGenerationWebuiModels:
    """Its internal API."""

    cannot: Mapping[Ability, str] = {}
    replaces = True
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        all_of_them, info = await asyncio.gather(
            reading.get("/v1/internal/model/list", _ALL), reading.get("/v1/internal/model/info", _LOADED)
        )
        name = name_of(info.get("model_name")) if isinstance(info, dict) else ""
        if info is not None and not name:
            reading.note(_LOADED, "its API answered in another shape")
        loaded = "" if name == "None" else name or None
        return _one_loaded(reading.names(all_of_them, "model_names", _ALL), loaded, reading.problems)

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/v1/internal/model/load", {"model_name": model}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return await door.order("POST", "/v1/internal/model/unload")
