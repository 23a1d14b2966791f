"""The real NVML libraries from Debian's archive, unpacked and never installed: for tests, where they can be had."""

import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "http://deb.debian.org/debian"
PACKAGES = {
    "390": ("bullseye", "libnvidia-legacy-390xx-ml1"),
    "418": ("bullseye", "libnvidia-tesla-418-ml1"),
    "470": ("bookworm", "libnvidia-tesla-470-ml1"),
    "525": ("bookworm", "libnvidia-tesla-ml1"),
    "535": ("bookworm", "libnvidia-ml1"),
    "550": ("trixie", "libnvidia-ml1"),
}
"""By branch: suite and package of the non-free archive."""
PATIENCE = 60


class Library(NamedTuple):
    """One unpacked library."""

    version: str
    file: Path


@functools.cache
def libraries() -> dict[str, Library] | str:
    """The libraries by branch, or why they cannot be had."""
    if not KEYRING.exists():
        return f"there is no {KEYRING}"
    folder = Path(tempfile.mkdtemp(prefix="nvml-archive-"))
    try:
        return {branch: _unpack(folder / branch, *PACKAGES[branch]) for branch in PACKAGES}
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    except subprocess.TimeoutExpired:
        return f"{MIRROR} did not answer in time"
    except subprocess.CalledProcessError as error:
        return f"{MIRROR} cannot be used: {error.stderr.strip()[-200:]}"


def _unpack(folder: Path, suite: str, package: str) -> Library:
    for name in ("lists/partial", "cache/archives/partial", "files"):
        (folder / name).mkdir(parents=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb [arch=amd64 signed-by={KEYRING}] {MIRROR} {suite} non-free\n")
    options = {
        "Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "/dev/null", "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root", "Acquire::http::Timeout": 10,
        "Acquire::Retries": 0,
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    _run([*apt, "update"], folder)
    _run([*apt, "download", package], folder)
    (archive,) = folder.glob("*.deb")
    _run(["dpkg-deb", "--extract", str(archive), str(folder / "files")], folder)
    (file,) = (each for each in folder.rglob("libnvidia-ml.so.*.*") if each.is_file() and not each.is_symlink())
    (file.parent / "libnvidia-ml.so.1").unlink(missing_ok=True)
    (file.parent / "libnvidia-ml.so.1").symlink_to(file.name)
    return Library(file.name.partition(".so.")[2], file)


def _run(command: list[str], folder: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE)
