"""Short forms for what well-known engines answer, so that a film can be typed by hand.

Each is a key of an address in `http` that is no path: {"8188": {"comfyui": {"running": 1}}}.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.films import checks
from gpusupervisor.films.checks import Line, Unfit
from gpusupervisor.films.stage import Reply

KEEP_ALIVE = 300 * MICROSECONDS
"""Ollama's usual one."""
NEVER = "2318-03-01T12:00:00Z"
"""How Ollama writes the expiry of a model that is kept for ever."""

Shorthand = Callable[[Line, int], Mapping[str, Reply]]
"""Takes the table and the wall-clock time in microseconds; returns replies by "GET /path"."""


def comfyui(line: Line, _realtime: int) -> Mapping[str, Reply]:
    """running, pending: prompts in its queue."""
    running, pending = line.take("running", checks.whole, 0), line.take("pending", checks.whole, 0)
    first = line.take("first", checks.whole, 1)
    entries = [[number, f"prompt-{number}", {}, {}, []] for number in range(first, first + running + pending)]
    return {
        "GET /prompt": _json({"exec_info": {"queue_remaining": running + pending}}),
        "GET /queue": _json({"queue_running": entries[:running], "queue_pending": entries[running:]}),
        "GET /system_stats": _json({"system": {"comfyui_version": "0.3.64"}, "devices": []}),
        "GET /history": _json({}),
        "POST /free": Reply(200, b"", "text/plain"),
    }


def ollama(line: Line, realtime: int) -> Mapping[str, Reply]:
    """models: by name, with size, vram and expires; version."""
    version = line.take("version", checks.text, "0.30.0")
    models = []
    for name, entry in line.take("models", checks.table, checks.NOTHING).items():
        model = Line(checks.table(entry), line.number, f"models.{name}")
        size = model.take("size", checks.size, 0)
        vram = model.take("vram", checks.size, size)
        forever = model.take("forever", checks.flag, fallback=False)
        expires = NEVER if forever else _timestamp(realtime + model.take("expires-in", checks.time, KEEP_ALIVE))
        model.end()
        models.append({"name": name, "model": name, "size": size, "size_vram": vram, "expires_at": expires})
    return {
        "GET /api/ps": _json({"models": models}),
        "GET /api/version": _json({"version": version}),
        "GET /api/tags": _json({"models": []}),
        "POST /api/generate": _json({"done": True, "done_reason": "unload"}),
    }


def llama_server(line: Line, _realtime: int) -> Mapping[str, Reply]:
    """slots: of which so many work; sleeping."""
    slots, working = line.take("slots", checks.whole, 1), line.take("working", checks.whole, 0)
    sleeping = line.take("sleeping", checks.flag, fallback=False)
    return {
        "GET /health": _json({"status": "ok"}),
        "GET /props": _json({"is_sleeping": sleeping, "total_slots": slots}),
        "GET /slots": _json([{"id": number, "is_processing": number < working} for number in range(slots)]),
    }


def _timestamp(realtime: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=realtime)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _json(value: object) -> Reply:
    return Reply(200, json.dumps(value).encode(), "application/json")


SHORTHANDS: Mapping[str, Shorthand] = {"comfyui": comfyui, "ollama": ollama, "llama-server": llama_server}


def expand(name: str, line: Line, realtime: int) -> Mapping[str, Reply]:
    """The replies of a short form. Raises FilmError."""
    shorthand = SHORTHANDS.get(name)
    if shorthand is None:
        raise line.fault("", f'is no path ("/..."), and no short form; allowed: {checks.words(SHORTHANDS)}')
    try:
        replies = shorthand(line, realtime)
    except Unfit as error:
        raise line.fault("", str(error)) from None
    line.end()
    return replies
