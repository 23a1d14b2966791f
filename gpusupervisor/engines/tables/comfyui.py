"""ComfyUI: flags of main.py (comfy/cli_args.py), echoed by /system_stats."""

from gpusupervisor.engines.table import Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH
from gpusupervisor.engines.values import number


def _reserve(facts: Facts) -> str:
    size = number(facts.value)
    return f"it leaves {size:g} GB of the card to others when it plans its own memory" if size is not None else ""


def _device(facts: Facts) -> str:
    return f"it uses GPU {facts.value} alone, numbered as CUDA counts: memory freed on another one does not help it"


def _allocator(facts: Facts) -> str:
    if facts.value == "cudaMallocAsync":
        return "the driver keeps a pool for it: memory comes back when the pool is trimmed, a moment after it was freed"
    return "PyTorch keeps freed memory for reuse until it is asked for it"


def _flag(name: str, meaning: str, *, unset_by: tuple[str, ...] = ()) -> Known:
    return Known(name, meaning, flags=(name,), takes="nothing", unset_by=unset_by)


TABLE = Table(
    engine="comfyui",
    settings=(
        _flag(
            "--gpu-only", "everything stays in VRAM, text encoders too, and little comes back when it is asked for it"
        ),
        _flag(
            "--highvram", "models stay in VRAM after use and are not moved out by themselves: idle it holds all of them"
        ),
        _flag("--normalvram", "it moves models in and out of VRAM by need, even where it would have chosen less"),
        _flag("--lowvram", "models are cut into parts to need less VRAM, and run slower"),
        _flag("--novram", "models stay in system memory: it holds little VRAM and is slow"),
        _flag("--cpu", "it works on the CPU and holds no VRAM"),
        Known("--reserve-vram", _reserve, flags=("--reserve-vram",)),
        Known("--vram-headroom", "how much VRAM it keeps free of its own memory, in GB", flags=("--vram-headroom",)),
        Known("--cuda-device", _device, flags=("--cuda-device",)),
        Known(
            "--default-device",
            "this GPU is used first; the others stay visible to its nodes",
            flags=("--default-device",),
        ),
        _flag(
            "--disable-smart-memory",
            "models leave VRAM after every run: idle it holds little, and every run loads anew",
        ),
        _flag("--cache-none", "nothing is kept between runs: less memory, everything is computed anew"),
        _flag("--cache-classic", "results of nodes are kept until the workflow changes"),
        Known("--cache-lru", "results of this many nodes are kept between runs, in memory", flags=("--cache-lru",)),
        _flag("--cuda-malloc", "memory comes from the driver's asynchronous allocator"),
        _flag("--disable-cuda-malloc", "memory comes from PyTorch's own allocator"),
        Known(
            "--async-offload",
            "weights move while it computes: it holds a little more VRAM",
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
