"""llama-swap: flags of llama-swap.go (v250), and what its configuration file says for all models."""

from gpusupervisor.engines.table import GO_FLAG, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES, PROTECTED_API
from gpusupervisor.engines.values import number, spoken

_FILES = "which models there are, their ttl (0: loaded until another needs the place) and which may be loaded together"


def _idle(facts: Facts) -> str:
    spans = sorted({seconds for each in facts.value.split() if (seconds := number(each)) is not None})
    if not any(spans):
        return "models stay loaded until another needs the place"
    shown = " to ".join(dict.fromkeys((spoken(spans[0]), spoken(spans[-1]))))
    return f"models are unloaded after {shown} without a request" + (" (0: never)" if 0 in spans else "")


TABLE = Table(
    engine="llama-swap",
    checked_against="v250",
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
        Known("globalTTL", _idle, keys=("globalTTL",)),
        Known("ttl", _idle, keys=("models.*.ttl",)),
        Known("apiKeys", PROTECTED_API, keys=("apiKeys",), secret=True),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/api/version", version="version"),),
)
