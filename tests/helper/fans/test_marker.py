"""The mark of fans that were taken over."""

import json
from pathlib import Path

import pytest

from gpusupervisor.helper.fans.marker import Marker, boot_id, find_marks

GPU = "GPU-aaaaaaaa"


def test_fans_are_marked_until_the_mark_is_cleared(tmp_path: Path) -> None:
    marker = Marker(tmp_path, GPU)
    marker.take(frozenset({1}))
    marker.take(frozenset({0}))
    (mark,) = find_marks(tmp_path)
    assert (mark.uuid, mark.fans, mark.of_this_boot) == (GPU, (0, 1), True)
    assert marker.fans == {0, 1}
    marker.clear()
    assert find_marks(tmp_path) == ()
    assert marker.fans == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_every_gpu_has_its_own(tmp_path: Path) -> None:
    for uuid in (GPU, "GPU-bbbbbbbb"):
        Marker(tmp_path, uuid).take(frozenset({0}))
    assert [mark.uuid for mark in find_marks(tmp_path)] == [GPU, "GPU-bbbbbbbb"]


def test_a_mark_of_another_boot_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "fans-x.json").write_text(json.dumps({"gpu": GPU, "boot_id": "of-yesterday", "fans": [0]}))
    assert [mark.of_this_boot for mark in find_marks(tmp_path)] == [False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 4000,
        "{}",
        '{"gpu": 5, "boot_id": "", "fans": [0]}',
        '{"gpu": "GPU-a", "boot_id": "", "fans": ["x"]}',
    ],
)
def test_a_mark_that_cannot_be_understood_means_any_gpu(tmp_path: Path, text: str) -> None:
    (tmp_path / "fans-x.json").write_text(text)
    assert [(mark.uuid, mark.fans, mark.of_this_boot) for mark in find_marks(tmp_path)] == [("", (), True)]


def test_no_directory_means_no_mark(tmp_path: Path) -> None:
    assert find_marks(tmp_path / "absent") == ()


def test_a_mark_that_cannot_be_written_is_not_believed(tmp_path: Path) -> None:
    marker = Marker(tmp_path / "absent", GPU)
    with pytest.raises(FileNotFoundError):
        marker.take(frozenset({0}))
    assert marker.fans == frozenset()


def test_a_uuid_cannot_lead_elsewhere(tmp_path: Path) -> None:
    Marker(tmp_path, "../../etc/x").take(frozenset({0}))
    assert [path.name for path in tmp_path.iterdir()] == ["fans-etcx.json"]


def test_the_kernel_tells_the_boot() -> None:
    assert len(boot_id()) == 36
