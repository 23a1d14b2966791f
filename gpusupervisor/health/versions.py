"""Versions of engines that are known to misbehave where memory is handed over: data, each with its source."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpusupervisor.foreign_text import harmless
from gpusupervisor.state import Check, EngineStatus
from gpusupervisor.tenants.release.versions import at_least


@dataclass(frozen=True, slots=True)
class KnownTrouble:
    """What versions from `first` up to, not including, `fixed` do."""

    engine: str
    first: str
    fixed: str
    what: str
    impact: str
    source: str


KNOWN = (
    KnownTrouble(
        "ollama", "0", "0.1.38", "it does not tell which models are loaded",
        "it cannot be asked for its memory by name, so it is not asked at all",
        "/api/ps came with 0.1.38: https://github.com/ollama/ollama/releases/tag/v0.1.38",
    ),
    KnownTrouble(
        "ollama", "0.1.38", "0.3.11", "it loads a model that it is asked to unload if the model is not loaded",
        "a release could cost memory, so it is not asked at all",
        "answers done_reason \"load\" to keep_alive 0; since 0.3.11 \"unload\", by the source of its server",
    ),
    KnownTrouble(
        "vllm", "0.14.0", "0.16.0", "its sleep gives back only part of the memory",
        "a release frees only some GiB instead of nearly everything, and the rest stays in the way",
        "https://github.com/vllm-project/vllm/issues/32714",
    ),
)  # fmt: skip


def check_versions(engines: Mapping[str, EngineStatus]) -> Iterable[Check]:
    """No engine has a version of which it is known that it misbehaves."""
    for status in engines.values():
        for trouble in KNOWN:
            if trouble.engine == status.engine and _is_between(status.version, trouble):
                yield Check(
                    f"version-{status.id}",
                    "degraded",
                    f"{status.id} has version {harmless(status.version, 24)}, with a known problem: {trouble.what}",
                    trouble.impact,
                    f"update it to {trouble.fixed} or later ({trouble.source})",
                )
                break


def _is_between(version: str, trouble: KnownTrouble) -> bool:
    """Never for a version that cannot be compared."""
    return at_least(version, trouble.first) is True and at_least(version, trouble.fixed) is False
