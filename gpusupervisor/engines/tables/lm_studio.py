"""LM Studio: set in its own window; neither its command line nor its environment says much."""

from gpusupervisor.engines.table import EXACT, Call, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES

TABLE = Table(
    engine="lm-studio",
    grammar=EXACT,
    settings=(
        Known("--ttl", "a model loaded so is unloaded after this many seconds without a request", flags=("--ttl",)),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/v1/models"),),  # the list alone loads nothing; what it is set to, it does not tell
)
