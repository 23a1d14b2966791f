"""LocalAI: flags of `local-ai run` with variables of the same meaning (its command line reference), and /version."""

from gpusupervisor.engines.table import EXACT, Call, Facts, Known, Table
from gpusupervisor.engines.tables.common import GGML, PROTECTED_API, switched
from gpusupervisor.engines.values import go_duration, integer, is_on, spoken


def _most(facts: Facts) -> str:
    count = integer(facts.value)
    if count == 1:
        return "one model at a time: every change of model evicts the one that is loaded"
    return (
        "any number of models may be loaded"
        if count == 0
        else f"beyond {facts.value} models the longest unused is evicted"
    )


def _timeout(facts: Facts) -> str:
    seconds = go_duration(facts.value)
    if seconds is None:
        return ""
    return f"an idle model is unloaded after {spoken(seconds)}, when the watch for idle ones is on"


def _busy_timeout(facts: Facts) -> str:
    seconds = go_duration(facts.value)
    return (
        f"a model busy for {spoken(seconds)} is ended, when the watch for busy ones is on"
        if seconds is not None
        else ""
    )


def _switch(flag: str, on: str, *variables: str) -> Known:
    return Known(flag, switched(on), flags=(flag,), takes="nothing", variables=variables, is_set=is_on)


def _value(flag: str, meaning: object, *variables: str) -> Known:
    return Known(flag, meaning, flags=(flag,), variables=variables, is_set=bool)  # type: ignore[arg-type]


TABLE = Table(
    engine="localai",
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
            "--enable-watchdog-idle",
            "models that are not used are unloaded after a while",
            "LOCALAI_WATCHDOG_IDLE",
            "WATCHDOG_IDLE",
        ),
        _value("--watchdog-idle-timeout", _timeout, "LOCALAI_WATCHDOG_IDLE_TIMEOUT", "WATCHDOG_IDLE_TIMEOUT"),
        _switch(
            "--enable-watchdog-busy",
            "a model that works for too long is ended in the middle of its work",
            "LOCALAI_WATCHDOG_BUSY",
            "WATCHDOG_BUSY",
        ),
        _value("--watchdog-busy-timeout", _busy_timeout, "LOCALAI_WATCHDOG_BUSY_TIMEOUT", "WATCHDOG_BUSY_TIMEOUT"),
        _value(
            "--load-to-memory",
            "these models are loaded when it starts, and held",
            "LOCALAI_LOAD_TO_MEMORY",
            "LOAD_TO_MEMORY",
        ),
        _value(
            "--context-size", "the default context: the larger, the more VRAM", "LOCALAI_CONTEXT_SIZE", "CONTEXT_SIZE"
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
    calls=(Call("/version", version="version"),),
)
