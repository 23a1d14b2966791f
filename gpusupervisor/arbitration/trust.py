"""What failed releases teach: growing pauses, what stays, and why. Values and pure functions.

A release that was asked for and brought nothing costs trust. What stayed counts as the tenant's floor from then on, so
that nothing is promised that has failed to come; after a pause a plan may try again where nothing else suffices. The
record ends when the memory comes after all, or with the processes that kept it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusupervisor.arbitration.situation import StepResult
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.quantities import format_bytes

MINUTE = 60 * MICROSECONDS
PAUSES = (MINUTE, 5 * MINUTE, 30 * MINUTE, 120 * MINUTE)
"""After the first, second, ... release in a row that brought nothing; after one more it is not asked by plans again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Releases in a row that brought nothing, or not all that was asked for."""

    count: int
    at: int
    """Of the last one, in microseconds of the domain clock."""
    until: int
    """When the tenant may be asked by a plan again, without anything being promised; `INFINITY` for never."""
    answer: str
    """What came of the last request, in one clause."""
    plan: str
    freed: int
    stayed: Mapping[str, int] = field(default_factory=dict)
    """GPU UUID to the bytes that it still held afterwards."""
    anchors: frozenset[ProcessKey] = frozenset()
    """The processes that were asked; empty when they are not known."""

    @property
    def reason(self) -> str:
        """Why it is not asked now, in one clause."""
        brought = f"it gave only {format_bytes(self.freed)} back" if self.freed else "it did not give its memory back"
        times = "" if self.count == 1 else f" {self.count} times in a row"
        return f"{brought}{times}: {self.answer}"


def failed(
    before: Failure | None,
    result: StepResult,
    stayed: Mapping[str, int],
    anchors: frozenset[ProcessKey],
    now: int,
    plan: str,
) -> Failure | None:
    """The record after one more release: None when it brought what it was to bring, or nothing is known of it yet."""
    if result.outcome in ("freed", "pending"):
        return None if result.outcome == "freed" else before
    if result.outcome == "skipped" or not result.is_conclusive:
        return before
    count = before.count + 1 if before is not None and before.anchors == anchors else 1
    until = now + PAUSES[count - 1] if count <= len(PAUSES) else INFINITY
    return Failure(count, now, until, result.detail, plan, result.freed, dict(stayed), anchors)


def still_holds(failure: Failure, holdings: Mapping[str, int], anchors: frozenset[ProcessKey]) -> bool:
    """Whether a failure still says something: the same processes hold about what stayed."""
    if failure.anchors and not failure.anchors & anchors:
        return False
    return all(holdings.get(gpu, 0) > size - WORTHWHILE for gpu, size in failure.stayed.items() if size)
