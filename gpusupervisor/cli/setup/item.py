"""A proposal on its way to a file."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpusupervisor.cli.setup.proposals import Proposal

Outcome = Literal["proposed", "written", "declined", "left", "failed"]


@dataclass(slots=True)
class Item:
    """One proposal, and what has become of it."""

    proposal: Proposal
    file: Path
    before: str | None = None
    """What is in the file; None for no file."""
    text: str = ""
    """The file as it will be; empty when it is left alone."""
    outcome: Outcome = "proposed"
    detail: str = ""

    @property
    def diff(self) -> list[str]:
        """What changes in a file that is there, without its name."""
        old, new = (self.before or "").splitlines(), self.text.splitlines()
        return list(difflib.unified_diff(old, new, lineterm=""))[2:]
