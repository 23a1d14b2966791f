"""Real files on a real disk: which are found, how much of them is in RAM, and what is not followed or opened."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from gpusupervisor.reader.page_cache import budget, layout, measure, scan, system_calls
from gpusupervisor.reader.page_cache.beneath import Beneath, NotPlain, opened_root
from gpusupervisor.reader.page_cache.budget import Budget
from gpusupervisor.reader.page_cache.measure import Gauge
from gpusupervisor.reader.page_cache.residency import measure_all
from gpusupervisor.tenants.definition import ModelFolders
from tests.model_files import ME, MIB, look, make_cold, ollama_model, problems, write

as_root = pytest.mark.skipif(ME != 0, reason="needs root, to give files away")
METHODS = ["cachestat", "mincore"]


@pytest.fixture(params=METHODS)
def gauge(request: pytest.FixtureRequest) -> Gauge:
    gauge = Gauge()
    if request.param == "cachestat" and gauge.method != "cachestat":
        pytest.skip("this kernel has no cachestat")
    gauge.method = request.param
    return gauge


def test_what_is_in_ram_is_measured_and_what_was_taken_out_is_not(disk: Path, gauge: Gauge) -> None:
    warm, cold = write(disk / "warm.gguf", 3 * MIB + 5), write(disk / "cold.gguf", 2 * MIB)
    make_cold(cold)
    found = look(disk, gauge=gauge)
    assert (found["warm.gguf"].size, found["warm.gguf"].cached) == (warm.stat().st_size, warm.stat().st_size)
    assert (found["cold.gguf"].size, found["cold.gguf"].cached) == (2 * MIB, 0)


def test_a_part_that_is_in_ram_counts_as_that(disk: Path, gauge: Gauge) -> None:
    file = write(disk / "model.safetensors", 4 * MIB)
    make_cold(file)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
    os.pread(descriptor, MIB, 0)
    os.close(descriptor)
    assert look(disk, gauge=gauge)["model.safetensors"].cached == MIB


def test_windows_of_a_large_file_are_added_up(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "WINDOW", MIB)
    gauge = Gauge()
    gauge.method = "mincore"
    write(disk / "model.gguf", 3 * MIB + 1)
    assert look(disk, gauge=gauge)["model.gguf"].cached == 3 * MIB + 1


def test_a_file_without_bytes_is_wholly_in_ram_and_no_special_case(disk: Path, gauge: Gauge) -> None:
    write(disk / "empty.gguf", 0)
    found = look(disk, gauge=gauge)["empty.gguf"]
    assert (found.size, found.cached, found.problem, len(found.files)) == (0, 0, "", 1)


def test_a_file_with_two_names_is_counted_once(disk: Path) -> None:
    first = write(disk / "m-00001-of-00002.gguf")
    os.link(first, disk / "m-00002-of-00002.gguf")
    found = look(disk)["m.gguf"]
    assert (found.size, len(found.files)) == (MIB, 1)


def test_shards_are_one_model_and_folders_are_part_of_the_name(disk: Path) -> None:
    for number in range(1, 4):
        write(disk / f"big/x-0000{number}-of-00003.safetensors")
    write(disk / "checkpoints/sd.ckpt")
    write(disk / "checkpoints/readme.txt")
    assert {name: len(model.files) for name, model in look(disk).items()} == {
        "big/x.safetensors": 3,
        "checkpoints/sd.ckpt": 1,
    }


def test_the_hubs_cache_is_read_through_its_links(disk: Path) -> None:
    repository = disk / "hub/models--Qwen--Qwen3-8B"
    blob = write(repository / "blobs/abc")
    link = repository / "snapshots/r1/model-00001-of-00001.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../blobs/abc")
    again = repository / "snapshots/r2/model-00001-of-00001.safetensors"
    again.parent.mkdir(parents=True)
    again.symlink_to("../../blobs/abc")
    found = look(disk)["Qwen/Qwen3-8B"]
    assert (found.size, found.cached, found.problem) == (blob.stat().st_size, MIB, "")


def test_ollamas_models_are_named_as_its_api_names_them(disk: Path) -> None:
    blobs = ollama_model(disk, "registry.ollama.ai/library/qwen3/8b", 2 * MIB, 300)
    ollama_model(disk, "registry.ollama.ai/someone/tuned/latest", MIB)
    ollama_model(disk, "hf.co/bartowski/Llama-GGUF/Q4_K_M", MIB)
    make_cold(blobs[0])
    found = look(disk, "ollama")
    assert found.keys() == {"qwen3:8b", "someone/tuned:latest", "hf.co/bartowski/Llama-GGUF:Q4_K_M"}
    assert len(found["qwen3:8b"].files) == 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON"),
        ("[" * 60_000, "not JSON"),
        ("[]", "lists no layers"),
        ('{"layers": 3}', "lists no layers"),
        ('{"layers": []}', "lists no layers"),
        ('{"layers": [{"digest": "sha256:../../../etc/shadow"}]}', "without a digest"),
        ('{"layers": [{"digest": 5}]}', "without a digest"),
        ('{"layers": [null]}', "without a digest"),
        ('{"layers": [' + ", ".join(["{}"] * 300) + "]}", "more than 256 layers"),
        (" " * 70_000, "too long"),
        ('{"layers": [{"digest": "sha256:' + "ab" * 32 + '"}]}', "missing"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_a_named_problem_of_its_model_alone(
    disk: Path, content: str, problem: str
) -> None:
    ollama_model(disk, "registry.ollama.ai/library/good/1b", MIB)
    broken = disk / "manifests/registry.ollama.ai/library/bad/1b"
    broken.parent.mkdir(parents=True)
    broken.write_text(content)
    found = look(disk, "ollama")
    assert problem in found["bad:1b"].problem
    assert found["bad:1b"].cached is None
    assert (found["good:1b"].cached, found["good:1b"].problem) == (MIB, "")


@pytest.fixture(params=[True, False], ids=["openat2", "step by step"])
def beneath_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With openat2, and as on a kernel without it."""
    if not request.param:
        monkeypatch.setattr(system_calls, "has_openat2", lambda: False)
    elif not system_calls.has_openat2():
        pytest.skip("this kernel has no openat2")
    return bool(request.param)


def test_links_that_lead_out_are_not_followed(disk: Path, beneath_kernel: bool) -> None:
    outside = write(disk / "outside/secret.gguf")
    models = disk / "models"
    models.mkdir()
    (models / "absolute.gguf").symlink_to(outside)
    (models / "upwards.gguf").symlink_to("../outside/secret.gguf")
    (models / "magic.gguf").symlink_to("/proc/self/exe")
    (models / "folder").symlink_to(disk / "outside")
    found = look(models)
    assert found.keys() == {"absolute.gguf", "upwards.gguf", "magic.gguf"}
    for model in found.values():
        assert "a link leads out of the directory" in model.problem
        assert (model.files, model.cached) == ((), None)


def test_a_link_that_stays_below_is_followed(disk: Path, beneath_kernel: bool) -> None:
    write(disk / "hub/blobs/5eed")
    (disk / "hub/snapshots/main").mkdir(parents=True)
    (disk / "hub/snapshots/main/model.gguf").symlink_to("../../blobs/5eed")  # as the hub of Hugging Face has it
    (disk / "short.gguf").symlink_to("hub/snapshots/./main/model.gguf")
    (disk / "again").symlink_to("hub/snapshots/main")
    (disk / "long.gguf").symlink_to("again/../main/model.gguf")
    found = look(disk)
    for name in ("hub/snapshots/main/model.gguf", "short.gguf", "long.gguf"):
        assert (found[name].cached, found[name].problem) == (MIB, ""), name


def test_a_link_that_leads_out_by_a_detour_or_in_a_circle_is_not_followed(disk: Path, beneath_kernel: bool) -> None:
    write(disk / "secret.gguf")
    models = disk / "models"
    (models / "deep").mkdir(parents=True)
    (models / "detour.gguf").symlink_to("deep/../../secret.gguf")
    (models / "up").symlink_to("..")
    (models / "via.gguf").symlink_to("up/secret.gguf")
    (models / "circle.gguf").symlink_to("circle.gguf")
    with opened_root(str(models), ME) as root:
        for name in ("detour.gguf", "via.gguf", "circle.gguf"):
            with pytest.raises(OSError, match=r"cross-device|Too many levels"), Beneath(root).file(name):
                pass


def test_what_is_no_regular_file_is_not_opened(disk: Path, beneath_kernel: bool) -> None:
    """To open a FIFO would block, to open a device may do anything."""
    os.mkfifo(disk / "pipe.gguf")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(disk / "socket.gguf"))
    (disk / "folder.gguf").mkdir()
    if ME == 0:
        os.mknod(disk / "device.gguf", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    write(disk / "real.gguf")
    assert look(disk).keys() == {"real.gguf"}
    with opened_root(str(disk), ME) as root:
        for name in ("pipe.gguf", "socket.gguf", "folder.gguf"):
            with pytest.raises(NotPlain), Beneath(root).file(name):
                pass


def test_a_file_that_became_a_fifo_after_it_was_listed_is_a_problem(
    disk: Path, beneath_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(disk / "model.gguf")
    listed = layout.models_of_weights

    def replaced_since(paths: list[str]) -> object:
        file.unlink()
        os.mkfifo(file)
        return listed(paths)

    monkeypatch.setattr(layout, "models_of_weights", replaced_since)
    found = look(disk)["model.gguf"]
    assert (found.problem, found.cached) == ("one of its files is no regular file", None)


def test_a_file_that_is_gone_since_it_was_listed_is_a_problem(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(disk / "model.gguf")
    listed = layout.models_of_weights

    def gone_since(paths: list[str]) -> object:
        file.unlink(missing_ok=True)
        return listed(paths)

    monkeypatch.setattr(layout, "models_of_weights", gone_since)
    assert look(disk)["model.gguf"].problem == "one of its files is missing"


def test_steps_upwards_are_refused(disk: Path, beneath_kernel: bool) -> None:
    write(disk / "secret.gguf")
    (disk / "models").mkdir()
    with opened_root(str(disk / "models"), ME) as root:
        with pytest.raises(OSError, match="cross-device") as refused, Beneath(root).file("../secret.gguf"):
            pass
        assert refused.value.errno == errno.EXDEV


@as_root
def test_roots_links_lead_to_the_directory_and_others_do_not(disk: Path) -> None:
    write(disk / "elsewhere/model.gguf")
    (disk / "models").symlink_to("elsewhere")
    assert look(disk / "models").keys() == {"model.gguf"}
    os.lchown(disk / "models", 12345, 12345)
    assert look(disk / "models") == {}
    assert "a link leads out" in problems(disk / "models")[0]


def test_links_in_a_circle_end(disk: Path) -> None:
    (disk / "a").symlink_to("b")
    (disk / "b").symlink_to("a")
    assert look(disk / "a") == {}
    assert len(problems(disk / "a")) == 1


def test_a_directory_that_is_not_there_is_no_problem(disk: Path) -> None:
    write(disk / "file")
    assert look(disk / "absent") == {}
    assert problems(disk / "absent") == ()
    assert problems(disk / "file/below") == ()


def test_very_many_files_are_not_all_looked_at_and_that_is_said(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_ENTRIES", 100)
    for number in range(150):
        (disk / f"{number}.gguf").touch()
    of_these = look(disk, gauge=Gauge(Budget(entries=100)))
    assert len(of_these) == 100
    told = measure_all(ModelFolders((str(disk),), "files"), Gauge(Budget(entries=100)), ME).problems
    assert told == ("there are more than 100 files, and the rest was not looked at",)


def test_very_many_models_are_not_all_told_and_that_is_said(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_MODELS", 3)
    for number in range(5):
        (disk / f"{number}.gguf").touch()
    assert len(look(disk)) == 3
    assert problems(disk) == ("there are more than 3 models, and the rest is left out",)


def test_a_look_that_takes_too_long_is_cut_short_and_that_is_said(disk: Path) -> None:
    write(disk / "model.gguf")
    found = measure_all(ModelFolders((str(disk),), "files"), Gauge(Budget(until=0.0)), ME)
    assert found.models == ()
    assert found.problems == ("to examine the files takes longer than 5 s, and the rest was left out",)


def test_folders_too_deep_are_left_out_and_that_is_said(disk: Path) -> None:
    write(disk / "/".join("abcdefghi") / "model.gguf")
    assert look(disk) == {}
    assert problems(disk) == ("folders more than 8 deep were not looked at",)


def test_a_name_that_cannot_be_shown_is_left_out_and_that_is_said(disk: Path) -> None:
    write(disk / "red\x1b[31m.gguf")
    Path(os.fsdecode(os.fsencode(disk) + b"/\xff.gguf")).touch()
    write(disk / ("x" * 250 + ".gguf"))
    assert look(disk).keys() == {"x" * 250 + ".gguf"}
    assert "a model whose name cannot be shown" in problems(disk)[0]


class Refusing:
    """The system call as a kernel or a filter without it answers, or one that keeps it from strangers."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, *_: object) -> int:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_without_cachestat_mincore_is_used(disk: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "_probe", lambda *_: number)
    monkeypatch.setattr(system_calls, "cachestat", Refusing(number))
    assert Gauge().method == "mincore"
    write(disk / "model.gguf")
    assert look(disk, gauge=Gauge())["model.gguf"].cached == MIB


def test_a_filesystem_without_cachestat_is_asked_by_mincore(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "cachestat", Refusing(errno.EOPNOTSUPP))
    write(disk / "model.gguf")
    assert look(disk)["model.gguf"].cached == MIB


def test_what_cachestat_keeps_from_us_is_a_named_problem_and_no_zero(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_calls, "cachestat", Refusing(errno.EPERM))
    write(disk / "model.gguf")
    gauge = Gauge()
    gauge.method = "cachestat"
    found = look(disk, gauge=gauge)["model.gguf"]
    assert (found.size, found.cached) == (MIB, None)
    assert "only to the file's owner" in found.problem


PROBE = """
import os
from gpusupervisor.reader.page_cache.measure import Gauge, NotKnowable
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
gauge = Gauge(); gauge.method = {method!r}
descriptor = os.open({file!r}, os.O_RDONLY)
try:
    print(gauge.cached(descriptor))
except NotKnowable as problem:
    print(problem)
"""


@as_root
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("mode", "knows"), [(0o644, False), (0o666, True)])
def test_a_stranger_to_the_file_is_told_nothing_and_says_so(disk: Path, method: str, mode: int, knows: bool) -> None:
    """The real kernel, asked by a user who may read the file and no more."""
    import subprocess
    import sys

    file = write(disk / "model.gguf")
    file.chmod(mode)
    code = PROBE.format(method=method, file=str(file))
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    if method == "cachestat" and told == str(MIB):
        return  # kernels before 6.14 tell everybody
    assert told == (
        str(MIB) if knows else "the kernel tells that only to the file's owner, and to who could write to it"
    )
