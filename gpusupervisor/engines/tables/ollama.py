"""Ollama: everything is set by environment variables of the server (its envconfig package)."""

from urllib.parse import urlsplit

from gpusupervisor.engine_http import is_local
from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, since
from gpusupervisor.engines.values import clean, integer, is_off, is_unsigned, keep_alive, ollama_on, spoken
from gpusupervisor.quantities import format_bytes
from gpusupervisor.tenants.release.versions import at_least

FOR_EVER_FROM = 100 * 365 * 24 * 3600.0
"""Seconds: more is what Ollama makes of a negative duration."""
_QUANTIZED = ("q8_0", "q4_0")


def _given(text: str) -> bool:
    """Ollama takes an empty variable for none."""
    return bool(clean(text))


def _listens(facts: Facts) -> str:
    text = clean(facts.value)
    url = text if "://" in text else f"http://{text}"
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    if not host or is_local(f"http://[{host}]" if ":" in host else f"http://{host}"):
        return "it listens here, and is asked here"
    return f"it only listens at {host}, which is not asked automatically: set it as url in a tenant file"


def _parallel(facts: Facts) -> str:
    """server/sched.go: 0 is the same as 1 since v0.12.0."""
    count = integer(clean(facts.value)) or 0
    if count == 1 or (count == 0 and at_least(facts.version, "0.12.0")):
        return "one request at a time for each model: an unload waits behind a generation that is running"
    if count == 0:
        return "Ollama before 0.12 chooses how many requests run at once by the VRAM that is free; later ones run one"
    return f"{count} requests at a time for each model: VRAM for {count} contexts is held, and an unload waits for all"


def _loaded(facts: Facts) -> str:
    count = integer(clean(facts.value)) or 0
    if count == 1:
        return "one model at a time: every change of model evicts the one that is loaded"
    if count == 0:
        return "up to three models for each GPU, as far as they fit; a model that does not fit evicts idle ones"
    return f"up to {count} models at a time: an idle one stays until another needs its room"


def _keep(facts: Facts) -> str:
    seconds = keep_alive(facts.value)
    if seconds is None or seconds == 0:
        return "models are unloaded as soon as a request ends: it holds nothing when it is idle"
    if seconds < 0 or seconds > FOR_EVER_FROM:
        return "models stay loaded for ever: they count as pinned, and are released only where that is allowed"
    return f"an idle model stays loaded for {spoken(seconds)}, unless a client asks otherwise"


def _flash(facts: Facts) -> str:
    if ollama_on(facts.value):
        return "contexts need less VRAM, and OLLAMA_KV_CACHE_TYPE has an effect"
    return "contexts need more VRAM, and OLLAMA_KV_CACHE_TYPE has no effect"


def _cache(facts: Facts) -> str:
    kind = clean(facts.value).lower()
    flash = facts.known.get("OLLAMA_FLASH_ATTENTION")
    if kind not in _QUANTIZED:
        return (
            "contexts are held in full precision" if kind in ("f16", "f32", "bf16") else f"contexts are held as {kind}"
        )
    if flash is not None and not ollama_on(flash):
        if at_least(facts.version, "0.30.0"):  # passed on to llama-server, which refuses it
            return "models cannot be loaded: it needs flash attention, which OLLAMA_FLASH_ATTENTION turns off"
        return "no effect: it needs flash attention, which OLLAMA_FLASH_ATTENTION turns off"
    share = "half" if kind == "q8_0" else "a quarter"
    if flash is None:
        return f"contexts take {share} of the VRAM, but only with flash attention, which is left to Ollama here"
    return f"contexts take {share} of the VRAM that they would take in full precision"


def _overhead(facts: Facts) -> str:
    size = integer(clean(facts.value)) or 0
    return f"{format_bytes(size)} of each GPU are left free when it works out whether a model fits" if size else ""


def _spread(facts: Facts) -> str:
    if ollama_on(facts.value):
        return "every model is spread over all GPUs, and holds VRAM on each of them"
    return "a model that fits on one GPU is placed on one"


def _context(facts: Facts) -> str:
    size = integer(clean(facts.value)) or 0
    return f"contexts of {size} tokens, unless a request asks otherwise: the larger, the more VRAM" if size else ""


def _patience(facts: Facts) -> str:
    seconds = keep_alive(facts.value)
    if seconds is None:
        return ""
    return (
        f"a load that makes no progress is given up after {spoken(seconds)}"
        if seconds > 0
        else "a load that makes no progress is never given up"
    )


def _variable(name: str, **more: object) -> Known:
    return Known(name, variables=(name,), is_set=_given, **more)  # type: ignore[arg-type]


TABLE = Table(
    engine="ollama",
    grammar=EXACT,
    settings=(
        _variable("OLLAMA_HOST", meaning=_listens),
        _variable(
            "OLLAMA_NUM_PARALLEL",
            meaning=_parallel,
            understood=is_unsigned,
            default=lambda facts: since("0.10.0", "1", facts),
        ),
        _variable(
            "OLLAMA_MAX_LOADED_MODELS",
            meaning=_loaded,
            understood=is_unsigned,
            default=lambda facts: since("0.2.0", "0", facts),
        ),
        _variable(
            "OLLAMA_KEEP_ALIVE",
            meaning=_keep,
            understood=lambda text: keep_alive(text) is not None,
            default=lambda facts: since("0.1.33", "5m", facts),
        ),
        _variable("OLLAMA_FLASH_ATTENTION", meaning=_flash),
        _variable("OLLAMA_KV_CACHE_TYPE", meaning=_cache),
        _variable("OLLAMA_GPU_OVERHEAD", meaning=_overhead, understood=is_unsigned),
        _variable("OLLAMA_SCHED_SPREAD", meaning=_spread),
        _variable("OLLAMA_CONTEXT_LENGTH", meaning=_context, understood=is_unsigned),
        _variable(
            "OLLAMA_MAX_QUEUE",
            meaning="a request is refused while this many others are waiting",
            understood=is_unsigned,
        ),
        _variable("OLLAMA_LOAD_TIMEOUT", meaning=_patience, understood=lambda text: keep_alive(text) is not None),
        _variable(
            "OLLAMA_LLM_LIBRARY",
            meaning=lambda facts: (
                "models run on the CPU and hold no VRAM"
                if clean(facts.value).startswith("cpu")
                else f"models run with {clean(facts.value)} or not on a GPU at all"
            ),
        ),
        _variable(
            "OLLAMA_MODELS", meaning="its model files are here; they load fast while they are cached in system memory"
        ),
        # Its llama-server inherits it since v0.30.0 (llm/llama_server.go).
        _variable(
            "LLAMA_ARG_FIT",
            meaning=lambda facts: (
                "models are not fitted to the VRAM that is free: they fail to load when they do not fit"
                if is_off(facts.value)
                else "models are fitted to the VRAM that is free when they load: make room before, not after"
            ),
        ),
        _variable(
            "LLAMA_ARG_FIT_TARGET",
            meaning="this many MiB of each GPU are left free when it chooses how much of a model goes into VRAM",
        ),
        *GGML,
    ),
    calls=(Call("/api/version", version="version"),),
)
