"""SGLang: flags of `sglang serve` and `python -m sglang.launch_server` (ServerArgs), and /server_info.

Checked against 0.5.23.
"""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import PROTECTED_API, TORCH, switched
from gpusupervisor.engines.values import is_on, number

_SAVER = "--enable-memory-saver"
_BACKUP = "--enable-weights-cpu-backup"


def _share(facts: Facts) -> str:
    share = number(facts.value)
    if share is None:
        return ""
    return (
        f"the model and contexts take {share:.0%} of the card when it starts, busy or idle; its work takes more on top"
    )


def _saver(facts: Facts) -> str:
    if not is_on(facts.value):
        return "it cannot give memory back: what it holds is held until its unit is stopped"
    lost = (
        ""
        if is_on(facts.known.get(_BACKUP, "false"))
        else f"; without {_BACKUP} the model has to be loaded again afterwards"
    )
    return f"its memory can be asked for only while it is wholly idle: asked while it works, it crashes{lost}"


TABLE = Table(
    engine="sglang",
    checked_against="0.5.23",
    grammar=ARGPARSE,
    settings=(
        Known("--config", "settings that its command line does not give come from this file", flags=("--config",)),
        Known("--mem-fraction-static", _share, flags=("--mem-fraction-static",)),
        Known(_SAVER, _saver, flags=(_SAVER,), takes="nothing"),
        Known(
            _BACKUP,
            switched("a copy of the model stays in system memory, to be restored after its VRAM was given back"),
            flags=(_BACKUP,),
            takes="nothing",
        ),
        Known("--max-running-requests", "this many requests run at once", flags=("--max-running-requests",)),
        Known(
            "--max-total-tokens",
            "VRAM for contexts of this many tokens in all is held from the start",
            flags=("--max-total-tokens",),
        ),
        Known("--context-length", "the longest context of one request", flags=("--context-length",)),
        Known("--kv-cache-dtype", "how contexts are held: fp8 takes half of 16 bits", flags=("--kv-cache-dtype",)),
        Known(
            "--tp-size",
            "the model is split over this many GPUs, and held on each",
            flags=("--tp-size", "--tensor-parallel-size"),  # --tp is its beginning
        ),
        Known("--base-gpu-id", "the first GPU that it uses", flags=("--base-gpu-id",)),
        Known(
            "--cpu-offload-gb",
            "this many GB of the model stay in system memory: it needs less VRAM, and is slower",
            flags=("--cpu-offload-gb",),
        ),
        Known(
            "--enable-metrics",
            switched(
                "it counts its requests at /metrics",
                "no /metrics: it can be seen to work, but is never known to be idle, and so is asked for nothing",
            ),
            flags=("--enable-metrics",),
            takes="nothing",
        ),
        # /metrics and /health stay open with either (srt/utils/auth.py).
        Known("--api-key", PROTECTED_API, flags=("--api-key",), secret=True),
        Known(
            "--admin-api-key",
            "giving memory back wants a key, which belongs in the tenant file",
            flags=("--admin-api-key",),
            secret=True,
        ),
        *TORCH,
    ),
    calls=(
        Call(
            "/server_info",
            older="/get_server_info",
            version="version",
            tells=(
                ("--mem-fraction-static", "mem_fraction_static"),
                (_SAVER, "enable_memory_saver"),
                (_BACKUP, "enable_weights_cpu_backup"),
                ("--enable-metrics", "enable_metrics"),
                ("--max-total-tokens", "max_total_num_tokens"),
            ),
        ),
    ),
)
