"""llama-swap: what decides is in its configuration file, which is named and not read."""

from gpusupervisor.engines.table import GO_FLAG, Call, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES

TABLE = Table(
    engine="llama-swap",
    grammar=GO_FLAG,
    settings=(
        Known(
            "--config",
            "this file says which models there are, their ttl (0: until another is wanted) and which go together",
            flags=("--config",),
        ),
        Known("--listen", "where it listens, and where it is asked", flags=("--listen",)),
        Known(
            "--watch-config",
            "a change of its file restarts it: every model is unloaded",
            flags=("--watch-config",),
            takes="nothing",
        ),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/api/version", version="version"),),
)
