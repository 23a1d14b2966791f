"""Speaches (faster-whisper-server): environment variables (its Config); its API does not tell them."""

from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES, PROTECTED_API
from gpusupervisor.engines.values import integer, spoken


def _ttl(facts: Facts) -> str:
    seconds = integer(facts.value)
    if seconds is None:
        return ""
    if seconds < 0:
        return "such models stay loaded until it is asked to give them back"
    if seconds == 0:
        return "such models are unloaded as soon as a request ends"
    return f"such models are unloaded after {spoken(seconds)} without a request"


TABLE = Table(
    engine="speaches",
    grammar=EXACT,
    settings=(
        Known("STT_MODEL_TTL", _ttl, variables=("STT_MODEL_TTL", "WHISPER__TTL")),
        Known("TTS_MODEL_TTL", _ttl, variables=("TTS_MODEL_TTL",)),
        Known("VAD_MODEL_TTL", _ttl, variables=("VAD_MODEL_TTL",)),
        Known(
            "WHISPER__INFERENCE_DEVICE",
            lambda facts: "it works on the CPU and holds no VRAM" if facts.value == "cpu" else "where models run",
            variables=("WHISPER__INFERENCE_DEVICE",),
        ),
        Known(
            "WHISPER__COMPUTE_TYPE",
            "how models are held: int8 takes half of float16",
            variables=("WHISPER__COMPUTE_TYPE",),
        ),
        Known(
            "WHISPER__NUM_WORKERS", "this many requests of one model run at once", variables=("WHISPER__NUM_WORKERS",)
        ),
        Known("PRELOAD_MODELS", "these models are loaded when it starts", variables=("PRELOAD_MODELS",)),
        Known("API_KEY", PROTECTED_API, variables=("API_KEY",), is_set=bool, secret=True),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/api/ps"),),
)
