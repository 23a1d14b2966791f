"""Engines that make images: AUTOMATIC1111 (and Forge), InvokeAI, ComfyUI."""

import asyncio
from collections.abc import Mapping

from gpusupervisor.engines.model_apis.api import NeverByName
from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, count, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, Reply

_ALL = "which models there are"
_COMFYUI_FOLDERS = ("checkpoints", "diffusion_models", "text_encoders", "vae", "loras", "controlnet")
"""Of those that hold what needs VRAM."""


class Automatic1111Models:
    """Its options name the checkpoint that is selected, whether it is loaded or was given up."""

    cannot: Mapping[Ability, str] = {"resident": "it names the checkpoint that is selected, loaded or not"}
    replaces = True
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading, what = Reading(door), "which checkpoint is selected"
        found, options = await asyncio.gather(
            reading.get("/sdapi/v1/sd-models", _ALL), reading.get("/sdapi/v1/options", what)
        )
        selected = name_of(options.get("sd_model_checkpoint")) if isinstance(options, dict) else ""
        models = []
        for entry in reading.entries(found, "", _ALL):
            if name := name_of(entry.get("title")):
                maybe = not selected or selected in (name, entry.get("model_name"))
                models.append(Listed(name, "unknown" if maybe else "not-loaded"))
        return Listing(tuple(models), tuple(reading.problems))

    async def load(self, door: Door, model: str) -> Reply:
        """Selecting a checkpoint loads it."""
        return await door.order("POST", "/sdapi/v1/options", {"sd_model_checkpoint": model}, timeout=LOAD_TIMEOUT)

    async def unload(self, door: Door, model: str) -> Reply:
        """Whatever is loaded: it has one."""
        return await door.order("POST", "/sdapi/v1/unload-checkpoint", {})


class InvokeAiModels(NeverByName):
    """Its cache takes models in and out by itself."""

    cannot: Mapping[Ability, str] = {
        "resident": "it does not say which models its cache holds",
        "load": "it loads a model when an invocation uses it, and not by name",
        "unload": "it empties its whole cache or nothing: release the tenant for that",
    }
    replaces = False
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        models = [
            Listed(name, size=count(entry.get("file_size")))
            for entry in reading.entries(await reading.get("/api/v2/models/", _ALL), "models", _ALL)
            if (name := name_of(entry.get("name")))
        ]
        return Listing(tuple({model.name: model for model in models}.values()), tuple(reading.problems))


class ComfyUiModels(NeverByName):
    """Names of files by folder, and nothing more."""

    cannot: Mapping[Ability, str] = {
        "resident": "it does not say which models are loaded",
        "load": "it loads a model when a prompt uses it, and not by name",
        "unload": "it gives up all its models or none: release the tenant for that",
    }
    replaces = False
    evicts = True

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        there = set(reading.names(await reading.get("/models", _ALL), "", _ALL))
        folders = [folder for folder in _COMFYUI_FOLDERS if folder in there]
        answers = await asyncio.gather(
            *(reading.get(f"/models/{folder}", f"what is in {folder}") for folder in folders)
        )
        models = [
            Listed(f"{folder}/{name}")
            for folder, answer in zip(folders, answers, strict=True)
            for name in reading.names(answer, "", f"what is in {folder}")
        ]
        return Listing(tuple(models), tuple(reading.problems))
