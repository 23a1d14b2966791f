"""llama.cpp's llama-server, alone and as a router: flags, LLAMA_ARG_ variables, and /props.

Checked against common/arg.cpp and tools/server of b11434. A flag beats its variable, and both beat the files
/etc/llama.cpp/config.ini and ~/.config/llama.cpp/config.ini, the second of which counts more.
"""

from gpusupervisor.engines.table import LLAMA_CPP, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, PROTECTED_API, switched
from gpusupervisor.engines.values import integer, is_on, spoken


def _sleep(facts: Facts) -> str:
    seconds = integer(facts.value)
    if seconds is None or seconds < 0:
        return "it never sleeps: a server of one model gives VRAM back only when its unit is stopped"
    return f"after {spoken(seconds)} without a request the model leaves VRAM; asking for /slots would wake it"


def _layers(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 0:
        return "the model stays on the CPU; only buffers are in VRAM"
    if facts.value == "auto" or count == -1:
        return "as many layers as fit are put into VRAM when it starts: what becomes free later does not help"
    if facts.value == "all" or (count is not None and (count < 0 or count >= 99)):
        return "the whole model goes into VRAM; it fails to start when that does not fit"
    return (
        f"{facts.value} of the model's layers are in VRAM, and the rest runs on the CPU even if VRAM becomes free later"
    )


def _context(facts: Facts) -> str:
    size = integer(facts.value)
    if size == 0:
        return "the context is as large as the model allows: its VRAM is held from the start"
    return (
        f"the context has {facts.value} tokens for all requests together: its VRAM is held from the start, used or not"
    )


def _slots(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one request at a time"
    if count is not None and count > 0:
        return f"up to {facts.value} requests run at once and share the context"
    return "it chooses how many requests run at once"


def _most(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one model at a time: every change of model evicts the one that is loaded"
    if count == 0:
        return "any number of models may be loaded at once: it evicts none, whatever VRAM is left"
    return f"up to {facts.value} models are loaded at once: it counts models and does not look at VRAM"


def _flash(facts: Facts) -> str:
    if is_on(facts.value):
        return "contexts need less VRAM, and may be quantized"
    if facts.value in ("auto", "-1"):
        return "it uses flash attention where the model and the GPU can: contexts then need less VRAM"
    return "contexts need more VRAM, and their values cannot be quantized"


def _load_mode(facts: Facts) -> str:
    if "mlock" in facts.value:
        return _LOCKED
    if facts.value == "dio":
        return "model files are read past the page cache: keeping them in system memory does not make a load faster"
    return ""


def _valued(name: str, meaning: object, flags: tuple[str, ...], variable: str) -> Known:
    return Known(name, meaning, flags=flags, variables=(variable,))  # type: ignore[arg-type]


def _switch(name: str, meaning: str, *short: str, variable: str) -> Known:
    """A variable that is not truthy leaves such a switch as it is (common_arg_utils::is_truthy)."""
    return Known(
        name, meaning, flags=(*short, name), takes="nothing", variables=(variable,),
        is_set=lambda text: text in ("on", "enabled", "true", "1"),
    )  # fmt: skip


_LOCKED = "the model is locked in system memory: it loads fast again, and that memory is not free for others"

TABLE = Table(
    engine="llama.cpp",
    checked_against="b11434",
    grammar=LLAMA_CPP,
    flags_are_keys=True,
    settings=(
        Known(
            "--sleep-idle-seconds",
            _sleep,
            flags=("--sleep-idle-seconds",),
            default=lambda facts: "-1" if "sleeping" in facts.known else None,
        ),
        _valued("--n-gpu-layers", _layers, ("-ngl", "--gpu-layers", "--n-gpu-layers"), "LLAMA_ARG_N_GPU_LAYERS"),
        _valued("--ctx-size", _context, ("-c", "--ctx-size"), "LLAMA_ARG_CTX_SIZE"),
        _valued("--parallel", _slots, ("-np", "--parallel"), "LLAMA_ARG_N_PARALLEL"),
        Known(
            "--no-slots",
            "no /slots: it can be seen to work, but is never known to be idle, and so is asked for nothing",
            flags=("--no-slots",),
            unset_by=("--slots",),
            takes="nothing",
            variables=("LLAMA_ARG_NO_ENDPOINT_SLOTS",),  # with any value
            off_variables=("LLAMA_ARG_ENDPOINT_SLOTS",),
        ),
        _switch("--metrics", "it counts its requests at /metrics", variable="LLAMA_ARG_ENDPOINT_METRICS"),
        Known("--api-key", PROTECTED_API, flags=("--api-key",), variables=("LLAMA_API_KEY",), secret=True),
        _valued("--api-key-file", PROTECTED_API, ("--api-key-file",), "LLAMA_ARG_API_KEY_FILE"),
        _valued("--models-max", _most, ("--models-max",), "LLAMA_ARG_MODELS_MAX"),
        Known(
            "--no-models-autoload",
            "a request for a model that is not loaded is refused, instead of loading it",
            flags=("--no-models-autoload",),
            unset_by=("--models-autoload",),
            takes="nothing",
            variables=("LLAMA_ARG_NO_MODELS_AUTOLOAD",),  # with any value
            off_variables=("LLAMA_ARG_MODELS_AUTOLOAD",),
        ),
        _valued(
            "--models-preset",
            "this file says which models there are, and what each is started with",
            ("--models-preset",),
            "LLAMA_ARG_MODELS_PRESET",
        ),
        _valued(
            "--fit",
            switched(
                "what is not set is fitted to the VRAM that is free when it starts: make room before, not after",
                "nothing is fitted to the VRAM that is free: it fails to start when it does not fit",
            ),
            ("-fit", "--fit"),
            "LLAMA_ARG_FIT",
        ),
        _valued(
            "--fit-target",
            "this many MiB of each GPU are left free when it fits itself to what is free",
            ("-fitt", "--fit-target"),
            "LLAMA_ARG_FIT_TARGET",
        ),
        Known(
            "--flash-attn",
            _flash,
            flags=("-fa", "--flash-attn"),
            takes="optional",
            variables=("LLAMA_ARG_FLASH_ATTN",),
        ),
        _valued(
            "--cache-type-k",
            "how the keys of contexts are held: q8_0 takes half, q4_0 a quarter of f16",
            ("-ctk", "--cache-type-k"),
            "LLAMA_ARG_CACHE_TYPE_K",
        ),
        _valued(
            "--cache-type-v",
            "how the values of contexts are held; less than f16 needs flash attention",
            ("-ctv", "--cache-type-v"),
            "LLAMA_ARG_CACHE_TYPE_V",
        ),
        Known(
            "--no-kv-offload",
            "contexts stay in system memory: it holds less VRAM and is slower",
            flags=("-nkvo", "--no-kv-offload"),
            unset_by=("-kvo", "--kv-offload"),
            takes="nothing",
            variables=("LLAMA_ARG_NO_KV_OFFLOAD",),  # with any value
            off_variables=("LLAMA_ARG_KV_OFFLOAD",),
        ),
        _valued(
            "--device",
            "it uses these devices alone: memory freed on another one does not help it",
            ("-dev", "--device"),
            "LLAMA_ARG_DEVICE",
        ),
        _valued(
            "--split-mode",
            lambda facts: (
                "it uses one GPU" if facts.value == "none" else "the model is split over the GPUs, and held on each"
            ),
            ("-sm", "--split-mode"),
            "LLAMA_ARG_SPLIT_MODE",
        ),
        _valued(
            "--main-gpu",
            "the GPU that it uses where it does not split the model",
            ("-mg", "--main-gpu"),
            "LLAMA_ARG_MAIN_GPU",
        ),
        _valued(
            "--tensor-split",
            "how much of the model each GPU holds",
            ("-ts", "--tensor-split"),
            "LLAMA_ARG_TENSOR_SPLIT",
        ),
        _switch(
            "--cpu-moe", "experts stay in system memory: it holds less VRAM", "-cmoe", variable="LLAMA_ARG_CPU_MOE"
        ),
        _valued(
            "--n-cpu-moe",
            "the experts of this many layers stay in system memory: it holds less VRAM",
            ("-ncmoe", "--n-cpu-moe"),
            "LLAMA_ARG_N_CPU_MOE",
        ),
        Known(
            "--no-op-offload",
            "work on what lies in system memory is not moved to the GPU: it holds less VRAM and is slower",
            flags=("--no-op-offload",),
            unset_by=("--op-offload",),
            takes="nothing",
        ),
        Known(
            "--no-mmproj-offload",
            "the vision or audio part stays in system memory",
            flags=("--no-mmproj-offload",),
            unset_by=("--mmproj-offload",),
            takes="nothing",
            variables=("LLAMA_ARG_NO_MMPROJ_OFFLOAD",),  # with any value
            off_variables=("LLAMA_ARG_MMPROJ_OFFLOAD",),
        ),
        _valued(
            "--cache-ram",
            "contexts that are not in use are kept in this many MiB of system memory",
            ("-cram", "--cache-ram"),
            "LLAMA_ARG_CACHE_RAM",
        ),
        _valued("--mmproj", "a vision or audio part is held in VRAM too", ("-mm", "--mmproj"), "LLAMA_ARG_MMPROJ"),
        Known(
            "--model-draft",
            "a second, smaller model is held in VRAM too",
            flags=("-md", "--model-draft", "--spec-draft-model"),
            variables=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT"),
        ),
        _valued("--load-mode", _load_mode, ("-lm", "--load-mode"), "LLAMA_ARG_LOAD_MODE"),
        _switch("--mlock", _LOCKED, variable="LLAMA_ARG_MLOCK"),  # of earlier builds: now a --load-mode
        Known("context", lambda facts: f"a request may use {facts.value} tokens" if facts.value != "0" else ""),
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
        # What is on by default is told where it is off.
        Call(
            "/props",
            version="build_info",
            tells=(
                ("context", "default_generation_settings.n_ctx"),
                ("slots", "total_slots"),
                ("role", "role"),
                ("models", "max_instances"),
                ("sleeping", "is_sleeping"),
                ("--no-slots", "(endpoint_slots == `false` || `null`) && `true`"),
                ("--metrics", "endpoint_metrics || `null`"),
                ("--no-models-autoload", "(models_autoload == `false` || `null`) && `true`"),
            ),
        ),
    ),
)
