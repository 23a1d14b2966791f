"""The kinds of entries about who lacks memory, and what is done about it."""

from dataclasses import dataclass
from logging import INFO, WARNING

from gpusupervisor.journal.entry import NOTICE, Entry


@dataclass(frozen=True, slots=True)
class TenantStarved(Entry):
    """A tenant works and lacks memory."""

    message_id = "734137d77c08468987e2800ef16994fd"
    level = NOTICE
    text = "{tenant} is starved: {detail}"
    tenant: str
    engine: str
    gpu: str
    shortfall: int
    detail: str


@dataclass(frozen=True, slots=True)
class TenantRelieved(Entry):
    """A starved tenant lacks nothing any more, or does not work any more."""

    message_id = "0535052ff385481e8e533909e5e87935"
    level = INFO
    text = "{tenant} is no longer starved, after {duration}: {detail}"
    tenant: str
    engine: str
    duration: int
    detail: str


@dataclass(frozen=True, slots=True)
class RanOutOfMemory(Entry):
    """A tenant's work failed for lack of memory."""

    message_id = "97ea8e609bf745099eaedcf02c23d95a"
    level = WARNING
    text = "{tenant} ran out of GPU memory: {detail}. At rest meanwhile: {resting}"
    tenant: str
    engine: str
    gpu: str
    detail: str
    resting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryThrash(Entry):
    """The memory goes back and forth between two tenants."""

    message_id = "5d3806c48d4346d7b655ab941439495b"
    level = WARNING
    text = "{tenant} and {beneficiary} take the memory from each other: {swaps} times within ten minutes"
    tenant: str
    beneficiary: str
    swaps: int


@dataclass(frozen=True, slots=True)
class PlanMade(Entry):
    """A plan, before anything of it is done."""

    message_id = "a857976628074cf085c940ffd71a8f85"
    level = INFO
    text = "{plan} ({cause}): {summary} Steps: {step}. Blockers: {blocker}."
    plan: str
    cause: str
    gpu: str
    beneficiary: str
    tenant: tuple[str, ...]
    summary: str
    shortfall: int
    reclaimable: int
    sufficient: str
    step: tuple[str, ...]
    blocker: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanStarted(Entry):
    """A plan begins to be carried out."""

    message_id = "ddb3c8f2cc4e48acae5f09f590f2b6ea"
    level = INFO
    text = "{plan} is being carried out"
    plan: str
    cause: str
    gpu: str
    beneficiary: str
    tenant: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseDone(Entry):
    """A tenant gave memory back, will when its work is done, or had no need to be asked."""

    message_id = "a1ae709400b241ac856bfe46e71db5cb"
    level = INFO
    text = "{plan}: {tenant} {outcome}, {freed} in {duration}: {detail}"
    plan: str
    gpu: str
    tenant: str
    engine: str
    outcome: str
    expected: int | None
    freed: int
    duration: int
    detail: str


@dataclass(frozen=True, slots=True)
class ReleaseFailed(Entry):
    """A tenant was asked and its memory did not come back."""

    message_id = "fda5a6dc8b9e43c9a2215fc2bc7a0c8d"
    level = WARNING
    text = "{plan}: {tenant} {outcome}, {freed} of {expected} in {duration}: {detail}"
    plan: str
    gpu: str
    tenant: str
    engine: str
    outcome: str
    expected: int | None
    freed: int
    duration: int
    detail: str


@dataclass(frozen=True, slots=True)
class ReleaseCameLate(Entry):
    """Memory came back after its plan had ended."""

    message_id = "bea665649c6c4e20b75bdf5bc358138c"
    level = INFO
    text = "{plan}: {tenant} gave {freed} back late, after {duration}"
    plan: str
    gpu: str
    tenant: str
    engine: str
    expected: int | None
    freed: int
    duration: int


@dataclass(frozen=True, slots=True)
class PlanSatisfied(Entry):
    """A plan brought what it was to bring."""

    message_id = "2968c1af59944d2ba220be0130fa5e1b"
    level = INFO
    text = "{plan} ended, {outcome}: {freed} came back in {duration}: {detail}"
    plan: str
    cause: str
    gpu: str
    beneficiary: str
    tenant: tuple[str, ...]
    outcome: str
    freed: int
    available: int
    duration: int
    detail: str


@dataclass(frozen=True, slots=True)
class PlanFellShort(Entry):
    """A plan did not bring what it was to bring."""

    message_id = "04d97315108e4c2899b1986da42d7452"
    level = WARNING
    text = "{plan} ended, {outcome}: {freed} came back in {duration}: {detail}"
    plan: str
    cause: str
    gpu: str
    beneficiary: str
    tenant: tuple[str, ...]
    outcome: str
    freed: int
    available: int
    duration: int
    detail: str
