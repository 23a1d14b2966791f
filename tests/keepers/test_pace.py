"""When the next tick is due."""

import asyncio

from gpusupervisor.keepers.pace import BRISK, GROWS_FOR, LONGEST_GROWTH, Pace

GIB = 1 << 30
SECOND = 1_000_000


def test_ticks_are_quick_while_a_tenant_grows_and_for_a_moment_after() -> None:
    pace = Pace()
    pace.looked(0, {"ollama": 0, "comfyui": 16 * GIB})
    pace.looked(SECOND, {"ollama": 2 * GIB, "comfyui": 16 * GIB})
    assert pace.interval(SECOND, SECOND) == BRISK
    pace.looked(2 * SECOND, {"comfyui": 16 * GIB})
    assert pace.interval(2 * SECOND, 3 * SECOND) == BRISK
    assert pace.interval(SECOND + GROWS_FOR, 3 * SECOND) == 3 * SECOND


def test_what_is_held_at_the_first_tick_has_not_grown() -> None:
    pace = Pace()
    pace.looked(0, {"comfyui": 16 * GIB})
    assert pace.interval(0, SECOND) == SECOND


def test_what_shrinks_or_drifts_quickens_nothing_and_no_interval_grows() -> None:
    pace = Pace()
    pace.looked(0, {"ollama": 4 * GIB})
    pace.looked(10 * LONGEST_GROWTH, {"ollama": 4 * GIB + (8 << 20)})
    pace.looked(11 * LONGEST_GROWTH, {"ollama": GIB})
    assert pace.interval(11 * LONGEST_GROWTH, SECOND) == SECOND
    pace.looked(11 * LONGEST_GROWTH + 1, {"ollama": 2 * GIB})
    assert pace.interval(11 * LONGEST_GROWTH + 1, BRISK // 2) == BRISK // 2


def test_growth_that_never_ends_quickens_for_a_limited_time() -> None:
    pace, seen = Pace(), []
    for number in range(200):
        now = number * BRISK
        pace.looked(now, {"ollama": number * GIB})
        seen.append(pace.interval(now, SECOND) == BRISK)
    assert sum(seen) * BRISK <= LONGEST_GROWTH
    assert not any(seen[-20:])


async def test_a_glance_that_sees_memory_move_ends_the_pause() -> None:
    glances = iter([False, True, False])

    async def moved() -> bool:
        return next(glances)

    async with asyncio.timeout(60):
        await Pace().pause(3600 * SECOND, moved)
    assert next(glances) is False, "it glanced twice"


async def test_nobody_glances_in_a_pause_that_is_over_before() -> None:
    async def moved() -> bool:
        raise AssertionError("a glance")

    await Pace().pause(BRISK // 10, moved)


async def test_whoever_asks_for_a_tick_does_not_wait_for_a_glance() -> None:
    pace = Pace()
    waiting = asyncio.create_task(pace.shown())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await pace.pause(3600 * SECOND)
    pace.tick_begins()
    hurried = asyncio.create_task(pace.pause(BRISK // 10))
    await asyncio.gather(waiting, hurried)
