from gpusupervisor.gpu.backoff import Backoff
from tests.gpu.machine import SECOND


def test_attempts_are_one_second_apart_at_first_and_a_minute_at_last() -> None:
    backoff, now, delays = Backoff(), 0, []
    for _ in range(9):
        backoff.failed(now)
        started = now
        while backoff.waiting(now):
            now += SECOND // 2
        assert backoff.due(now)
        delays.append((now - started) // SECOND)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_planned_attempt_is_not_put_off_by_further_failures() -> None:
    backoff = Backoff()
    backoff.failed(0)
    backoff.failed(SECOND // 2)
    assert backoff.due(SECOND)


def test_success_starts_over() -> None:
    backoff = Backoff()
    backoff.failed(0)
    backoff.failed(SECOND)
    backoff.succeeded()
    assert not backoff.waiting(SECOND)
    assert not backoff.due(100 * SECOND)
    backoff.failed(100 * SECOND)
    assert backoff.due(101 * SECOND)
