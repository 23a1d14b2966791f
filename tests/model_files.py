"""Model files on a disk: what is in RAM of a file on tmpfs means nothing."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from gpusupervisor.reader.page_cache.measure import Gauge
from gpusupervisor.reader.page_cache.residency import ModelSeen, measure_all
from gpusupervisor.tenants.definition import ModelFolders, ModelLayout

ME = os.geteuid()
MIB = 1 << 20


def disk_folder() -> Path:
    """A new folder on a disk; skips where there is none."""
    for place in (tempfile.gettempdir(), "/var/tmp", str(Path(__file__).parent)):
        found = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True).stdout.strip()
        if found not in ("tmpfs", "ramfs", ""):
            folder = Path(tempfile.mkdtemp(prefix="gpusupervisor-models-", dir=place))
            folder.chmod(0o755)
            return folder
    pytest.skip("there is no folder on a disk here")


def write(path: Path, size: int = MIB) -> Path:
    """A file that is on the disk, and in RAM too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    return path


def make_cold(path: Path) -> None:
    """Take a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def ollama_model(folder: Path, name: str = "registry.ollama.ai/library/qwen3/8b", *sizes: int) -> list[Path]:
    """A model as Ollama keeps it; returns its blobs."""
    digests = [f"{number:02x}" * 32 for number in range(len(folder.parts), len(folder.parts) + len(sizes))]
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [{"digest": f"sha256:{digest}", "size": size} for digest, size in zip(digests, sizes, strict=True)]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return [write(folder / "blobs" / f"sha256-{digest}", size) for digest, size in zip(digests, sizes, strict=True)]


def look(folder: Path, layout: ModelLayout = "files", gauge: Gauge | None = None) -> dict[str, ModelSeen]:
    """The models below a folder, by name."""
    found = measure_all(ModelFolders((str(folder),), layout), gauge or Gauge(), ME)
    return {model.name: model for model in found.models}


def problems(folder: Path, layout: ModelLayout = "files") -> tuple[str, ...]:
    return measure_all(ModelFolders((str(folder),), layout), Gauge(), ME).problems
