"""LocalAI: flags of `local-ai run`, variables of the same meaning, and /api/settings; checked against v4.9.0.

A flag beats its variable (core/cli/run.go). It also reads .env, localai.env, ~/localai.env, ~/.config/localai.env and
/etc/localai.env, where variables have the same names and count less, and its page of settings changes some of it while
it runs: /api/settings (since v3.9) tells what came of all that.
"""

from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, PROTECTED_API, switched
from gpusupervisor.engines.values import go_duration, integer, is_on, number, spoken

_IDLE, _BUSY, _RECLAIM = "--enable-watchdog-idle", "--enable-watchdog-busy", "--enable-memory-reclaimer"


def _most(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one model at a time: every change of model evicts the one that is loaded"
    return (
        "any number of models may be loaded"
        if count == 0
        else f"beyond {facts.value} models, the least recently used one is evicted"
    )


def _is_off(facts: Facts, switch: str) -> bool:
    """The switch without which this has no effect is known to be off."""
    return not is_on(facts.known.get(switch, "true"))


def _timeout(facts: Facts) -> str:
    seconds = go_duration(facts.value)
    if seconds is None or _is_off(facts, _IDLE):
        return ""
    return f"an idle model is unloaded after {spoken(seconds)}, if the watch for idle ones is on"


def _busy_timeout(facts: Facts) -> str:
    seconds = go_duration(facts.value)
    if seconds is None or _is_off(facts, _BUSY):
        return ""
    return f"a model that has been busy for {spoken(seconds)} is ended, if the watch for busy ones is on"


def _threshold(facts: Facts) -> str:
    share = number(facts.value)
    if share is None or _is_off(facts, _RECLAIM):
        return ""
    return f"once {share:.0%} of the card is in use, by whatever program, it unloads a model"


def _switch(flag: str, on: str, *variables: str) -> Known:
    return Known(flag, switched(on), flags=(flag,), takes="nothing", variables=variables, is_set=is_on)


def _value(flag: str, meaning: object, *variables: str) -> Known:
    return Known(flag, meaning, flags=(flag,), variables=variables, is_set=bool)  # type: ignore[arg-type]


TABLE = Table(
    engine="localai",
    checked_against="v4.9.0",
    grammar=EXACT,
    settings=(
        _switch(
            "--single-active-backend",
            "one model at a time: every change of model evicts the one that is loaded",
            "LOCALAI_SINGLE_ACTIVE_BACKEND",
            "SINGLE_ACTIVE_BACKEND",
        ),
        _value("--max-active-backends", _most, "LOCALAI_MAX_ACTIVE_BACKENDS", "MAX_ACTIVE_BACKENDS"),
        _switch(
            _IDLE,
            "models that are not used are unloaded after a while",
            "LOCALAI_WATCHDOG_IDLE",
            "WATCHDOG_IDLE",
        ),
        _value("--watchdog-idle-timeout", _timeout, "LOCALAI_WATCHDOG_IDLE_TIMEOUT", "WATCHDOG_IDLE_TIMEOUT"),
        _switch(
            _BUSY,
            "a model that works for too long is ended in the middle of its work",
            "LOCALAI_WATCHDOG_BUSY",
            "WATCHDOG_BUSY",
        ),
        _value("--watchdog-busy-timeout", _busy_timeout, "LOCALAI_WATCHDOG_BUSY_TIMEOUT", "WATCHDOG_BUSY_TIMEOUT"),
        _switch(
            _RECLAIM,
            "it unloads its models when the card fills up, even if another program fills it",
            "LOCALAI_MEMORY_RECLAIMER",
            "MEMORY_RECLAIMER",
            "LOCALAI_GPU_RECLAIMER",
            "GPU_RECLAIMER",
        ),
        _value(
            "--memory-reclaimer-threshold",
            _threshold,
            "LOCALAI_MEMORY_RECLAIMER_THRESHOLD",
            "MEMORY_RECLAIMER_THRESHOLD",
            "LOCALAI_GPU_RECLAIMER_THRESHOLD",
            "GPU_RECLAIMER_THRESHOLD",
        ),
        _value(
            "--vram-budget",
            lambda facts: f"its models take {facts.value} of the VRAM at most" if facts.value else "",
            "LOCALAI_VRAM_BUDGET",
        ),
        _switch(
            "--force-eviction-when-busy",
            "it evicts a model in the middle of its work when another needs the room",
            "LOCALAI_FORCE_EVICTION_WHEN_BUSY",
            "FORCE_EVICTION_WHEN_BUSY",
        ),
        _value(
            "--load-to-memory",
            "these models are loaded when it starts, and held",
            "LOCALAI_LOAD_TO_MEMORY",
            "LOAD_TO_MEMORY",
        ),
        _value(
            "--context-size",
            lambda facts: (
                "the context of a model that names none: the larger, the more VRAM" if facts.value != "0" else ""
            ),
            "LOCALAI_CONTEXT_SIZE",
            "CONTEXT_SIZE",
        ),
        Known(
            "LLAMACPP_PARALLEL",
            "this many requests of one llama.cpp model run at once and share its context",
            variables=("LLAMACPP_PARALLEL",),
        ),
        Known(
            "--api-keys",
            PROTECTED_API,
            flags=("--api-keys",),
            variables=("LOCALAI_API_KEY", "API_KEY"),
            is_set=bool,
            secret=True,
        ),
        *GGML,
    ),
    calls=(
        Call("/version", version="version"),
        Call(
            "/api/settings",
            tells=(
                ("--single-active-backend", "single_backend"),
                ("--max-active-backends", "max_active_backends"),
                (_IDLE, "watchdog_idle_enabled"),
                ("--watchdog-idle-timeout", "watchdog_idle_timeout"),
                (_BUSY, "watchdog_busy_enabled"),
                ("--watchdog-busy-timeout", "watchdog_busy_timeout"),
                (_RECLAIM, "memory_reclaimer_enabled"),
                ("--memory-reclaimer-threshold", "memory_reclaimer_threshold"),
                ("--vram-budget", "vram_budget"),
                ("--force-eviction-when-busy", "force_eviction_when_busy"),
                ("--context-size", "context_size"),
            ),
        ),
    ),
)
