"""vLLM: flags of `vllm serve` (EngineArgs, AsyncEngineArgs) and VLLM_ variables."""

from gpusupervisor.engines.table import FLEXIBLE_ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import PROTECTED_API, TORCH, since
from gpusupervisor.engines.values import integer, number

_TAKES_ALL = "until its unit is stopped"


def _share(facts: Facts) -> str:
    share = number(facts.value)
    if share is None:
        return ""
    return f"it takes {share:.0%} of the card when it starts, busy or idle, and does not start when that is not free"


def _sleep(facts: Facts) -> str:
    if facts.value == "false":
        return f"it has no sleep mode: what it holds cannot be asked for {_TAKES_ALL}"
    if integer(facts.known.get("VLLM_SERVER_DEV_MODE", "0")) != 1:
        return (
            f"no effect: without VLLM_SERVER_DEV_MODE=1 it cannot be asked to sleep, and holds its memory {_TAKES_ALL}"
        )
    return "it can be asked to sleep, which aborts requests that are running; it wakes only when it is told to"


def _developing(facts: Facts) -> str:
    if integer(facts.value) != 1:
        return ""
    if "--enable-sleep-mode" not in facts.known:
        return "no effect here: /sleep needs --enable-sleep-mode too"
    return "/sleep and /wake_up can be reached, by everybody who reaches its port"


TABLE = Table(
    engine="vllm",
    grammar=FLEXIBLE_ARGPARSE,
    settings=(
        Known(
            "--gpu-memory-utilization",
            _share,
            flags=("--gpu-memory-utilization",),
            default=lambda facts: since("0.4.0", "0.9", facts),
        ),
        Known(
            "--enable-sleep-mode",
            _sleep,
            flags=("--enable-sleep-mode",),
            unset_by=("--no-enable-sleep-mode",),
            takes="nothing",
            default=lambda facts: since("0.7.0", "false", facts),
        ),
        Known("VLLM_SERVER_DEV_MODE", _developing, variables=("VLLM_SERVER_DEV_MODE",)),
        Known(
            "--kv-cache-memory-bytes",
            "contexts get this much VRAM, whatever share of the card is set",
            flags=("--kv-cache-memory-bytes", "--kv-cache-memory"),
        ),
        Known(
            "--max-model-len", "contexts of this many tokens must fit, or it does not start", flags=("--max-model-len",)
        ),
        Known("--max-num-seqs", "this many requests run at once", flags=("--max-num-seqs",)),
        Known("--kv-cache-dtype", "how contexts are held: fp8 takes half", flags=("--kv-cache-dtype",)),
        Known(
            "--tensor-parallel-size",
            "the model is shared out among this many GPUs, and holds memory on each",
            flags=("-tp", "--tensor-parallel-size"),
        ),
        Known("--cpu-offload-gb", "so much of the model stays in system memory", flags=("--cpu-offload-gb",)),
        Known(
            "--enforce-eager",
            "no CUDA graphs: it holds a little less, and is slower",
            flags=("--enforce-eager",),
            takes="nothing",
        ),
        Known("--api-key", PROTECTED_API, flags=("--api-key",), variables=("VLLM_API_KEY",), takes="many", secret=True),
        *TORCH,
    ),
    calls=(Call("/version", version="version"),),
)
