"""Which GPUs are given away: in files of a runtime directory, so that a helper that starts anew leaves them alone too.

Until the next boot, or until they are taken back.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpusupervisor.gpu.errors import plain
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.helper.profile.store import is_uuid

PREFIX = "given-away-"
LARGEST = 4096
"""Bytes of a file that are read."""


class GivenAway:
    """The record of them. Methods block, and raise OSError when the directory cannot be written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.gpus: Mapping[str, GpuIdentity] = {}
        """By UUID; replaced and never changed, so that any thread may read it."""

    def load(self) -> None:
        """Read what an earlier helper has written; what cannot be understood is passed over."""
        try:
            paths = sorted(path for path in self._directory.iterdir() if path.name.startswith(PREFIX))
        except FileNotFoundError:
            return
        found = [identity for path in paths if (identity := _read(path)) is not None]
        self.gpus = {identity.uuid: identity for identity in found}

    def give(self, identity: GpuIdentity) -> None:
        """Away with it."""
        text = json.dumps({"uuid": identity.uuid, "name": identity.name, "pci": identity.pci_bus_id})
        descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=".given-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(self._path(identity.uuid))
        self.gpus = {**self.gpus, identity.uuid: identity}

    def take_back(self, uuid: str) -> None:
        """It is ours again."""
        self._path(uuid).unlink(missing_ok=True)
        self.gpus = {each: identity for each, identity in self.gpus.items() if each != uuid}

    def _path(self, uuid: str) -> Path:
        return self._directory / f"{PREFIX}{uuid}.json"


def _read(path: Path) -> GpuIdentity | None:
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(LARGEST))
        identity = GpuIdentity(plain(told["uuid"]), plain(told["name"]), plain(told["pci"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return identity if is_uuid(identity.uuid) else None
