"""All checks and the whole machine in one line."""

from dataclasses import replace

from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.errors import LIBRARY_NOT_FOUND, DriverError
from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuMemory, GpuSample, Sample
from gpusupervisor.health.driver import check_driver, check_gpus
from gpusupervisor.health.summary import MENTIONED, overall, status_line, summary
from gpusupervisor.state import Check
from gpusupervisor.tenants.census import Census
from tests.arbitration.builders import CARD, GIB, NOW
from tests.arbitration.seen import doing, process, seen

FINE = Check("driver", "ok", "driver 580 answers")
SKIPPED = Check("other", "skipped", "not asked")
WORN = Check("tenant-a", "degraded", "a is stuck")
BROKEN = Check("gpu-1", "failed", "the GPU is lost")


def rtx(used: float, uuid: str = CARD) -> GpuSample:
    size = round(used * GIB)
    memory = GpuMemory(24 * GIB, size, 23 * GIB - size, GIB, "nvml-v2")
    return GpuSample(GpuIdentity(uuid, "NVIDIA GeForce RTX 4090", ""), "ok", NOW, memory)


def line(what: Seen, *checks: Check, automatic: bool = True) -> str:
    return status_line(what.sample, what.census, what.activities, checks or (FINE,), automatic=automatic)


def of_driver(status: DriverStatus) -> str:
    sample = Sample(NOW, status)
    checks = (check_driver(sample), *check_gpus(sample))
    return status_line(sample, Census({}, {}), {}, checks, automatic=True)


def test_the_line_tells_who_holds_what_and_whether_all_is_well() -> None:
    what = seen(
        process(1, 12.4, "ollama"), process(2, 0.6, "comfyui"),
        tenants={"ollama": doing("busy"), "comfyui": doing("idle")}, cards=(rtx(13.1),),
    )  # fmt: skip
    assert line(what) == "RTX 4090: 13.1 of 24.0 GiB held - ollama busy 12.4, comfyui idle 0.6 - healthy"


def test_processes_that_nobody_described_are_summed_up() -> None:
    what = seen(process(1, 3, "a"), process(7, 2), process(8, 1.5), process(9, None), tenants={"a": doing("unknown")}, cards=(rtx(7),))  # fmt: skip  # noqa: E501
    assert line(what) == "RTX 4090: 7.0 of 24.0 GiB held - a unknown 3.0, unmanaged 3.5 - healthy"


def test_only_the_largest_tenants_are_named() -> None:
    names = [f"t{number}" for number in range(MENTIONED + 3)]
    holders = [process(number, 1 + number, name) for number, name in enumerate(names)]
    text = line(seen(*holders, tenants=dict.fromkeys(names, doing("idle")), cards=(rtx(20),)))
    assert [name for name in names if name in text] == names[-MENTIONED:]


def test_an_empty_card_names_nobody() -> None:
    assert line(seen(cards=(rtx(0),))) == "RTX 4090: 0.0 of 24.0 GiB held - healthy"


def test_every_card_is_shown_and_one_that_sleeps_says_so() -> None:
    asleep = replace(rtx(0, "GPU-2"), state="asleep", memory=None)
    assert line(seen(cards=(rtx(1), asleep))) == "RTX 4090: 1.0 of 24.0 GiB held - RTX 4090: asleep - healthy"


def test_observe_only_is_said() -> None:
    assert line(seen(cards=(rtx(1),)), automatic=False) == "RTX 4090: 1.0 of 24.0 GiB held - observe-only - healthy"


def test_what_is_wrong_takes_the_place_of_healthy() -> None:
    assert line(seen(cards=(rtx(1),)), FINE, WORN, BROKEN).endswith(" - failed: the GPU is lost (and 1 more)")
    assert line(seen(cards=(rtx(1),)), WORN, FINE).endswith(" - degraded: a is stuck")


def test_a_missing_driver_is_said_once() -> None:
    text = of_driver(driver_status.of_error(DriverError("nvmlInit_v2", LIBRARY_NOT_FOUND)))
    assert text.startswith("failed: ")
    assert text.count("initialising NVML") == 1


def test_a_driver_without_a_gpu_is_said_once() -> None:
    assert of_driver(driver_status.NO_GPU) == "failed: The NVIDIA driver works but has no GPU"


def test_a_driver_that_was_not_asked_yet_or_sleeps_is_said() -> None:
    assert of_driver(driver_status.STARTING) == "starting: the driver has not answered yet"
    assert of_driver(driver_status.ASLEEP) == "every GPU sleeps - healthy"


def test_the_whole_is_as_bad_as_its_worst_check() -> None:
    assert overall((FINE, SKIPPED)) == "ok"
    assert overall((SKIPPED,)) == "ok"
    assert overall((FINE, WORN)) == "degraded"
    assert overall((WORN, BROKEN, FINE)) == "failed"


def test_nothing_checked_is_not_healthy() -> None:
    assert overall(()) == "degraded"
    assert summary(()) == "nothing has been checked yet"


def test_the_summary_names_the_worst_and_counts_the_rest() -> None:
    assert summary((FINE, SKIPPED)) == "healthy"
    assert summary((WORN,)) == "a is stuck"
    assert summary((WORN, FINE, BROKEN, WORN)) == "the GPU is lost (and 2 more)"


def test_a_gpu_that_is_detached_is_said_to_be() -> None:
    given = replace(rtx(0), state="asleep", memory=None, detail="detached, so it is left alone until Attach is called")
    other = replace(rtx(0, "GPU-2"), state="asleep", memory=None)
    alone = Sample(NOW, driver_status.ASLEEP, (given,))
    assert status_line(alone, Census({}, {}), {}, (FINE,), automatic=True) == "RTX 4090: detached - healthy"
    both = Sample(NOW, driver_status.ASLEEP, (given, other))
    told = status_line(both, Census({}, {}), {}, (FINE,), automatic=True)
    assert told == "RTX 4090: detached - every other GPU sleeps - healthy"
    (check,) = check_gpus(alone)
    assert (check.state, check.summary) == ("skipped", f"{given.identity.name} is {given.detail}")
