"""Short ways to the values that probes and the tracker are given."""

from collections.abc import Mapping

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.activity.judgement import Course, Evidence, judge
from gpusupervisor.tenants.activity.probes.base import ProbeContext
from gpusupervisor.tenants.activity.probes.process_activity import NOTHING_SEEN, PROCESS_PROBES, ProcessActivity, Signs
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, ActivityState, Observation
from gpusupervisor.tenants.census import Holder, TenantPresence
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec

GPU = "GPU-1"
GIB = 1 << 30
SECOND = 1_000_000
MIDNIGHT = 1_795_910_400 * SECOND
"""2026-11-29T00:00:00Z in wall-clock microseconds, at instant 0 of the tests."""


def holder(
    pid: int = 100,
    used: int | None = GIB,
    *,
    sm: int | None = None,
    command_line: tuple[str, ...] = (),
    unit: str = "",
    user_unit: str = "",
    start_time: int = 5,
) -> Holder:
    identity = ProcessIdentity(
        ProcessKey(pid, start_time), 1, 0, "x", command_line=command_line, unit=unit, user_unit=user_unit
    )
    return Holder(GPU, pid, used, identity, "app", "test", sm)


def presence(
    endpoint: str = "", *holders: Holder, held: Mapping[str, int] | None = None, unknown: bool = False
) -> TenantPresence:
    sizes = {GPU: sum(each.used or 0 for each in holders)} if holders else {}
    return TenantPresence(
        "app",
        "app",
        endpoint,
        holders,
        sizes if held is None else held,
        frozenset({GPU}) if unknown else frozenset(),
    )


def context(
    http: EngineHttp, who: TenantPresence, now: int = 0, *, signs: Signs = NOTHING_SEEN, measured: int | None = None
) -> ProbeContext:
    return ProbeContext(now, MIDNIGHT + now, who, now if measured is None else measured, http, signs)


WATCHED = tuple(
    ProbeSpec(kind, idle_after=10 * SECOND, threshold=threshold)
    for kind, threshold in (("sm-utilization", 0.0), ("cpu", 10.0), ("vram", float(1 << 20)))
)
"""The probes of processes that shipped definitions have."""


class Onlooker:
    """Sees one tenant second by second, as the tracker does, without an engine: its word is given."""

    def __init__(
        self, *probes: str, stuck_after: int | None = None, card_is_full: bool = False, sizes_are_known: bool = True
    ) -> None:
        """probes: kinds, the authority's first; those of processes as in shipped definitions."""
        told = {spec.kind: spec for spec in WATCHED}
        names = probes or ("comfyui", *told)
        self.spec = ActivitySpec(tuple(told.get(name, ProbeSpec(name)) for name in names), stuck_after)
        self.processes = ProcessActivity(self.spec)
        self.card_is_full = card_is_full
        self.sizes_are_known = sizes_are_known
        self.now = 1000 * SECOND
        self.cpu_time = 0
        self.activity: Activity = UNOBSERVED
        self.course = Course()
        self.pid = 100

    def sees(
        self,
        word: ActivityState = "idle",
        *,
        sm: int | None = 0,
        cpu: int | None = 0,
        held: int = GIB,
        after: float = 1,
        progress: bool = False,
    ) -> Activity:
        """The verdict after so many seconds. cpu: milliseconds used in them; None when it cannot be read."""
        self.now += int(after * SECOND)
        self.cpu_time += 1000 * (cpu or 0)
        size = held if self.sizes_are_known else None
        holders = (holder(self.pid, size, sm=sm, unit="app.service"),) if held else ()
        who = presence("http://127.0.0.1:1", *holders, held=None if self.sizes_are_known else {},
                       unknown=bool(holders) and not self.sizes_are_known)  # fmt: skip
        full = frozenset({GPU}) if self.card_is_full else frozenset()
        self.processes.take_census(who, self.now, frozenset(), full)
        self.processes.cpu.update(who, self.cpu_time if cpu is not None and holders else None, self.now)
        observations = [self._observation(spec, who, word, progress=progress) for spec in self.spec.probes]
        evidence = Evidence(
            observations, who, self.processes.signs(), card_is_full=self.card_is_full,
            stuck_after=self.spec.stuck_after,
        )  # fmt: skip
        self.activity, self.course = judge(evidence, self.activity, self.course, now=self.now, freshness=17 * SECOND)
        return self.activity

    def rests(self, seconds: int = 15) -> None:
        """Nothing happens for some time."""
        for _ in range(seconds):
            self.sees()

    def _observation(self, spec: ProbeSpec, who: TenantPresence, word: ActivityState, *, progress: bool) -> Observation:
        if spec.kind in PROCESS_PROBES:
            return self.processes.observe(spec, who)
        reason = {"busy": "its queue reports 1 prompt", "idle": "its queue is empty"}.get(word, f"its API says {word}")
        return Observation(spec.kind, word, reason, self.now, progressed_at=self.now if progress else None)
