"""The tracker: who is looked at when, and that nobody waits for a slow engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.probes.http import HttpProbe
from gpusupervisor.tenants.activity.tracker import ActivityTracker, Cadence
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census, GpuAccount, Holder, TenantPresence
from gpusupervisor.tenants.definition import ActivitySpec, Match, ProbeSpec, TenantDefinition
from tests.http_peer import Peer
from tests.tenants.activity.builders import GIB, GPU, MIDNIGHT, SECOND, holder, presence

STATUS = ProbeSpec("http", get="/status", busy_when="jobs > `0`", timeout=30 * SECOND)
DEFINITION = TenantDefinition("app", "App", Match(), activity=ActivitySpec((STATUS,)))


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.instant = 100 * SECOND

    def now(self) -> int:
        return self.instant

    def realtime(self, instant: int) -> int:
        return MIDNIGHT + instant


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
async def tracker(http: EngineHttp, clock: Hands, peer: Peer) -> AsyncIterator[ActivityTracker]:
    """It waits for answers for as long as a busy machine may take to give them."""
    peer.says("/status", {"jobs": 0})
    tracker = ActivityTracker(clock, http, cadence=Cadence(grace=20 * SECOND))
    yield tracker
    await tracker.close()


@pytest.fixture
async def hasty(http: EngineHttp, clock: Hands, peer: Peer) -> AsyncIterator[ActivityTracker]:
    """It waits as long as the daemon's does."""
    peer.says("/status", {"jobs": 0})
    tracker = ActivityTracker(clock, http)
    yield tracker
    await tracker.close()


class Scene:
    """Calls `look` at one moment after the other."""

    def __init__(self, tracker: ActivityTracker, clock: Hands, *tenants: TenantPresence) -> None:
        self.tracker = tracker
        self.clock = clock
        self.tenants = tenants
        self.definition = DEFINITION
        self.full: frozenset[str] = frozenset()

    async def after(self, seconds: float, *tenants: TenantPresence, gpu_is_read: bool = True) -> Activity:
        self.clock.instant += int(seconds * SECOND)
        if tenants:
            self.tenants = tenants
        account = GpuAccount(GPU, {}, (), 0, is_read=gpu_is_read)
        census = Census({each.id: each for each in self.tenants}, {GPU: account})
        definitions = {each.id: self.definition for each in self.tenants}
        seen = await self.tracker.look(census, definitions, self.clock.instant, self.full)
        assert seen.keys() == {each.id for each in self.tenants}
        return seen[self.tenants[0].id]


def app(peer: Peer, *holders: Holder) -> TenantPresence:
    return presence(peer.url, *(holders or (holder(),)))


@pytest.mark.parametrize(("sm", "jobs", "state"), [(70, 1, "busy"), (0, 1, "claimed"), (70, 0, "stirring")])
async def test_a_tenant_that_shows_life_is_looked_at_every_time(
    tracker: ActivityTracker, clock: Hands, peer: Peer, sm: int, jobs: int, state: str
) -> None:
    peer.says("/status", {"jobs": jobs})
    scene = Scene(tracker, clock, app(peer, holder(sm=sm)))
    for _ in range(4):
        assert (await scene.after(1)).state == state
    assert len(peer.asked) == 4


async def test_an_idle_tenant_is_looked_at_at_the_slow_pace(tracker: ActivityTracker, clock: Hands, peer: Peer) -> None:
    scene = Scene(tracker, clock, app(peer))
    for _ in range(12):
        assert (await scene.after(1)).state == "idle"
    assert len(peer.asked) == 4  # twice at once, because it had just changed, then every 5 s


async def test_moved_memory_triggers_a_look_at_once(tracker: ActivityTracker, clock: Hands, peer: Peer) -> None:
    scene = Scene(tracker, clock, app(peer))
    for _ in range(3):
        await scene.after(1)
    before = len(peer.asked)
    await scene.after(0.1, app(peer, holder(used=GIB - (32 << 20))))
    assert len(peer.asked) == before + 1


async def test_gpu_time_of_an_idle_tenant_triggers_a_look_at_once(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    for _ in range(3):
        await scene.after(1)
    peer.says("/status", {"jobs": 1})
    assert (await scene.after(0.1, app(peer, holder(sm=70)))).state == "busy"


async def test_memory_that_grows_protects_an_idle_tenant(tracker: ActivityTracker, clock: Hands, peer: Peer) -> None:
    scene = Scene(tracker, clock, app(peer))
    await scene.after(1)
    grown = await scene.after(1, app(peer, holder(used=2 * GIB)))
    assert (grown.state, grown.reason) == ("stirring", "its VRAM grows, but nothing else says that it works")
    settled = [(await scene.after(1)).state for _ in range(5)]
    assert settled == ["stirring", "stirring", "idle", "idle", "idle"]


async def test_a_load_that_the_engine_reports_is_busy_at_once(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    await scene.after(1)
    peer.says("/status", {"jobs": 1})
    assert (await scene.after(1, app(peer, holder(used=2 * GIB)))).state == "busy"


async def test_a_claim_on_a_full_card_is_stuck_after_half_a_minute(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    peer.says("/status", {"jobs": 1})
    scene = Scene(tracker, clock, app(peer, holder(sm=0)))
    scene.full = frozenset({GPU})
    states = [(await scene.after(1)).state for _ in range(40)]
    assert states == ["claimed"] * 30 + ["stuck"] * 10


async def test_each_branch_of_the_judgement_is_counted_when_it_is_entered(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer, holder(sm=0)))
    for jobs, sm in ((0, 0), (1, 0), (1, 0), (1, 70), (1, 70), (0, 70), (0, 0)):
        peer.says("/status", {"jobs": jobs})
        await scene.after(5, app(peer, holder(sm=sm)))
    assert tracker.counters == {
        "activity-idle-word": 2, "activity-claimed": 1, "activity-word-and-work": 1,
        "activity-stirring-sm-utilization": 1,
    }  # fmt: skip


async def test_memory_that_is_seen_again_after_the_driver_failed_has_not_grown(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    await scene.after(0)
    await scene.after(1, presence(peer.url), gpu_is_read=False)
    await scene.after(5, presence(peer.url), gpu_is_read=False)
    assert (await scene.after(1, app(peer))).state == "idle"
    assert (await scene.after(1, app(peer, holder(used=2 * GIB)))).state == "stirring", "it has grown now"


async def test_slow_growth_between_fast_censuses_is_seen(tracker: ActivityTracker, clock: Hands, peer: Peer) -> None:
    scene = Scene(tracker, clock, app(peer))
    await scene.after(1)
    states = [(await scene.after(0.05, app(peer, holder(used=GIB + step * (10 << 20))))).state for step in range(12)]
    assert states[0] == "idle"
    assert states[-1] == "stirring"


async def test_what_was_there_at_the_start_has_not_grown(tracker: ActivityTracker, clock: Hands, peer: Peer) -> None:
    assert (await Scene(tracker, clock, app(peer, holder(used=20 * GIB))).after(1)).state == "idle"


async def test_a_silent_engine_holds_up_nobody(hasty: ActivityTracker, clock: Hands, peer: Peer) -> None:
    silent = Peer(silent={"/status"})
    await silent.start()
    scene = Scene(hasty, clock, app(peer), replace(app(silent), id="slow"))
    async with asyncio.timeout(20):  # the probe's own deadline is 30 s
        while (await scene.after(1)).state != "idle":
            await asyncio.sleep(0.01)
    assert hasty.activities()["slow"].state == "unknown"
    await scene.after(1)
    assert len(silent.asked) == 1, "one look at most is under way"
    await hasty.close()
    await silent.stop()


async def test_rest_is_not_believed_while_the_next_answer_is_pending(
    hasty: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(hasty, clock, app(peer))
    async with asyncio.timeout(20):
        while (await scene.after(1)).state != "idle":
            await asyncio.sleep(0.01)
    peer.silent.add("/status")
    await scene.after(6)
    assert (await scene.after(0.5)).state == "idle"
    pending = await scene.after(1)
    assert (pending.state, pending.reason) == ("unknown", "its API has not answered yet (idle before)")
    peer.released.set()
    async with asyncio.timeout(20):
        while (await scene.after(0)).state != "idle":
            await asyncio.sleep(0.01)


async def test_an_answer_after_the_grace_is_used_at_the_next_look(
    hasty: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    peer.silent.add("/status")
    scene = Scene(hasty, clock, app(peer))
    assert (await scene.after(1)).reason == "not observed yet"
    peer.released.set()
    async with asyncio.timeout(5):
        while (await scene.after(0)).state != "idle":
            await asyncio.sleep(0.01)
    assert len(peer.asked) == 1


async def test_a_recheck_asks_again_and_believes_nothing_older(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    assert (await scene.after(1)).state == "idle"
    peer.says("/status", {"jobs": 1})
    assert (await tracker.recheck("app")).state == "claimed"
    peer.silent.add("/status")
    peer.released.clear()
    scene.definition = replace(DEFINITION, activity=ActivitySpec((replace(STATUS, timeout=200_000),)))
    await scene.after(1)
    hung = await tracker.recheck("app")
    assert (hung.state, hung.reason) == ("unknown", "its API did not answer /status in time")


async def test_a_recheck_waits_for_a_look_that_is_under_way_and_then_looks_afresh(
    hasty: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    peer.silent.add("/status")
    await Scene(hasty, clock, app(peer)).after(1)
    peer.says("/status", {"jobs": 1})
    clock.instant += SECOND
    checking = asyncio.create_task(hasty.recheck("app"))
    await asyncio.sleep(0)
    peer.released.set()
    assert (await checking).state == "claimed"
    assert len(peer.asked) == 2


async def test_an_engine_is_not_away_while_it_is_asked_again(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    await scene.after(1)
    peer.silent.add("/status")
    checking = asyncio.create_task(tracker.recheck("app"))
    await asyncio.sleep(0)
    meanwhile = await scene.after(0)
    assert (meanwhile.state, meanwhile.answered) == ("unknown", True)
    peer.released.set()
    await checking


async def test_a_recheck_of_a_tenant_that_is_not_there_is_unknown(tracker: ActivityTracker) -> None:
    assert (await tracker.recheck("nobody")).state == "unknown"


async def test_tenants_that_vanish_are_forgotten(hasty: ActivityTracker, clock: Hands, peer: Peer) -> None:
    peer.silent.add("/status")
    scene = Scene(hasty, clock, app(peer))
    await scene.after(1)
    await scene.after(1, replace(app(peer), id="other"))
    assert hasty.activities().keys() == {"other"}


async def test_a_changed_description_starts_afresh_and_keeps_since(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    first = await scene.after(1)
    peer.says("/v2", {"jobs": 0})
    spec = ActivitySpec((replace(STATUS, get="/v2"),))
    scene.definition = replace(DEFINITION, activity=spec)
    second = await scene.after(1)
    assert (second.state, second.since) == ("idle", first.since)
    assert peer.paths[-1] == "/v2"


async def test_a_tenant_without_probes_is_unknown_and_never_asked(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    scene.definition = replace(DEFINITION, activity=None)
    assert (await scene.after(1)).state == "unknown"
    assert peer.asked == []


async def test_evidence_grows_old_when_the_engine_falls_silent(
    tracker: ActivityTracker, clock: Hands, peer: Peer
) -> None:
    scene = Scene(tracker, clock, app(peer))
    assert (await scene.after(1)).state == "idle"
    await peer.stop()
    gone = await scene.after(6)
    assert (gone.state, gone.unreachable) == ("unknown", True)


async def test_a_defect_in_a_probe_is_unknown_and_named(
    tracker: ActivityTracker, clock: Hands, peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(HttpProbe, "observe", fail)
    activity = await Scene(tracker, clock, app(peer)).after(1)
    assert activity.state == "unknown"
    assert "ZeroDivisionError" in activity.reason
    assert "Probe http of tenant app failed" in caplog.text


async def test_closing_ends_looks_that_are_under_way(hasty: ActivityTracker, clock: Hands, peer: Peer) -> None:
    peer.silent.add("/status")
    await Scene(hasty, clock, app(peer)).after(1)
    before = {task.get_name() for task in asyncio.all_tasks()}
    await hasty.close()
    assert "look at app" in before
    assert "look at app" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_the_version_is_kept_for_whoever_asks(tracker: ActivityTracker, clock: Hands, peer: Peer) -> None:
    peer.says("/api/ps", {"models": []})
    peer.says("/api/version", {"version": "0.33.0"})
    scene = Scene(tracker, clock, app(peer))
    scene.definition = replace(DEFINITION, activity=ActivitySpec((ProbeSpec("ollama"),)))
    await scene.after(1)
    assert tracker.version("app") == "0.33.0"
    assert tracker.version("nobody") == ""
