"""TabbyAPI: config.yml, TABBY_ variables, or flags; and the loaded model's own values in /v1/model.

common/tabby_config.py of 2026-08: config.yml lies in the folder that it is started in; a variable beats it, and a flag
beats both. With --config FILE that file takes the place of config.yml, beats the variables, and no other flag counts.
"""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table, Takes
from gpusupervisor.engines.tables.common import TORCH, switched
from gpusupervisor.engines.values import integer


def _cache(facts: Facts) -> str:
    size = integer(facts.value)
    return (
        f"VRAM for contexts of {size} tokens in all is taken when the model loads, and kept" if size is not None else ""
    )


def _setting(flag: str, section: str, meaning: object, takes: Takes = "one") -> Known:
    variable = f"TABBY_{section}_{flag.removeprefix('--').replace('-', '_')}".upper()
    key = f"{section}.{flag.removeprefix('--').replace('-', '_')}"
    return Known(flag, meaning, flags=(flag,), takes=takes, variables=(variable,), keys=(key,))  # type: ignore[arg-type]


TABLE = Table(
    engine="tabbyapi",
    checked_against="of 2026-08",
    grammar=ARGPARSE,
    settings=(
        Known(
            "--config", "all of its settings are in this file, and its other flags do not count", flags=("--config",)
        ),
        _setting("--model-name", "model", "this model is loaded when it starts, and held"),
        _setting(
            "--inline-model-loading",
            "model",
            switched("a request for another model loads that one: VRAM may be taken at any time"),
        ),
        _setting("--max-seq-len", "model", "the longest context of one request"),
        _setting("--cache-size", "model", _cache),
        _setting("--cache-mode", "model", "how contexts are held: Q8 (8,8) takes half, Q4 (4,4) a quarter of FP16"),
        _setting("--max-batch-size", "model", "this many requests run at once"),
        _setting("--gpu-split", "model", "GB on each GPU: it holds VRAM on each", takes="many"),
        _setting("--autosplit-reserve", "model", "this many MB of each GPU are left free when it loads", takes="many"),
        _setting("--tensor-parallel", "model", switched("the model is split over the GPUs, and held on each")),
        _setting("--draft-model-name", "draft_model", "a second, smaller model is held in VRAM too"),
        _setting(
            "--disable-auth",
            "network",
            switched(
                "nobody needs a key: it can be asked to unload",
                "it wants a key: without that key in the tenant file it cannot be asked",
            ),
        ),
        *TORCH,
    ),
    calls=(
        Call("/.well-known/serviceinfo"),  # open to everybody; it has no version
        Call(
            "/v1/model",
            tells=(
                ("--max-seq-len", "parameters.max_seq_len"),
                ("--cache-size", "parameters.cache_size"),
                ("--cache-mode", "parameters.cache_mode"),
                ("--max-batch-size", "parameters.max_batch_size"),
            ),
        ),
    ),
)
