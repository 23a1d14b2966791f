"""llama.cpp's llama-server, with one model or as a router of several.

Only /props, /v1/models and /models are looked at: /slots and /metrics wake a model that is asleep, and with
?model= they load one (https://github.com/ggml-org/llama.cpp/issues/23096).
"""

from collections.abc import Mapping
from itertools import pairwise
from urllib.parse import quote

from gpusupervisor.engines.model_apis.door import LOAD_TIMEOUT, Door, Reading, count, name_of
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing, ModelState, Reply
from gpusupervisor.foreign_text import harmless

MOST_ARGUMENTS = 1024
"""Of the server of a router's model that are looked at."""
_ALL = "which models there are"
_ASLEEP = "whether its model is asleep"
_ONE: Mapping[Ability, str] = {
    "load": "it serves the one model that it was started with, and a request wakes that",
    "unload": "it has no call that unloads its one model: start it with --sleep-idle-seconds, or stop it",
}
_STATES: Mapping[str, ModelState] = {
    "loaded": "loaded", "loading": "loading", "sleeping": "asleep", "unloaded": "not-loaded",
    "downloading": "not-loaded", "downloaded": "not-loaded",
}  # fmt: skip


class LlamaCppModels:
    """The router unloads a model at once, and kills one that still works 10 s later: idle ones only."""

    cannot: Mapping[Ability, str] = {}
    replaces = False
    evicts = False

    async def look(self, door: Door) -> Listing:
        """See `ModelApi`."""
        reading = Reading(door)
        props = await reading.get("/props", _ASLEEP, absent=(503,))
        if isinstance(props, dict) and props.get("role") == "router":
            return await self._list_routed(reading)
        return await self._list_one(reading, props, loading=reading.status == 503)

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`: answered at once, done later. One that sleeps counts as running: a question wakes it."""
        reply = await door.order("POST", "/models/load", {"model": model})
        if "already running" in reply.detail:
            return await door.order("GET", f"/slots?model={quote(model, safe='')}", timeout=LOAD_TIMEOUT)
        return Reply("started") if reply.outcome == "done" else reply

    async def unload(self, door: Door, model: str) -> Reply:
        """See `ModelApi`: answered at once, done later."""
        reply = await door.order("POST", "/models/unload", {"model": model})
        return Reply("started") if reply.outcome == "done" else reply

    async def _list_one(self, reading: Reading, props: object, *, loading: bool) -> Listing:
        answer = await reading.get("/v1/models", _ALL, absent=(503,))
        sleeping = props.get("is_sleeping", False) if isinstance(props, dict) else None
        state: ModelState = "unknown"
        if loading or reading.status == 503:
            state = "loading"
        elif isinstance(sleeping, bool):
            state = "asleep" if sleeping else "loaded"
        models = []
        file = _path(props.get("model_path")) if isinstance(props, dict) else ""
        for entry in reading.entries(answer, "data", _ALL):
            meta = entry.get("meta")
            if name := name_of(entry.get("id")):
                size = count(meta.get("size")) if isinstance(meta, dict) else None
                models.append(Listed(name, state, size, file=file))
        return Listing(tuple(models), tuple(reading.problems), _ONE)

    async def _list_routed(self, reading: Reading) -> Listing:
        models = []
        for entry in reading.entries(await reading.get("/models", _ALL), "data", _ALL):
            if name := name_of(entry.get("id")):
                models.append(_routed(name, entry))
            else:
                reading.note(_ALL, "some entries cannot be read, and were left out")
        return Listing(tuple(models), tuple(dict.fromkeys(reading.problems)))


def _routed(name: str, entry: Mapping[str, object]) -> Listed:
    status, meta = entry.get("status"), entry.get("meta")
    value = status.get("value") if isinstance(status, dict) else None
    failed = ""
    if isinstance(status, dict) and status.get("failed") is True:
        failed = f"its process ended with exit code {harmless(str(status.get('exit_code')), 20)}"
    size = count(meta.get("size")) if isinstance(meta, dict) else None
    state = _STATES.get(value, "unknown") if isinstance(value, str) else "unknown"
    return Listed(name, state, size, failed=failed, file=_file_of(entry, status))


def _file_of(entry: Mapping[str, object], status: object) -> str:
    """The weights of a router's model: its own word, or what the server of it is started with."""
    if path := _path(entry.get("path")):
        return path
    arguments = status.get("args") if isinstance(status, dict) else None
    if not isinstance(arguments, list):
        return ""
    found = ""
    for flag, value in pairwise(arguments[:MOST_ARGUMENTS]):
        if flag in ("-m", "--model"):
            found = _path(value)
    return found


def _path(value: object) -> str:
    """An absolute path; empty for anything else ("none" of a router)."""
    path = name_of(value)
    return path if path.startswith("/") else ""
