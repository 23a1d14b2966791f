"""Activity: three-valued truth with evidence and age."""

from dataclasses import dataclass
from typing import Literal

ActivityState = Literal["absent", "idle", "busy", "claimed", "stirring", "stuck", "unknown"]
"""busy: the engine's word and work of its processes agree. claimed: the engine's word alone. stirring: signs of life
alone, such as CPU time. Only `busy` gives a claim to room; only `idle` may be asked to release."""
LIVELY: frozenset[ActivityState] = frozenset({"busy", "claimed", "stirring"})
"""Activities of a tenant that shows life of any kind."""
Trouble = Literal[
    "", "unreachable", "no-route", "slow", "nonsense", "needs-key", "not-allowed", "blocked", "not-tls",
    "bad-certificate", "foreign-socket",
]  # fmt: skip
"""What is wrong with an engine's API."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an engine says that its loaded models are. In bytes."""

    wanted: int
    """What they take in total, as the engine estimates."""
    placed: int
    """Of which on GPUs, as the engine says."""

    @property
    def spilled(self) -> int:
        """Bytes that did not fit on the GPUs."""
        return max(0, self.wanted - self.placed)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one probe saw."""

    probe: str
    """Kind of the probe, e.g. "ollama", "sm-utilization"."""
    state: ActivityState
    """busy: the engine's word that it works. stirring: a sign of life that is no such word."""
    reason: str
    """One clause for a person, e.g. "2 prompts in its queue"."""
    observed_at: int
    """Microseconds of the domain clock at which the evidence was taken (not received)."""
    pinned: bool = False
    """The user asked the engine to keep its memory."""
    unreachable: bool = False
    """Nothing listens at the endpoint."""
    trouble: Trouble = ""
    """Why its API gave no usable answer; empty when it did, or was not asked."""
    answered: bool | None = None
    """Whether its API gave any answer, usable or not; None when it is not asked."""
    version: str = ""
    """The engine's version, when the probe learned it."""
    impact: str = ""
    """What it breaks when the work that it reports does not go on; empty for what is true of every engine."""
    placement: Placement | None = None
    """None when the engine does not say, or has loaded nothing."""
    out_of_memory_at: int | None = None
    """When the engine last said that work of it failed for lack of memory; None when it did not."""
    progressed_at: int | None = None
    """When what it reports last moved on, e.g. a queue became shorter; None when it does not tell."""
    defers: bool = False
    """It could not look closer without disturbing: the next probe decides in its place."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The verdict over all probes of one tenant."""

    state: ActivityState
    reason: str
    """Why, in one sentence; never empty."""
    evidence: tuple[str, ...]
    """One line per observation: "probe: state: reason"."""
    observed_at: int
    """The oldest evidence that the verdict rests on."""
    since: int
    """When the tenant came into this state."""
    pinned: bool = False
    unreachable: bool = False
    trouble: Trouble = ""
    """Of the API of the first probe."""
    trouble_detail: str = ""
    """The same in a clause for a person."""
    answered: bool | None = None
    """Whether its API answered any probe; None when none asks it."""
    impact: str = ""
    remedy: str = ""
    placement: Placement | None = None
    """None when the engine does not say, or has loaded nothing."""
    out_of_memory_at: int | None = None
    """When work of it last failed for lack of memory, as the engine said or as was seen; None when it did not."""
    says_rest: bool = False
    """Its engine's API says that nothing runs, whatever else is seen of it, e.g. that it still gives memory back."""
    branch: str = ""
    """Which way of the judgement led here, e.g. "claimed", "stirring-cpu"; a stable name for counters."""


UNOBSERVED = Activity("unknown", "not observed yet", (), 0, 0)
