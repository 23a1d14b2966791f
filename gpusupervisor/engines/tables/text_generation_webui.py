"""text-generation-webui: flags of server.py (modules/shared.py); its API tells the model, not the settings."""

from gpusupervisor.engines.table import ARGPARSE, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, TORCH_ALLOCATOR
from gpusupervisor.engines.values import integer


def _layers(facts: Facts) -> str:
    count = integer(facts.value)
    if count is None:
        return ""
    return "as many layers as fit are put into VRAM when it loads" if count < 0 else f"{count} layers are in VRAM"


def _idle(facts: Facts) -> str:
    minutes = integer(facts.value)
    return f"its model is unloaded after {minutes} minutes without use, and loaded again by need" if minutes else ""


TABLE = Table(
    engine="text-generation-webui",
    grammar=ARGPARSE,
    settings=(
        Known(
            "--api",
            "its API is there: its model can be asked for and unloaded",
            flags=("--api", "--public-api"),
            takes="nothing",
        ),
        Known("--nowebui", "it is only an API", flags=("--nowebui",), takes="nothing"),
        Known("--model", "this model is loaded when it starts, and held", flags=("--model",)),
        Known("--loader", "what loads models: llama.cpp runs them in a process of its own", flags=("--loader",)),
        Known("--idle-timeout", _idle, flags=("--idle-timeout",)),
        Known("--gpu-layers", _layers, flags=("--gpu-layers", "--n-gpu-layers")),
        Known(
            "--ctx-size",
            "the context: its VRAM is held from the load on",
            flags=("--ctx-size", "--n_ctx", "--max_seq_len"),
        ),
        Known(
            "--cache-type",
            "how contexts are held: q8_0 half, q4_0 a quarter of fp16",
            flags=("--cache-type", "--cache_type"),
        ),
        Known("--gpu-split", "GB on each GPU: it holds memory on each", flags=("--gpu-split",)),
        Known("--tensor-split", "how the model is shared out among GPUs", flags=("--tensor-split",)),
        Known("--cpu-moe", "experts stay in system memory: less VRAM", flags=("--cpu-moe",), takes="nothing"),
        Known("--api-key", "its API wants a key", flags=("--api-key",), secret=True),
        Known(
            "--admin-key",
            "unloading wants a key that the supervisor does not have",
            flags=("--admin-key",),
            secret=True,
        ),
        *GGML,
        TORCH_ALLOCATOR,
    ),
)
