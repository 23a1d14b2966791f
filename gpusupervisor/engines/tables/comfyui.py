"""ComfyUI: flags of main.py (comfy/cli_args.py, of 2025-10 and of 2026-09), echoed by /system_stats.

Later versions have "dynamic VRAM" unless --gpu-only, --highvram, --novram or --cpu is given: models are in VRAM as far
as there is room, and make room for other programs by themselves.
"""

from gpusupervisor.engines.table import Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH
from gpusupervisor.engines.values import number
from gpusupervisor.tenants.release.versions import at_least


def _reserve(facts: Facts) -> str:
    size = number(facts.value)
    return f"it leaves {size:g} GB of the card to others when it places its models" if size is not None else ""


def _headroom(facts: Facts) -> str:
    size = number(facts.value)
    return f"it tries to keep {size:g} GB of the card free, whoever uses the rest" if size else ""


def _device(facts: Facts) -> str:
    if facts.value == "all":
        return "it may use every GPU"
    if "," in facts.value:
        return f"it uses GPUs {facts.value} alone (as CUDA numbers them): memory freed on others does not help it"
    return f"it uses GPU {facts.value} alone (as CUDA numbers them): memory freed on another GPU does not help it"


def _static(facts: Facts) -> str:
    if "--enable-dynamic-vram" in facts.known:
        return "no effect: --enable-dynamic-vram counts, wherever it stands"
    return "it places whole models by estimate: they do not make room for other programs by themselves"


_MODES = {
    "--cpu": "cpu", "--gpu-only": "gpu-only", "--highvram": "high", "--novram": "none", "--lowvram": "low",
    "--normalvram": "normal",
}  # fmt: skip
_MEANT = {
    "cpu": "it holds no VRAM",
    "gpu-only": "everything stays in VRAM, and little comes back when it is asked for",
    "high": "models stay in VRAM when it is idle, until it is asked to give them back",
    "none": "models stay in system memory",
    "low": "models are moved into VRAM in parts",
    "normal": "models are moved into VRAM as far as there is room, and stay until others need it or it is asked",
    "dynamic": "models are in VRAM as far as there is room, and make room for other programs by themselves",
}


def _mode(facts: Facts) -> str | None:
    """The mode in effect; None where it depends on more than is known (PyTorch, the platform)."""
    given = next((mode for flag, mode in _MODES.items() if flag in facts.known), "")
    if "--enable-dynamic-vram" in facts.known:
        return "dynamic"
    if given in ("cpu", "gpu-only", "high", "none"):
        return given
    if "--disable-dynamic-vram" in facts.known or not at_least(facts.version or "999", "0.16.0"):
        return given or "normal"
    return "dynamic" if facts.version else None


def _allocator(facts: Facts) -> str:
    if facts.value == "cudaMallocAsync":
        return "the driver keeps a pool for it: VRAM comes back a moment after it was freed, when the pool is trimmed"
    return "PyTorch keeps freed VRAM for reuse until it is asked for it"


def _flag(name: str, meaning: str, *, unset_by: tuple[str, ...] = ()) -> Known:
    return Known(name, meaning, flags=(name,), takes="nothing", unset_by=unset_by)


TABLE = Table(
    engine="comfyui",
    checked_against="of 2026-09",
    settings=(
        _flag("--gpu-only", "everything stays in VRAM, text encoders too, and little comes back when it is asked for"),
        _flag(
            "--highvram",
            "models stay in VRAM after use: it holds all of them when it is idle, until it is asked to give them back",
        ),
        _flag(
            "--normalvram",
            "it moves models in and out of VRAM as needed, even where it would have chosen to use less VRAM",
        ),
        _flag("--lowvram", "models need less VRAM and run slower; with dynamic VRAM it has no effect"),
        _flag("--novram", "models stay in system memory: it holds little VRAM and is slow"),
        _flag("--cpu", "it works on the CPU and holds no VRAM"),
        Known("--reserve-vram", _reserve, flags=("--reserve-vram",)),
        Known("--vram-headroom", _headroom, flags=("--vram-headroom",)),
        Known(
            "--disable-dynamic-vram",
            _static,
            flags=("--disable-dynamic-vram",),
            takes="nothing",
        ),
        _flag(
            "--enable-dynamic-vram",
            "models are in VRAM as far as there is room, and make room for other programs by themselves",
        ),
        Known("VRAM mode", lambda facts: _MEANT.get(facts.value, ""), default=_mode),
        _flag(
            "--disable-nvml-pressure",
            "it sees what CUDA tells of free VRAM: memory that other programs take or give back is seen late or never",
        ),
        _flag("--high-ram", "more is kept in system memory for fast loads"),
        _flag("--fast-disk", "models are read from disk again rather than kept in system memory"),
        Known("--models-directory", "its model files are here", flags=("--models-directory",)),
        Known("--base-directory", "its model files are in models/ here", flags=("--base-directory",)),
        Known(
            "--cache-ram",
            "results of nodes are kept while this many GB of system memory are free",
            flags=("--cache-ram",),
            takes="many",
        ),
        Known("--cuda-device", _device, flags=("--cuda-device",)),
        Known(
            "--default-device",
            "it uses this GPU; its nodes may use the others too",
            flags=("--default-device",),
        ),
        _flag(
            "--disable-smart-memory",
            "models leave VRAM after every run: it holds little when it is idle, and every run loads them again",
        ),
        _flag("--cache-none", "nothing is kept between runs: it holds less, and computes everything again"),
        _flag("--cache-classic", "the results of nodes are kept until the workflow changes"),
        Known(
            "--cache-lru",
            "the results of this many nodes are kept between runs, some of them in VRAM",
            flags=("--cache-lru",),
        ),
        _flag("--cuda-malloc", "VRAM comes from the driver's asynchronous allocator"),
        _flag("--disable-cuda-malloc", "VRAM comes from PyTorch's own allocator"),
        Known(
            "--async-offload",
            "weights are moved while it computes, which takes a little more VRAM",
            flags=("--async-offload",),
            takes="optional",
            unset_by=("--disable-async-offload",),
        ),
        # the device's name is "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync"
        Known("allocator", _allocator, of_answer=lambda text: text.rpartition(" : ")[2] if " : " in text else ""),
        Known("pytorch", "the PyTorch that it runs on"),
        *TORCH,
    ),
    calls=(
        Call(
            "/system_stats",
            version="system.comfyui_version",
            tells=(
                ("pytorch", "system.pytorch_version"),
                ("allocator", "devices[?type=='cuda'] | [0].name"),
            ),
        ),
    ),
)
