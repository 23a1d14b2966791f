"""InvokeAI: INVOKEAI_ variables over invokeai.yaml (InvokeAIAppConfig of v6.14); the running values by its API.

invokeai.yaml lies in the folder of --root or INVOKEAI_ROOT, else beside its virtual environment, else in ~/invokeai.
"""

from gpusupervisor.engines.table import ARGPARSE, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import TORCH, switched
from gpusupervisor.engines.values import number, spoken


def _size(facts: Facts, text: str) -> str:
    size = number(facts.value)
    return text.format(f"{size:g} GB") if size is not None else ""


def _keep(facts: Facts) -> str:
    minutes = number(facts.value)
    if minutes is None:
        return ""
    if minutes == 0:
        return "models stay loaded until it is asked to give them back"
    return f"models are unloaded after {spoken(60 * minutes)} without use"


def _device(facts: Facts) -> str:
    if facts.value == "auto":
        return "it uses a GPU where there is one"
    return "it works on the CPU and holds no VRAM" if facts.value == "cpu" else f"it runs on {facts.value}"


def _setting(name: str, meaning: object) -> Known:
    """An empty variable counts as not set (env_ignore_empty)."""
    return Known(name, meaning, variables=(f"INVOKEAI_{name.upper()}",), is_set=bool, keys=(name,))  # type: ignore[arg-type]


_NAMES = (
    "max_cache_vram_gb",
    "max_cache_ram_gb",
    "device_working_mem_gb",
    "enable_partial_loading",
    "keep_ram_copy_of_weights",
    "model_cache_keep_alive_min",
    "device",
    "generation_devices",
)

TABLE = Table(
    engine="invokeai",
    checked_against="6.14.2",
    grammar=ARGPARSE,
    settings=(
        Known("--config", "settings that no variable gives come from this file", flags=("--config",)),
        Known(
            "--root",
            "settings that no variable gives come from invokeai.yaml in this folder",
            flags=("--root",),
            variables=("INVOKEAI_ROOT",),
            is_set=bool,
        ),
        _setting(
            "max_cache_vram_gb",
            lambda facts: _size(facts, "models take at most {} of VRAM, and keep it when it is idle"),
        ),
        _setting(
            "max_cache_ram_gb", lambda facts: _size(facts, "models are kept in {} of system memory for fast loads")
        ),
        _setting("device_working_mem_gb", lambda facts: _size(facts, "its models leave {} of VRAM free for its work")),
        _setting(
            "enable_partial_loading",
            switched(
                "a model that does not fit is loaded in part, and runs slowly",
                "a model that does not fit fails to load",
            ),
        ),
        _setting(
            "keep_ram_copy_of_weights",
            switched(
                "models in VRAM stay in system memory too: giving VRAM back and taking it again is fast",
                "giving VRAM back and taking it again is slow",
            ),
        ),
        _setting("model_cache_keep_alive_min", _keep),  # since v6.10
        _setting("device", _device),
        _setting(
            "generation_devices",  # since v6.14; a list is not told by its API as text
            lambda facts: (
                "it works on all GPUs at once" if facts.value == "auto" else "it works on these devices at once"
            ),
        ),
        _setting("pytorch_cuda_alloc_conf", "how PyTorch manages its VRAM"),
        *TORCH,
    ),
    calls=(
        Call("/api/v1/app/version", version="version"),
        Call("/api/v1/app/runtime_config", tells=tuple((name, f"config.{name}") for name in _NAMES)),
    ),
)
