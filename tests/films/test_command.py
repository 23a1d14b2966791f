"""What `gpusupervisorctl replay` prints, and the example in the manual page."""

import gzip
import json
from pathlib import Path

import pytest

import gpusupervisor
from gpusupervisor.films.__main__ import main
from gpusupervisor.films.reading import read_film
from gpusupervisor.films.score import films_in

EXAMPLE = Path(gpusupervisor.__file__).parent / "films" / "man" / "gpusupervisor-film.5.scd"


def example(folder: Path) -> Path:
    """The manual page's example as a file."""
    text = EXAMPLE.read_text().split("```")[1]
    path = folder / "example.film"
    path.write_text(text)
    return path


def test_the_manual_pages_example_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(example(tmp_path))]) == 0
    shown = capsys.readouterr().out
    assert "ollama is asked for its memory" in shown
    assert "2 of 2 expectations were met" in shown
    assert "19.0 GiB" in shown


def test_a_replay_for_programs_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "example.film.gz"
    path.write_bytes(gzip.compress(example(tmp_path).read_bytes()))
    assert main(["replay", "--json", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [ask["tenant"] for ask in shown["asked"]] == ["ollama"]
    assert shown["met"] == 2
    [ollama] = [each for each in shown["moments"][0]["tenants"] if each["tenant"] == "ollama"]
    assert ollama["activity"] == "idle"


def test_definitions_can_be_tried_on_a_film(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tenants.d"
    folder.mkdir()
    (folder / "ollama.toml").write_text("protected = true\n")
    assert main(["replay", "--definitions", str(folder), str(example(tmp_path))]) == 1
    assert "nobody was asked" in capsys.readouterr().out


def test_a_film_that_cannot_be_read_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.film"
    path.write_text('{"film": 1}\n{"t": 1, "gpu": {}}\n')
    assert main(["replay", str(path)]) == 2
    assert "line 2: gpu: is no key here" in capsys.readouterr().err
    path.write_bytes(b"\x1f\x8bnot gzip")
    assert main(["replay", str(path)]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_every_film_of_the_project_can_be_read() -> None:
    films = list(films_in([Path(__file__).parent]))
    assert len(films) >= 40
    for path in films:
        read_film(path)
