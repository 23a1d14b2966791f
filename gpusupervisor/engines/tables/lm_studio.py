"""LM Studio: set in its own window; neither its command line nor its environment says much."""

from gpusupervisor.engines.table import EXACT, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES

TABLE = Table(
    engine="lm-studio",
    grammar=EXACT,
    settings=(
        Known("--ttl", "a model loaded so is unloaded after this many seconds without a request", flags=("--ttl",)),
        CUDA_VISIBLE_DEVICES,
    ),
)
