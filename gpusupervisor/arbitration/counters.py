"""Counters of the branches that decisions take."""

from collections import Counter


class Counters:
    """How often each branch was taken since the service started, by name, e.g. "asked", "protected-busy"."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, name: str, times: int = 1) -> None:
        """Count one branch."""
        self._counts[name] += times

    def all(self) -> dict[str, int]:
        """Every counter that is above 0, by name."""
        return {name: self._counts[name] for name in sorted(self._counts)}
