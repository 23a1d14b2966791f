"""SGLang: flags of `python -m sglang.launch_server` (ServerArgs), and /get_server_info."""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import PROTECTED_API, TORCH, switched
from gpusupervisor.engines.values import number

_SAVER = "--enable-memory-saver"


def _share(facts: Facts) -> str:
    share = number(facts.value)
    return (
        f"weights and contexts take {share:.0%} of the card from its start on, busy or idle"
        if share is not None
        else ""
    )


TABLE = Table(
    engine="sglang",
    grammar=ARGPARSE,
    settings=(
        Known("--mem-fraction-static", _share, flags=("--mem-fraction-static",)),
        Known(
            _SAVER,
            switched(
                "its memory can be asked for only while it is wholly idle: asked while it works, it dies",
                "it cannot give memory back: what it holds is held until its unit is stopped",
            ),
            flags=(_SAVER,),
            takes="nothing",
        ),
        Known("--max-running-requests", "this many requests run at once", flags=("--max-running-requests",)),
        Known("--max-total-tokens", "room for so many tokens is held from the start", flags=("--max-total-tokens",)),
        Known("--context-length", "the longest context", flags=("--context-length",)),
        Known("--kv-cache-dtype", "how contexts are held: fp8 takes half", flags=("--kv-cache-dtype",)),
        Known(
            "--tp-size",
            "the model is shared out among this many GPUs, and holds memory on each",
            flags=("--tp", "--tp-size", "--tensor-parallel-size"),
        ),
        Known("--base-gpu-id", "the first GPU that it uses", flags=("--base-gpu-id",)),
        Known("--cpu-offload-gb", "so much of the model stays in system memory", flags=("--cpu-offload-gb",)),
        Known(
            "--enable-metrics",
            switched(
                "it counts its requests at /metrics", "no /metrics: whether it works is read from its use of the GPU"
            ),
            flags=("--enable-metrics",),
            takes="nothing",
        ),
        Known("--api-key", PROTECTED_API, flags=("--api-key",), secret=True),
        Known("--admin-api-key", PROTECTED_API, flags=("--admin-api-key",), secret=True),
        *TORCH,
    ),
    calls=(
        Call(
            "/get_server_info",
            version="version",
            tells=(
                ("--mem-fraction-static", "mem_fraction_static"),
                (_SAVER, "enable_memory_saver"),
                ("--enable-metrics", "enable_metrics"),
                ("--max-total-tokens", "max_total_num_tokens"),
            ),
        ),
    ),
)
