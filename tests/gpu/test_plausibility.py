import pytest

from gpusupervisor.gpu.plausibility import PREFIX, doubt_of_driver, doubt_of_list
from gpusupervisor.gpu.sample import GpuProcess

GIB = 1 << 30


def listed(*processes: tuple[int, int | None]) -> list[GpuProcess]:
    return [GpuProcess(pid, used, frozenset({"compute"})) for pid, used in processes]


@pytest.mark.parametrize("version", ["535.43", "535.43.02", "535.86.05", "535.97"])
def test_drivers_that_scramble_their_lists_are_not_believed(version: str) -> None:
    doubt = doubt_of_driver(version)
    assert doubt is not None
    assert doubt.text.startswith("attribution unavailable: ")
    assert "update" in doubt.remedy


@pytest.mark.parametrize("version", ["535.42.99", "535.98", "535.104.05", "530.41.03", "580.95.05", "", "devel"])
def test_other_drivers_are_believed(version: str) -> None:
    assert doubt_of_driver(version) is None


@pytest.mark.parametrize("pid", [0, 32768, 4294967295])
def test_a_pid_that_cannot_exist_refuses_the_list(pid: int) -> None:
    doubt = doubt_of_list(listed((100, GIB), (pid, GIB)), total=24 * GIB, pid_max=32768)
    assert doubt is not None
    assert doubt.text.startswith(PREFIX)
    assert "cannot exist" in doubt.text


def test_more_memory_than_the_card_has_refuses_the_list() -> None:
    doubt = doubt_of_list(listed((1, 20 * GIB), (2, 5 * GIB)), total=24 * GIB, pid_max=32768)
    assert doubt is not None
    assert "more memory" in doubt.text


def test_a_list_that_can_be_is_believed() -> None:
    assert doubt_of_list(listed((1, 20 * GIB), (32767, 4 * GIB), (9, None)), total=24 * GIB, pid_max=32768) is None
