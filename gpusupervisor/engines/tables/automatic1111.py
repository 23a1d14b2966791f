"""AUTOMATIC1111 and Forge: flags of launch.py, those of COMMANDLINE_ARGS after them, and /sdapi/v1/cmd-flags.

Checked against modules/cmd_args.py, modules/paths_internal.py and Forge's backend/args.py of 2025-06.
"""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH, switched


def _flag(name: str, meaning: str) -> Known:
    return Known(name, switched(meaning), flags=(name,), takes="nothing")


def _device(facts: Facts) -> str:
    return f"it uses GPU {facts.value} (as CUDA numbers them)" if facts.value not in ("", "null") else ""


_TOLD = (
    _flag("--lowvram", "models are moved into VRAM piece by piece: it needs little VRAM and is slow; Forge ignores it"),
    _flag("--medvram", "the parts of a model are moved into VRAM one at a time: it holds less; Forge ignores it"),
    _flag("--medvram-sdxl", "the parts of SDXL models are moved into VRAM one at a time; Forge ignores it"),
    _flag("--always-gpu", "everything stays in VRAM, and little comes back when it is asked for"),
    _flag("--always-high-vram", "models stay in VRAM after use: it holds them when it is idle"),
    _flag("--always-low-vram", "models are moved into VRAM in parts: it needs little VRAM and is slow"),
    _flag("--always-no-vram", "models stay in system memory: it holds very little VRAM and is slow"),
    _flag("--always-cpu", "it works on the CPU and holds no VRAM"),
    _flag("--always-offload-from-vram", "models leave VRAM after every run: it holds little when it is idle"),
    _flag("--cuda-malloc", "VRAM comes from the driver's asynchronous allocator"),
    Known("--device-id", _device, flags=("--device-id",)),
    Known("--gpu-device-id", _device, flags=("--gpu-device-id",)),
)
"""Those that /sdapi/v1/cmd-flags tells, by their names with underscores; --always-... are Forge's."""

TABLE = Table(
    engine="automatic1111",
    checked_against="of 2025-06",
    grammar=ARGPARSE,
    arguments_variable="COMMANDLINE_ARGS",
    settings=(
        _flag("--api", "it has an API: it can be asked whether it works, and to give back VRAM"),
        _flag("--nowebui", "it is only an API, on port 7861 unless --port says another"),
        *_TOLD,
        Known(
            "--use-cpu",
            lambda facts: (
                "it works on the CPU and holds no VRAM"
                if "all" in facts.value.lower().split()
                else f"these parts work on the CPU: {facts.value}"
            ),
            flags=("--use-cpu",),
            takes="many",
        ),
        Known(
            "--api-auth",
            "its API wants a name and a password: without them in the tenant file it cannot be asked",
            flags=("--api-auth",),
            secret=True,
        ),
        *TORCH,
    ),
    calls=(
        Call(
            "/sdapi/v1/cmd-flags",
            tells=tuple((known.name, known.name.removeprefix("--").replace("-", "_")) for known in _TOLD),
        ),
    ),
)
