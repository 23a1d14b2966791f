from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.arbitration.verify import Measurement, credited, progress

GIB = 1024**3
size = st.integers(0, 24 * GIB)
measurements = st.builds(Measurement, size, size, st.dictionaries(st.sampled_from("abc"), size))


def test_memory_that_left_the_tenant_and_is_free_has_come_back() -> None:
    assert credited(Measurement(9 * GIB, GIB, {}), Measurement(GIB, 9 * GIB, {})) == 8 * GIB


def test_what_somebody_else_took_meanwhile_has_come_back_too() -> None:
    after = Measurement(GIB, 2 * GIB, {"comfyui": 7 * GIB})
    assert credited(Measurement(9 * GIB, GIB, {"comfyui": 0}), after) == 8 * GIB


def test_a_process_that_vanished_while_its_memory_is_in_use_brought_nothing() -> None:
    assert credited(Measurement(9 * GIB, GIB, {}), Measurement(0, GIB, {})) == 0


def test_memory_that_somebody_else_gave_back_is_not_credited_to_the_tenant() -> None:
    assert credited(Measurement(9 * GIB, GIB, {"x": GIB}), Measurement(9 * GIB, 2 * GIB, {"x": 0})) == 0


def test_where_the_driver_gives_no_sizes_the_device_is_the_witness() -> None:
    assert credited(Measurement(None, GIB, {}), Measurement(None, 5 * GIB, {})) == 4 * GIB


@given(measurements, measurements)
def test_a_tenant_is_never_credited_with_more_than_it_gave_up(before: Measurement, after: Measurement) -> None:
    assert before.holding is not None
    assert after.holding is not None
    assert 0 <= credited(before, after) <= max(0, before.holding - after.holding)


@given(st.integers(0, 24 * GIB), st.integers(1, 24 * GIB))
def test_progress_never_goes_back_when_more_is_freed(freed: int, expected: int) -> None:
    order = ["nothing", "some", "complete"]
    assert order.index(progress(freed, expected)) <= order.index(progress(freed + GIB, expected))


def test_of_shared_memory_a_host_program_that_grows_hides_no_release_and_one_that_ends_makes_none() -> None:
    before = Measurement(9 * GIB, 40 * GIB, {}, is_unified=True)
    assert credited(before, Measurement(GIB, 30 * GIB, {}, is_unified=True)) == 8 * GIB
    assert credited(before, Measurement(9 * GIB, 60 * GIB, {}, is_unified=True)) == 0
    assert credited(before, Measurement(None, 44 * GIB, {}, is_unified=True)) == 4 * GIB
