"""Lemonade: flags of lemond, LEMONADE_ variables, and /v1/health; checked against its sources of 2026-08.

What decides is in its config.json, which is changed while it runs; /v1/health tells what of it is in force.
"""

from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES, PROTECTED_API
from gpusupervisor.engines.values import integer


def _most(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one language model at a time: every change of model evicts the one that is loaded"
    if count is None:
        return ""
    if count < 0:
        return "any number of language models may be loaded at once: it evicts none by their number"
    return f"up to {count} language models are loaded at once: the one that was used longest ago is evicted"


TABLE = Table(
    engine="lemonade",
    checked_against="of 2026-08",
    grammar=EXACT,
    settings=(
        Known("--host", "it listens here", flags=("--host",)),
        Known("LEMONADE_API_KEY", PROTECTED_API, variables=("LEMONADE_API_KEY",), secret=True),
        Known("max_loaded_models", _most),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/v1/health", version="version", tells=(("max_loaded_models", "max_models.llm"),)),),
)
