"""InvokeAI: INVOKEAI_ variables over invokeai.yaml (InvokeAIAppConfig); the running values by its API."""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH, switched
from gpusupervisor.engines.values import number


def _size(facts: Facts, text: str) -> str:
    size = number(facts.value)
    return text.format(f"{size:g} GB") if size is not None else ""


def _keep(facts: Facts) -> str:
    minutes = number(facts.value)
    if minutes is None:
        return ""
    if minutes == 0:
        return "models stay loaded until it is asked to give them back"
    return f"models are unloaded after {minutes:g} minutes without use"


def _setting(name: str, meaning: object) -> Known:
    return Known(name, meaning, variables=(f"INVOKEAI_{name.upper()}",))  # type: ignore[arg-type]


_NAMES = (
    "max_cache_vram_gb",
    "max_cache_ram_gb",
    "device_working_mem_gb",
    "enable_partial_loading",
    "keep_ram_copy_of_weights",
    "lazy_offload",
    "model_cache_keep_alive_min",
    "device",
)

TABLE = Table(
    engine="invokeai",
    grammar=ARGPARSE,
    settings=(
        Known("--config", "what is not said otherwise is set in this file", flags=("--config",)),
        _setting(
            "max_cache_vram_gb", lambda facts: _size(facts, "models take {} of VRAM at most, and keep it when idle")
        ),
        _setting(
            "max_cache_ram_gb", lambda facts: _size(facts, "models are kept in {} of system memory for fast loads")
        ),
        _setting(
            "device_working_mem_gb", lambda facts: _size(facts, "it leaves {} of VRAM free of models for its work")
        ),
        _setting(
            "enable_partial_loading",
            switched("a model that does not fit is loaded in part: it runs, slowly", "a model that does not fit fails"),
        ),
        _setting(
            "keep_ram_copy_of_weights",
            switched(
                "models stay in system memory too: moving them out of VRAM is fast",
                "moving a model out of VRAM is slow",
            ),
        ),
        _setting("lazy_offload", switched("models stay in VRAM after use until room is needed", "")),
        _setting("model_cache_keep_alive_min", _keep),
        _setting("device", lambda facts: f"it uses {facts.value}" if facts.value else ""),
        _setting("pytorch_cuda_alloc_conf", "how PyTorch keeps memory for reuse"),
        *TORCH,
    ),
    calls=(
        Call("/api/v1/app/version", version="version"),
        Call("/api/v1/app/runtime_config", tells=tuple((name, f"config.{name}") for name in _NAMES)),
    ),
)
