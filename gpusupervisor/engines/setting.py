"""One setting of an engine, with what it means for who shares the card."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """As it is in force, or as it will be after the next start of the engine."""

    name: str
    """As the engine's own documentation writes it: "OLLAMA_NUM_PARALLEL", "--highvram", "sleep mode"."""
    value: str
    """What is in force; empty when it is set but without a value, or not in force yet."""
    source: str
    """Where that comes from: "command line", "environment", "default", "/api/version", or the file that says so."""
    meaning: str
    """What follows for releasing, loading and sharing, in one sentence; it may depend on the value."""
    pending: str = ""
    """What is configured and not in force until the engine is restarted; empty when nothing is."""
