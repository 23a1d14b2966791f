"""What a tenant's own processes are seen to do: GPU time, CPU time, and the VRAM that they hold.

Never the utilization of the whole GPU, which includes the work of others. Each signal knows two measures: a sign of
life, which protects, and work, which supports what an engine says of itself. All instants and spans are microseconds.
"""

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass

from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec

NEVER = -(1 << 62)
"""An instant before every other."""
SM_QUIET = 2.0
"""Percent of SM time at or below which a process does nothing of note."""
CPU_QUIET = 5.0
"""Percent of one core: an idle server that answers our own questions stays far below."""
CPU_WORK = 10.0
"""Percent of one core above which a process may be working; a definition may say more."""
CPU_SPAN = 800_000
"""Between two readings of CPU time: below it a burst of half a second would look like sustained use."""
CPU_RUN = 3
"""Readings in a row that make CPU use sustained: ComfyUI's garbage collection, half a second of a core, fills two."""
VRAM_QUIET = 1 << 20
"""Bytes of growth that are no sign of life."""
STEP = 16 << 20
"""Bytes between two samples that are motion."""
RISE = 50 << 20
"""Bytes of growth within `RISE_SPAN` that only a load shows."""
BARE_CONTEXT = 640 << 20
"""Bytes on a GPU that an engine holds before it has loaded anything; a process that only looks for GPUs has no more."""
RISE_SPAN = 3_000_000
"""Over which growth is summed up, so that a fast cadence does not hide a slow load."""
SUSTAINED = 800_000
"""From the first to the last sample of motion that is more than one glimpse."""
SHORT = 3_000_000
"""For which a sign of life protects where the definition has no probe for it."""
FALL_SPAN = 2_000_000
"""For which memory counts as falling after it fell."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen of a tenant's processes until now. Instants are `NEVER` when nothing was seen."""

    sm_at: int = NEVER
    """When they last computed on the GPU."""
    sm_sustained_at: int = NEVER
    """When they last did so in several samples in a row."""
    sm_is_known: bool = False
    """The driver tells their GPU time."""
    cpu_at: int = NEVER
    """When their sustained use of the CPU was last seen."""
    cpu_since: int = NEVER
    """Where the last readings that make it sustained begin."""
    rose_at: int = NEVER
    """When their VRAM last rose as it does during a load."""
    rise_sustained_at: int = NEVER
    """When it last did so in several samples."""
    fell_at: int = NEVER
    quiet_span: int = -1
    """For how long GPU or CPU time was watched and found quiet; -1 when neither is quiet."""
    live_at: int = NEVER
    """When GPU or CPU time last showed any life."""
    out_of_memory_at: int | None = None
    """When a process of it ended while it was growing on a full card."""


NOTHING_SEEN = Signs()


class Signal:
    """One figure over time: True (life), False (quiet) or None (cannot tell)."""

    def __init__(self) -> None:
        self.live_at = NEVER
        self.quiet_since: int | None = None
        """Since when every sample was quiet; None when the last one was not."""
        self.looked_at = NEVER
        self.last: bool | None = None

    def note(self, instant: int, live: bool | None) -> None:
        """Take in a sample."""
        self.last, self.looked_at = live, instant
        if live:
            self.live_at = instant
        if live is not False:
            self.quiet_since = None
        elif self.quiet_since is None:
            self.quiet_since = instant

    @property
    def quiet_span(self) -> int:
        """From the first to the last sample of the quiet that lasts; -1 when it is not quiet."""
        return self.looked_at - self.quiet_since if self.quiet_since is not None else -1

    def live_within(self, span: int) -> bool:
        """Whether life was seen less than `span` before the last sample."""
        return self.live_at != NEVER and self.looked_at - self.live_at < span


class SmSignal(Signal):
    """SM utilization of the tenant's processes, in percent, each GPU's for itself."""

    def __init__(self, threshold: float = SM_QUIET) -> None:
        super().__init__()
        self._threshold = threshold
        self.worked_at = self.sustained_at = NEVER
        self._since: int | None = None

    def update(self, presence: TenantPresence, instant: int) -> None:
        """Take in the sample of an instant."""
        shares = [holder.sm_utilization for holder in presence.holders]
        known = [share for share in shares if share is not None]
        most = max(known, default=0)
        if most > max(self._threshold, SM_QUIET):
            self.worked_at = instant
            self._since = instant if self._since is None else self._since
            if instant - self._since >= SUSTAINED:
                self.sustained_at = instant
        else:
            self._since = None
        quiet = False if shares and len(known) == len(shares) else None
        self.note(instant, True if most > self._threshold else quiet)


class CpuSignal(Signal):
    """CPU time of the tenant's processes between two readings, in percent of one core."""

    def __init__(self, threshold: float = CPU_QUIET) -> None:
        super().__init__()
        self._threshold = threshold
        self.sustained_at = self.since = NEVER
        self._before: tuple[int, int, frozenset[int]] | None = None
        self._run: deque[int] = deque(maxlen=CPU_RUN)
        """Where the last readings begin that were all above the threshold of work, the oldest first."""
        self._pause = 0

    def update(self, presence: TenantPresence, cpu_time: int | None, instant: int) -> None:
        """Take in a reading, in microseconds of CPU time; None when it could not be read."""
        if self._before is not None and cpu_time is not None and instant - self._before[0] < CPU_SPAN:
            return
        pids = process_ids(presence)
        before, self._before = self._before, None if cpu_time is None else (instant, cpu_time, pids)
        if before is None or cpu_time is None or before[2] != pids or cpu_time < before[1]:
            self._run.clear()
            self.note(instant, None)
            return
        share = 100 * (cpu_time - before[1]) / (instant - before[0])
        self._note_run(before[0], instant, share >= max(self._threshold, CPU_WORK))
        self.note(instant, share > self._threshold)

    def _note_run(self, begun: int, instant: int, works: bool) -> None:
        """Three in a row are sustained; once they are, one pause does not end it."""
        if works:
            self._pause = 0
            self._run.append(begun)
        else:
            self._pause += 1
            if self._pause > 1 or len(self._run) < CPU_RUN:
                self._run.clear()
        if works and len(self._run) == CPU_RUN:
            self.sustained_at, self.since = instant, self._run[0]


class VramSignal(Signal):
    """Growth of what the tenant holds, in bytes. Memory that is given back is no sign of work."""

    def __init__(self, threshold: float = VRAM_QUIET) -> None:
        super().__init__()
        self._threshold = threshold
        self.rose_at = self.sustained_at = self.fell_at = NEVER
        self._reference: dict[str, int] | None = None
        """So that slow drift adds up."""
        self._history: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=256)
        self._since = NEVER

    def update(self, presence: TenantPresence, instant: int, unread: Set[str]) -> None:
        """Take in the sample of an instant.

        unread: GPUs that could not be read. What was held there counts as held: it has not grown when it is seen again.
        """
        if presence.unknown_on:  # a lower bound: what it says next would look like growth
            self._reference = None
            self._history.clear()
            self.note(instant, None)
            return
        before = self._history[-1][1] if self._history else None
        held = {gpu: size for gpu, size in (before or {}).items() if gpu in unread} | dict(presence.holdings)
        if before is not None:
            self._note_motion(held, before, instant)
        self._history.append((instant, held))
        self.note(instant, self._drifted(held))

    def _note_motion(self, held: Mapping[str, int], before: Mapping[str, int], instant: int) -> None:
        while len(self._history) > 1 and self._history[1][0] <= instant - RISE_SPAN:
            self._history.popleft()
        risen = max(
            (size - min(past.get(gpu, 0) for _, past in self._history) for gpu, size in held.items()), default=0
        )
        steps = [held.get(gpu, 0) - before.get(gpu, 0) for gpu in held.keys() | before.keys()]
        if min(steps, default=0) <= -STEP:
            self.fell_at = instant
        if risen >= RISE and max(steps, default=0) > VRAM_QUIET:
            if instant - self.rose_at > RISE_SPAN:
                self._since = instant
            elif instant - self._since >= SUSTAINED:
                self.sustained_at = instant
            self.rose_at = instant

    def _drifted(self, held: dict[str, int]) -> bool:
        before = self._reference
        if before is None:
            self._reference = held
            return False
        moves = [held.get(gpu, 0) - before.get(gpu, 0) for gpu in held.keys() | before.keys()]
        if not any(abs(move) > self._threshold for move in moves):
            return False
        self._reference = held
        return any(move > self._threshold for move in moves)


class DeathWatch:
    """Notices a process that ends while it grows on a full card: it ran out of memory."""

    def __init__(self) -> None:
        self.out_of_memory_at: int | None = None
        self._sizes: Mapping[tuple[str, int], int | None] = {}
        self._grew_at: dict[tuple[str, int], int] = {}
        self._full: Set[str] = frozenset()
        self._watched = False

    def update(self, presence: TenantPresence, instant: int, unread: Set[str], full: Set[str]) -> None:
        """Take in the sample of an instant. full: GPUs with next to no free memory."""
        sizes = {(holder.gpu, holder.pid): holder.used for holder in presence.holders}
        for place, used in sizes.items():
            before = self._sizes.get(place)
            grown = None if before is None or used is None else used - before
            if grown is None and self._watched and place not in self._sizes:
                grown = (used or 0) - BARE_CONTEXT  # it came and grew since the last look
            if grown is not None and grown >= RISE:
                self._grew_at[place] = instant
        for gpu, pid in self._sizes.keys() - sizes.keys():
            grew_at = self._grew_at.pop((gpu, pid), NEVER)
            if instant - grew_at <= RISE_SPAN and gpu in self._full and gpu not in unread:
                self.out_of_memory_at = instant
        self._sizes, self._full, self._watched = sizes, full, True


class ProcessActivity:
    """Everything that is watched of one tenant's processes."""

    def __init__(self, spec: ActivitySpec | None) -> None:
        probes = {probe.kind: probe for probe in spec.probes} if spec else {}
        self.sm = SmSignal(probes["sm-utilization"].threshold if "sm-utilization" in probes else SM_QUIET)
        self.cpu = CpuSignal(probes["cpu"].threshold if "cpu" in probes else CPU_QUIET)
        self.vram = VramSignal(probes["vram"].threshold if "vram" in probes else VRAM_QUIET)
        self._deaths = DeathWatch()
        self._signals: Mapping[str, Signal] = {"sm-utilization": self.sm, "cpu": self.cpu, "vram": self.vram}

    def take_census(self, presence: TenantPresence, instant: int, unread: Set[str], full: Set[str]) -> None:
        """Take in a new sample of the driver."""
        self.sm.update(presence, instant)
        self.vram.update(presence, instant, unread)
        self._deaths.update(presence, instant, unread, full)

    def signs(self) -> Signs:
        """What was seen until now."""
        return Signs(
            sm_at=self.sm.worked_at,
            sm_sustained_at=self.sm.sustained_at,
            sm_is_known=self.sm.last is not None,
            cpu_at=self.cpu.sustained_at,
            cpu_since=self.cpu.since,
            rose_at=self.vram.rose_at,
            rise_sustained_at=self.vram.sustained_at,
            fell_at=self.vram.fell_at,
            quiet_span=max(self.sm.quiet_span, self.cpu.quiet_span),
            live_at=max(self.sm.live_at, self.cpu.live_at),
            out_of_memory_at=self._deaths.out_of_memory_at,
        )

    def observe(self, spec: ProbeSpec, presence: TenantPresence) -> Observation:
        """What the probe `vram`, `sm-utilization` or `cpu` of the definition says now.

        `stirring` within its `idle-after` of life, `idle` after as much quiet, otherwise `unknown`.
        """
        signal, reasons = self._signals[spec.kind], REASONS[spec.kind]
        if not presence.holders:
            return Observation(spec.kind, "absent", presence.absence, self.sm.looked_at)
        if signal.last:
            return Observation(spec.kind, "stirring", reasons.live, signal.looked_at)
        if signal.live_within(spec.idle_after):
            return Observation(spec.kind, "stirring", reasons.recent, signal.looked_at)
        if signal.last is None:
            return Observation(spec.kind, "unknown", reasons.cannot_tell, max(signal.looked_at, self.sm.looked_at))
        if signal.quiet_span >= max(spec.idle_after, 1):
            return Observation(spec.kind, "idle", reasons.quiet, signal.looked_at)
        return Observation(spec.kind, "unknown", "quiet, but not watched for long enough yet", signal.looked_at)


@dataclass(frozen=True, slots=True)
class Reasons:
    """What a probe of a signal says."""

    live: str
    recent: str
    quiet: str
    cannot_tell: str


REASONS: Mapping[str, Reasons] = {
    "sm-utilization": Reasons(
        live="its processes compute on the GPU",
        recent="its processes computed on the GPU a moment ago",
        quiet="its processes have not computed on the GPU recently",
        cannot_tell="the driver does not tell how much its processes use the GPU",
    ),
    "cpu": Reasons(
        live="its processes use the CPU",
        recent="its processes used the CPU a moment ago",
        quiet="its processes have not used the CPU recently",
        cannot_tell="the CPU time of its processes is not known yet",
    ),
    "vram": Reasons(
        live="its VRAM grows",
        recent="its VRAM grew a moment ago",
        quiet="its VRAM has not grown recently",
        cannot_tell="the driver does not tell how much it holds",
    ),
}
"""By kind of probe."""
PROCESS_PROBES = frozenset(REASONS)
"""Kinds of probe that look at the processes themselves."""


def process_ids(presence: TenantPresence) -> frozenset[int]:
    """PIDs of the tenant's processes that hold VRAM."""
    return frozenset(holder.pid for holder in presence.holders)
