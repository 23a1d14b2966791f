"""KoboldCpp: flags of koboldcpp.py, and /api/extra/version."""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML
from gpusupervisor.engines.values import integer, number, spoken


def _layers(facts: Facts) -> str:
    count = integer(facts.value)
    if count is None:
        return ""
    if count < 0:
        return "as many layers as fit are put into VRAM when it loads: what is free then decides"
    return f"{count} layers are in VRAM, the rest runs on the CPU" if count else "the model stays on the CPU"


def _admin(facts: Facts) -> str:
    level = integer(facts.value)
    if level == 1:
        return "it can be asked to unload its model, which restarts its worker"
    if level == 2:
        return "it can be asked to unload its model, with a password that the supervisor does not have"
    return "it cannot be asked to unload: start it with --admin and --admindir" if level == 0 else ""


def _unload(facts: Facts) -> str:
    seconds = number(facts.value)
    return f"its model is unloaded after {spoken(seconds)} without a request" if seconds else ""


_QUANTIZED = {"0": "f16", "1": "q8: half", "2": "q4: a quarter"}

TABLE = Table(
    engine="koboldcpp",
    grammar=ARGPARSE,
    settings=(
        Known("--config", "what is not said otherwise is set in this file", flags=("--config",)),
        Known(
            "--gpulayers", _layers, flags=("--gpulayers", "--gpu-layers", "--n-gpu-layers", "-ngl"), takes="optional"
        ),
        Known(
            "--usecuda",
            "it works on the GPU; lowvram keeps contexts out of VRAM",
            flags=("--usecuda", "--usecublas", "--usehipblas"),
            takes="many",
        ),
        Known(
            "--contextsize",
            "the context: its VRAM is held from the load on",
            flags=("--contextsize", "--ctx-size", "-c"),
        ),
        Known(
            "--quantkv",
            lambda facts: f"how contexts are held, {_QUANTIZED[facts.value]}" if facts.value in _QUANTIZED else "",
            flags=("--quantkv",),
            takes="optional",
        ),
        Known(
            "--flashattention",
            "contexts need less VRAM",
            flags=("--flashattention", "--flash-attn", "-fa"),
            takes="nothing",
        ),
        Known("--multiuser", "this many requests are queued", flags=("--multiuser",), takes="optional"),
        Known(
            "--admin",
            "it can be asked to unload its model, when --admindir is set too",
            flags=("--admin",),
            takes="nothing",
        ),
        Known("--admindir", "the configurations that it can be told to change to", flags=("--admindir",)),
        Known(
            "--adminpassword",
            "unloading wants a password that the supervisor does not have",
            flags=("--adminpassword",),
            secret=True,
        ),
        Known("--adminunloadtimeout", _unload, flags=("--adminunloadtimeout",)),
        Known(
            "--tensor_split",
            "it is shared out among GPUs, and holds memory on each",
            flags=("--tensor_split", "--tensorsplit", "-ts"),
            takes="many",
        ),
        Known(
            "--moecpu",
            "experts of this many layers stay in system memory",
            flags=("--moecpu", "--n-cpu-moe"),
            takes="optional",
        ),
        Known("--sdmodel", "an image model is loaded beside the text model", flags=("--sdmodel",)),
        Known("--whispermodel", "a speech model is loaded beside the text model", flags=("--whispermodel",)),
        Known("admin level", _admin),
        *GGML,
    ),
    calls=(Call("/api/extra/version", version="version", tells=(("admin level", "admin"),)),),
)
