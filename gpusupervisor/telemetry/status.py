"""How the store is: what its check looks at."""

from dataclasses import dataclass
from typing import Literal

StoreState = Literal["off", "opening", "ok", "failing"]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """At one moment."""

    state: StoreState
    path: str = ""
    detail: str = ""
    """What failed, or why nothing is stored."""
    set_aside: str = ""
    """Where the damaged file is that was found in this life of the service."""
    losing: bool = False
    """Rows were left out lately because the disk did not take them soon enough."""
    late: bool = False
    """What waits to be written has waited too long."""
    dropped_samples: int = 0
    """Since the service began."""
    dropped_events: int = 0
