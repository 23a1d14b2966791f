"""From what was seen of a tenant to one verdict. Pure.

An engine's word (its API reports work) and work of its own processes are witnesses of different kinds. Both within a
few seconds are `busy`. The word alone is `claimed`, and in time `stuck`; life alone is `stirring`. Where no API says
that the tenant rests, GPU time or growing VRAM in several samples is `busy` too: CPU time never is. What is too old,
unreadable or contradictory is unknown, and unknown is never idle. All instants and spans are microseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusupervisor.quantities import format_bytes
from gpusupervisor.tenants.activity.probes.process_activity import (
    BARE_CONTEXT,
    FALL_SPAN,
    NEVER,
    NOTHING_SEEN,
    PROCESS_PROBES,
    RISE_SPAN,
    SHORT,
    Signs,
)
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, ActivityState, Observation
from gpusupervisor.tenants.census import TenantPresence

WORK_SPAN = 3_000_000
"""For which work that was seen supports the engine's word."""
AHEAD = 2_000_000
"""By which work may be seen before the word: APIs are asked now and then."""
REST = 5_000_000
"""Under a word after which CPU time alone is believed no more where GPU time is known: pages are loaded meanwhile."""
STUCK_ON_A_FULL_CARD = 30_000_000
STUCK = 120_000_000
UNWATCHED = 60_000_000
"""Between two verdicts from which on the machine was suspended: that no work was seen says nothing then."""
AFTERMATH = 10_000_000
"""After a word ended in which its processes clean up."""
SETTLED = 2_000_000
"""Without any life after which an engine rests whose word of rest comes from what computes itself."""
KNOWS_REST = frozenset({"ollama"})
"""Probes with such a word: Ollama's asks the slots of every runner."""
CAUSES = "its worker has died, or it waits for a service in the network"
IMPACT = "what it reports is not done, and its memory cannot be asked for meanwhile"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that one verdict may look at."""

    observations: Sequence[Observation]
    """The latest of each probe, in the order of the definition."""
    presence: TenantPresence
    signs: Signs = NOTHING_SEEN
    card_is_full: bool = False
    """A GPU that it uses has next to no free memory."""
    stuck_after: int | None = None
    """As its definition says; None: by how full the card is."""
    floor: int = 0
    """Bytes that it is known to hold without any model, as its definition says."""


@dataclass(frozen=True, slots=True)
class Course:
    """What the verdicts until now leave to the next one."""

    judged_at: int = NEVER
    word_since: int | None = None
    """Since when the engine says that it works; None when it does not."""
    word_ended_at: int = NEVER
    moved_at: int = NEVER
    """When work, or progress, was last seen under the word; its beginning when none was."""
    rested: bool = False
    """Its processes were seen at rest under this word."""
    is_stuck: bool = False
    pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Finding:
    state: ActivityState
    branch: str
    reason: str
    basis: Sequence[Observation] = ()
    """The observations that it rests on; empty when it rests on the census itself."""
    impact: str = ""
    remedy: str = ""


def judge(
    evidence: Evidence, previous: Activity, course: Course, *, now: int, freshness: int
) -> tuple[Activity, Course]:
    """The activity of one tenant, and what the next verdict has to know of this one.

    freshness: age beyond which an observation no longer counts.
    """
    current = [_if_fresh(observation, now, freshness) for observation in evidence.observations]
    fresh = replace(evidence, observations=current)
    course = _advance(fresh, course, now)
    found = _finding(fresh, course, previous, now)
    course = replace(course, is_stuck=found.state == "stuck")
    return _activity(fresh, found, previous, now), course


def _activity(evidence: Evidence, found: _Finding, previous: Activity, now: int) -> Activity:
    current = evidence.observations
    authority = _authority(current)
    failures = [seen.out_of_memory_at for seen in current if seen.out_of_memory_at is not None]
    if evidence.signs.out_of_memory_at is not None:
        failures.append(evidence.signs.out_of_memory_at)
    return Activity(
        state=found.state,
        reason=found.reason,
        evidence=tuple(f"{seen.probe}: {seen.state}: {seen.reason}" for seen in current),
        observed_at=min((seen.observed_at for seen in found.basis), default=now),
        since=previous.since if previous.state == found.state and previous != UNOBSERVED else now,
        pinned=any(seen.pinned for seen in current),
        unreachable=authority.unreachable if authority else False,
        trouble=authority.trouble if authority else "",
        answered=_answered(current),
        trouble_detail=authority.reason if authority and authority.trouble else "",
        impact=found.impact,
        remedy=found.remedy,
        placement=authority.placement if authority else None,
        out_of_memory_at=max(failures, default=None),
        says_rest=_word(current) is None and _denies_work(current),
        branch=found.branch,
    )


def _authority(current: Sequence[Observation]) -> Observation | None:
    """The probe whose word on rest counts: the first that does not defer."""
    return next((seen for seen in current if not seen.defers), current[0] if current else None)


def _answered(current: Sequence[Observation]) -> bool | None:
    asked = [seen.answered for seen in current if seen.answered is not None]
    return any(asked) if asked else None


def _word(current: Sequence[Observation]) -> Observation | None:
    """The first engine's API that reports work."""
    return next((seen for seen in current if seen.state == "busy" and seen.probe not in PROCESS_PROBES), None)


def _denies_work(current: Sequence[Observation]) -> bool:
    """Whether the engine's API, where it is the authority, reports that nothing runs."""
    authority = _authority(current)
    return authority is not None and authority.state == "idle" and authority.probe not in PROCESS_PROBES


def _advance(evidence: Evidence, course: Course, now: int) -> Course:
    """Follow the engine's word, and what was seen under it."""
    pids = frozenset(holder.pid for holder in evidence.presence.holders)
    if course.pids and pids and course.pids.isdisjoint(pids):
        course = replace(Course(), word_ended_at=course.word_ended_at)  # it was started anew
    unwatched = course.word_since is not None and now - course.judged_at >= UNWATCHED
    course = replace(course, judged_at=now, pids=pids or course.pids)
    if _word(evidence.observations) is None:
        return _without_word(evidence, course, now)
    if course.word_since is None or unwatched:
        course = replace(course, word_since=now, moved_at=now, rested=False, is_stuck=False)
    seen_at = max(_work_seen(evidence, course), _progress(evidence.observations))
    moved_at = max(course.moved_at, min(seen_at, now))
    rested = (course.rested and moved_at == course.moved_at) or now - moved_at >= REST
    return replace(course, moved_at=moved_at, rested=rested)


def _without_word(evidence: Evidence, course: Course, now: int) -> Course:
    """A word that is merely not heard goes on; one that is taken back has ended."""
    authority = _authority(evidence.observations)
    unheard = authority is not None and authority.state == "unknown" and evidence.presence.holders
    if course.word_since is None or unheard:
        return course
    return replace(course, word_since=None, word_ended_at=now, moved_at=NEVER, rested=False, is_stuck=False)


def _progress(current: Sequence[Observation]) -> int:
    return max((seen.progressed_at for seen in current if seen.progressed_at is not None), default=NEVER)


def _work_seen(evidence: Evidence, course: Course) -> int:
    """When work that belongs to the engine's word was last seen; `NEVER` when it was not.

    What was seen more than a moment before the word, or before an earlier word ended, belongs to something else.
    """
    if course.word_since is None:
        return NEVER
    signs = evidence.signs
    begin = max(course.word_since - AHEAD, course.word_ended_at)
    seen = [instant for instant in (signs.rose_at, signs.sm_at) if instant >= begin]
    believed = not _is_bare(evidence, course) and not (course.rested and signs.sm_is_known)
    if believed and signs.cpu_since >= begin:
        seen.append(signs.cpu_at)
    return max(seen, default=NEVER)


def _is_bare(evidence: Evidence, course: Course) -> bool:
    """It holds no more than an engine that has loaded nothing, and has not grown: nothing of weight runs in it."""
    presence, begin = evidence.presence, (course.word_since or 0) - AHEAD
    if presence.unknown_on or not presence.holdings or evidence.signs.rose_at >= begin:
        return False
    return max(presence.holdings.values()) <= max(evidence.floor, BARE_CONTEXT)


def _finding(evidence: Evidence, course: Course, previous: Activity, now: int) -> _Finding:
    word = _word(evidence.observations)
    if word is not None:
        return _with_word(word, evidence, course, now)
    if course.is_stuck:
        return _Finding("stuck", "stuck", previous.reason, (), previous.impact, previous.remedy)
    if not evidence.observations:
        return _resting(evidence)  # there is no probe by which it could ever be seen to rest
    return _working_without_word(evidence, now) or _stirring(evidence, course, now) or _resting(evidence)


def _with_word(word: Observation, evidence: Evidence, course: Course, now: int) -> _Finding:
    if now - _work_seen(evidence, course) <= WORK_SPAN:
        return _Finding("busy", "word-and-work", word.reason, (word,))
    limit = evidence.stuck_after
    if limit is None:
        limit = STUCK_ON_A_FULL_CARD if evidence.card_is_full else STUCK
    quiet_for = now - course.moved_at
    # Flat VRAM alone proves nothing: GPU or CPU time must have been watched all the while.
    if quiet_for > WORK_SPAN and (
        course.is_stuck or (quiet_for >= limit and evidence.signs.quiet_span >= limit * 9 // 10)
    ):
        reason = f"{word.reason}, but its processes show no work: {CAUSES}"
        return _Finding("stuck", "stuck", reason, (word,), word.impact or IMPACT, _remedy(evidence.presence))
    if evidence.signs.live_at > now - WORK_SPAN and _is_bare(evidence, course):
        size = format_bytes(max(evidence.presence.holdings.values()))
        reason = f"{word.reason}, but its processes hold a bare context ({size}) that does not grow"
        return _Finding("claimed", "claimed-bare-context", reason, (word,))
    return _Finding("claimed", "claimed", f"{word.reason}, but its processes show no work", (word,))


def _working_without_word(evidence: Evidence, now: int) -> _Finding | None:
    """Motion in several samples, where no API denies that there is work; both kinds of it where one does."""
    signs, recent = evidence.signs, now - WORK_SPAN
    computes, grows = signs.sm_sustained_at >= recent, signs.rise_sustained_at >= recent
    denied = _denies_work(evidence.observations)
    if not evidence.presence.holders or (denied and not (computes and grows)):
        return None
    if grows:
        return _Finding("busy", "work-without-word", "it is loading (its VRAM grows)")
    if computes:
        return _Finding("busy", "work-without-word", "its processes compute on the GPU")
    return None


def _stirring(evidence: Evidence, course: Course, now: int) -> _Finding | None:
    """Any sign of life: it protects, and claims nothing."""
    signs = evidence.signs if evidence.presence.holders else NOTHING_SEEN
    current = evidence.observations
    if signs.rose_at > now - RISE_SPAN:
        return _Finding("stirring", "stirring-vram", "its VRAM grows, but nothing else says that it works")
    passed = {"sm-utilization", "cpu"} if _has_settled(evidence, now) else set()
    alive = next((seen for seen in current if seen.state == "stirring" and seen.probe not in passed), None)
    if alive is not None and alive.probe == "cpu" and now - course.word_ended_at <= AFTERMATH:
        return _Finding("stirring", "stirring-aftermath", "its processes clean up after its work", (alive,))
    if alive is not None:
        kind = alive.probe if alive.probe in PROCESS_PROBES else "engine"
        return _Finding("stirring", f"stirring-{kind}", alive.reason, (alive,))
    if signs.sm_at > now - SHORT:
        return _Finding("stirring", "stirring-sm-utilization", "its processes compute on the GPU")
    if signs.fell_at > now - FALL_SPAN:
        return _Finding("stirring", "stirring-release", "its VRAM falls: it is giving memory back")
    return None


def _has_settled(evidence: Evidence, now: int) -> bool:
    """Whether what computed a moment ago rests for certain, although its past protects it for longer elsewhere."""
    authority, signs = _authority(evidence.observations), evidence.signs
    rests = authority is not None and authority.state == "idle" and authority.probe in KNOWS_REST
    return rests and now - signs.live_at >= SETTLED and signs.quiet_span >= SETTLED // 2


def _resting(evidence: Evidence) -> _Finding:
    """What the probes say of a tenant that shows no life."""
    current, presence = evidence.observations, evidence.presence
    authority = _authority(current)
    if authority is None:
        if presence.holders:
            return _Finding("unknown", "unknown", "no probe is defined that could tell whether it is working")
        return _Finding("absent", "absent", presence.absence)
    if authority.state == "idle":
        branch = "idle-quiet" if authority.probe in PROCESS_PROBES else "idle-word"
        return _Finding("idle", branch, authority.reason, [seen for seen in current if seen.state == "idle"])
    if authority.state == "absent" and not presence.holders:
        return _Finding("absent", "absent", authority.reason, (authority,))
    if authority.state == "absent":
        reason = f"{authority.reason}, though its processes hold VRAM"
        return _Finding("unknown", "unknown", reason, (authority,))
    return _Finding("unknown", "unknown", authority.reason, (authority,))


def _remedy(presence: TenantPresence) -> str:
    """How to end what does not go on, by the unit of its processes where there is one."""
    return f"wait if it uses a service in the network; otherwise restart it: {_restart(presence)}"


def _restart(presence: TenantPresence) -> str:
    for holder in presence.holders:
        if holder.identity and holder.identity.user_unit:
            return f"systemctl --user restart {holder.identity.user_unit}"
        if holder.identity and holder.identity.unit.endswith(".service"):
            return f"systemctl restart {holder.identity.unit}"
    pids = ", ".join(sorted({str(holder.pid) for holder in presence.holders}))
    return f"end process {pids} and start it again" if pids else "end its process and start it again"


def _if_fresh(observation: Observation, now: int, freshness: int) -> Observation:
    """The observation, or unknown in its place once it is too old to go by."""
    if now - observation.observed_at <= freshness:
        return observation
    return replace(
        observation,
        state="unknown",
        reason=f"last heard too long ago ({observation.state} then)",
        unreachable=False,
        trouble="",
        answered=None if observation.answered is None else False,
        impact="",
    )
