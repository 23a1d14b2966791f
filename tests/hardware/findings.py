"""What was found, as a table for a person and as JSON for a machine."""

import sys
from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["proved", "contradicted", "seen", "not proved"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table."""

    item: str
    expected: str
    seen: str
    verdict: Verdict


class Findings:
    """Told as they come."""

    def __init__(self) -> None:
        self.all: list[Finding] = []
        self._section = ""

    def section(self, title: str) -> None:
        """What follows belongs to this."""
        self._section = title
        sys.stdout.write(f"\n{title}\n")

    def expect(self, item: str, expected: str, seen: object, holds: bool) -> bool:
        """Something that the design relies on, and whether it is so."""
        self._add(item, expected, str(seen), "proved" if holds else "contradicted")
        return holds

    def fact(self, item: str, seen: object) -> None:
        """Something worth knowing, of which nothing is expected."""
        self._add(item, "", str(seen), "seen")

    def unproved(self, item: str, reason: object) -> None:
        """Something that could not be tried here, and why."""
        self._add(item, "", str(reason), "not proved")

    def count(self, verdict: Verdict) -> int:
        """How many findings have it."""
        return sum(finding.verdict == verdict for finding in self.all)

    def to_json(self) -> list[dict[str, str]]:
        """For the report."""
        return [asdict(finding) for finding in self.all]

    def _add(self, item: str, expected: str, seen: str, verdict: Verdict) -> None:
        name = f"{self._section}: {item}" if self._section else item
        self.all.append(Finding(name, expected, seen, verdict))
        wanted = f"  [expected: {expected}]" if expected else ""
        sys.stdout.write(f"  {verdict:<12}  {item:<34}  {seen}{wanted}\n")
        sys.stdout.flush()
