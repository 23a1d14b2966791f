from gpusupervisor.gpu.process_lists import (
    MOVED,
    SHARED_STALE,
    STALE,
    ProcessList,
    latest_utilization,
    merge,
    must_read,
    occupied,
    with_utilization,
)
from gpusupervisor.gpu.sample import GpuMemory, GpuProcess

GIB = 1 << 30
LAST = ProcessList((), read_at=1000, occupied=8 * GIB)


def card(occupied: int) -> GpuMemory:
    return GpuMemory(24 * GIB, occupied, 24 * GIB - occupied, 0, "nvml-v2")


def shared(taken: int) -> GpuMemory:
    return GpuMemory(128 * GIB, 0, 128 * GIB - taken, taken, "unified")


def test_what_host_programs_take_of_shared_memory_does_not_have_the_list_read_again() -> None:
    last = ProcessList((), read_at=1000, occupied=occupied(shared(8 * GIB)))
    assert not must_read(last, memory=shared(90 * GIB), now=1000 + SHARED_STALE, fresh=False)
    assert must_read(last, memory=shared(8 * GIB), now=1001 + SHARED_STALE, fresh=False)


def test_a_process_in_two_lists_counts_once_with_the_larger_size() -> None:
    merged = merge([(7, GIB, "compute"), (7, 2 * GIB, "graphics"), (3, GIB, "graphics")])
    assert merged == (
        GpuProcess(3, GIB, frozenset({"graphics"})),
        GpuProcess(7, 2 * GIB, frozenset({"compute", "graphics"})),
    )


def test_an_unknown_size_stays_unknown_unless_another_list_knows_it() -> None:
    merged = merge([(7, None, "compute"), (7, 5, "mps"), (8, None, "compute"), (8, None, "graphics")])
    assert [(process.pid, process.used) for process in merged] == [(7, 5), (8, None)]


def test_zero_bytes_are_a_known_size() -> None:
    assert merge([(7, None, "compute"), (7, 0, "graphics")])[0].used == 0


def test_the_last_list_stands_while_little_moves() -> None:
    assert not must_read(LAST, memory=card(8 * GIB + MOVED - 1), now=1000 + STALE, fresh=False)


def test_the_list_is_read_again_when_memory_moved_either_way() -> None:
    assert must_read(LAST, memory=card(8 * GIB + MOVED), now=1001, fresh=False)
    assert must_read(LAST, memory=card(8 * GIB - MOVED), now=1001, fresh=False)


def test_the_list_is_read_again_when_it_is_old_missing_or_asked_for() -> None:
    assert must_read(LAST, memory=card(8 * GIB), now=1001 + STALE, fresh=False)
    assert must_read(None, memory=card(8 * GIB), now=1001, fresh=False)
    assert must_read(LAST, memory=card(8 * GIB), now=1001, fresh=True)


def test_garbage_utilisation_is_dropped_and_the_latest_sample_counts() -> None:
    samples = [(1, 20, 70), (1, 10, 5), (2, 10, 2147483632), (3, 10, 101), (3, 5, 40)]
    assert latest_utilization(samples) == {1: 70, 2: None, 3: 40}


def test_a_process_without_a_sample_did_nothing_and_one_with_garbage_is_unknown() -> None:
    processes = tuple(GpuProcess(pid, GIB, frozenset({"compute"})) for pid in (1, 2, 3))
    told = with_utilization(processes, {1: 70, 2: None, 99: 5})
    assert [process.sm_utilization for process in told] == [70, None, 0]
    assert [process.sm_utilization for process in with_utilization(processes, None)] == [None, None, None]
