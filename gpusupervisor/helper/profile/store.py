"""Profiles and running trials on disk: one JSON file of each per GPU, in a folder that is root's."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gpusupervisor.clock import UNKNOWN
from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.configuration.document import DocumentError, Table, parse_document
from gpusupervisor.configuration.layers import Finding, key_text
from gpusupervisor.errors import InvalidArgument, SupervisorError
from gpusupervisor.helper.profile.apply import Before
from gpusupervisor.helper.profile.document import check_profile, profile_table
from gpusupervisor.helper.profile.items import DOMAINS
from gpusupervisor.helper.profile.record import Phase, Record
from gpusupervisor.helper.profile.trial import Trial
from gpusupervisor.helper.values import ItemResult, Profile
from gpusupervisor.privileged.root_files import RootFolder, UntrustedFile

Stored = TypeVar("Stored")

_UUID = re.compile(r"((GPU|MIG)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_FILE = re.compile(rf"(profile|trial)-(?P<gpu>{_UUID.pattern})\.json", re.ASCII)
_PHASES: Sequence[Phase] = ("applying", "probation", "settled")
_LATEST = UNKNOWN - 1


class StoreError(SupervisorError):
    """What is stored cannot be used or written; the text says why and what to do."""


class ProfileStore:
    """The folder of all profiles. Everything blocks, and raises StoreError."""

    def __init__(self, folder: Path, owner: int = 0) -> None:
        self._folder = RootFolder(folder, owner)

    def gpus(self) -> frozenset[str]:
        """The UUIDs of the GPUs that have a profile or a running trial."""
        try:
            names = self._folder.names()
        except (UntrustedFile, OSError) as error:
            raise StoreError(f"Stored profiles are not used: {error}") from error
        return frozenset(match["gpu"] for name in names if (match := _FILE.fullmatch(name)))

    def load(self, gpu: str) -> Record | None:
        """The profile of a GPU; None when it has none."""
        return self._load(_name("profile", gpu), _check_record)

    def save(self, gpu: str, record: Record) -> None:
        """Replace the profile of a GPU, on disk when this returns."""
        self._save(_name("profile", gpu), _record_table(record))

    def remove(self, gpu: str) -> None:
        """Forget the profile of a GPU."""
        self._remove(_name("profile", gpu))

    def load_trial(self, gpu: str) -> Trial | None:
        """The trial that was running when it was stored; None when none was."""
        return self._load(_name("trial", gpu), _check_trial)

    def save_trial(self, gpu: str, trial: Trial) -> None:
        """A trial is about to begin; on disk when this returns."""
        self._save(_name("trial", gpu), _trial_table(trial))

    def remove_trial(self, gpu: str) -> None:
        """The trial has ended."""
        self._remove(_name("trial", gpu))

    def _load(self, name: str, check: Callable[[TableReader], Stored]) -> Stored | None:
        findings: list[Finding] = []
        try:
            text = self._folder.read(name)
            if text is None:
                return None
            reader = TableReader(parse_document(name, text), findings)
        except (UntrustedFile, DocumentError, OSError) as error:
            raise StoreError(f"The stored file {name} is not used: {error}") from error
        stored = check(reader)
        reader.finish()
        if findings:
            path, message = findings[0]
            raise StoreError(f"The stored file {name} is not used: {key_text(path)}: {message}; apply a profile anew")
        return stored

    def _save(self, name: str, table: Table) -> None:
        try:
            self._folder.write(name, json.dumps(table, indent=1, ensure_ascii=False) + "\n")
        except (UntrustedFile, OSError) as error:
            raise StoreError(f"{name} cannot be stored, so it would be lost at the next start: {error}") from error

    def _remove(self, name: str) -> None:
        try:
            self._folder.remove(name)
        except (UntrustedFile, OSError) as error:
            raise StoreError(
                f"{name} cannot be removed, so it will be found again at the next start: {error}"
            ) from error


def is_uuid(gpu: str) -> bool:
    """Whether a file can be named after this GPU."""
    return _UUID.fullmatch(gpu) is not None


def _name(kind: str, gpu: str) -> str:
    """A GPU's UUID is the only part of a file's name that comes from outside."""
    if not is_uuid(gpu):
        raise InvalidArgument("This is not the UUID of a GPU, so no profile can be stored for it")
    return f"{kind}-{gpu}.json"


def _record_table(record: Record) -> Table:
    return {
        "requested": profile_table(record.requested),
        "accepted": profile_table(record.accepted),
        "unreadable": profile_table(record.unreadable),
        "results": [
            {"item": result.item, "ok": result.ok}
            | {
                key: value
                for key, value in (
                    ("asked", result.asked),
                    ("accepted", result.accepted),
                    ("detail", result.detail),
                )
                if value
            }
            for result in record.results
        ],
        "boot-id": record.boot_id,
        "applied-at": record.applied_at,
        "phase": record.phase,
        "stopped": record.stopped,
        **({"distrust": record.distrust} if record.distrust else {}),
    }


def _check_record(reader: TableReader) -> Record:
    return Record(
        requested=_profile(reader, "requested"),
        accepted=_profile(reader, "accepted"),
        unreadable=_profile(reader, "unreadable"),
        results=tuple(
            ItemResult(
                table.text("item"),
                table.boolean("ok", False),
                table.text("asked"),
                table.text("accepted"),
                table.text("detail"),
            )
            for table in reader.tables("results")
        ),
        boot_id=reader.text("boot-id"),
        applied_at=reader.integer("applied-at", 0, 0, _LATEST),
        phase=_phase(reader),
        stopped=reader.boolean("stopped", False),
        distrust=reader.text("distrust"),
    )


def _phase(reader: TableReader) -> Phase:
    """A missing one is the most careful one."""
    chosen = reader.choice("phase", _PHASES, "applying")
    return next(phase for phase in _PHASES if phase == chosen)


def _trial_table(trial: Trial) -> Table:
    return {
        "profile": profile_table(trial.profile),
        "before": profile_table(trial.before.profile),
        "unlocked": list(trial.before.unlocked),
        "started": trial.started,
        "deadline": trial.deadline,
        "boot-id": trial.boot_id,
    }


def _check_trial(reader: TableReader) -> Trial:
    unlocked = reader.texts("unlocked", lambda text: "" if text in DOMAINS else f"allowed: {', '.join(DOMAINS)}")
    return Trial(
        profile=_profile(reader, "profile"),
        before=Before(_profile(reader, "before"), tuple(domain for domain in DOMAINS if domain in unlocked)),
        started=reader.integer("started", 0, 0, _LATEST),
        deadline=reader.integer("deadline", 0, 0, _LATEST),
        boot_id=reader.text("boot-id"),
    )


def _profile(reader: TableReader, key: str) -> Profile:
    """A profile within a stored file; its problems are told under its key."""
    value = reader.raw(key)
    if not isinstance(value, dict):
        reader.complain(key, "is no profile")
        return Profile()
    profile, findings = check_profile(value)
    for path, message in findings:
        reader.complain(f"{key}.{key_text(path)}", message)
    return profile
