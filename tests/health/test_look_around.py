"""The system around is read as it is: real files, real processes, a real /proc, and texts as kernels write them."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpusupervisor.health import look_around as module
from gpusupervisor.health.look_around import MOST_HOLDERS, Roots, look_around, open_by, proc_view

MOUNT = "23 29 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc {options}\n"


def make(tmp_path: Path) -> Roots:
    roots = Roots(tmp_path / "proc", tmp_path / "dev", tmp_path / "pci")
    (roots.proc / "driver" / "nvidia").mkdir(parents=True)
    (roots.proc / "self").mkdir()
    roots.dev.mkdir()
    return roots


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        ("rw", ""),
        ("rw,hidepid=0", ""),
        ("rw,hidepid=off", ""),
        ("rw,hidepid=1", "noaccess"),
        ("rw,gid=26,hidepid=2", "invisible"),
        ("rw,hidepid=invisible", "invisible"),
        ("rw,hidepid=ptraceable,subset=pid", "ptraceable"),
        ("rw,hidepid=4", "ptraceable"),
        ("rw,hidepid=9", "unknown"),
    ],
)
def test_how_proc_hides_processes(tmp_path: Path, options: str, hides: str) -> None:
    roots = make(tmp_path)
    (roots.proc / "self" / "mountinfo").write_text(
        "22 29 0:20 / /sys rw - sysfs sysfs rw\n" + MOUNT.format(options=options)
    )
    assert proc_view(roots.proc).hides == hides


def test_the_last_mount_on_proc_counts(tmp_path: Path) -> None:
    roots = make(tmp_path)
    text = MOUNT.format(options="rw") + MOUNT.format(options="rw,hidepid=2")
    (roots.proc / "self" / "mountinfo").write_text(text)
    assert proc_view(roots.proc).hides == "invisible"
    (roots.proc / "self" / "mountinfo").write_text("broken\n")
    assert proc_view(roots.proc).hides == ""


def test_this_machines_proc_can_be_read() -> None:
    inode = Path("/proc/self/ns/pid").stat().st_ino
    assert proc_view(Path("/proc")).own_namespace == (inode != module.HOST_PID_NAMESPACE)


def test_who_has_a_gpu_open_is_found_by_real_descriptors(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / name).write_text("")
    code = f"f = open({str(tmp_path / '{}')!r}); print('open', flush=True); input()"
    opened = [
        subprocess.Popen([sys.executable, "-c", code.format(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in ("nvidia0", "nvidiactl")
    ]
    try:
        for process in opened:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
        found = list(open_by(Roots(dev=tmp_path)))
    finally:
        for process in opened:
            process.communicate(b"\n")
    assert [each.pid for each in found] == [opened[0].pid]
    assert found[0].name.startswith("python")


def test_very_many_holders_are_not_all_looked_for(tmp_path: Path) -> None:
    roots = make(tmp_path)
    for pid in range(1000, 1000 + MOST_HOLDERS + 5):
        (roots.proc / str(pid) / "fd").mkdir(parents=True)
        (roots.proc / str(pid) / "comm").write_text("nvtop\n")
        (roots.proc / str(pid) / "fd" / "3").symlink_to(roots.dev / "nvidia0")
    assert len(list(open_by(roots))) == MOST_HOLDERS


def test_a_gpu_that_could_sleep_and_is_awake_has_its_holders_looked_for(tmp_path: Path) -> None:
    roots = make(tmp_path)
    (roots.proc / "1000" / "fd").mkdir(parents=True)
    (roots.proc / "1000" / "fd" / "3").symlink_to(roots.dev / "nvidia0")
    card = roots.sysfs_pci / "0000:01:00.0"
    (card / "power").mkdir(parents=True)
    (tmp_path / "drivers" / "nvidia").mkdir(parents=True)
    (card / "driver").symlink_to(tmp_path / "drivers" / "nvidia")
    for name, text in {"vendor": "0x10de", "class": "0x030000", "power/control": "auto"}.items():
        (card / name).write_text(f"{text}\n")
    for status, holders in (("active", 1), ("suspended", 0)):
        (card / "power" / "runtime_status").write_text(f"{status}\n")
        seen = look_around(roots)
        assert (len(seen.power), len(seen.open_by)) == (1, holders)
