"""Profiles on disk, which only root may have written."""

import json
import os
from pathlib import Path

import pytest

from gpusupervisor.errors import InvalidArgument
from gpusupervisor.helper.profile.apply import Before
from gpusupervisor.helper.profile.record import Record
from gpusupervisor.helper.profile.store import ProfileStore, StoreError
from gpusupervisor.helper.profile.trial import Trial
from gpusupervisor.helper.values import FanSetting, ItemResult, Profile
from tests.helper.profile.station import BOOT, GPU

RECORD = Record(
    requested=Profile(250_500, {"graphics": 465}, {"memory": (405, 5001)}, True, {0: FanSetting("fixed", 40)}),
    accepted=Profile(250_500, {"graphics": 464}, {}, True, {0: FanSetting("fixed", 40)}),
    unreadable=Profile(locked_clocks={"memory": (405, 5001)}),
    results=(ItemResult("offset-graphics", True, "+465 MHz", "+464 MHz", "the driver made +464 MHz of +465 MHz"),),
    boot_id=BOOT,
    applied_at=1_800_000_000_000_000,
    phase="settled",
    stopped=True,
    distrust="the GPU reported Xid 62",
)
FILE = f"profile-{GPU}.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> ProfileStore:
    return ProfileStore(folder, owner=os.geteuid())


def test_what_is_stored_is_read_back(store: ProfileStore) -> None:
    assert store.load(GPU) is None
    store.save(GPU, RECORD)
    assert store.load(GPU) == RECORD
    store.remove(GPU)
    store.remove(GPU)
    assert store.load(GPU) is None


def test_a_running_trial_is_read_back(store: ProfileStore) -> None:
    before = Before(Profile(450_000, {"graphics": 0}), ("memory",))
    running = Trial(RECORD.requested, before, 1_000_000, 21_000_000, BOOT)
    store.save_trial(GPU, running)
    assert store.load_trial(GPU) == running
    assert store.load(GPU) is None
    store.remove_trial(GPU)
    assert store.load_trial(GPU) is None


def test_files_are_roots_alone_and_no_temporary_stays(store: ProfileStore, folder: Path) -> None:
    (folder / f".{FILE}.new").write_text("left by a crash")
    store.save(GPU, RECORD)
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_what_was(store: ProfileStore, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(GPU, RECORD)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.save(GPU, Record(Profile()))
    monkeypatch.undo()
    assert store.load(GPU) == RECORD


def test_a_folder_that_others_may_write_is_refused(store: ProfileStore, folder: Path) -> None:
    store.save(GPU, RECORD)
    folder.chmod(0o777)
    with pytest.raises(StoreError, match="can be written by others"):
        store.load(GPU)
    with pytest.raises(StoreError, match="can be written by others"):
        store.save(GPU, RECORD)
    with pytest.raises(StoreError, match="can be written by others"):
        store.remove(GPU)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(store: ProfileStore, folder: Path, mode: int) -> None:
    store.save(GPU, RECORD)
    (folder / FILE).chmod(mode)
    with pytest.raises(StoreError, match="can be written by others"):
        store.load(GPU)


def test_somebody_elses_file_and_folder_are_refused(folder: Path) -> None:
    ProfileStore(folder, owner=os.geteuid()).save(GPU, RECORD)
    with pytest.raises(StoreError, match="belongs to user"):
        ProfileStore(folder, owner=os.geteuid() + 1).load(GPU)
    if os.geteuid() == 0:
        os.chown(folder / FILE, 65534, 65534)
        with pytest.raises(StoreError, match="belongs to user 65534"):
            ProfileStore(folder).load(GPU)


def test_links_are_not_followed(store: ProfileStore, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    elsewhere.chmod(0o755)
    ProfileStore(elsewhere, owner=os.geteuid()).save(GPU, RECORD)
    (folder / FILE).symlink_to(elsewhere / FILE)
    with pytest.raises(StoreError, match="cannot be opened"):
        store.load(GPU)
    (folder / "link").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="cannot be opened"):
        ProfileStore(folder / "link", owner=os.geteuid()).load(GPU)


def test_what_is_no_file_does_not_hang(store: ProfileStore, folder: Path) -> None:
    os.mkfifo(folder / FILE, 0o600)
    with pytest.raises(StoreError, match="not a regular file"):
        store.load(GPU)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"[]", "must be a table"),
        (b"{}", "requested: is no profile"),
        (b" " * 70_000, "longer than 64 KiB"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(store: ProfileStore, folder: Path, content: bytes, part: str) -> None:
    (folder / FILE).write_bytes(content)
    with pytest.raises(StoreError, match=part):
        store.load(GPU)


def test_a_problem_in_a_stored_profile_names_its_key(store: ProfileStore, folder: Path) -> None:
    store.save(GPU, RECORD)
    table = json.loads((folder / FILE).read_text())
    table["requested"]["offsets"]["graphics"] = "many"
    (folder / FILE).write_text(json.dumps(table))
    with pytest.raises(StoreError, match=r"requested\.offsets\.graphics"):
        store.load(GPU)


@pytest.mark.parametrize("gpu", ["", "../../etc/passwd", "GPU-1", GPU.lower(), GPU + "\n", f"x{GPU}"])
def test_only_a_gpus_uuid_names_a_file(store: ProfileStore, gpu: str) -> None:
    with pytest.raises(InvalidArgument):
        store.save(gpu, RECORD)
