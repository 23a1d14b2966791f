"""TabbyAPI: config.yml, or flags of the same names with dashes; it has no API for its settings."""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH, switched
from gpusupervisor.engines.values import integer

_FILE = "what is not said otherwise is set in this file"


def _cache(facts: Facts) -> str:
    size = integer(facts.value)
    return f"room for {size} tokens is held from the load on" if size is not None else ""


TABLE = Table(
    engine="tabbyapi",
    grammar=ARGPARSE,
    settings=(
        Known("--config", _FILE, flags=("--config",)),
        Known("--model-name", "this model is loaded when it starts, and held", flags=("--model-name",)),
        Known(
            "--inline-model-loading",
            switched("a request for another model loads that: VRAM may be taken at any time", ""),
            flags=("--inline-model-loading",),
        ),
        Known("--max-seq-len", "the longest context", flags=("--max-seq-len",)),
        Known("--cache-size", _cache, flags=("--cache-size",)),
        Known("--cache-mode", "how contexts are held: Q8 half, Q4 a quarter of FP16", flags=("--cache-mode",)),
        Known("--gpu-split", "GB on each GPU: it holds memory on each", flags=("--gpu-split",), takes="many"),
        Known("--autosplit-reserve", "MB of each GPU that are left free", flags=("--autosplit-reserve",), takes="many"),
        Known(
            "--disable-auth",
            switched(
                "nobody needs a key: it can be asked to unload", "it wants a key that the supervisor does not have"
            ),
            flags=("--disable-auth",),
            takes="optional",
        ),
        *TORCH,
    ),
    calls=(Call("/.well-known/serviceinfo", version="software.version"),),
)
