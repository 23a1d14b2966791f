"""Small films for tests."""

import json
from typing import Any

from gpusupervisor.films.reading import parse_film
from gpusupervisor.films.values import Film

GIB = 1 << 30
IDLE = {"json": {"exec_info": {"queue_remaining": 0}}}
ONE = {"json": {"exec_info": {"queue_remaining": 1}}}
NO_QUEUE: Any = {"json": {"queue_running": [], "queue_pending": []}}
ONE_RUNS = {"json": {"queue_running": [[0, "a"]], "queue_pending": []}}
MACHINE: dict[str, Any] = {
    "t": 0,
    "gpus": {"0": {"total": "24G", "other": "500M"}},
    "processes": {
        "200": {"command": "python3 /opt/ComfyUI/main.py", "unit": "comfyui.service", "ports": [8188], "vram": "400M"}
    },
    "http": {"8188": {"/prompt": IDLE, "/queue": NO_QUEUE}},
}
"""A card with an idle ComfyUI."""


def film_of(*tables: Any, **header: Any) -> Film:
    """The film of a header and these lines."""
    lines = [{"film": 1, **header}, *tables]
    return parse_film("test", [json.dumps(line).encode() for line in lines])
