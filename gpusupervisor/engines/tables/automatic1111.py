"""AUTOMATIC1111 and Forge: flags of launch.py (also in COMMANDLINE_ARGS), and /sdapi/v1/cmd-flags."""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH, switched


def _flag(name: str, meaning: str) -> Known:
    return Known(name, switched(meaning), flags=(name,), takes="nothing")


def _device(facts: Facts) -> str:
    return f"it uses GPU {facts.value} alone, numbered as CUDA counts" if facts.value not in ("", "null") else ""


_ANSWERED = {
    "--lowvram": "lowvram",
    "--medvram": "medvram",
    "--medvram-sdxl": "medvram_sdxl",
    "--always-high-vram": "always_high_vram",
    "--always-gpu": "always_gpu",
    "--always-offload-from-vram": "always_offload_from_vram",
    "--cuda-malloc": "cuda_malloc",
    "--device-id": "device_id",
    "--gpu-device-id": "gpu_device_id",
}
"""By flag: its name in /sdapi/v1/cmd-flags."""

TABLE = Table(
    engine="automatic1111",
    grammar=ARGPARSE,
    arguments_variable="COMMANDLINE_ARGS",
    settings=(
        _flag("--api", "its API is there: whether it works can be asked, and its VRAM asked for"),
        _flag("--lowvram", "models are cut into parts that are moved in by need: little VRAM, slow"),
        _flag("--medvram", "the parts of a model are moved into VRAM one at a time: less is held"),
        _flag("--medvram-sdxl", "the parts of SDXL models are moved into VRAM one at a time"),
        _flag("--always-gpu", "everything stays in VRAM, and little comes back when it is asked for"),
        _flag("--always-high-vram", "models stay in VRAM after use: idle it holds them"),
        _flag("--always-offload-from-vram", "models leave VRAM after every run: idle it holds little"),
        _flag("--cuda-malloc", "memory comes from the driver's asynchronous allocator"),
        Known("--device-id", _device, flags=("--device-id",)),
        Known("--gpu-device-id", _device, flags=("--gpu-device-id",)),
        Known(
            "--api-auth",
            "its API wants a name and a password that the supervisor does not have",
            flags=("--api-auth",),
            secret=True,
        ),
        *TORCH,
    ),
    calls=(Call("/sdapi/v1/cmd-flags", tells=tuple(_ANSWERED.items())),),
)
