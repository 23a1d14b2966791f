"""KoboldCpp: flags of koboldcpp.py, and /api/extra/version; checked against 1.102, what is later is said so."""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML
from gpusupervisor.engines.values import integer, number, spoken


def _layers(facts: Facts) -> str:
    count = integer(facts.value)
    if count is None:
        return ""
    if count < 0:
        return "as many layers as fit go into VRAM when it loads: what becomes free later does not help"
    return (
        f"{count} of the model's layers are in VRAM, the rest runs on the CPU"
        if count
        else "the model stays on the CPU"
    )


def _cuda(facts: Facts) -> str:
    words = facts.value.split()
    gpus = [word for word in words if word.isdecimal()]
    where = f"it uses GPU {gpus[-1]} alone" if gpus else "it uses every GPU that it sees"
    return f"{where}, and contexts stay in system memory" if "lowvram" in words else where


def _admin(facts: Facts) -> str:
    level = integer(facts.value)
    if level == 1:
        return "it can be asked to unload its model, which restarts its worker"
    if level == 2:
        return "it can be asked to unload its model, with a password that belongs in the tenant file"
    return "it cannot be asked to unload: start it with --admin and --admindir" if level == 0 else ""


def _unload(facts: Facts) -> str:
    seconds = number(facts.value)
    return f"its model is unloaded after {spoken(seconds)} without a request" if seconds else ""


_QUANTIZED = {"0": "as f16", "1": "as q8, half of f16", "2": "as q4, a quarter of f16"}

TABLE = Table(
    engine="koboldcpp",
    checked_against="1.102",
    grammar=ARGPARSE,
    flags_are_keys=True,
    file_beats_flags=True,
    settings=(
        Known("--model", "this model is loaded when it starts, and held", flags=("--model", "-m"), takes="many"),
        Known(
            "--config", "all of its settings are in this file, and its other flags do not count", flags=("--config",)
        ),
        Known(
            "--gpulayers", _layers, flags=("--gpulayers", "--gpu-layers", "--n-gpu-layers", "-ngl"), takes="optional"
        ),
        Known("--usecuda", _cuda, flags=("--usecuda", "--usecublas", "--usehipblas"), takes="many"),
        Known("--usevulkan", "it works on the GPU through Vulkan", flags=("--usevulkan",), takes="many"),
        Known("--useclblast", "it works on the GPU through OpenCL", flags=("--useclblast",), takes="many"),
        Known(
            "--autofit",
            "what is not set is fitted to the VRAM that is free when it loads: make room before, not after",
            flags=("--autofit",),
            takes="nothing",
        ),
        Known("--usecpu", "it works on the CPU and holds no VRAM", flags=("--usecpu",), takes="nothing"),
        Known("--maingpu", "the GPU that it mainly uses", flags=("--maingpu", "--main-gpu", "-mg")),
        Known(
            "--contextsize",
            "the context, in tokens: it takes its VRAM when the model loads, and keeps it",
            flags=("--contextsize", "--ctx-size", "-c"),
        ),
        Known(
            "--quantkv",
            lambda facts: f"contexts are held {_QUANTIZED[facts.value]}" if facts.value in _QUANTIZED else "",
            flags=("--quantkv",),
        ),
        Known(
            "--lowvram",
            "contexts stay in system memory: it holds less VRAM and is slower",
            flags=("--lowvram", "-nkvo", "--no-kv-offload"),
            takes="nothing",
        ),
        Known(
            "--flashattention",
            "contexts need less VRAM",
            flags=("--flashattention", "--flash-attn", "-fa"),
            takes="nothing",
        ),
        Known(
            "--multiuser",
            "one request runs at a time, and this many may wait",
            flags=("--multiuser",),
            takes="optional",
        ),
        Known(
            "--admin",
            "it can be asked to unload its model, when --admindir is set too",
            flags=("--admin",),
            takes="nothing",
        ),
        Known("--admindir", "the configurations that it can be told to change to", flags=("--admindir",)),
        Known(
            "--adminpassword",
            "unloading wants a password, which belongs in the tenant file",
            flags=("--adminpassword",),
            secret=True,
        ),
        Known(
            "--password",
            "only callers with this password are told which model is loaded",
            flags=("--password",),
            secret=True,
        ),
        # Both later than 1.102: told by its own documentation, not seen in its source.
        Known("--adminunloadtimeout", _unload, flags=("--adminunloadtimeout",)),
        Known(
            "--routermode",
            "a request for another model or configuration loads that one: VRAM may be taken at any time",
            flags=("--routermode",),
            takes="nothing",
        ),
        Known(
            "--tensor_split",
            "how much of the model each GPU holds",
            flags=("--tensor_split", "--tensorsplit", "--tensor-split", "-ts"),
            takes="many",
        ),
        Known(
            "--moecpu",
            "experts of this many layers (all without a number) stay in system memory: it holds less VRAM",
            flags=("--moecpu", "--n-cpu-moe", "-ncmoe"),
            takes="optional",
        ),
        Known(
            "--draftmodel",
            "a second, smaller model is held in VRAM too",
            flags=("--draftmodel", "--model-draft", "-md"),
        ),
        Known("--mmproj", "a vision part is held in VRAM too", flags=("--mmproj",)),
        Known("--sdmodel", "an image model is loaded beside the text model", flags=("--sdmodel",)),
        Known("--whispermodel", "a speech model is loaded beside the text model", flags=("--whispermodel",)),
        Known("admin level", _admin),
        *GGML,
    ),
    calls=(Call("/api/extra/version", version="version", tells=(("admin level", "admin"),)),),
)
