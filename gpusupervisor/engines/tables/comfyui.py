"""ComfyUI: flags of main.py (comfy/cli_args.py, of 2025-10 and of 2026-09), echoed by /system_stats.

Later versions have "dynamic VRAM" unless --gpu-only, --highvram, --novram or --cpu is given: models are in VRAM as far
as there is room, and make room for other programs by themselves.
"""

from gpusupervisor.engines.table import Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH
from gpusupervisor.engines.values import number


def _reserve(facts: Facts) -> str:
    size = number(facts.value)
    return f"it leaves {size:g} GB of the card to others when it places its models" if size is not None else ""


def _headroom(facts: Facts) -> str:
    size = number(facts.value)
    return f"it tries to keep {size:g} GB of the card free, whoever uses the rest" if size else ""


def _device(facts: Facts) -> str:
    if facts.value == "all":
        return "it may use every GPU"
    return f"it uses GPU {facts.value} alone (as CUDA numbers them): memory freed on another GPU does not help it"


def _allocator(facts: Facts) -> str:
    if facts.value == "cudaMallocAsync":
        return "the driver keeps a pool for it: VRAM comes back a moment after it was freed, when the pool is trimmed"
    return "PyTorch keeps freed VRAM for reuse until it is asked for it"


def _flag(name: str, meaning: str, *, unset_by: tuple[str, ...] = ()) -> Known:
    return Known(name, meaning, flags=(name,), takes="nothing", unset_by=unset_by)


TABLE = Table(
    engine="comfyui",
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
            "it places whole models by estimate: they do not make room for other programs by themselves",
            flags=("--disable-dynamic-vram",),
            unset_by=("--enable-dynamic-vram",),
            takes="nothing",
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
