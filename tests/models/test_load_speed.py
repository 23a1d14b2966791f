"""Loads that were measured tell how long the next one takes, from where its files are."""

import pytest

from gpusupervisor.models.load_speed import LoadSpeeds, MeasuredLoad, estimate, measured_speed

GIB = 1 << 30
SECOND = 1_000_000


def learned(*loads: tuple[float, float, float]) -> LoadSpeeds:
    """From GiB, GiB in RAM, seconds."""
    speeds = LoadSpeeds()
    for size, cached, took in loads:
        load = MeasuredLoad(int(size * GIB), int(cached * GIB), int(took * SECOND))
        kind, speed = measured_speed(speeds, load) or ("", 0)
        cold, warm = ((speed,) if kind == each else () for each in ("cold", "warm"))
        speeds = LoadSpeeds((*speeds.cold, *cold), (*speeds.warm, *warm))
    return speeds


def test_before_any_load_was_measured_nothing_is_said() -> None:
    assert estimate(LoadSpeeds(), GIB, 0) is None
    assert estimate(learned((8, 8, 2)), GIB, 0) is None, "of the disk nothing is known"
    assert estimate(learned((8, 0, 8)), GIB, GIB) is None, "and here nothing of RAM"


def test_it_is_said_from_where_and_how_long_about() -> None:
    speeds = learned((8, 8, 2), (8, 0, 16))
    assert str(estimate(speeds, 12 * GIB, 12 * GIB)) == "from RAM, about 3s"
    assert str(estimate(speeds, 20 * GIB, 0)) == "from disk, about 40s"
    assert str(estimate(speeds, 8 * GIB, 4 * GIB)) == "from RAM and disk, about 9s"
    assert str(estimate(speeds, 1000, 0)) == "from disk, about 1s", "never nothing"


def test_one_odd_load_changes_little() -> None:
    speeds = learned((8, 0, 16), (8, 0, 16), (8, 0, 500), (8, 0, 16))
    assert str(estimate(speeds, 8 * GIB, 0)) == "from disk, about 16s"


def test_a_load_partly_from_ram_tells_of_the_disk_once_the_speed_from_ram_is_known() -> None:
    assert learned((8, 4, 9)) == LoadSpeeds()
    assert str(estimate(learned((8, 8, 2), (8, 4, 9)), 8 * GIB, 0)) == "from disk, about 16s"
    assert learned((8, 8, 2), (8, 4, 0.5)).cold == (), "it took less than from RAM alone"


@pytest.mark.parametrize("load", [(0.01, 0, 5), (8, 9, 5), (8, 0, 0), (8, 0, -1), (0, 0, 1)])
def test_what_makes_no_sense_or_is_too_small_teaches_nothing(load: tuple[float, float, float]) -> None:
    assert learned(load) == LoadSpeeds()
