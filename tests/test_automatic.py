"""What a person last said stands over the configuration, also after a restart."""

from pathlib import Path

import pytest

from gpusupervisor.automatic import AutomaticSwitch


@pytest.mark.parametrize("configured", [True, False])
def test_without_a_choice_the_configuration_counts(configured: bool, tmp_path: Path) -> None:
    assert AutomaticSwitch(tmp_path, configured).on is configured
    assert AutomaticSwitch(None, configured).on is configured


@pytest.mark.parametrize("chosen", [True, False])
def test_a_choice_stands_over_the_configuration_and_outlives_a_restart(chosen: bool, tmp_path: Path) -> None:
    switch = AutomaticSwitch(tmp_path, not chosen)
    switch.set(chosen)
    assert switch.on is chosen
    assert AutomaticSwitch(tmp_path, not chosen).on is chosen
    switch.configured = not chosen
    assert switch.on is chosen


def test_a_configuration_that_changes_counts_while_nobody_has_chosen(tmp_path: Path) -> None:
    switch = AutomaticSwitch(tmp_path, configured=True)
    switch.configured = False
    assert not switch.on


def test_without_a_directory_a_choice_lasts_as_long_as_the_service() -> None:
    switch = AutomaticSwitch(None, configured=True)
    switch.set(False)
    assert not switch.on
    assert AutomaticSwitch(None, configured=True).on


@pytest.mark.parametrize("content", [b"", b"maybe\n", b"\xff\xfe", b"ON\n"])
def test_a_file_that_says_nothing_is_no_choice(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "automatic").write_bytes(content)
    assert AutomaticSwitch(tmp_path, configured=True).on
    assert not AutomaticSwitch(tmp_path, configured=False).on


def test_a_choice_that_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    switch = AutomaticSwitch(directory, configured=True)
    directory.rmdir()
    with pytest.raises(OSError, match="state"):
        switch.set(False)
    assert switch.on


def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    AutomaticSwitch(tmp_path, configured=True).set(False)
    assert [path.name for path in tmp_path.iterdir()] == ["automatic"]
    assert (tmp_path / "automatic").read_text() == "off\n"
