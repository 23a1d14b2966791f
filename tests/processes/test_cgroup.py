"""The cgroup path's grammar."""

import pytest

from gpusupervisor.processes.cgroup import CgroupPlace, parse_cgroup

HEX = "3f2a" * 16
USER = "/user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    ("path", "unit", "user_unit", "container"),
    [
        ("/system.slice/ollama.service", "ollama.service", "", ""),
        ("/system.slice/system-comfyui.slice/comfyui@1.service", "comfyui@1.service", "", ""),
        ("/system.slice/ollama.service/worker", "ollama.service", "", ""),
        (f"{USER}/app.slice/comfyui.service", "user@1000.service", "comfyui.service", ""),
        (f"{USER}/app.slice/app-firefox-12.scope", "user@1000.service", "app-firefox-12.scope", ""),
        (f"{USER}/init.scope", "user@1000.service", "init.scope", ""),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope", "", ""),
        (f"/system.slice/docker-{HEX}.scope", f"docker-{HEX}.scope", "", HEX),
        (f"/docker/{HEX}", "", "", HEX),
        (f"/machine.slice/libpod-{HEX}.scope/container", f"libpod-{HEX}.scope", "", HEX),
        (f"/machine.slice/libpod-conmon-{HEX}.scope", f"libpod-conmon-{HEX}.scope", "", ""),
        (f"{USER}/user.slice/libpod-{HEX}.scope", "user@1000.service", f"libpod-{HEX}.scope", HEX),
        (f"/system.slice/ollama.service/libpod-payload-{HEX}", "ollama.service", "", HEX),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{HEX}.scope", f"cri-containerd-{HEX}.scope", "", HEX),
        (f"/kubepods/besteffort/pod77/{HEX}", "", "", HEX),
        (
            f"/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{HEX}",
            "containerd.service",
            "",
            HEX,
        ),
        ("/lxc.payload.web/system.slice/ollama.service", "", "", "web"),
        ("/lxc/web", "", "", "web"),
        (
            "/machine.slice/systemd-nspawn@gpu\\x2dbox.service/payload",
            "systemd-nspawn@gpu\\x2dbox.service",
            "",
            "gpu-box",
        ),
        ("/machine.slice/machine-gpu\\x2dbox.scope", "machine-gpu\\x2dbox.scope", "", "gpu-box"),
        ("/_cpu.service", "cpu.service", "", ""),
        ("/../../system.slice/ollama.service", "ollama.service", "", ""),
        ("/", "", "", ""),
    ],
)
def test_units_and_containers_are_read_from_the_path(path: str, unit: str, user_unit: str, container: str) -> None:
    assert parse_cgroup(f"0::{path}\n") == CgroupPlace(path, unit, user_unit, container)


def test_on_v1_the_named_hierarchy_counts() -> None:
    text = "9:memory:/elsewhere\n1:name=systemd:/system.slice/ollama.service\n"
    assert parse_cgroup(text).unit == "ollama.service"
    assert parse_cgroup(text + "0::/\n").unit == "ollama.service"
    assert parse_cgroup(text + "0::/system.slice/b.service\n").unit == "b.service"


def test_a_removed_cgroup_keeps_its_name() -> None:
    assert parse_cgroup("0::/system.slice/a.service (deleted)\n").path == "/system.slice/a.service"


@pytest.mark.parametrize("text", ["", "\n", "0::", "garbage", "0::relative", ":::::"])
def test_text_that_says_nothing_gives_nothing(text: str) -> None:
    assert parse_cgroup(text) == CgroupPlace()
