"""`make install` and `make uninstall` with a DESTDIR, as a package build uses them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.machine import REPOSITORY

pytestmark = [
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
    pytest.mark.timeout(300),
]


def run_make(*arguments: str) -> str:
    """Run make in the repository, without the flags of a make that runs these tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "-C", REPOSITORY, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_below(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if (path.is_symlink() or not path.is_dir()) and "lib/gpusupervisor/venv/lib" not in str(path)
    }


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make install PREFIX=/usr DESTDIR=...` makes."""
    folder = tmp_path_factory.mktemp("destdir")
    run_make("install", "PREFIX=/usr", f"DESTDIR={folder}")
    return folder


def test_every_file_lies_where_distributions_put_it(staged: Path) -> None:
    assert files_below(staged) >= {
        "usr/bin/gpusupervisorctl",
        "usr/lib/gpusupervisor/venv/bin/gpusupervisord",
        "usr/lib/gpusupervisor/venv/bin/gpusupervisor-helper",
        "usr/lib/gpusupervisor/venv/bin/gpusupervisor-reader",
        "usr/lib/systemd/system/gpusupervisor.service",
        "usr/lib/systemd/system/gpusupervisor-helper.service",
        "usr/lib/systemd/system/gpusupervisor-reader.service",
        "usr/lib/sysusers.d/gpusupervisor.conf",
        "usr/lib/tmpfiles.d/gpusupervisor.conf",
        "usr/lib/systemd/catalog/gpusupervisor.catalog",
        "usr/share/dbus-1/system.d/org.gpusupervisor1.conf",
        "usr/share/dbus-1/system-services/org.gpusupervisor1.service",
        "usr/share/dbus-1/system.d/org.gpusupervisor1.Helper.conf",
        "usr/share/dbus-1/system-services/org.gpusupervisor1.Helper.service",
        "usr/share/dbus-1/system.d/org.gpusupervisor1.Reader.conf",
        "usr/share/dbus-1/system-services/org.gpusupervisor1.Reader.service",
        "usr/share/dbus-1/interfaces/org.gpusupervisor1.Manager.xml",
        "usr/share/polkit-1/actions/org.gpusupervisor1.policy",
        "usr/share/doc/gpusupervisor/README.md",
        "usr/share/bash-completion/completions/gpusupervisorctl",
        "usr/share/zsh/site-functions/_gpusupervisorctl",
        "usr/share/fish/vendor_completions.d/gpusupervisorctl.fish",
    }


@pytest.mark.skipif(shutil.which("scdoc") is None, reason="scdoc is not installed")
def test_the_manual_is_where_man_looks_also_under_the_names_of_the_programs(staged: Path) -> None:
    pages = files_below(staged / "usr/share/man")
    assert pages >= {
        "man1/gpusupervisorctl.1",
        "man5/gpusupervisorctl-json.5",
        "man5/gpusupervisor.toml.5",
        "man5/gpusupervisor-tenant.5",
        "man5/org.gpusupervisor1.5",
        "man8/gpusupervisor.service.8",
        "man8/gpusupervisor-helper.service.8",
        "man8/gpusupervisor-reader.service.8",
    }
    for link in ("man8/gpusupervisord.8", "man8/gpusupervisor-helper.8", "man8/gpusupervisor-reader.8"):
        assert (staged / "usr/share/man" / link).is_symlink()
        assert (staged / "usr/share/man" / link).is_file()


def test_no_installed_file_names_the_staging_folder(staged: Path) -> None:
    named = [
        path
        for path in staged.rglob("*")
        if path.is_file() and not path.is_symlink() and str(staged).encode() in path.read_bytes()
    ]
    assert named == []
    assert os.readlink(staged / "usr/bin/gpusupervisorctl") == "/usr/lib/gpusupervisor/venv/bin/gpusupervisorctl"
    program = (staged / "usr/lib/gpusupervisor/venv/bin/gpusupervisord").read_text()
    assert program.startswith("#!/usr/lib/gpusupervisor/venv/bin/python\n")
    compile(program, "gpusupervisord", "exec")


def test_the_installed_python_has_the_program_and_nothing_for_development(staged: Path) -> None:
    python = staged / "usr/lib/gpusupervisor/venv/bin/python"
    asked = subprocess.run(
        [python, "-I", "-c", "import gpusupervisor, dbus_fast, pynvml, h11; print(gpusupervisor.__file__)"],
        capture_output=True,
        text=True,
    )
    assert asked.stdout.startswith(str(staged)), asked.stderr
    assert not list(staged.glob("usr/lib/gpusupervisor/venv/lib/python*/site-packages/pytest*"))


def test_a_local_prefix_uses_the_only_places_that_the_bus_and_polkit_read(tmp_path: Path) -> None:
    run_make("install", f"DESTDIR={tmp_path}")
    files = files_below(tmp_path)
    assert {
        "usr/local/lib/systemd/system/gpusupervisor.service",
        "usr/local/lib/systemd/catalog/gpusupervisor.catalog",
        "usr/local/share/dbus-1/system-services/org.gpusupervisor1.service",
        "etc/dbus-1/system.d/org.gpusupervisor1.conf",
        "usr/share/polkit-1/actions/org.gpusupervisor1.policy",
    } <= files
    assert (
        "ExecStart=/usr/local/lib/gpusupervisor/venv/bin/gpusupervisord\n"
        in (tmp_path / "usr/local/lib/systemd/system/gpusupervisor.service").read_text()
    )
    (tmp_path / "etc/gpusupervisor").mkdir()
    (tmp_path / "etc/gpusupervisor/mine.toml").touch()

    run_make("uninstall", f"DESTDIR={tmp_path}")
    assert files_below(tmp_path) == {"etc/gpusupervisor/mine.toml"}


def test_installing_again_replaces_what_was_there(staged: Path) -> None:
    left_over = staged / "usr/lib/gpusupervisor/venv/lib/old.py"
    left_over.touch()
    before = files_below(staged)
    run_make("install", "PREFIX=/usr", f"DESTDIR={staged}")
    assert files_below(staged) == before
    assert not left_over.exists()
