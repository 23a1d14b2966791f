"""Speaches (once faster-whisper-server): environment variables (src/speaches/config.py of v0.9); no API tells them."""

from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import CUDA_VISIBLE_DEVICES, PROTECTED_API
from gpusupervisor.engines.values import integer, spoken


def _ttl(name: str, kind: str, *earlier: str) -> Known:
    """How long models of a kind stay after their last request."""

    def meaning(facts: Facts) -> str:
        seconds = integer(facts.value)
        if seconds is None:
            return ""
        if seconds < 0:
            return f"{kind} models stay loaded until it is asked to give them back"
        if seconds == 0:
            return f"{kind} models are unloaded as soon as a request ends"
        return f"{kind} models are unloaded after {spoken(seconds)} without a request"

    return Known(name, meaning, variables=(name, *earlier))


TABLE = Table(
    engine="speaches",
    checked_against="v0.9",
    grammar=EXACT,
    settings=(
        _ttl("STT_MODEL_TTL", "speech-to-text", "WHISPER__TTL"),  # the earlier name: up to v0.8
        _ttl("TTS_MODEL_TTL", "text-to-speech"),
        _ttl("VAD_MODEL_TTL", "voice detection"),
        Known(
            "WHISPER__INFERENCE_DEVICE",
            lambda facts: (
                "Whisper models run on the CPU and hold no VRAM"
                if facts.value == "cpu"
                else "Whisper models run on the GPU where there is one"
            ),
            variables=("WHISPER__INFERENCE_DEVICE",),
        ),
        Known("WHISPER__DEVICE_INDEX", "the GPU of Whisper models", variables=("WHISPER__DEVICE_INDEX",)),
        Known(
            "WHISPER__COMPUTE_TYPE",
            "how Whisper models are held: int8 takes half of float16",
            variables=("WHISPER__COMPUTE_TYPE",),
        ),
        Known(
            "WHISPER__NUM_WORKERS",
            "this many requests of one Whisper model run at once",
            variables=("WHISPER__NUM_WORKERS",),
        ),
        Known(
            "PRELOAD_MODELS",
            "it downloads these models when it starts, without loading them; versions up to 0.6 load them",
            variables=("PRELOAD_MODELS",),
        ),
        Known("API_KEY", PROTECTED_API, variables=("API_KEY",), is_set=bool, secret=True),
        CUDA_VISIBLE_DEVICES,
    ),
    calls=(Call("/api/ps"),),
)
