"""Values of settings read as the engines themselves read them (pure)."""

import re

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.quantities import format_duration

GO_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""What strconv.ParseBool takes for false, and nothing else."""
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_GO_DURATION = re.compile(rf"([+-]?)((?:{_GO_PART})+)", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d{1,18}\.?\d{0,18}|\.\d{1,18})(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_FALSY = frozenset({"0", "false", "no", "off", "f", "n", "disabled"})
_TRUTHY = frozenset({"1", "true", "yes", "on", "t", "y", "enabled"})


def ollama_on(text: str) -> bool:
    """Ollama's switches: what it cannot read is on."""
    return clean(text) not in GO_FALSE


def is_on(text: str) -> bool:
    """How Python programs and llama.cpp read a switch of the environment, or a flag without a value."""
    return text == "" or text.strip().lower() in _TRUTHY


def is_off(text: str) -> bool:
    """Whether a switch is off, read likewise."""
    return text.strip().lower() in _FALSY


def clean(text: str) -> str:
    """As Ollama trims its variables: no space and no quotes around."""
    return text.strip().strip("\"'")


def integer(text: str) -> int | None:
    """A whole number; None when it is none."""
    return int(text) if _INTEGER.fullmatch(text.strip()) else None


def number(text: str) -> float | None:
    """A decimal number; None when it is none."""
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def is_unsigned(text: str) -> bool:
    """Whether Ollama takes it for one of its counts and sizes."""
    return re.fullmatch(r"\d{1,18}", clean(text), re.ASCII) is not None


def go_duration(text: str) -> float | None:
    """Seconds of what Go's time.ParseDuration takes ("1h30m", "-1m", "0"); None for anything else."""
    if text in ("0", "+0", "-0"):
        return 0.0
    whole = _GO_DURATION.fullmatch(text)
    if whole is None:
        return None
    seconds = sum(float(amount) * _GO_UNITS[unit] for amount, unit in re.findall(_GO_PART, whole[2], re.ASCII))
    return -seconds if whole[1] == "-" else seconds


def keep_alive(text: str) -> float | None:
    """Seconds of an OLLAMA_KEEP_ALIVE: a Go duration or whole seconds, negative for ever; None when not readable."""
    text = clean(text)
    seconds = go_duration(text)
    if seconds is None and _INTEGER.fullmatch(text):
        return float(text)
    return seconds


def spoken(seconds: float) -> str:
    """A duration for a person."""
    return format_duration(min(int(seconds * MICROSECONDS), 2**62))
