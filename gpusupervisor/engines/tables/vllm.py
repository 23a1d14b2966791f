"""vLLM: flags of `vllm serve` (EngineArgs, AsyncEngineArgs) and VLLM_ variables; checked against 0.33.0.

Its /server_info would tell them all, but only in its development mode and only as Python's text or by a query.
"""

from dataclasses import replace

from gpusupervisor.engines.table import FLEXIBLE_ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES, TORCH_ALLOCATOR, expands, since
from gpusupervisor.engines.values import integer, number
from gpusupervisor.tenants.release.versions import at_least

_TAKES_ALL = "until its unit is stopped"


def _share(facts: Facts) -> str:
    share = number(facts.value)
    if share is None:
        return ""
    return f"it takes {share:.0%} of the card when it starts, busy or idle, and does not start when that is not free"


def _usual_share(facts: Facts) -> str | None:
    """vllm/config/cache.py: 0.92 in 0.25.0 and later, 0.9 up to 0.11; which of those in between is not known here."""
    if at_least(facts.version, "0.25.0"):
        return "0.92"
    return since("0.4.0", "0.9", facts) if not at_least(facts.version, "0.12.0") else None


def _sleep(facts: Facts) -> str:
    if facts.value == "false":
        return f"it has no sleep mode: what it holds cannot be asked for {_TAKES_ALL}"
    if integer(facts.known.get("VLLM_SERVER_DEV_MODE", "0")) != 1:
        return (
            f"no effect: without VLLM_SERVER_DEV_MODE=1 it cannot be asked to sleep, and holds its memory {_TAKES_ALL}"
        )
    return "it can be asked to sleep, and wakes only when it is told to; without mode=wait that aborts running requests"


def _developing(facts: Facts) -> str:
    if integer(facts.value) != 1:
        return ""
    if facts.known.get("--enable-sleep-mode", "false") == "false":
        return "no use here: without --enable-sleep-mode, /sleep stops its work and gives no VRAM back"
    return "everyone who can reach its port can put it to sleep and wake it"


def _allocator(facts: Facts) -> str:
    """It is switched off around what sleeps in 0.33.0 (vllm/config/vllm.py, which names #40812 for that)."""
    if expands(facts):
        return "PyTorch loses less VRAM to fragmentation; earlier versions of vLLM cannot sleep with it"
    return TORCH_ALLOCATOR.means(facts)


TABLE = Table(
    engine="vllm",
    checked_against="0.33.0",
    grammar=FLEXIBLE_ARGPARSE,
    settings=(
        Known("--config", "settings that its command line does not give come from this file", flags=("--config",)),
        Known(
            "--gpu-memory-utilization",
            _share,
            flags=("--gpu-memory-utilization", "--device-memory-utilization"),
            default=_usual_share,
        ),
        Known(
            "--enable-sleep-mode",
            _sleep,
            flags=("--enable-sleep-mode",),
            unset_by=("--no-enable-sleep-mode",),
            takes="nothing",
            default=lambda facts: since("0.7.0", "false", facts),
        ),
        Known(
            "--enable-cumem-allocator",
            "its memory can be given back piece by piece, as with --enable-sleep-mode",
            flags=("--enable-cumem-allocator",),
            unset_by=("--no-enable-cumem-allocator",),
            takes="nothing",
        ),
        Known("--sleep-mode-backend", "how its memory is given back when it sleeps", flags=("--sleep-mode-backend",)),
        Known(
            "--kv-offloading-size",
            "contexts that are not in use are kept in this many GiB of system memory",
            flags=("--kv-offloading-size",),
        ),
        Known("VLLM_SERVER_DEV_MODE", _developing, variables=("VLLM_SERVER_DEV_MODE",)),
        Known(
            "--kv-cache-memory-bytes",
            "contexts get this much VRAM, whatever --gpu-memory-utilization says",
            flags=("--kv-cache-memory-bytes", "--kv-cache-memory"),
        ),
        Known(
            "--max-model-len",
            "one context of this many tokens must fit into its VRAM, or it does not start",
            flags=("--max-model-len",),
        ),
        Known("--max-num-seqs", "this many requests run at once", flags=("--max-num-seqs",)),
        Known("--kv-cache-dtype", "how contexts are held: fp8 takes half of 16 bits", flags=("--kv-cache-dtype",)),
        Known(
            "--tensor-parallel-size",
            "the model is split over this many GPUs, and held on each",
            flags=("-tp", "--tensor-parallel-size"),
        ),
        Known("--device-ids", "it uses these GPUs alone", flags=("--device-ids",)),
        Known(
            "--cpu-offload-gb",
            "this many GiB of the model stay in system memory: it needs less VRAM, and is slower",
            flags=("--cpu-offload-gb",),
        ),
        Known(
            "--enforce-eager",
            "no CUDA graphs: it holds a little less VRAM, and is slower",
            flags=("--enforce-eager",),
            takes="nothing",
        ),
        Known(  # guards /v1 and what serves models beside it, not /metrics, /version and /sleep
            "--api-key",
            "its list of models wants a key: without that key in the tenant file its models are not known",
            flags=("--api-key",),
            variables=("VLLM_API_KEY",),
            takes="many",
            secret=True,
        ),
        CUDA_VISIBLE_DEVICES,
        replace(TORCH_ALLOCATOR, meaning=_allocator),
    ),
    calls=(Call("/version", version="version"),),
)
