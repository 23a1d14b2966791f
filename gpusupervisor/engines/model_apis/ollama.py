"""Ollama: /api/tags has what there is, /api/ps what is loaded."""

import asyncio
from collections.abc import Mapping

from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, count, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, Reply
from gpusupervisor.tenants.activity.probes.ollama_answers import FOR_EVER, wall_clock

_ALL = "which models there are"
_LOADED = "which models are loaded"


class OllamaModels:
    """Two names of one blob share a runner: both are loaded when either is, and unloading either unloads both."""

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        tags, ps = await asyncio.gather(reading.get("/api/tags", _ALL), reading.get("/api/ps", _LOADED))
        loaded = {
            name: entry for entry in reading.entries(ps, "models", _LOADED) if (name := name_of(entry.get("name")))
        }
        by_blob = {blob: entry for entry in loaded.values() if (blob := _blob(entry))}
        known = ps is not None
        models: dict[str, Listed] = {}
        for entry in reading.entries(tags, "models", _ALL):
            if name := name_of(entry.get("name")):
                models[name] = _model(name, entry, loaded.get(name) or by_blob.get(_blob(entry) or "?"), known)
            else:
                reading.note(_ALL, "some entries cannot be read, and were left out")
        for name, entry in loaded.items():  # deleted on disk, and still loaded
            models.setdefault(name, _model(name, {"remote_host": entry.get("remote_host")}, entry, known))
        return Listing(tuple(models.values()), tuple(dict.fromkeys(reading.problems)))

    async def load(self, door: Door, model: str) -> Reply:
        """Never a prompt: it would run. Answered when the model is loaded, or could not be."""
        return await door.order("POST", "/api/generate", {"model": model, "stream": False}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """By the name under which it is loaded: up to 0.3.10 any other name would be loaded first."""
        reading = Reading(door)
        tags, ps = await asyncio.gather(reading.get("/api/tags", _ALL), reading.get("/api/ps", _LOADED))
        blobs = {entry.get("name"): _blob(entry) for entry in reading.entries(tags, "models", _ALL)}
        loaded = {name_of(entry.get("name")): _blob(entry) for entry in reading.entries(ps, "models", _LOADED)}
        if ps is None:
            return Reply("failed", reading.problems[-1])
        names = [name for name, blob in loaded.items() if name == model or (blob and blob == blobs.get(model))]
        if not names:
            return Reply("done", "it is not loaded")
        return await door.order("POST", "/api/generate", {"model": names[0], "keep_alive": 0})


def _model(name: str, entry: Mapping[str, object], loaded: Mapping[str, object] | None, known: bool) -> Listed:
    remote = bool(entry.get("remote_host"))
    size = None if remote else count(entry.get("size"))
    if remote or loaded is None:
        return Listed(name, "not-loaded" if known or remote else "unknown", size, remote=remote)
    wants, held = count(loaded.get("size")), count(loaded.get("size_vram", 0))
    expires_at = wall_clock(loaded.get("expires_at"))
    pinned = expires_at is not None and expires_at >= FOR_EVER
    return Listed(name, "loaded", size, wants, held, pinned, context=count(loaded.get("context_length")))


def _blob(entry: Mapping[str, object]) -> str | None:
    digest = entry.get("digest")
    return digest if isinstance(digest, str) and digest else None
