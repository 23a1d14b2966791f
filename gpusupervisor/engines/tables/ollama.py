"""Ollama: everything is set by environment variables of the server (its envconfig package)."""

from urllib.parse import urlsplit

from gpusupervisor.engine_http import is_local
from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, since
from gpusupervisor.engines.values import clean, integer, is_unsigned, keep_alive, ollama_on, spoken
from gpusupervisor.quantities import format_bytes

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
        return "where it listens, and where it is asked"
    return f"it listens at {host} only, which is not asked by itself: name it as url in a tenant file"


def _parallel(facts: Facts) -> str:
    count = integer(clean(facts.value)) or 0
    if count == 1:
        return "one request at a time for each model: an unload waits behind a generation that is running"
    if count == 0:
        return "Ollama chooses how many requests run at once by free memory: what a model needs changes with it"
    return f"{count} requests at a time for each model: room for {count} contexts is held, and an unload waits for all"


def _loaded(facts: Facts) -> str:
    count = integer(clean(facts.value)) or 0
    if count == 1:
        return "one model at a time: every change of model evicts the one that is loaded"
    if count == 0:
        return "up to three models for each GPU, as far as they fit; a model that does not fit evicts idle ones"
    return f"up to {count} models at a time: idle ones stay until another does not fit"


def _keep(facts: Facts) -> str:
    seconds = keep_alive(facts.value)
    if seconds is None or seconds == 0:
        return "models are unloaded as soon as a request ends: idle it holds nothing"
    if seconds < 0 or seconds > FOR_EVER_FROM:
        return "models stay loaded for ever: all of them count as pinned, and are released only when that is allowed"
    return f"an idle model stays loaded for {spoken(seconds)}, unless a client asks otherwise"


def _flash(facts: Facts) -> str:
    if ollama_on(facts.value):
        return "contexts need less VRAM, and OLLAMA_KV_CACHE_TYPE has an effect"
    return "contexts need more VRAM, and OLLAMA_KV_CACHE_TYPE has no effect"


def _cache(facts: Facts) -> str:
    kind = clean(facts.value).lower()
    flash = facts.known.get("OLLAMA_FLASH_ATTENTION")
    if kind not in _QUANTIZED:
        return "contexts are held in full precision"
    if flash is not None and not ollama_on(flash):
        return "no effect: it needs flash attention, which OLLAMA_FLASH_ATTENTION turns off"
    share = "half" if kind == "q8_0" else "a quarter"
    if flash is None:
        return f"contexts take {share} of the VRAM, but only where flash attention is on, which is not set here"
    return f"contexts take {share} of the VRAM that they would in full precision"


def _overhead(facts: Facts) -> str:
    size = integer(clean(facts.value)) or 0
    return f"{format_bytes(size)} of each GPU are left to others when models are placed" if size else ""


def _spread(facts: Facts) -> str:
    if ollama_on(facts.value):
        return "every model is spread over all GPUs, so it holds memory on each of them"
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
        else "a load may take for ever"
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
            default=lambda facts: since("0.12.0", "1", facts),
        ),
        _variable(
            "OLLAMA_MAX_LOADED_MODELS",
            meaning=_loaded,
            understood=is_unsigned,
            default=lambda facts: since("0.3.0", "0", facts),
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
        _variable("OLLAMA_MAX_QUEUE", meaning="requests beyond this many are refused as busy", understood=is_unsigned),
        _variable("OLLAMA_LOAD_TIMEOUT", meaning=_patience, understood=lambda text: keep_alive(text) is not None),
        _variable("OLLAMA_LLM_LIBRARY", meaning="this backend is used whatever was found: cpu holds no VRAM"),
        _variable(
            "OLLAMA_MODELS", meaning="where its model files are, which can be kept in system memory for fast loads"
        ),
        *GGML,
    ),
    calls=(Call("/api/version", version="version"),),
)
