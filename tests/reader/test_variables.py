"""Names of environment variables are believed only of files that nobody but root could have written."""

import os
from pathlib import Path

import pytest

from gpusupervisor.reader.variables import AT_MOST, named_variables, tenant_units
from gpusupervisor.tenants.catalog import SHIPPED

FILE = '[endpoint]\nhost-variable = "{}"\n'
ME = os.geteuid()


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    folder = tmp_path / "tenants.d"
    folder.mkdir(mode=0o755)
    (folder / "a.toml").write_text(FILE.format("A_HOST"))
    return folder


def test_all_files_of_all_layers_count(layer: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    other.mkdir()
    (other / "b.json").write_text('{"endpoint": {"host-variable": "B_HOST"}}')
    assert named_variables([layer, other, tmp_path / "absent"], ME) == {"A_HOST", "B_HOST"}


@pytest.mark.parametrize(
    "text", ["", "[endpoint", "endpoint = 3\n", "[endpoint]\nhost-variable = 3\n", FILE.format("A B"), 'title = "x"\n']
)
def test_a_file_that_cannot_be_used_names_none_and_hides_no_other(layer: Path, text: str) -> None:
    (layer / "b.toml").write_text(text)
    assert named_variables([layer], ME) == {"A_HOST"}


def test_files_of_others_are_not_believed(layer: Path) -> None:
    assert named_variables([layer], ME + 1) == frozenset()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_not_believed(layer: Path, mode: int) -> None:
    (layer / "b.toml").write_text(FILE.format("B_HOST"))
    (layer / "b.toml").chmod(mode)
    assert named_variables([layer], ME) == {"A_HOST"}


def test_a_folder_that_others_may_write_is_not_believed(layer: Path) -> None:
    layer.chmod(0o777)
    assert named_variables([layer], ME) == frozenset()


def test_a_link_is_not_followed(layer: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.toml").write_text(FILE.format("B_HOST"))
    (layer / "b.toml").symlink_to(tmp_path / "elsewhere.toml")
    assert named_variables([layer], ME) == {"A_HOST"}


def test_units_of_all_files_are_those_whose_processes_may_be_told_of(layer: Path) -> None:
    (layer / "b.toml").write_text('[match]\nunits = ["ollama.service", "comfyui@*.service"]\n')
    (layer / "c.toml").write_text("match = 3\n")
    (layer / "d.toml").write_text('[match]\nunits = "x.service"\n')
    (layer / "e.toml").write_text('[match]\nunits = [3]\nuser-units = ["y.service"]\n')
    assert tenant_units([layer], ME) == {"ollama.service", "comfyui@*.service"}
    assert tenant_units([layer], ME + 1) == frozenset()


def test_a_variable_of_the_port_alone_counts_too(layer: Path) -> None:
    (layer / "b.toml").write_text('[endpoint]\nhost-variable = "B_HOST"\nport-variable = "B_PORT"\n')
    assert named_variables([layer], ME) == {"A_HOST", "B_HOST", "B_PORT"}


def test_what_is_shipped_names_fewer_than_are_told() -> None:
    owner = SHIPPED.stat().st_uid
    assert {"OLLAMA_HOST", "LLAMA_ARG_PORT", "UVICORN_PORT"} <= named_variables([SHIPPED], owner)
    assert len(named_variables([SHIPPED], owner)) < AT_MOST / 2
