"""What is set on the cards of a card directory, in a file: it outlives the process that set it, as in a real card."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusupervisor.simulation.nvml.allocation import write_atomically
from gpusupervisor.simulation.nvml.board import Board, Settings

SETTINGS = "settings.json"


class SettingsFile:
    """Read and changed by any process; lost with the driver's generation, in part at a resume."""

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory) / SETTINGS
        self._lock = Path(directory) / f"{SETTINGS}.lock"

    def read(self, generation: int, resumes: int, boards: Mapping[str, Board]) -> dict[str, Settings]:
        """What is set on each of the boards, by UUID, in this generation and after so many resumes."""
        try:
            told = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            told = {}
        kept = told.get("gpus", {}) if told.get("generation") == generation else {}
        found = {
            uuid: Settings.from_json(kept[uuid]) if uuid in kept else Settings.of(board)
            for uuid, board in boards.items()
        }
        if told.get("resumes", 0) != resumes:
            for uuid, board in boards.items():
                found[uuid].lose(board, board.lost_on_resume)
        return found

    def write(self, generation: int, resumes: int, settings: Mapping[str, Settings]) -> None:
        """Replace it."""
        gpus = {uuid: each.to_json() for uuid, each in settings.items()}
        write_atomically(self.path, json.dumps({"generation": generation, "resumes": resumes, "gpus": gpus}))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes it meanwhile."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
