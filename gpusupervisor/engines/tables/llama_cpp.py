"""llama.cpp's llama-server, alone and as a router: flags, or LLAMA_ARG_ variables (common/arg.cpp), and /props."""

from gpusupervisor.engines.table import LLAMA_CPP, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, PROTECTED_API, switched
from gpusupervisor.engines.values import integer, is_on, spoken


def _sleep(facts: Facts) -> str:
    seconds = integer(facts.value)
    if seconds is None or seconds < 0:
        return "it never sleeps: single-model it gives VRAM back only when its unit is stopped"
    return f"after {spoken(seconds)} without a request the model leaves VRAM; asking for /slots would wake it"


def _layers(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 0:
        return "the model stays on the CPU; only buffers are in VRAM"
    if facts.value == "auto":
        return "as many layers as fit are put into VRAM when it starts: what is free then decides, not later"
    if facts.value == "all" or (count is not None and (count < 0 or count >= 99)):
        return "the whole model is in VRAM; it fails to start when that does not fit"
    return f"{facts.value} layers are in VRAM, the rest runs on the CPU, whatever becomes free later"


def _context(facts: Facts) -> str:
    size = integer(facts.value)
    if size == 0:
        return "contexts as large as the model allows: their VRAM is held from the start"
    return f"contexts of {facts.value} tokens in all: their VRAM is held from the start, used or not"


def _slots(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one request at a time"
    return (
        f"{facts.value} requests share the context" if count is not None and count > 0 else "it chooses how many slots"
    )


def _most(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one model at a time: every change of model evicts the one that is loaded"
    return (
        "any number of models may be loaded at once" if count == 0 else f"up to {facts.value} models are loaded at once"
    )


def _valued(name: str, meaning: object, flags: tuple[str, ...], variable: str) -> Known:
    return Known(name, meaning, flags=flags, variables=(variable,))  # type: ignore[arg-type]


TABLE = Table(
    engine="llama.cpp",
    grammar=LLAMA_CPP,
    settings=(
        Known(
            "--sleep-idle-seconds",
            _sleep,
            flags=("--sleep-idle-seconds",),
            variables=("LLAMA_ARG_SLEEP_IDLE_SECONDS",),
            default=lambda facts: "-1" if "sleeping" in facts.known else None,
        ),
        _valued("--n-gpu-layers", _layers, ("-ngl", "--gpu-layers", "--n-gpu-layers"), "LLAMA_ARG_N_GPU_LAYERS"),
        _valued("--ctx-size", _context, ("-c", "--ctx-size"), "LLAMA_ARG_CTX_SIZE"),
        _valued("--parallel", _slots, ("-np", "--parallel"), "LLAMA_ARG_N_PARALLEL"),
        Known(
            "--no-slots",
            "no /slots: whether it works can only be read from its use of the GPU",
            flags=("--no-slots",),
            unset_by=("--slots",),
            takes="nothing",
            variables=("LLAMA_ARG_NO_ENDPOINT_SLOTS",),
        ),
        Known(
            "--metrics",
            "it counts its requests at /metrics",
            flags=("--metrics",),
            takes="nothing",
            variables=("LLAMA_ARG_ENDPOINT_METRICS",),
            is_set=is_on,
        ),
        Known("--api-key", PROTECTED_API, flags=("--api-key",), variables=("LLAMA_API_KEY",), secret=True),
        Known("--api-key-file", PROTECTED_API, flags=("--api-key-file",)),
        _valued("--models-max", _most, ("--models-max",), "LLAMA_ARG_MODELS_MAX"),
        Known(
            "--no-models-autoload",
            "a request for a model that is not loaded is refused, instead of loading it",
            flags=("--no-models-autoload",),
            unset_by=("--models-autoload",),
            takes="nothing",
            variables=("LLAMA_ARG_NO_MODELS_AUTOLOAD",),
        ),
        _valued(
            "--fit",
            switched(
                "what is not set is fitted to the VRAM that is free when it starts: make room before, not after",
                "nothing is fitted to what is free: it fails when it does not fit",
            ),
            ("-fit", "--fit"),
            "LLAMA_ARG_FIT",
        ),
        Known(
            "--flash-attn",
            switched(
                "contexts need less VRAM, and may be quantized", "contexts need more VRAM unless it chooses otherwise"
            ),
            flags=("-fa", "--flash-attn"),
            takes="optional",
            variables=("LLAMA_ARG_FLASH_ATTN",),
        ),
        _valued(
            "--cache-type-k",
            "how keys of contexts are held: q8_0 half, q4_0 a quarter of f16",
            ("-ctk", "--cache-type-k"),
            "LLAMA_ARG_CACHE_TYPE_K",
        ),
        _valued(
            "--cache-type-v",
            "how values of contexts are held; less than f16 needs flash attention",
            ("-ctv", "--cache-type-v"),
            "LLAMA_ARG_CACHE_TYPE_V",
        ),
        _valued(
            "--device",
            "it uses these devices alone: memory freed on another one does not help it",
            ("-dev", "--device"),
            "LLAMA_ARG_DEVICE",
        ),
        _valued("--main-gpu", "the GPU that is used first", ("-mg", "--main-gpu"), "LLAMA_ARG_MAIN_GPU"),
        _valued(
            "--tensor-split",
            "how the model is shared out among GPUs: it holds memory on each",
            ("-ts", "--tensor-split"),
            "LLAMA_ARG_TENSOR_SPLIT",
        ),
        _valued(
            "--n-cpu-moe",
            "experts of this many layers stay in system memory: less VRAM",
            ("-ncmoe", "--n-cpu-moe"),
            "LLAMA_ARG_N_CPU_MOE",
        ),
        Known(
            "--mlock",
            "the model is locked in system memory: it loads fast again, and that memory is not free for others",
            flags=("--mlock",),
            takes="nothing",
            variables=("LLAMA_ARG_MLOCK",),
            is_set=is_on,
        ),
        Known("context", lambda facts: f"contexts of {facts.value} tokens for each slot are in force"),
        Known("slots", _slots),
        Known(
            "role",
            "it loads models itself, each in a process of its own: models are listed, loaded and unloaded by name",
        ),
        Known("models", _most),
        Known("sleeping", switched("the model is not in VRAM now; a request loads it again", "")),
        *GGML,
    ),
    calls=(
        Call(
            "/props",
            version="build_info",
            tells=(
                ("context", "default_generation_settings.n_ctx"),
                ("slots", "total_slots"),
                ("role", "role"),
                ("models", "max_instances"),
                ("sleeping", "is_sleeping"),
            ),
        ),
    ),
)
