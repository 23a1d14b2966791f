"""The daemon's own settings."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gpusupervisor.gpu.monitor import DEADLINE
from gpusupervisor.quantities import parse_duration
from gpusupervisor.settings import LONGEST_INTERVAL, Settings, load_settings

UNIT = Path(__file__).parents[1] / "systemd/gpusupervisor.service.in"


@pytest.fixture
def layers(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("usr.toml", "etc.toml", "run.toml")]


def test_without_files_the_defaults_hold(layers: list[Path]) -> None:
    settings, problems = load_settings(layers)
    assert settings == Settings(True, 600 << 20, 45_000_000, 1_000_000, 3_000_000)
    assert problems == ()


def test_files_merge_key_by_key_and_the_later_one_wins(layers: list[Path]) -> None:
    layers[0].write_text('automatic = false\nreserve = "1G"\n')
    layers[2].write_text('reserve = 0\nidle-interval = "5s"\nlarge-desktop = "2G"\n')
    settings, problems = load_settings(layers)
    assert problems == ()
    assert settings == Settings(automatic=False, reserve=0, idle_interval=5_000_000, large_desktop=2 << 30)


def test_a_wrong_file_is_passed_over_and_named_with_its_key(layers: list[Path]) -> None:
    layers[0].write_text('reserve = "1G"')
    layers[1].write_text('automatic = false\nreserv = "2G"\ninterval = "1ms"')
    settings, problems = load_settings(layers)
    assert settings == Settings(reserve=1 << 30), "the wrong file counts for nothing"
    texts = [str(problem) for problem in problems]
    assert len(texts) == 2
    assert f"{layers[1]}: interval: " in texts[0]
    assert "from 100ms to 15s" in texts[0]
    assert f'{layers[1]}: reserv: unknown key; did you mean "reserve"?' in texts[1]


def test_a_file_that_cannot_be_parsed_is_a_problem(layers: list[Path]) -> None:
    layers[1].write_text("automatic = perhaps")
    settings, problems = load_settings(layers)
    assert settings == Settings()
    assert [problem.file for problem in problems] == [str(layers[1])]
    assert "is not TOML" in problems[0].message


def test_the_idle_interval_cannot_be_the_shorter_one(layers: list[Path]) -> None:
    layers[1].write_text('interval = "5s"')
    settings, problems = load_settings(layers)
    assert settings.interval == 1_000_000
    assert "idle-interval" in str(problems[0])


def test_between_two_looks_the_watchdog_does_not_run_out(layers: list[Path]) -> None:
    watchdog = re.search(r"^WatchdogSec=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert watchdog
    assert parse_duration(watchdog[1]) > LONGEST_INTERVAL + 2 * DEADLINE * 1_000_000
    layers[1].write_text('idle-interval = "16s"')
    settings, problems = load_settings(layers)
    assert settings == Settings()
    assert "idle-interval" in str(problems[0])


def test_what_telemetry_keeps_is_a_table_of_its_own(layers: list[Path]) -> None:
    layers[0].write_text('[telemetry]\nkeep = "7d"\nmax-size = "1G"\n')
    layers[1].write_text('[telemetry]\nmax-size = "50M"\n')
    settings, problems = load_settings(layers)
    assert problems == ()
    assert (settings.telemetry_keep, settings.telemetry_max_size) == (7 * 86_400_000_000, 50 << 20)


def test_what_makes_no_sense_of_telemetry_is_a_problem(layers: list[Path]) -> None:
    layers[0].write_text('[telemetry]\nkeep = "1min"\nmax-size = "1K"\nsize = 3\n')
    settings, problems = load_settings(layers)
    assert settings == Settings()
    texts = [str(problem) for problem in problems]
    assert len(texts) == 3
    assert "telemetry.keep: " in texts[0]
    assert 'telemetry.max-size: is too small to be of use; allowed: "4M" or more' in texts[1]
    assert "telemetry.size: unknown key" in texts[2]


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent / "systemd" / "gpusupervisor.toml.example"
    file, uncommented = tmp_path / "gpusupervisor.toml", tmp_path / "etc.toml"
    file.write_text(example.read_text())
    assert load_settings([file]) == (Settings(), ()), "as it is, it changes nothing"
    uncommented.write_text(re.sub(r"(?m)^#(?=\S)", "", example.read_text()))
    assert load_settings([uncommented]) == (Settings(), ())
    keys = re.findall(r"(?m)^#([a-z-]+) = ", example.read_text())
    assert len(keys) == len(fields(Settings))


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("", None),
        ('warm-budget = "auto"\n', None),
        ('warm-budget = "16G"\n', 16 << 30),
        ("warm-budget = 0\n", 0),
    ],
)
def test_the_budget_for_warming_is_a_share_unless_it_is_set(tmp_path: Path, text: str, budget: int | None) -> None:
    (tmp_path / "gpusupervisor.toml").write_text(text)
    settings, problems = load_settings([tmp_path / "gpusupervisor.toml"])
    assert (settings.warm_budget, problems) == (budget, ())
