"""text-generation-webui: flags of server.py (modules/shared.py of v4.7.3); its API tells the model, not the settings.

Further flags are in user_data/CMD_FLAGS.txt, which is not read here: the command line beats it. What was saved for a
model in user_data/models/config-user.yaml counts for that model where no flag says otherwise.
"""

from gpusupervisor.engines.table import ARGPARSE, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, TORCH_ALLOCATOR
from gpusupervisor.engines.values import integer, spoken


def _layers(facts: Facts) -> str:
    count = integer(facts.value)
    if count is None:
        return ""
    return (
        "as many layers as fit are put into VRAM when it loads"
        if count < 0
        else f"{count} of the model's layers are in VRAM"
    )


def _idle(facts: Facts) -> str:
    minutes = integer(facts.value)
    return (
        f"its model is unloaded after {spoken(60 * minutes)} without use, and loaded again when it is needed"
        if minutes is not None and minutes > 0
        else ""
    )


def _context(facts: Facts) -> str:
    size = integer(facts.value)
    return (
        "the context is as large as fits into VRAM when it loads"
        if size == 0
        else "the context, in tokens: it takes its VRAM when the model loads, and keeps it"
    )


def _switch(flag: str, meaning: str) -> Known:
    return Known(flag, meaning, flags=(flag,), takes="nothing")


def _value(flag: str, meaning: object, *others: str) -> Known:
    return Known(flag, meaning, flags=(flag, *others))  # type: ignore[arg-type]


TABLE = Table(
    engine="text-generation-webui",
    checked_against="v4.7.3",
    grammar=ARGPARSE,
    settings=(
        Known(
            "--api",
            "it has an API: it can be asked which model is loaded, and to unload it",
            flags=("--api", "--public-api"),
            takes="nothing",
        ),
        _value("--model", "this model is loaded when it starts, and held"),
        _value("--image-model", "this image model is loaded when it starts, beside the text model, and held"),
        _value("--loader", "what loads models: llama.cpp runs them in a process of its own"),
        _value("--idle-timeout", _idle),
        _value("--gpu-layers", _layers, "--n-gpu-layers"),
        _value("--ctx-size", _context, "--n_ctx", "--max_seq_len"),
        _value("--cache-type", "how contexts are held: q8_0 takes half, q4_0 a quarter of fp16", "--cache_type"),
        _value("--parallel", "this many requests run at once and share the context"),
        _value("--fit-target", "this many MiB of each GPU are left free when it chooses how many layers fit"),
        _switch("--no-kv-offload", "contexts stay in system memory: it holds less VRAM and is slower"),
        _switch("--cpu-moe", "experts stay in system memory: it holds less VRAM"),
        _value("--model-draft", "a second, smaller model is held in VRAM too"),
        _switch("--load-in-8bit", "Transformers models take about half of their VRAM"),
        _switch("--load-in-4bit", "Transformers models take about a quarter of their VRAM"),
        _switch("--cpu", "Transformers models run on the CPU and hold no VRAM"),
        _value("--gpu-split", "GB on each GPU: it holds VRAM on each"),
        _value("--tensor-split", "how much of the model each GPU holds"),
        _value("--extra-flags", "what it passes on to its llama-server, which may change any of this"),
        Known(
            "--api-key",
            "its API wants a key: without that key in the tenant file it cannot be asked",
            flags=("--api-key",),
            secret=True,
        ),
        Known(
            "--admin-key",
            "listing, loading and unloading models wants this key, which belongs in the tenant file",
            flags=("--admin-key",),
            secret=True,
        ),
        *GGML,
        TORCH_ALLOCATOR,
    ),
)
