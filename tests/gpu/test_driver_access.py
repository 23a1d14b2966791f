"""What the file systems tell of the driver: real files, and the system's own errors."""

import errno
import os
from pathlib import Path

import pytest

from gpusupervisor.gpu.driver_access import DeviceAccess, SystemFiles

LOADED = "Character devices:\n  1 mem\n195 nvidia-frontend\n"
UNLOADED = "Character devices:\n  1 mem\n"
MAPS = "7f00-7f01 r-xp 00000000 08:01 77 {path}\n"


class Machine:
    def __init__(self, folder: Path) -> None:
        self.proc, self.dev = folder / "proc", folder / "dev"
        (self.proc / "self").mkdir(parents=True)
        self.dev.mkdir()
        (self.proc / "devices").write_text(UNLOADED)
        self.files = SystemFiles(self.proc, self.dev)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_driver_there_is_nothing_to_be_opened(machine: Machine) -> None:
    assert machine.files.access() == DeviceAccess()


def test_a_module_without_device_nodes(machine: Machine) -> None:
    (machine.proc / "devices").write_text(LOADED)
    assert machine.files.access() == DeviceAccess(module=True)


def test_a_node_that_can_be_opened(machine: Machine) -> None:
    (machine.proc / "devices").write_text(LOADED)
    (machine.dev / "nvidiactl").touch()
    assert machine.files.access() == DeviceAccess(module=True, node=True)


def test_a_node_left_behind_is_not_opened_for_that_would_load_the_driver(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.dev / "nvidiactl").touch()
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *arguments: opened.append(arguments))
    assert machine.files.access() == DeviceAccess(node=True)
    assert not opened


@pytest.mark.parametrize(
    ("number", "refusal"), [(errno.EACCES, "mode"), (errno.EPERM, "policy"), (errno.EIO, "other")], ids=str
)
@pytest.mark.parametrize("node", ["nvidiactl", "dxg"])
def test_the_error_tells_what_refuses(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, number: int, refusal: str, node: str
) -> None:
    (machine.proc / "devices").write_text(LOADED)
    (machine.dev / node).touch()

    def refuse(path: Path, _flags: int) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "open", refuse)
    access = machine.files.access()
    assert (access.refusal, access.windows) == (refusal, node == "dxg")
    assert os.strerror(number) in access.detail
    assert node in access.detail


def test_a_guest_of_windows_has_neither_module_nor_node(machine: Machine) -> None:
    (machine.dev / "dxg").touch()
    assert machine.files.access() == DeviceAccess(windows=True)


def test_the_library_that_is_mapped_and_the_one_installed_in_its_place(machine: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    old, new = (folder / f"libnvidia-ml.so.{version}" for version in ("535.261.03", "550.163.01"))
    (machine.proc / "self" / "maps").write_text(MAPS.format(path=old))
    old.touch()
    (folder / "libnvidia-ml.so.1").symlink_to(old.name)
    assert (machine.files.loaded_library(), machine.files.installed_library()) == ("535.261.03", "535.261.03")
    (machine.proc / "self" / "maps").write_text(MAPS.format(path=f"{old} (deleted)"))
    (folder / "libnvidia-ml.so.1").unlink()
    assert (machine.files.loaded_library(), machine.files.installed_library()) == ("535.261.03", "")
    new.touch()
    (folder / "libnvidia-ml.so.1").symlink_to(new.name)
    assert machine.files.installed_library() == "550.163.01"


def test_no_library_is_mapped(machine: Machine) -> None:
    (machine.proc / "self" / "maps").write_text(MAPS.format(path="/usr/lib/libc.so.6"))
    assert (machine.files.loaded_library(), machine.files.installed_library()) == ("", "")
