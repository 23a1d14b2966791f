"""llama-swap: what decides is in its configuration files, which are named and not read (llama-swap.go of v250)."""

from gpusupervisor.engines.table import GO_FLAG, Call, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES

_FILES = "which models there are, their ttl (0: loaded until another needs the place) and which may be loaded together"

TABLE = Table(
    engine="llama-swap",
    grammar=GO_FLAG,
    settings=(
        Known("--config", f"this file says {_FILES}", flags=("--config",)),
        Known("--config-dir", f"the .yaml files in this folder add to {_FILES}", flags=("--config-dir",)),
        Known("--listen", "it listens here, and is asked here", flags=("--listen",)),
        Known(
            "--tls-cert-file",
            "it speaks HTTPS: it is asked only where the tenant file has an https:// url",
            flags=("--tls-cert-file",),
        ),
        Known(
            "--watch-config",
            "when its file changes it starts afresh: every model is unloaded",
            flags=("--watch-config",),
            takes="nothing",
        ),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/api/version", version="version"),),
)
