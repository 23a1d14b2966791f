"""Which processes have opened a GPU, by their open files alone."""

import os
from pathlib import Path

import pytest

from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.reader import holders
from gpusupervisor.reader.holders import device_majors, has_opened_gpu, holders_among

ZERO = os.stat("/dev/zero").st_rdev


def process(root: Path, pid: int, parent: int = 1, *files: str) -> None:
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (engine) S {parent} " + " ".join(["0"] * 17) + f" {pid * 10} 0\n")
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)


def test_majors_are_those_of_the_drivers_character_devices(tmp_path: Path) -> None:
    characters = "Character devices:\n  1 mem\n195 nvidia-frontend\n195 nvidiactl\n511 nvidia-uvm\n"
    text = f"{characters}\nBlock devices:\n  9 nvidia\n"
    (tmp_path / "devices").write_text(text)
    assert device_majors(tmp_path) == {195, 511}
    assert device_majors(tmp_path / "none") == frozenset()


def test_only_a_character_device_of_these_majors_below_the_right_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "nvidia0"
    plain.touch()
    process(tmp_path, 7, 1, "socket:[5]", "/dev/zero")
    process(tmp_path, 8, 1, str(plain))
    majors = frozenset({os.major(ZERO)})
    assert not has_opened_gpu(tmp_path, majors, 7), "the right kind, elsewhere"
    monkeypatch.setattr(holders, "_DEVICES", "/dev/zero")
    assert has_opened_gpu(tmp_path, majors, 7)
    assert not has_opened_gpu(tmp_path, frozenset({os.major(ZERO) + 1}), 7)
    monkeypatch.setattr(holders, "_DEVICES", str(plain))
    assert not has_opened_gpu(tmp_path, majors, 8), "a regular file of that name"
    assert not has_opened_gpu(tmp_path, majors, 9), "no such process"


def test_ancestors_of_a_holder_count_but_neither_siblings_nor_children_nor_pid_1(tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (10, 1), (11, 10), (12, 11), (13, 12), (20, 10)):
        process(tmp_path, pid, parent)
    found = holders_among((1, 10, 11, 12, 13, 20), Procfs(tmp_path), lambda pid: pid == 12)
    assert found == {10, 11, 12}


def test_a_tree_of_processes_without_end_is_cut_off(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    for pid in range(11, 11 + 2 * holders.MOST_DESCENDANTS):
        process(tmp_path, pid, 10)
    examined: list[int] = []

    def has_opened(pid: int) -> bool:
        examined.append(pid)
        return False

    assert holders_among((10,), Procfs(tmp_path), has_opened) == frozenset()
    assert len(examined) <= holders.MOST_DESCENDANTS + 1


def test_what_takes_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "LONGEST", 0.0)
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 1)
    assert len(holders_among((10, 11), Procfs(tmp_path), lambda _: True)) < 2
