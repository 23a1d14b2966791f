"""Configuration files of processes: which may be read, and what of them is told."""

import os
from pathlib import Path

import pytest

from gpusupervisor.processes.settings_files import (
    MAX_FILE,
    Form,
    SettingsFile,
    Source,
    UnparsableError,
    read_sources,
    settings_in,
)

KEYS = frozenset({"sleep-idle-seconds", "c", "model.cache_size", "models.*.ttl", "gpulayers", "usecuda"})


@pytest.mark.parametrize(
    ("form", "text", "values"),
    [
        ("ini", "sleep-idle-seconds = 60\nother = 1\n", {"sleep-idle-seconds": "60"}),
        ("ini", "[*]\nc = 1\n[default]\nc = 2\n[named]\nc = 3\n", {"c": "2"}),
        ("ini", "; c = 1\n[named]\nc = 3\n", {}),
        ("yaml", "model:\n  cache_size: 8192\n", {"model.cache_size": "8192"}),
        ("yaml", "models:\n  a: {ttl: 60}\n  b: {ttl: 0}\n  c: null\n", {"models.*.ttl": "60 0"}),
        ("yaml", "- 1\n", {}),
        ("yaml", "", {}),
        ("json", '{"gpulayers": -1, "usecuda": ["normal", "0"]}', {"gpulayers": "-1", "usecuda": "normal 0"}),
    ],
)
def test_only_the_listed_keys_are_told(form: Form, text: str, values: dict[str, str]) -> None:
    assert settings_in(text, form, KEYS) == values


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("yaml", "a: [\n"),
        ("yaml", "!!python/object/apply:os.system [true]"),
        ("yaml", "[" * 5000),
        ("json", "{"),
        ("json", "[" * 50000),
    ],
)
def test_what_cannot_be_parsed_says_so(form: Form, text: str) -> None:
    with pytest.raises(UnparsableError):
        settings_in(text, form, KEYS)


def test_aliases_do_not_multiply() -> None:
    layers = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 30))
    assert settings_in(f"l0: &l0 x\n{layers}model: {{cache_size: 1}}\n", "yaml", KEYS) == {"model.cache_size": "1"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("mine", "public", "foreign"):
        (tmp_path / name).write_text("c = 1\n")
    (tmp_path / "large").write_text("c = 1\n" * MAX_FILE)
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def read(root: Path, name: str, uid: int) -> tuple[SettingsFile, ...]:
    return read_sources(root, uid, [Source(f"/{name}", "ini", KEYS)], lambda _, value: value)


def test_a_files_own_user_may_have_it_read(root: Path) -> None:
    assert read(root, "mine", os.geteuid()) == (SettingsFile("/mine", True, (("c", "1"),)),)
    assert read(root, "absent", os.geteuid()) == ()


@pytest.mark.parametrize("name", ["large", "fifo"])
def test_what_is_no_plain_small_file_is_not_read(root: Path, name: str) -> None:
    assert read(root, name, os.geteuid()) == (SettingsFile(f"/{name}", readable=False),)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others to give")
def test_another_users_file_is_not_told(root: Path) -> None:
    os.chown(root / "foreign", 4321, 4321)
    assert read(root, "foreign", 1234) == (SettingsFile("/foreign", readable=False),)
    (root / "mine").chmod(0o600)
    assert read(root, "mine", 1234) == (SettingsFile("/mine", readable=False),)
    assert read(root, "public", 1234) == (SettingsFile("/public", True, (("c", "1"),)),)
